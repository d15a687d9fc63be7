"""A real browser for tests, driven through a pipe by its own protocol: no port, and no other program."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servers import Unavailable

INSTALLED = Path(__file__).parents[1] / ".cache/browser"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Without a sandbox, for tests run as root in containers; pages come from the tests themselves.
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
# Texts with less contrast than WCAG's level AA asks for.
WEAK_TEXTS = """
(() => {
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = parts(color).slice(0, 3).map((each) => {
      const share = each / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = getComputedStyle(each).backgroundColor;
      if (parts(color)[3] !== 0) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const weak = new Set();
  for (const element of document.querySelectorAll('body *')) {
    if (element.closest('svg') || ![...element.childNodes].some((node) => node.nodeType === 3)) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) weak.add(element.tagName + '.' + element.className);
  }
  return [...weak];
})()
"""
START = 'exec "$@" 3<&"$COMMANDS" 4>&"$ANSWERS"'


def find_browser() -> str | None:
    """Return the program of a browser; the one that set-up unpacked comes last."""
    own = INSTALLED / "chromium"
    return next(filter(None, map(shutil.which, NAMES)), str(own) if own.exists() else None)


def description() -> str:
    return f"browser {find_browser() or 'none'}"


class Page:
    """A page in the browser, and what it asked for."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        """URLs that were asked for."""
        self.complaints: list[str] = []
        """What the browser wrote to its console."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (found := self._next()).get("id") != number:
            pass
        assert "error" not in found, found
        return dict(found["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._answers, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        match found.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(found["params"]["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(found["params"]["entry"]["text"])
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(found["params"]))
        return found

    def open(self, url: str, *, dark: bool = False, width: int = 1280, height: int = 900) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Page.navigate", url=url)
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def named(self, role: str) -> list[str]:
        """Return the names that a screen reader reads for everything of a role."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            node.get("name", {}).get("value", "")
            for node in nodes
            if not node["ignored"] and node["role"]["value"] == role
        ]

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    def weak_texts(self) -> list[str]:
        """Return the elements whose text does not stand out from what is behind it."""
        found: list[str] = self.value(WEAK_TEXTS)
        return found

    def screenshot(self, file: Path) -> None:
        """Write a picture of the whole page."""
        self.call("Emulation.setScrollbarsHidden", hidden=True)
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(picture))


@contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """Start a browser with nothing in its profile; raise Unavailable if there is none."""
    program = find_browser()
    if program is None:
        raise Unavailable(
            "there is no Chromium: run tools/install-browser.sh, or install the package chromium"
        )
    commands, own_commands = os.pipe()
    own_answers, answers = os.pipe()
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "bash",
                "-c",
                START,
                "bash",
                program,
                *FLAGS,
                f"--user-data-dir={folder / 'profile'}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(commands, answers),
            env={**os.environ, "COMMANDS": str(commands), "ANSWERS": str(answers), "HOME": str(folder)},
        )
    os.close(commands)
    os.close(answers)
    try:
        yield Page(own_commands, own_answers)
    finally:
        # Without its pipe it ends by itself.
        os.close(own_commands)
        os.close(own_answers)
        process.terminate()
        process.wait()
