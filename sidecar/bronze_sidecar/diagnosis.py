"""Why a message cannot be read, in words for the one who sent it."""

from __future__ import annotations

import difflib
from typing import TypeAlias, get_args

import msgspec

from bronze_sidecar.books import Level, Levels
from bronze_sidecar.errors import Rejected
from bronze_sidecar.message import Flag, Number, Text, Texts, shortened
from bronze_sidecar.normalized import AnyMessage

_CLASSES = {str(cls.__struct_config__.tag): cls for cls in get_args(AnyMessage)}

_WANTED = {Number: "a number", Text: "text", Flag: "true or false", Texts: "an array", Levels: "an array"}

_FOUND = {'"': "text", "{": "an object", "[": "an array", "t": "true", "f": "false", "n": "null"}
"""By the first character of a JSON value; all others begin a number."""

Fault: TypeAlias = tuple[str, str]
"""A field's path, and what is wrong with it."""


def explain(message: bytes, error: Exception) -> Rejected:
    """Find the first fault of a message whose mapping failed with `error`."""
    try:
        message.decode()
        fields = msgspec.json.decode(message, type=dict[str, msgspec.Raw])
    except UnicodeDecodeError as wrong:
        return Rejected(f"the message is not valid UTF-8: {wrong.reason} (byte {wrong.start})")
    except RecursionError:
        return Rejected("the message is nested too deeply")
    except msgspec.ValidationError:
        return Rejected("the message must be a JSON object")
    except msgspec.DecodeError as wrong:
        return Rejected(f"the message is not valid JSON: {str(wrong).removeprefix('JSON is malformed: ')}")
    return _explain_fields({name: bytes(value).decode() for name, value in fields.items()}, error)


def _explain_fields(fields: dict[str, str], error: Exception) -> Rejected:
    if (fault := _fault(Text, fields.get("type", "null"), "type")) is not None:
        return Rejected(fault[1], field="type")
    name = msgspec.json.decode(fields.get("type", "null"))
    if not name:
        return Rejected("is missing", field="type")
    if name not in _CLASSES:
        return _unknown_type(name)
    for field in msgspec.structs.fields(_CLASSES[name]):
        fault = _fault(field.type, fields.get(field.encode_name, "null"), field.encode_name)
        if fault is not None:
            return Rejected(fault[1], message_type=name, field=fault[0])
    # Only the last of several fields with one name is seen here.
    return Rejected(f"the message cannot be read: {error}", message_type=name)


def _unknown_type(name: str) -> Rejected:
    near = difflib.get_close_matches(name[:60], _CLASSES, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else f"; the types are {', '.join(_CLASSES)}"
    return Rejected(f"there is no type {shortened(name)}{hint}", message_type=name[:60], field="type")


def _fault(declared: object, value: str, path: str) -> Fault | None:
    """Compare a value with the type that its field is declared with."""
    found = _FOUND.get(value[0], "a number")
    if found == "null":
        return None
    ...
