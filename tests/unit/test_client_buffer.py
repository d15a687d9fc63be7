"""Batches, positions and limits of the client's buffer."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from bronze_client.buffer import Batch, Buffer
from bronze_client.options import Options

MUCH = 1_000_000


class Harness:
    """A buffer, and what it told its owner."""

    def __init__(self, **options: Any) -> None:
        self.woken = 0
        self.rooms = 0
        self.buffer = Buffer(
            Options("127.0.0.1:1", **options),
            lock=contextlib.nullcontext(),
            wake=self._on_wake,
            on_room=self._on_room,
        )

    def _on_wake(self) -> None:
        self.woken += 1

    def _on_room(self) -> None:
        self.rooms += 1

    def add(self, *events: bytes, json: bool = False) -> list[bool]:
        return [self.buffer.add(event, json) for event in events]

    def take(
        self, events: int = MUCH, size: int = MUCH, *, cut: bool = True
    ) -> tuple[int, bool, list[bytes]] | None:
        batch = self.buffer.take(events, size, cut=cut)
        return None if batch is None else (batch.first_position, batch.is_json, batch.events)

    def take_all(self) -> list[tuple[int, bool, list[bytes]]]:
        self.buffer.mark_due()
        return list(iter(self.take, None))


def test_a_batch_is_full_by_count() -> None:
    harness = Harness(batch_events=2)
    harness.add(b"a", b"b", b"c")
    assert harness.take() == (0, False, [b"a", b"b"])
    assert harness.take() is None


def test_a_batch_is_full_by_bytes() -> None:
    harness = Harness(batch_bytes=4)
    harness.add(b"abc", b"d", b"e")
    assert harness.take() == (0, False, [b"abc", b"d"])
    assert harness.take() is None


def test_a_partial_batch_is_taken_when_it_is_due() -> None:
    harness = Harness()
    harness.add(b"a")
    assert harness.take() is None
    harness.buffer.mark_due()
    # What comes before it is taken goes along.
    harness.add(b"b")
    assert harness.take() == (0, False, [b"a", b"b"])
    harness.add(b"c")
    assert harness.take() is None


def test_its_owner_is_woken_once_for_a_first_event_and_once_for_a_full_batch() -> None:
    harness = Harness(batch_events=3)
    harness.add(b"a", b"b")
    assert harness.woken == 1
    harness.add(b"c")
    assert harness.woken == 2


def test_json_and_envelopes_travel_in_batches_of_their_own() -> None:
    harness = Harness()
    harness.add(b"a")
    harness.add(b"{}", b"{ }", json=True)
    harness.add(b"b")
    assert harness.take_all() == [(0, False, [b"a"]), (1, True, [b"{}", b"{ }"]), (3, False, [b"b"])]


def test_a_skipped_position_ends_the_batch() -> None:
    harness = Harness()
    harness.buffer.skip()
    harness.add(b"a", b"b")
    harness.buffer.skip()
    harness.buffer.skip()
    harness.add(b"c")
    assert harness.take_all() == [(1, False, [b"a", b"b"]), (5, False, [b"c"])]
    assert harness.buffer.accepted == 3


def test_the_newest_is_dropped_and_leaves_a_gap() -> None:
    harness = Harness(buffer_events=2)
    assert harness.add(b"a", b"b", b"c", b"d") == [True, True, False, False]
    batch = harness.take_all()
    assert batch == [(0, False, [b"a", b"b"])]
    harness.buffer.release(1, 1)
    assert harness.add(b"e", b"f") == [True, False]
    assert harness.take_all() == [(4, False, [b"e"])]
    assert harness.buffer.drops.total == 3


def test_bytes_are_limited_as_well() -> None:
    harness = Harness(buffer_bytes=5)
    assert harness.add(b"abc", b"def", b"gh") == [True, False, True]
    assert (harness.buffer.events, harness.buffer.bytes) == (2, 5)
    assert harness.take_all() == [(0, False, [b"abc"]), (2, False, [b"gh"])]


def test_a_line_of_json_counts_its_newline() -> None:
    harness = Harness(buffer_bytes=5)
    assert harness.add(b"{}", b"{}", json=True) == [True, False]
    assert harness.buffer.bytes == 3


def test_the_oldest_batch_is_dropped() -> None:
    harness = Harness(buffer_events=4, batch_events=2, on_full="drop_oldest")
    assert harness.add(b"a", b"b", b"c", b"d", b"e", b"f") == [True] * 6
    assert harness.take_all() == [(2, False, [b"c", b"d"]), (4, False, [b"e", b"f"])]
    assert (harness.buffer.drops.total, harness.buffer.events, harness.buffer.bytes) == (2, 4, 4)


def test_the_oldest_is_dropped_from_the_batch_being_filled_too() -> None:
    harness = Harness(buffer_events=2, on_full="drop_oldest")
    assert harness.add(b"a", b"b", b"c") == [True] * 3
    assert harness.take_all() == [(2, False, [b"c"])]
    assert harness.buffer.drops.total == 2


def test_as_many_of_the_oldest_are_dropped_as_it_takes() -> None:
    harness = Harness(buffer_bytes=4, batch_events=1, on_full="drop_oldest")
    assert harness.add(b"a", b"b", b"c", b"def") == [True] * 4
    assert harness.take_all() == [(2, False, [b"c"]), (3, False, [b"def"])]


def test_what_was_given_away_is_never_dropped() -> None:
    harness = Harness(buffer_events=2, on_full="drop_oldest")
    harness.add(b"a", b"b")
    harness.take_all()
    assert harness.add(b"c") == [False]
    assert (harness.buffer.events, harness.buffer.drops.total) == (2, 1)


def test_an_event_larger_than_the_buffer_is_refused_and_uses_up_its_position() -> None:
    harness = Harness(buffer_bytes=3)
    harness.add(b"a")
    with pytest.raises(ValueError, match="The event has 4 bytes; at most 3 can be sent"):
        harness.add(b"abcd")
    harness.add(b"b")
    assert harness.take_all() == [(0, False, [b"a"]), (2, False, [b"b"])]
    assert harness.buffer.drops.total == 0


def test_a_batch_that_does_not_fit_waits() -> None:
    harness = Harness(batch_events=3)
    harness.add(b"a", b"b", b"c")
    assert harness.take(events=2, cut=False) is None
    assert harness.take(size=2, cut=False) is None
    assert harness.take(events=3, size=3, cut=False) == (0, False, [b"a", b"b", b"c"])


def test_a_batch_is_cut_to_what_fits() -> None:
    harness = Harness(batch_events=4)
    harness.add(b"{}", b"{}", b"{}", b"{}", json=True)
    assert harness.take(events=1) == (0, True, [b"{}"])
    assert harness.take(size=8) == (1, True, [b"{}", b"{}"])
    assert harness.take(events=0) is None
    assert harness.take(size=2) is None
    assert harness.buffer.oldest_position == 3
    assert harness.take(size=3) == (3, True, [b"{}"])
    assert harness.take() is None


def test_a_waiting_event_that_can_never_be_sent_is_dropped() -> None:
    harness = Harness(batch_events=3)
    harness.add(b"a", b"bcd", b"e")
    harness.buffer.limit_event(2)
    assert harness.take(size=2) == (0, False, [b"a"])
    assert harness.take(size=2) == (2, False, [b"e"])
    assert (harness.buffer.drops.total, harness.buffer.drops.reason) == (
        1,
        "The sidecar takes no event so large.",
    )
    assert (harness.buffer.events, harness.buffer.bytes) == (2, 2)
    with pytest.raises(ValueError, match="at most 2 can be sent"):
        harness.add(b"fgh")


def test_a_refusing_buffer_drops_and_keeps_what_it_has() -> None:
    harness = Harness(on_full="drop_oldest")
    harness.add(b"a")
    harness.buffer.refuse("Because.")
    harness.buffer.refuse("Another reason.")
    assert harness.add(b"b") == [False]
    assert harness.buffer.drops.reason == "Because."
    assert harness.take_all() == [(0, False, [b"a"])]
    assert harness.rooms == 2


def test_the_oldest_position_is_that_of_the_first_event_held() -> None:
    harness = Harness(batch_events=2)
    assert harness.buffer.oldest_position == 0
    harness.buffer.skip()
    assert harness.buffer.oldest_position == 1
    harness.add(b"a", b"b", b"c")
    assert harness.buffer.oldest_position == 1
    harness.take()
    assert harness.buffer.oldest_position == 3
    harness.take_all()
    assert harness.buffer.oldest_position == 4


def test_waiting_is_worth_it_only_where_room_may_come() -> None:
    harness = Harness(buffer_events=1, buffer_bytes=10)
    assert not harness.buffer.is_worth_waiting(1)
    harness.add(b"a")
    assert harness.buffer.is_worth_waiting(1)
    assert not harness.buffer.is_worth_waiting(11)
    harness.buffer.refuse("Because.")
    assert not harness.buffer.is_worth_waiting(1)


def test_a_detached_buffer_wakes_nobody() -> None:
    harness = Harness()
    harness.buffer.detach()
    harness.add(b"a")
    assert harness.woken == 0


def test_batches_know_their_size() -> None:
    harness = Harness(batch_events=3)
    harness.add(b"{}", b"{ }", b"{}", json=True)
    assert harness.buffer.take(1, MUCH, cut=True) == Batch(0, is_json=True, events=[b"{}"], size=3)
    assert harness.buffer.take(MUCH, MUCH, cut=True) == Batch(1, is_json=True, events=[b"{ }", b"{}"], size=7)
