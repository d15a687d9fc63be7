"""The documentation names every option and variable with its default."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from clients import ROOT, NodeDriver

HOOK = ROOT / "client/node/dist/cjs/tardis-machine"


def documented_in(document: Path, heading: str) -> dict[str, str]:
    """Return the names in a table's first column with the defaults in its second one."""
    text = document.read_text()
    found = {}
    for row in text[text.index(heading) :].splitlines()[2:]:
        if not row.startswith("|"):
            break
        names, defaults = (re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:3])
        found.update(dict(zip(names, defaults or [""] * len(names), strict=True)))
    return found


def test_the_table_of_options_is_complete(node_driver: NodeDriver) -> None:
    documented = documented_in(ROOT / "client/node/README.md", "| option | default | meaning |")
    settings = node_driver.call("settle", "127.0.0.1:1", {"streamId": "s", "meta": {}})
    values = {name: value for name, value in settings.items() if name not in ("address", "producerId")}
    values |= {"streamId": "", "meta": "", "tls": "false"}
    assert documented == {name: str(value) for name, value in values.items()}


def test_the_table_of_variables_is_complete() -> None:
    documented = documented_in(ROOT / "docs/tardis-machine.md", "| variable | default | meaning |")
    # Reading the settings asks for every variable; what it returns without any are the defaults.
    program = f"""
        const {{ readSettings }} = require({json.dumps(str(HOOK / "settings.js"))});
        const names = [];
        const environment = new Proxy({{}}, {{ get: (_, name) => void names.push(name) }});
        console.log(JSON.stringify({{ names, settings: readSettings(environment).settings }}));
    """
    done = subprocess.run(["node", "--eval", program], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert set(documented) == set(answer["names"])
    settings = answer["settings"]
    defaults = {
        "BRONZE_SIDECAR_BUFFER_EVENTS": settings["bufferEvents"],
        "BRONZE_SIDECAR_BUFFER_BYTES": settings["bufferBytes"],
        "BRONZE_SIDECAR_BUFFER_STREAMS": settings["bufferStreams"],
        "BRONZE_SIDECAR_WHEN_FULL": settings["whenFull"],
        "BRONZE_SIDECAR_FLUSH_MS": settings["flushMs"],
        "BRONZE_SIDECAR_TLS": "true" if settings["tls"] else "false",
    }
    given = {name: default for name, default in documented.items() if default}
    assert given == {name: str(value) for name, value in defaults.items()}
