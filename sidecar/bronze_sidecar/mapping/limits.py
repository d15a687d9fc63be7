"""How long the texts may be that events share: each is copied into every event of a message or stream."""

from __future__ import annotations

from collections.abc import Mapping

from bronze_sidecar.errors import Rejected

LONGEST_NAME = 256
"""Bytes of an exchange, symbol, source, request or session id, data name, or key of meta."""
LONGEST_META_VALUE = 4096
MOST_META_ENTRIES = 64
LARGEST_META = 16_384
"""Bytes of all keys and values of a stream's meta, or of a message's list of symbols."""


def check_name(text: str, field: str, message_type: str = "") -> None:
    """Raise Rejected if a name is too long, or cannot be encoded."""
    size = encoded_size(text, field)
    if size > LONGEST_NAME:
        raise Rejected(
            f"has {size} bytes; at most {LONGEST_NAME} are allowed", message_type=message_type, field=field
        )


def check_meta(meta: Mapping[str, str]) -> None:
    """Raise Rejected if a stream's meta is too large."""
    if len(meta) > MOST_META_ENTRIES:
        raise Rejected(f"has {len(meta)} entries; at most {MOST_META_ENTRIES} are allowed", field="meta")
    total = 0
    for key, value in meta.items():
        check_name(key, "meta")
        size = encoded_size(value, "meta")
        if size > LONGEST_META_VALUE:
            raise Rejected(
                f"'{key}' has {size} bytes; at most {LONGEST_META_VALUE} are allowed", field="meta"
            )
        total += len(key.encode()) + size
    if total > LARGEST_META:
        raise Rejected(f"has {total} bytes; at most {LARGEST_META} are allowed", field="meta")


def encoded_size(text: str, field: str) -> int:
    """Return how many bytes a text has; raise Rejected if it cannot be encoded."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise Rejected("must be text that UTF-8 can encode", field=field) from None
