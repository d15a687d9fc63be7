"""Names of streams: the same for the same replay, unique for everything else."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any


def unique_id() -> str:
    """Return an id that nothing else has."""
    return uuid.uuid4().hex


def stream_id_for(request: Mapping[str, Any]) -> str:
    """Return the stream id of a replay: 32 hexadecimal digits, the same for the same request.

    The id is made so, in any language:

    1. Entries whose value is null are left out, at every depth: absent and null are the same.
    2. Keys of objects are sorted by their UTF-8 bytes. Lists keep their order: another order of data
       types may be answered by another order of messages.
    3. The request is written as JSON in UTF-8 without white space. In strings only `"`, `\\` and the
       characters below U+0020 are escaped: `\\"`, `\\\\`, `\\b`, `\\f`, `\\n`, `\\r`, `\\t`, all others as
       `\\u00` and two lower-case digits. Integers are decimal digits. (`JSON.stringify` writes so.)
    4. The id is the first 32 hexadecimal digits, in lower case, of the BLAKE2b-512 digest of that text.

    Values are strings, integers, booleans, None, lists and mappings. Numbers with a fraction and times
    raise TypeError, because languages write them differently: give them as text, always the same.
    """
    if not isinstance(request, Mapping):
        raise TypeError(f"A request must be a mapping, not {type(request).__name__}.")
    return hashlib.blake2b(_canonical(request).encode()).hexdigest()[:32]


def _canonical(value: Any) -> str:
    if value is None or isinstance(value, bool | int | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        # Python compares text by code point, which is the order of its UTF-8 bytes.
        keys = sorted(_key(key) for key, entry in value.items() if entry is not None)
        return "{" + ",".join(f"{_canonical(key)}:{_canonical(value[key])}" for key in keys) + "}"
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return "[" + ",".join(map(_canonical, value)) + "]"
    raise TypeError(f"A request cannot contain a {type(value).__name__}; pass it as a string.")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"A request's keys must be strings, not {type(key).__name__}.")
    return key
