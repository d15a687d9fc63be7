"""Which destinations a back end's records go to most, estimated so that it costs nothing per record."""

from __future__ import annotations

from collections.abc import Sequence

from bronze_sidecar.routing.rules import Record

LOOKED_AT = 8
"""Records of one write; they stand for the others."""
MOST_DESTINATIONS = 256


class Destinations:
    """Counts destinations by a few records of each write; exact while writes are small and names few."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}
        self._offset = 0

    def note(self, records: Sequence[Record]) -> None:
        """Count the destinations of a write."""
        count = len(records)
        looked_at = min(count, LOOKED_AT)
        # Begins elsewhere each time: records of one stream often come in the same pattern.
        self._offset += 1
        for number in range(looked_at):
            place = (number * count // looked_at + self._offset) % count
            self._add(records[place].address.destination, count / looked_at)

    def _add(self, destination: str, weight: float) -> None:
        counts = self._counts
        if destination not in counts and len(counts) >= MOST_DESTINATIONS:
            # The newcomer takes the place of the least used with its count: what is used most is never lost.
            least = min(counts, key=counts.__getitem__)
            weight += counts.pop(least)
        counts[destination] = counts.get(destination, 0.0) + weight

    def most_used(self, most: int) -> list[tuple[str, float]]:
        """Return the destinations used most, each with its share of all records."""
        total = sum(self._counts.values())
        order = sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))
        return [(name, count / total) for name, count in order[:most]]
