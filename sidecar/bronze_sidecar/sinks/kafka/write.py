"""What is known about one write while it is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from bronze_sidecar.errors import DeliveryError
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.base import Failed
from bronze_sidecar.sinks.outcome import failures


class Write:
    """A batch of the lane, and what became of its records."""

    def __init__(self, batch: Sequence[Record], seconds: float) -> None:
        self.batch = batch
        self.errors: dict[int, DeliveryError] = {}
        self.unreachable = ""
        """Why no broker can be asked; empty if one can."""
        self._seconds = seconds
        self.goes_on()

    def goes_on(self) -> None:
        """Restart the deadline, because brokers confirmed something."""
        self.deadline = asyncio.get_running_loop().time() + self._seconds

    def fail_destinations(self, reasons: Mapping[str, DeliveryError]) -> None:
        """Record that records to some destinations cannot be sent."""
        for place, record in enumerate(self.batch) if reasons else ():
            if record.address.destination in reasons:
                self.errors[place] = reasons[record.address.destination]

    def places(self) -> Iterable[int]:
        """Return the places of the records to send."""
        everything = range(len(self.batch))
        return (place for place in everything if place not in self.errors) if self.errors else everything

    def failures(self) -> list[Failed]:
        """Return what was not stored; raise Disconnected if no broker answered."""
        return failures(self.errors, len(self.batch))
