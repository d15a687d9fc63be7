"""The entries of a script call: the part of it that each record has for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bronze_sidecar.routing.rules import Record


def script_entries(
    records: Iterable[Record], number_of: Callable[[Record], bytes], has_meta: bool
) -> tuple[bytes, int]:
    """Return the entries, and how many: of each the number of its command, its envelope and its id.

    `number_of` gives the number as it is sent. It is asked once for all records of one address and, if there
    is meta, one meta: levels of a message, and messages alike, share it.
    """
    numbers: dict[tuple[int, int], bytes] = {}
    entries: list[bytes] = []
    for record in records:
        address, event = record.address, record.event
        shared = id(address), id(event.meta) if has_meta else 0
        number = numbers.get(shared) or numbers.setdefault(shared, number_of(record))
        envelope, event_id = event.envelope, event.id.encode()
        entries.append(
            b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (number, len(envelope), envelope, len(event_id), event_id)
        )
    return b"".join(entries), len(entries)
