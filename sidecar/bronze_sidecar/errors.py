"""The kinds of error. The class says what happens next."""

from __future__ import annotations


class Rejected(Exception):  # noqa: N818 - named for what became of the event
    """An event that cannot be published as it is; its producer is told why.

    `message_type` and `field` say where the fault lies; either is empty where it does not apply.
    """

    def __init__(self, reason: str, *, message_type: str = "", field: str = "") -> None:
        place = ": ".join(part for part in (message_type, field and f"field '{field}'") if part)
        super().__init__(f"{place}: {reason}" if place else reason)
        self.reason = reason
        self.message_type = message_type
        self.field = field
