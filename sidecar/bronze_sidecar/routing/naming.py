"""How values become part of a name on the bus: one reversible rule, and what each kind of name allows.

A value's letters, digits and the target's other harmless characters stay; every other byte of its
UTF-8 form becomes the escape character and two upper-case hexadecimal digits; an empty value becomes
the escape character twice. The escape character is `%` where the bus allows it, otherwise `_`.
Only a value that is too long for its place is truncated; the truncated form ends in the escape character,
`h` and a digest of the whole value, so that different values still give different names.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Callable
from dataclasses import dataclass

from bronze_cli.problems import control_character

DIGEST_BYTES = 12
LETTERS_AND_DIGITS = frozenset(string.ascii_letters + string.digits)


@dataclass(frozen=True)
class Target:
    """A kind of name on one bus: what it may contain, and how values are escaped to fit."""

    noun: str
    """What it is called in messages, such as 'Kafka topic'."""
    limit: int
    """The maximum length of a rendered name, in characters."""
    text_fault: Callable[[str], str | None]
    """Returns what is wrong with a name, or None. Values are escaped before it sees them."""
    escape_character: str = "%"
    """Empty where values are not escaped."""
    harmless: frozenset[str] = frozenset("-_")
    """Characters besides letters and digits that a value keeps."""
    name_of: Callable[[str], str] = str
    """The part of the text that `limit` applies to and that may hold placeholders."""

    @property
    def value_alphabet(self) -> frozenset[str]:
        """Every character that an escaped value can contain."""
        return LETTERS_AND_DIGITS | self.harmless | set(self.escape_character)

    @property
    def shortest_value_room(self) -> int:
        """The least room a value needs, so that a truncated one keeps some of its own text."""
        return 2 + 2 * DIGEST_BYTES + 8

    def escape(self, value: str, room: int) -> str:
        """Return `value` as it may appear in a name, in at most `room` characters."""
        if not self.escape_character:
            return value
        if not value:
            return self.escape_character * 2
        kept = self.value_alphabet - set(self.escape_character)
        if kept.issuperset(value):
            escaped = value
        else:
            escaped = "".join(
                character if character in kept else self._escape_bytes(character) for character in value
            )
        return escaped if len(escaped) <= room else self._cut(value, escaped, room)

    def _escape_bytes(self, character: str) -> str:
        # JSON and Protobuf cannot contain a lone surrogate; 'surrogatepass' keeps the rule total.
        return "".join(
            f"{self.escape_character}{byte:02X}" for byte in character.encode("utf-8", "surrogatepass")
        )

    def _cut(self, value: str, escaped: str, room: int) -> str:
        digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).hexdigest()
        head = escaped[: room - 2 - len(digest)]
        # Truncation must not leave part of an escape behind.
        last = head.rfind(self.escape_character, max(0, len(head) - 2))
        if last >= 0:
            head = head[:last]
        return f"{head}{self.escape_character}h{digest}"


def text_fault_above(limit: int) -> Callable[[str], str | None]:
    """Return a check for names that may contain anything but control characters."""

    def text_fault(text: str) -> str | None:
        found = control_character(text)
        if found:
            return f"it contains {found}"
        return f"it has more than {limit} characters" if len(text) > limit else None

    return text_fault
