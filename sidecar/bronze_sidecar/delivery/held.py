"""Keys that are held back: one record of each is being tried again, and later ones wait behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from bronze_sidecar.delivery.batch import Item, WriteBatch

Order: TypeAlias = tuple[str, str]


@dataclass(slots=True)
class HeldKey:
    """The records of one key that wait, in order; those that are being written are not here."""

    waiting: deque[Item] = field(default_factory=deque)
    ready_at: float = 0.0
    """When the first of them may be tried."""
    is_suspect: bool = False
    """Whether the first of them may be at fault for lost connections, and must be written alone."""
    probe_next: bool = False
    """Whether the one behind the suspect is to be tried instead, next time."""
    reason: str = ""
    """Why the first of them was not stored."""


class HeldKeys:
    """All keys that are held back. It knows nothing of clocks and sinks."""

    def __init__(self) -> None:
        self._keys: dict[Order, HeldKey] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, order: Order) -> bool:
        return order in self._keys

    def __iter__(self) -> Iterator[HeldKey]:
        return iter(self._keys.values())

    def hold(self, order: Order, items: Iterable[Item], ready_at: float, reason: str) -> None:
        """Hold a key back: these records go before all others of it, once it is time."""
        key = self._keys.setdefault(order, HeldKey())
        key.waiting.extendleft(reversed([*items]))
        key.ready_at = ready_at
        key.is_suspect = key.probe_next = False
        key.reason = reason

    def follow(self, item: Item) -> bool:
        """Let a record wait behind the others of its key, if that is held back; return whether it is."""
        key = self._keys.get(item.order)
        if key is not None:
            key.waiting.append(item)
        return key is not None

    def get(self, order: Order) -> HeldKey:
        return self._keys[order]

    def go_on(self, order: Order) -> None:
        """Let a key go on at once: what held it back is settled."""
        key = self._keys.get(order)
        if key is not None:
            key.ready_at, key.is_suspect, key.probe_next = 0.0, False, False
            self.release([order])

    def release(self, orders: Iterable[Order]) -> None:
        """Free the keys that nothing waits for any more."""
        for order in {*orders} & self._keys.keys():
            if not self._keys[order].waiting:
                del self._keys[order]

    def suspect(self, now: float) -> HeldKey | None:
        """Return a key whose first record must be written alone, and may be now."""
        for key in self._keys.values():
            if key.is_suspect and key.waiting and key.ready_at <= now:
                return key
        return None

    def take_ready(self, batch: WriteBatch, now: float, most: int, most_bytes: int) -> None:
        """Add the records of keys whose wait is over to a batch."""
        for key in self._keys.values():
            if key.is_suspect or key.ready_at > now:
                continue
            if not take(key.waiting, batch, most, most_bytes):
                return

    def ready_at(self) -> float | None:
        """Return when the first of the keys may be tried; None if nothing waits."""
        return min((key.ready_at for key in self._keys.values() if key.waiting), default=None)

    def oldest(self) -> float | None:
        """Return since when the oldest record has waited; None if nothing waits."""
        return min((key.waiting[0].since for key in self._keys.values() if key.waiting), default=None)


def take(waiting: deque[Item], batch: WriteBatch, most: int, most_bytes: int) -> bool:
    """Move records to a batch as long as they fit, the first in any case; return whether all did."""
    while waiting:
        is_full = len(batch.records) >= most or batch.bytes + waiting[0].size > most_bytes
        if is_full and batch.records:
            return False
        batch.add_item(waiting.popleft())
    return True
