"""Which payload case a JSON message becomes, without mapping it."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, get_args

import msgspec

from bronze_sidecar.envelope.payloads import CASE_BY_FOLDED_NAME, fold
from bronze_sidecar.mapping.message_base import ABSENT, Message
from bronze_sidecar.mapping.messages import AnyMessage


def _kind(message: type[Message]) -> type[msgspec.Struct]:
    """Return a class whose type is found as that of the message is, with what else its case depends on."""
    config = message.__struct_config__
    fields = [("grouping", msgspec.Raw, ABSENT)]
    return msgspec.defstruct(message.__name__, fields, tag_field=config.tag_field, tag=config.tag, gc=False)


_KINDS = {_kind(message): message for message in get_args(AnyMessage)}
_CASES = {
    kind: CASE_BY_FOLDED_NAME[fold(str(message.__struct_config__.tag))] for kind, message in _KINDS.items()
}
_decode: Any = msgspec.json.Decoder(reduce(or_, _KINDS)).decode


def payload_case(message: bytes) -> str | None:
    """Return the payload case of a message, or None for one that will be rejected.

    Not all that will be rejected is found.
    """
    try:
        kind = _decode(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    case = _CASES[type(kind)]
    return "groupedBookSnapshot" if case == "bookSnapshot" and kind.grouping != ABSENT else case
