"""Asks the registry for the digests of the images' bases; writes them to the list and into the Dockerfiles.

Nothing is written unless every base has an answer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import images
from images import Image

ROOT = Path(__file__).resolve().parent.parent
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
FROM = re.compile(r"^FROM \$\{(\w+)\}", re.MULTILINE)
LISTED = re.compile(r"^[^#\s].*$", re.MULTILINE)
SECONDS = 120


class Failed(Exception):  # noqa: N818 - an outcome for the operator
    """The digests cannot be had; the message says why."""


@dataclass(frozen=True)
class Tool:
    """A program that can ask a registry for the digest of an image of all platforms."""

    name: str
    there: tuple[str, ...]
    """Succeeds if the program is there."""
    question: Callable[[str], tuple[str, ...]]
    digest: Callable[[bytes], str]


TOOLS = (
    Tool(
        "docker buildx",
        ("docker", "buildx", "version"),
        lambda name: ("docker", "buildx", "imagetools", "inspect", "--format", "{{json .Manifest}}", name),
        lambda answer: str(json.loads(answer)["digest"]),
    ),
    Tool(
        "skopeo",
        ("skopeo", "--version"),
        lambda name: ("skopeo", "inspect", "--raw", f"docker://{name}"),
        # A digest is the hash of the manifest, byte by byte.
        lambda answer: f"sha256:{hashlib.sha256(answer).hexdigest()}",
    ),
    Tool(
        "crane",
        ("crane", "version"),
        lambda name: ("crane", "digest", name),
        lambda answer: answer.decode().strip(),
    ),
)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--root", type=Path, default=ROOT, help="folder with the Dockerfiles")
    root = arguments.parse_args().root
    try:
        bases = list(images.read(root))
        rewritten(root, bases)
        tool = find_tool()
        pinned = [replace(image, digest=ask(tool, image)) for image in bases]
        texts = rewritten(root, pinned)
    except (Failed, ValueError) as error:
        print(f"pin-images: {error}\npin-images: nothing was changed", file=sys.stderr)
        return 1
    for old, new in zip(bases, pinned, strict=True):
        print(f"pin-images: {new}{'' if old != new else ' (as before)'}")
    for path, text in texts.items():
        path.write_text(text)
    return 0


def find_tool() -> Tool:
    for tool in TOOLS:
        if shutil.which(tool.there[0]):
            done = subprocess.run(tool.there, capture_output=True, check=False)
            if done.returncode == 0:
                return tool
    names = ", ".join(tool.name for tool in TOOLS)
    raise Failed(f"none of these programs is here, and one is needed to ask a registry: {names}.")


def ask(tool: Tool, image: Image) -> str:
    command = tool.question(image.tagged)
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"{tool.name} had no answer for {image.tagged} within {SECONDS} seconds.") from None
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        raise Failed(f"{tool.name} cannot find {image.tagged}; is the registry reachable? It said: {words}")
    try:
        digest = tool.digest(done.stdout)
    except (ValueError, KeyError, TypeError):
        digest = ""
    if not done.stdout or not DIGEST.fullmatch(digest):
        raise Failed(f"{tool.name} gave no digest for {image.tagged}.")
    return digest


def rewritten(root: Path, bases: list[Image]) -> dict[Path, str]:
    """Return the list and the Dockerfiles with these bases; raise ValueError if they do not name the same."""
    by_repository = {image.repository: image for image in bases}
    used: set[str] = set()
    texts = {}
    for file in sorted(root.glob("Dockerfile*")):
        text = file.read_text()
        for argument in FROM.findall(text):
            text, base = _replace_default(text, argument, by_repository, file.name)
            used.add(base)
        texts[file] = text
    unused = by_repository.keys() - used
    if unused:
        raise ValueError(f"{images.LIST} has {', '.join(sorted(unused))}, which no Dockerfile uses.")
    listed = root / images.LIST
    texts[listed] = LISTED.sub(
        lambda found: str(by_repository[images.parse(found[0].strip()).repository]), listed.read_text()
    )
    return texts


def _replace_default(text: str, argument: str, by_repository: dict[str, Image], file: str) -> tuple[str, str]:
    found = re.search(rf"^ARG {argument}=(\S+)$", text, re.MULTILINE)
    if not found:
        raise ValueError(f"{file} has no default for {argument}.")
    try:
        image = by_repository[images.parse(found[1]).repository]
    except (ValueError, KeyError):
        raise ValueError(f"{file} has the base {found[1]}, which is not in {images.LIST}.") from None
    return text[: found.start(1)] + str(image) + text[found.end(1) :], image.repository


if __name__ == "__main__":
    sys.exit(main())
