"""Folders of jars on the command line, for connectors that PySpark does not have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bronze_cli.problems import Fault, shorten
from bronze_cli.values import Scalar


class JarFolder(Scalar):
    """A folder with jars."""

    metavar = "FOLDER"

    def read(self, text: str) -> Path | list[Fault]:
        folder = Path(text)
        if not folder.is_dir():
            return [Fault(f"'{shorten(text)}' is not a folder.")]
        if not jars_in(folder) or "," in str(folder.absolute()):
            return [Fault("must be a folder with jars, with no comma in its path.")]
        return folder


def jars_in(folder: Path | None) -> Sequence[Path]:
    return sorted(folder.absolute().glob("*.jar")) if folder else ()
