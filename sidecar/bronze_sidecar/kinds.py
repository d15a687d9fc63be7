"""The types of options' values: how each is read, checked, described and shown."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bronze_sidecar.naming import Target, control_character
from bronze_sidecar.options import Raw
from bronze_sidecar.payloads import CASE_BY_FOLDED_NAME, PAYLOAD_CASES, fold
from bronze_sidecar.problems import Fault, did_you_mean, shorten
from bronze_sidecar.template import Template, parse

UNIX = "unix://"
# The kernel's sun_path has 108 bytes, one of them for the terminating zero.
UNIX_PATH_LIMIT = 107


class Scalar:
    """A value that is one piece of text."""

    metavar = "TEXT"

    def parse(self, raw: Raw) -> Any | list[Fault]:
        if not isinstance(raw, str):
            return [Fault(f"must be one value, not a {'list' if isinstance(raw, list) else 'mapping'}.")]
        return self.read(raw)

    def read(self, text: str) -> Any | list[Fault]:
        raise NotImplementedError

    def json_schema(self) -> dict[str, Any]:
        # A number or a boolean without quotes is read as the text that stands there.
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
        bounds = f"It is a whole number from {self.least} to {self.most}."
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            service = text.startswith(("tcp://", "udp://"))
            hint = (
                " Kubernetes sets such a variable for a Service; set enableServiceLinks: false."
                if service
                else ""
            )
            return [Fault(f"'{shorten(text)}' is no number in its range.", bounds + hint)]
        number = int(text)
        return number if self.least <= number <= self.most else [Fault(f"{number} is out of range.", bounds)]

    def json_schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Number(Scalar):
    """A decimal number within bounds."""

    least: float
    most: float
    metavar = "N"

    def read(self, text: str) -> float | list[Fault]:
        bounds = f"It is a number from {self.least:g} to {self.most:g}."
        if not re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?", text):
            return [Fault(f"'{shorten(text)}' is no number in its range.", bounds)]
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
            else [Fault(f"'{shorten(text)}' is none of the choices.", self._remedy(word))]
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


def file_fault(text: str, *, shown: bool = True) -> Fault | None:
    """Say why a file cannot be read, or return None. What may be a secret by mistake is not shown."""
    if not text or "\0" in text:
        return Fault("names no file.")
    file = f"the file '{text}'" if shown else "the file"
    try:
        path = Path(text)
        if not path.exists():
            return Fault(f"{file} does not exist.")
        if path.is_dir():
            return Fault(f"{file} is a folder.")
        if not os.access(path, os.R_OK):
            return Fault(f"{file} is not readable for this user.")
    except OSError as error:
        return Fault(f"the file cannot be read: {error.strerror}.")
    return None


@dataclass(frozen=True)
class Url(Scalar):
    """A URL with a host and without credentials."""

    schemes: tuple[str, ...] = ("http", "https")
    credentials: bool = False
    """Whether it may hold a user and password; then it is a secret option."""
    metavar = "URL"

    def read(self, text: str) -> str | list[Fault]:
        expected = f"It looks like {self.schemes[0]}://host:port."
        try:
            parts = urlsplit(text)
            host, _ = parts.hostname, parts.port
        except ValueError:
            return [Fault("is no valid URL.", expected)]
        starts_right = text.startswith(tuple(f"{scheme}://" for scheme in self.schemes))
        if control_character(text) or " " in text or not starts_right or not host:
            return [Fault("is no valid URL.", expected)]
        if "@" in parts.netloc and not self.credentials:
            return [Fault("holds credentials.", "Give them by their own options.")]
        return text


@dataclass(frozen=True)
class Address(Scalar):
    """Where to listen: host:port, or a unix socket."""

    unix: bool
    metavar = "ADDRESS"

    def read(self, text: str) -> str | list[Fault]:
        if self.unix and text.startswith("unix:"):
            path = text.removeprefix(UNIX)
            if not text.startswith(UNIX + "/") or "\0" in path:
                return [
                    Fault(f"'{shorten(text)}' is no unix socket.", "It is written unix:///absolute/path.")
                ]
            if len(os.fsencode(path)) > UNIX_PATH_LIMIT:
                return [
                    Fault(
                        f"the socket's path has more than {UNIX_PATH_LIMIT} bytes.", "Choose a shorter one."
                    )
                ]
            return text
        fault = host_port_fault(text, least_port=0)
        return [fault] if fault else text


def is_loopback(address: str) -> bool:
    """Tell whether only this machine can reach an address."""
    host = address.rpartition(":")[0].strip("[]")
    # A name may begin with 127 too.
    is_ipv4_loopback = re.fullmatch(r"127(\.[0-9]{1,3}){3}", host)
    return address.startswith(UNIX) or host in {"localhost", "::1"} or bool(is_ipv4_loopback)


class SocketMode(Scalar):
    """Access rights in octal."""

    metavar = "MODE"

    def read(self, text: str) -> int | list[Fault]:
        if not re.fullmatch(r"0?[0-7]{3}", text):
            return [
                Fault(f"'{shorten(text)}' are no access rights.", "They are three octal digits, such as 660.")
            ]
        return int(text, 8)

    def show(self, value: Any) -> str:
        return f"{value:o}"

    def json_schema(self) -> dict[str, Any]:
        return {"type": ["string", "integer"]}


def host_port_fault(text: str, *, least_port: int = 1) -> Fault | None:
    """Say what is wrong with a host:port, or return None."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})", text)
    if match and least_port <= int(match[2]) <= 65_535:
        return None
    # The text is not shown: with a user and password in it, it may be split at a comma of the password.
    if "@" in text:
        return Fault("holds credentials.", "Write host:port, and give credentials by their own options.")
    return Fault("is no address.", "It is written host:port, with a port up to 65535.")


