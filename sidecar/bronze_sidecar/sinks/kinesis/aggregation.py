"""Aggregated records: many events in one record of Kinesis, in the format of Amazon's producer library.

Four bytes, a Protobuf message with a table of keys and the records that refer to it, and its MD5:

    message AggregatedRecord { repeated string partition_key_table = 1; repeated Record records = 3; }
    message Record { required uint64 partition_key_index = 1; required bytes data = 3; }
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from bronze_sidecar.envelope.wire import delimited, heads, varint

MAGIC = b"\xf3\x89\x9a\xc2"
EVENT_BYTES = 24
"""What an event in it takes beside its data, at most: 12, and where there are but two, a half of the rest."""

_KEY = heads(1)
_FIRST_KEY = b"\x08\x00"


@lru_cache(4096)
def _record_head(length: int) -> bytes:
    """Return what precedes so many bytes of data: the record's head, the only key's index, and the data's."""
    data = b"\x1a" + varint(length)
    return b"\x1a" + varint(len(_FIRST_KEY) + len(data) + length) + _FIRST_KEY + data


def aggregated(key: bytes, events: Iterable[bytes]) -> bytes:
    """Return a record with all these events of one partition key, in their order."""
    pieces = [delimited(_KEY, key)]
    for event in events:
        pieces += _record_head(len(event)), event
    body = b"".join(pieces)
    return MAGIC + body + hashlib.md5(body, usedforsecurity=False).digest()
