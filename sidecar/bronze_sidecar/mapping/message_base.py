"""What all normalized messages have in common, and how their fields are encoded."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from bronze_sidecar.envelope.wire import Heads, heads, long_head, varint_field
from bronze_sidecar.errors import Rejected
from bronze_sidecar.mapping import timestamps
from bronze_sidecar.mapping.decimals import floor

Number: TypeAlias = msgspec.Raw
"""A number as the text it came in, so that no digit is lost."""
Text: TypeAlias = str | None
Flag: TypeAlias = bool | None
Texts: TypeAlias = list[str | None] | None

ABSENT = Number(b"null")

NUMBER_STARTS = frozenset(b"-0123456789")
"""No other JSON value begins so. The decoder checks the rest of a number."""

Choices: TypeAlias = dict[Text, bytes]
"""An enum field, encoded, by what the message says."""

Exact: TypeAlias = dict[str, str]
"""The text of each number that its integer field cannot hold, by its name in the message."""

Payload: TypeAlias = tuple[str, bytes]
"""The payload's name, as in `payloads.PAYLOAD_CASES`, and its encoded field."""

EVENT_TS = heads(10)
"""The same field in all payloads."""

UINT32 = (0, 2**32 - 1)
UINT64 = (0, 2**64 - 1)
INT64 = (-(2**63), 2**63 - 1)


class NotANumber(Exception):  # noqa: N818 - a signal between two functions, never shown
    """Something else stands where a number belongs."""


class Message(msgspec.Struct, gc=False, tag_field="type", rename="camel"):
    """A message of any type; fields that no class declares are ignored."""

    exchange: Text = None
    symbol: Text = None
    name: Text = None
    is_snapshot: Flag = None
    symbols: Texts = None
    local_timestamp: Text = None

    def payload(self, exact: Exact, /) -> Payload:
        """Encode the payload, and put into `exact` what belongs there.

        Raise Rejected for a value that is not allowed, NotANumber for what is no number.
        """
        raise NotImplementedError

    def instrument(self) -> str:
        return self.symbol or ""

    def rejected(self, field: str, reason: str) -> Rejected:
        return Rejected(reason, message_type=self.data_type(), field=field)

    def data_type(self) -> str:
        return str(self.__struct_config__.tag)

    def time_field(self, prepared: Heads, text: Text, name: str) -> bytes:
        """Encode a Timestamp field; nothing if there is no time."""
        if text is None:
            return b""
        try:
            return timestamps.field(prepared, text)
        except ValueError as error:
            raise self.rejected(name, str(error)) from None

    def choice_field(self, choices: Choices, value: Text, name: str) -> bytes:
        """Encode an enum field; nothing if there is no value."""
        field = choices.get(value)
        if field is None:
            allowed = ", ".join(choice for choice in choices if choice)
            raise self.rejected(name, f"must be one of {allowed}; not {shortened(value)}")
        return field


class MarketMessage(Message):
    """A message with the exchange's own time."""

    timestamp: Text = None

    def event_ts(self) -> bytes:
        return self.time_field(EVENT_TS, self.timestamp, "timestamp")


def choices(number: int, **values: int) -> Choices:
    """Prepare an enum field from the values' names in messages and numbers in the schema."""
    return {None: b""} | {name: varint_field(number, value) for name, value in values.items()}


def number_field(prepared: Heads, text: Number) -> bytes:
    """Encode a number's own text as a string field; nothing if there is no number."""
    length = len(text)
    field = (prepared[length] if length < 128 else long_head(prepared, length)) + text
    if field[-length] in NUMBER_STARTS:
        return field
    if text == ABSENT:
        return b""
    raise NotANumber


def integer(text: Number, limits: tuple[int, int], name: str, exact: Exact) -> int:
    """Return a number's floor within the limits; 0 if there is no number."""
    if text == ABSENT:
        return 0
    digits = b"" + text
    if digits[0] not in NUMBER_STARTS:
        raise NotANumber
    value, is_exact = floor(digits.decode(), *limits)
    if not is_exact:
        exact[name] = digits.decode()
    return value


def shortened(value: object) -> str:
    """Return a value as an error may show it, whatever its length."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