class Host(Scalar):
    """A server's name or IP address, without a port."""

    metavar = "HOST"

    def read(self, text: str) -> str | list[Fault]:
        # An IPv6 address has more colons than the one before a port.
        if re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f.]*:[0-9A-Fa-f.:]*:[0-9A-Fa-f.]*", text):
            return text
        return [Fault("is no host.", "Write its name or IP address alone, without port or credentials.")]


class ListOf:
    """Several values: a YAML list, or text with commas."""

    def __init__(self, item: Scalar) -> None:
        self.item = item
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
        return faults or tuple(values) or [Fault("is empty.")]

    def json_schema(self) -> dict[str, Any]:
        return one_or_more(self.item.json_schema())

    def show(self, value: Iterable[Any]) -> str:
        return ", ".join(self.item.show(each) for each in value)


class Broker(Scalar):
    """A server as host:port."""

    metavar = "HOST:PORT"

    def read(self, text: str) -> str | list[Fault]:
        fault = host_port_fault(text)
        return [fault] if fault else text


class Cases:
    """Payload cases, in any spelling."""

    metavar = "CASE,…"

    def parse(self, raw: Raw) -> frozenset[str] | list[Fault]:
        if isinstance(raw, dict):
            return [Fault("must be a list, not a mapping.")]
        cases, faults = [], []
        for name in split(raw) if isinstance(raw, str) else raw:
            case = CASE_BY_FOLDED_NAME.get(fold(name))
            if case is None:
                faults.append(unknown_case(name))
            else:
                cases.append(case)
        return (
            faults
            or frozenset(cases)
            or [Fault("is empty.", f"The payload cases are {', '.join(PAYLOAD_CASES)}.")]
        )

    def json_schema(self) -> dict[str, Any]:
        return one_or_more({"type": "string"})

    def show(self, value: Iterable[str]) -> str:
        return ", ".join(case for case in PAYLOAD_CASES if case in value)


def unknown_case(name: str) -> Fault:
    return Fault(f"'{shorten(name)}' is no payload case.", did_you_mean(name, PAYLOAD_CASES))


