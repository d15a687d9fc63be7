"""The documentation as data: its pages, their code blocks, links and headings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [
    README,
    *(ROOT / name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    ROOT / "client/node/README.md",
    ROOT / "helm/bronze-sidecar/README.md",
    *DOCS,
]

FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
VARIABLE = re.compile(r"[A-Z_]+=")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        """Return where it is."""
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(language: str, *pages: Path) -> list[Block]:
    """Return the blocks of a language, of all pages if none is given."""
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, language, found[2])
        for page in pages or PAGES
        for text in [page.read_text()]
        for found in FENCE.finditer(text)
        if found[1] == language
    ]


def links(page: Path) -> list[str]:
    """Return the targets of a page's links and images, without those to other sites."""
    found = LINK.findall(FENCE.sub("", page.read_text()))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text())):
        plain = LINK.sub(lambda link: link[0][1 : link[0].index("]")], heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = sum(
            each == slug or re.fullmatch(re.escape(slug) + r"-\d+", each) is not None for each in found
        )
        found.add(f"{slug}-{number}" if number else slug)
    return found


def commands(program: str) -> Iterator[tuple[Block, list[str]]]:
    """Yield the arguments of every command line that runs a program, with the block that it is in."""
    for block in blocks("sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            if program not in line:
                continue
            words = shlex.split(line, comments=True)
            while words and VARIABLE.match(words[0]):
                del words[0]
            if words and words[0] == program:
                yield block, [word for word in words[1:] if word != "&"]
