"""Why a message cannot be read, in words for the one who sent it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TypeAlias, get_args

import msgspec

from bronze_sidecar.errors import Rejected
from bronze_sidecar.mapping.book_messages import Level, Levels
from bronze_sidecar.mapping.message_base import ABSENT, Flag, Number, Text, Texts, shortened
from bronze_sidecar.mapping.messages import AnyMessage

_CLASSES = {str(cls.__struct_config__.tag): cls for cls in get_args(AnyMessage)}

_ELEMENTS: dict[object, object] = {Texts: Text, Levels: Level | None}
"""What an array's elements are declared as, by what the array is."""

_WANTED: dict[object, str] = {
    Number: "a number",
    Text: "text",
    Flag: "true or false",
    Level | None: "an object",
    Texts: "an array",
    Levels: "an array",
}

MOST_ELEMENTS = 2000
"""A fault behind so many elements of an array is not looked for: that would hold others up."""

_FOUND = {b'"': "text", b"t": "true or false", b"f": "true or false", b"{": "an object", b"[": "an array"}
"""By the first byte of a JSON value; all others begin a number."""

_Value: TypeAlias = tuple[object, msgspec.Raw, str]
"""What the value is declared as, the value, and its path."""


def explain(message: bytes, error: Exception) -> Rejected:
    """Find the first fault of a message that failed with `error`."""
    try:
        message.decode()
        return _explain_fields(msgspec.json.decode(message, type=dict[str, msgspec.Raw]), error)
    except UnicodeDecodeError as fault:
        return Rejected(f"the message is not valid UTF-8: {fault.reason} (byte {fault.start})")
    except RecursionError:
        return Rejected("the message is nested too deeply")
    except msgspec.ValidationError:
        return Rejected("the message must be a JSON object")
    except msgspec.DecodeError as fault:
        return Rejected(f"the message is not valid JSON: {str(fault).removeprefix('JSON is malformed: ')}")


def _explain_fields(fields: dict[str, msgspec.Raw], error: Exception) -> Rejected:
    named = fields.get("type", ABSENT)
    if fault := _fault((Text, named, "type")):
        return fault
    name = msgspec.json.decode(named)
    if not name:
        return Rejected("is missing or empty", field="type")
    if name not in _CLASSES:
        return _unknown_type(name)
    for field in msgspec.structs.fields(_CLASSES[name]):
        value = fields.get(field.encode_name, ABSENT)
        if fault := _fault((field.type, value, field.encode_name)):
            return Rejected(fault.reason, message_type=name, field=fault.field)
    # Of fields with the same name only the last is seen here, and an earlier one is at fault.
    return Rejected(f"the message cannot be read: {shortened(str(error))}", message_type=name)


def _unknown_type(name: str) -> Rejected:
    near = difflib.get_close_matches(name[:60], _CLASSES, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"the types are {', '.join(_CLASSES)}"
    return Rejected(f"there is no type {shortened(name)}; {hint}", message_type=name[:60], field="type")


def _fault(value: _Value) -> Rejected | None:
    declared, text, path = value
    if text == ABSENT:
        return None
    wanted, found = _WANTED[declared], _FOUND.get(bytes(text)[:1], "a number")
    if wanted != found:
        return Rejected(f"must be {wanted}, not {found}", field=path)
    return next(filter(None, map(_fault, _parts(value))), None)


def _parts(value: _Value) -> Iterator[_Value]:
    declared, text, path = value
    if declared in _ELEMENTS:
        elements = msgspec.json.decode(text, type=list[msgspec.Raw])
        for index, element in enumerate(elements[:MOST_ELEMENTS]):
            yield _ELEMENTS[declared], element, f"{path}[{index}]"
    elif declared == Level | None:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        for field in msgspec.structs.fields(Level):
            yield field.type, fields.get(field.name, ABSENT), f"{path}.{field.name}"