@dataclass(frozen=True)
class Destination(Scalar):
    """A name on the bus, possibly a template."""

    target: Target
    metavar = "TEMPLATE"

    def read(self, text: str) -> Template | list[Fault]:
        return parse(text, self.target)

    def show(self, value: Template) -> str:
        return value.text


@dataclass(frozen=True)
class Pairs:
    """Keys and values: a YAML mapping, or `key:value` with commas."""

    metavar = "KEY:VALUE,…"

    def parse(self, raw: Raw) -> dict[str, Any] | list[Fault]:
        pairs: list[tuple[str, str]] = []
        faults: list[Fault] = []
        if isinstance(raw, dict):
            pairs = list(raw.items())
        else:
            for text in split(raw) if isinstance(raw, str) else raw:
                key, colon, value = text.partition(":")
                if colon:
                    pairs.append((key.strip(), value.strip()))
                else:
                    faults.append(
                        Fault(f"'{shorten(text)}' has no ':'.", f"Write {self.metavar.split(',')[0]}.")
                    )
        entries: dict[str, Any] = {}
        for key, text in pairs:
            name, value, wrong = self.entry(key, text)
            faults += wrong
            if name in entries:
                faults.append(Fault(f"'{shorten(name)}' is given twice."))
            entries[name] = value
        return faults or entries or [Fault("is empty.")]

    def entry(self, key: str, text: str) -> tuple[str, Any, list[Fault]]:
        """Return the key as it counts, the value, and what is wrong with either."""
        raise NotImplementedError

    def json_schema(self) -> dict[str, Any]:
        mapping = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
        return {"oneOf": [mapping, *one_or_more({"type": "string"})["oneOf"]]}

    def show(self, value: dict[str, Any]) -> str:
        return ", ".join(f"{key}:{getattr(entry, 'text', entry)}" for key, entry in value.items())


@dataclass(frozen=True)
class Routing(Pairs):
    """A destination for each of some payload cases."""

    target: Target
    metavar = "CASE:TEMPLATE,…"

    def entry(self, key: str, text: str) -> tuple[str, Template | None, list[Fault]]:
        case = CASE_BY_FOLDED_NAME.get(fold(key))
        template = parse(text, self.target)
        faults = [] if case else [unknown_case(key)]
        if isinstance(template, list):
            return (
                case or key,
                None,
                faults + [Fault(f"for '{shorten(key)}', {f.what}", f.remedy) for f in template],
            )
        return case or key, template, faults


@dataclass(frozen=True)
class Headers(Pairs):
    """Static headers; the back end says which names it allows."""

    name_fault: Callable[[str], str | None]
    metavar = "NAME:VALUE,…"

    def entry(self, key: str, text: str) -> tuple[str, str, list[Fault]]:
        what = self.header_fault(key) or (f"header '{shorten(key)}' has an empty value" if not text else None)
        if not what and control_character(text):
            what = f"the value of header '{shorten(key)}' contains {control_character(text)}"
        return key, text, [Fault(f"{what}.")] if what else []

    def header_fault(self, name: str) -> str | None:
        if not name:
            return "a header's name is empty"
        if fold(name) in {"payloadcase", "datatype"}:
            return f"header '{shorten(name)}' is reserved: the sidecar writes it itself"
        return self.name_fault(name)


@dataclass(frozen=True)
class TemplatedHeaders(Headers):
    """Headers whose values are templates."""

    target: Target
    metavar = "NAME:TEMPLATE,…"

    def entry(self, key: str, text: str) -> tuple[str, Template | None, list[Fault]]:  # type: ignore[override]
        what = self.header_fault(key)
        faults = [Fault(f"{what}.")] if what else []
        template = parse(text, self.target)
        if isinstance(template, list):
            return key, None, faults + [Fault(f"for '{shorten(key)}', {f.what}", f.remedy) for f in template]
        return key, template, faults


def one_or_more(item: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [{"type": "string"}, {"type": "array", "items": item, "minItems": 1}]}


def split(text: str) -> list[str]:
    """Split at commas; an item may be surrounded by spaces, and an empty one counts for nothing."""
    return [item.strip() for item in text.split(",") if item.strip()]
