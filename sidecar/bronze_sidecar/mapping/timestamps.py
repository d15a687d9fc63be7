"""ISO 8601 text in UTC to the bytes of a `google.protobuf.Timestamp`."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from bronze_sidecar.envelope.wire import ENDS, PAIRS, Heads, varint

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.", re.ASCII)
_FRACTION_AND_ZONE = re.compile(r"(?:\.(\d{1,9}))?(?:Z|\+00:00)", re.ASCII)

_MILLISECONDS = {f"{count:03}": count * 1_000_000 for count in range(1000)}
_MICROSECONDS_AND_ZONE = {"Z": 0} | {f"{count:03}Z": count * 1_000 for count in range(1000)}

_seconds: dict[str, bytes] = {}
_MOST_SECONDS = 4096

_WRONG_FORM = "must be a UTC time such as 2024-05-31T23:59:59.123456Z"


def field(prepared: Heads, text: str) -> bytes:
    """Encode a Timestamp field; raise ValueError with the reason if the text is not a time in UTC."""
    # The usual 3 or 6 fraction digits and the Z are checked by being found.
    try:
        nanos = _MILLISECONDS[text[20:23]] + _MICROSECONDS_AND_ZONE[text[23:]]
        seconds = _seconds[text[:20]]
    except KeyError:
        nanos = _nanos(text[19:])
        seconds = _encode_seconds(f"{text[:19]}.")
    if nanos >= 1 << 14:
        content = seconds + PAIRS[nanos & 0x3FFF] + ENDS[nanos >> 14]  # varint(nanos), without the call
    else:
        content = seconds + varint(nanos) if nanos else seconds[:-1]
    return prepared[len(content)] + content


def _nanos(fraction_and_zone: str) -> int:
    form = _FRACTION_AND_ZONE.fullmatch(fraction_and_zone)
    if form is None:
        raise ValueError(_WRONG_FORM)
    return int((form[1] or "").ljust(9, "0"))


def _encode_seconds(text: str) -> bytes:
    """Encode a time up to its decimal point, and the tag of the nanos that follow; remember them."""
    form = _SECONDS.fullmatch(text)
    if form is None:
        raise ValueError(_WRONG_FORM)
    year, month, day, hour, minute, second = map(int, form.groups())
    try:
        since = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH
    except ValueError:
        raise ValueError("must be a date and time of day that exist") from None
    seconds = since.days * 86_400 + since.seconds
    if len(_seconds) >= _MOST_SECONDS:
        _seconds.clear()
    _seconds[text] = encoded = (b"\x08" + varint(seconds) if seconds else b"") + b"\x10"
    return encoded
