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


class DeliveryError(Exception):
    """A back end did not take records."""

    may_be_stored = False
    """Whether it is unknown if it took them."""


class Transient(DeliveryError):  # noqa: N818 - named for what follows
    """It may take them later: they are tried again after a wait."""


class NotTried(Transient):
    """The record was not sent because one before it failed; it goes first next time, without a wait."""


class Disconnected(Transient):
    """The connection is gone: the sink must be opened anew.

    `repeated` is how many records will be written again although the bus may have them, and will not notice.
    """

    may_be_stored = True

    def __init__(self, reason: str, *, repeated: int = 0) -> None:
        super().__init__(reason)
        self.repeated = repeated


class Permanent(DeliveryError):  # noqa: N818 - named for what follows
    """It will never take them: their producer is told."""
