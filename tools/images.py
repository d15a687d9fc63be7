"""The bases of the images, as requirements/images.txt lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LIST = Path("requirements/images.txt")
NAME = re.compile(
    r"(?P<repository>[a-z0-9][\w./-]*):(?P<tag>[\w.-]+)(?:@(?P<digest>sha256:[0-9a-f]{64}))?", re.ASCII
)


@dataclass(frozen=True)
class Image:
    """An image by its name."""

    repository: str
    tag: str
    digest: str = ""

    @property
    def tagged(self) -> str:
        return f"{self.repository}:{self.tag}"

    def __str__(self) -> str:
        return f"{self.tagged}@{self.digest}" if self.digest else self.tagged


def parse(name: str) -> Image:
    """Read `repository:tag`, with or without `@sha256:…`; raise ValueError if it is neither."""
    found = NAME.fullmatch(name)
    if not found:
        raise ValueError(
            f"'{name}' is not an image with a tag, such as python:3.11.14-slim or one with @sha256:…"
        )
    return Image(found["repository"], found["tag"], found["digest"] or "")


def read(root: Path) -> Iterator[Image]:
    """Yield the listed images; raise ValueError for what is no image, and for a repository with two tags."""
    seen: set[str] = set()
    for number, line in enumerate((root / LIST).read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            image = parse(line.rstrip())
        except ValueError as error:
            raise ValueError(f"{LIST}, line {number}: {error}") from None
        if image.repository in seen:
            raise ValueError(f"{LIST}, line {number}: {image.repository} is listed twice")
        seen.add(image.repository)
        yield image
