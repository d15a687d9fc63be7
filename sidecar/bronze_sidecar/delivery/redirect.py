"""What a back end refuses for good goes to its dead-letter destination, if it has one."""

from __future__ import annotations

from bronze_sidecar.delivery.batch import Item, OutcomeListener
from bronze_sidecar.routing.rules import Address, Record
from bronze_sidecar.routing.template import Template

REASON_HEADER = "deadLetterReason"
DESTINATION_HEADER = "deadLetterDestination"
LONGEST_REASON = 200


class Redirected:
    """Waits for a dead letter on behalf of a ticket, which hears of the failure afterwards."""

    is_durable = True
    """It is never kept on disk: until the dead letter is stored, the record itself is not acknowledged."""

    def __init__(
        self, redirect: Redirect, ticket: OutcomeListener, record: Record, reason: str, kept: str
    ) -> None:
        self._redirect = redirect
        self._ticket = ticket
        self._record = record
        self._reason = reason
        self._kept = kept
        redirect.unsafe += not ticket.is_durable

    def stored(self, count: int) -> None:  # noqa: ARG002 - it waits for one
        self._tell(f"kept at '{self._kept}': {self._reason}")

    def failed(self, record: Record, backend: str, reason: str) -> None:  # noqa: ARG002 - the first reason counts
        self._tell(self._reason)

    def _tell(self, reason: str) -> None:
        self._redirect.unsafe -= not self._ticket.is_durable
        self._ticket.failed(self._record, self._redirect.backend, reason)


class Redirect:
    """Addresses refused records to the dead-letter destination, with the reason among their headers."""

    def __init__(self, backend: str, destination: Template) -> None:
        self.backend = backend
        self.unsafe = 0
        """Dead letters that are not stored yet, of records that are in memory alone."""
        self._render = destination.renderer()

    def __call__(self, item: Item, reason: str) -> tuple[OutcomeListener, list[Record]] | None:
        """Return what is to be written instead of a record; None if there is nothing else to try."""
        record = item.record
        refused_at = record.address.destination
        destination = self._render(record.event)
        if isinstance(item.ticket, Redirected) or destination == refused_at:
            return None
        headers = ((REASON_HEADER, reason[:LONGEST_REASON]), (DESTINATION_HEADER, refused_at))
        address = Address(destination, record.address.key, (*record.address.headers, *headers))
        waiting = Redirected(self, item.ticket, record, reason, destination)
        return waiting, [Record(address, record.event)]
