"""Single values, lists of them, and the names of files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bronze_cli.options import Raw, ValueType
from bronze_cli.problems import Fault, control_character, did_you_mean, shorten

STANDARD_INPUT = "-"


class Scalar(ValueType[Any]):
    """A value that is one piece of text."""

    metavar = "TEXT"

    def parse(self, raw: Raw) -> Any | list[Fault]:
        if not isinstance(raw, str):
            return [Fault(f"must be one value, not a {'list' if isinstance(raw, list) else 'mapping'}.")]
        return self.read(raw)

    def read(self, text: str) -> Any | list[Fault]:
        raise NotImplementedError

    def json_schema(self) -> dict[str, Any]:
        # An unquoted number or boolean is read as its text.
        return {"type": ["string", "number", "boolean"]}

    def show(self, value: Any) -> str:
        return str(value)


class Text(Scalar):
    """Any text without control characters."""

    def __init__(self, *, may_be_empty: bool = False) -> None:
        self.may_be_empty = may_be_empty

    def read(self, text: str) -> str | list[Fault]:
        found = control_character(text)
        if found:
            return [Fault(f"contains {found}.")]
        return text if text or self.may_be_empty else [Fault("is empty.")]


class Secret(Scalar):
    """Text that is never shown."""

    def read(self, text: str) -> str | list[Fault]:
        return text or [Fault("is empty.")]

    def show(self, value: Any) -> str:  # noqa: ARG002 - that is the point
        return "***"


@dataclass(frozen=True)
class Integer(Scalar):
    """A whole number within bounds."""

    least: int
    most: int
    metavar = "N"

    def read(self, text: str) -> int | list[Fault]:
        bounds = f"It must be a whole number from {self.least} to {self.most}."
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            service = text.startswith(("tcp://", "udp://"))
            hint = (
                " Kubernetes sets variables like this one for a Service; set enableServiceLinks: false."
                if service
                else ""
            )
            return [Fault(f"'{shorten(text)}' is not a valid number.", bounds + hint)]
        number = int(text)
        return number if self.least <= number <= self.most else [Fault(f"{number} is out of range.", bounds)]

    def json_schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


_SIZE_UNITS = {"": 1, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "k": 10**3, "m": 10**6, "g": 10**9}


@dataclass(frozen=True)
class Size(Scalar):
    """A number of bytes within bounds, with or without a unit."""

    least: int
    most: int
    metavar = "SIZE"

    def read(self, text: str) -> int | list[Fault]:
        bounds = f"It is a size such as 512Mi, from {self.show(self.least)} to {self.show(self.most)}."
        found = re.fullmatch(r"([0-9]{1,18})\s*([kmg]i?|)b?", text.lower())
        if not found:
            return [Fault(f"'{shorten(text)}' is not a size.", bounds)]
        size = int(found[1]) * _SIZE_UNITS[found[2]]
        return size if self.least <= size <= self.most else [Fault(f"{text} is out of range.", bounds)]

    def json_schema(self) -> dict[str, Any]:
        return {"type": ["string", "integer"]}

    def show(self, value: int) -> str:
        for unit in ("gi", "mi", "ki"):
            if value % _SIZE_UNITS[unit] == 0:
                return f"{value // _SIZE_UNITS[unit]}{unit.capitalize()}"
        return str(value)


@dataclass(frozen=True)
class Number(Scalar):
    """A decimal number within bounds."""

    least: float
    most: float
    metavar = "N"

    def read(self, text: str) -> float | list[Fault]:
        bounds = f"It must be a number from {self.least:g} to {self.most:g}."
        if not re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?", text):
            return [Fault(f"'{shorten(text)}' is not a valid number.", bounds)]
        number = float(text)
        return (
            number if self.least <= number <= self.most else [Fault(f"{number:g} is out of range.", bounds)]
        )

    def json_schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.least, "maximum": self.most}

    def show(self, value: float) -> str:
        return f"{value:g}"


_SWITCH_WORDS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


class Switch(Scalar):
    """True or false; a flag alone means true."""

    metavar = ""

    def read(self, text: str) -> bool | list[Fault]:
        value = _SWITCH_WORDS.get(text.lower())
        return [Fault(f"'{shorten(text)}' is neither true nor false.")] if value is None else value

    def json_schema(self) -> dict[str, Any]:
        return {"type": "boolean"}

    def show(self, value: Any) -> str:
        return "true" if value else "false"


class Choice(Scalar):
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.metavar = "|".join(words)

    def read(self, text: str) -> str | list[Fault]:
        word = text.lower()
        return (
            word
            if word in self.words
            else [Fault(f"'{shorten(text)}' is not one of the choices.", self._remedy(word))]
        )

    def _remedy(self, word: str) -> str:
        return did_you_mean(word, self.words)

    def json_schema(self) -> dict[str, Any]:
        numbers = [int(word) for word in self.words if re.fullmatch(r"-?[0-9]+", word)]
        return {"enum": [*self.words, *numbers]}


class File(Scalar):
    """A file that exists and can be read."""

    metavar = "FILE"

    def read(self, text: str) -> Path | list[Fault]:
        fault = file_fault(text)
        return [fault] if fault else Path(text)


class WritableFolder(Scalar):
    """A folder that exists and can be written to."""

    metavar = "FOLDER"

    def read(self, text: str) -> Path | list[Fault]:
        try:
            if not text or "\0" in text or not Path(text).is_dir():
                return [Fault(f"the folder '{shorten(text)}' does not exist.")]
            if not os.access(text, os.W_OK | os.X_OK):
                return [Fault(f"the folder '{shorten(text)}' is not writable by this user.")]
        except OSError as error:
            return [Fault(f"the folder cannot be used: {error.strerror}.")]
        return Path(text)


class InputFile(Scalar):
    """A file to read, or standard input."""

    metavar = "FILE"

    def read(self, text: str) -> str | list[Fault]:
        fault = None if text == STANDARD_INPUT else file_fault(text)
        return [fault] if fault else text


class OutputFile(Scalar):
    """A file to write, in a folder that exists."""

    metavar = "FILE"

    def read(self, text: str) -> Path | list[Fault]:
        fault = _output_fault(text)
        return [fault] if fault else Path(text)


def _output_fault(text: str) -> Fault | None:
    """Return why a file cannot be written and replaced, or None."""
    if not text or "\0" in text:
        return Fault("does not name a file.")
    path = Path(text)
    try:
        if not path.parent.is_dir():
            return Fault(f"the folder '{path.parent}' does not exist.")
        if path.is_dir():
            return Fault(f"'{text}' is a folder.", "Add the name of a file.")
        if path.exists() and not path.is_file():
            return Fault(f"'{text}' is not a regular file.")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            return Fault(f"the folder '{path.parent}' is not writable by this user.")
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            return Fault(f"the file '{text}' is not writable by this user.")
    except OSError as error:
        return Fault(f"the file cannot be written: {error.strerror}.")
    return None


def file_fault(text: str, *, shown: bool = True) -> Fault | None:
    """Return why a file cannot be read, or None. Unless `shown`, hide the path: it may be a secret."""
    if not text or "\0" in text:
        return Fault("does not name a file.")
    file = f"the file '{text}'" if shown else "the file"
    try:
        path = Path(text)
        if not path.exists():
            return Fault(f"{file} does not exist.")
        if path.is_dir():
            return Fault(f"{file} is a folder.")
        if not os.access(path, os.R_OK):
            return Fault(f"{file} is not readable by this user.")
    except OSError as error:
        return Fault(f"the file cannot be read: {error.strerror}.")
    return None


class ListOf(ValueType[tuple[Any, ...]]):
    """Several values: a YAML list, or text with commas."""

    def __init__(self, item: Scalar, *, may_be_empty: bool = False) -> None:
        self.item = item
        self.may_be_empty = may_be_empty
        self.metavar = f"{item.metavar},…"

    def parse(self, raw: Raw) -> tuple[Any, ...] | list[Fault]:
        if isinstance(raw, dict):
            return [Fault("must be a list, not a mapping.")]
        texts = split(raw) if isinstance(raw, str) else raw
        values: list[Any] = []
        faults: list[Fault] = []
        for number, text in enumerate(texts, 1):
            value = self.item.read(text)
            if isinstance(value, list):
                entry = f"entry {number} " if len(texts) > 1 else ""
                faults += [Fault(entry + fault.what, fault.remedy) for fault in value]
            elif value in values:
                faults.append(Fault(f"'{shorten(text)}' is given twice."))
            else:
                values.append(value)
        if not values and not faults and not self.may_be_empty:
            return [Fault("is empty.")]
        return faults or tuple(values)

    def json_schema(self) -> dict[str, Any]:
        return one_or_more(self.item.json_schema())

    def show(self, value: Iterable[Any]) -> str:
        return ", ".join(self.item.show(each) for each in value)

    def combined(self, earlier: Raw, later: Raw) -> Raw | None:
        return f"{earlier},{later}" if isinstance(earlier, str) and isinstance(later, str) else None


def one_or_more(item: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [{"type": "string"}, {"type": "array", "items": item, "minItems": 1}]}


def split(text: str) -> list[str]:
    """Split at commas; spaces around items and empty items are dropped."""
    return [item.strip() for item in text.split(",") if item.strip()]
