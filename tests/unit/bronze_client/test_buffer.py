"""Batches, positions and limits of every client's buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from client_buffers import BufferUnderTest, NodeBuffer, PythonBuffer
from clients import NodeDriver

Open: TypeAlias = Callable[..., BufferUnderTest]


@pytest.fixture(params=["python", "node"])
def open_buffer(request: pytest.FixtureRequest) -> Open:
    """Return a function that makes a buffer with these options."""
    if request.param == "python":
        return PythonBuffer
    driver: NodeDriver = request.getfixturevalue("node_driver")
    return lambda **options: NodeBuffer(driver, **options)


def test_a_batch_is_full_by_count(open_buffer: Open) -> None:
    buffer = open_buffer(batch_events=2)
    buffer.add(b"a", b"b", b"c")
    assert buffer.take() == (0, False, [b"a", b"b"])
    assert buffer.take() is None


def test_a_batch_is_full_by_bytes(open_buffer: Open) -> None:
    buffer = open_buffer(batch_bytes=4)
    buffer.add(b"abc", b"d", b"e")
    assert buffer.take() == (0, False, [b"abc", b"d"])
    assert buffer.take() is None


def test_a_partial_batch_is_taken_when_it_is_due(open_buffer: Open) -> None:
    buffer = open_buffer()
    buffer.add(b"a")
    assert buffer.take() is None
    buffer.mark_due()
    # What comes before it is taken goes along.
    buffer.add(b"b")
    assert buffer.take() == (0, False, [b"a", b"b"])
    buffer.add(b"c")
    assert buffer.take() is None


def test_its_owner_is_woken_once_for_a_first_event_and_once_for_a_full_batch(open_buffer: Open) -> None:
    buffer = open_buffer(batch_events=3)
    buffer.add(b"a", b"b")
    assert buffer.state().woken == 1
    buffer.add(b"c")
    assert buffer.state().woken == 2


def test_json_and_envelopes_travel_together_in_their_order(open_buffer: Open) -> None:
    """JSON is marked by a blank, which counts as its newline would."""
    buffer = open_buffer(batch_events=4)
    buffer.add(b"a")
    buffer.add(b"{}", b"{ }", json=True)
    buffer.add(b"b")
    assert buffer.take_with_size() == ((0, None, [b"a", b" {}", b" { }", b"b"]), 9)
    assert buffer.state().bytes == 9


def test_json_that_was_there_first_is_marked_as_well(open_buffer: Open) -> None:
    buffer = open_buffer(batch_bytes=8)
    buffer.add(b"{}", b"[1]", json=True)
    buffer.add(b"b")
    assert buffer.take_with_size() == ((0, None, [b" {}", b" [1]", b"b"]), 8)


def test_a_batch_after_a_mixed_one_may_be_of_one_kind(open_buffer: Open) -> None:
    buffer = open_buffer(batch_events=2)
    buffer.add(b"a")
    buffer.add(b"{}", b"{}", b"{}", json=True)
    buffer.add(b"b", b"c")
    assert buffer.take_all() == [
        (0, None, [b"a", b" {}"]),
        (2, True, [b"{}", b"{}"]),
        (4, False, [b"b", b"c"]),
    ]


def test_a_mixed_batch_is_cut_to_what_fits(open_buffer: Open) -> None:
    buffer = open_buffer(batch_events=4)
    buffer.add(b"{}", json=True)
    buffer.add(b"abc", b"d")
    buffer.add(b"{}", json=True)
    assert buffer.take_with_size(size=6) == ((0, None, [b" {}", b"abc"]), 6)
    assert buffer.take_with_size(events=1) == ((2, None, [b"d"]), 1)
    assert buffer.take(size=2) is None
    assert buffer.take_with_size(size=3) == ((3, None, [b" {}"]), 3)
    buffer.release(4, 10)
    assert (buffer.state().events, buffer.state().bytes) == (0, 0)


def test_a_batch_that_a_gap_ended_is_sent_at_once(open_buffer: Open) -> None:
    """It cannot grow; one call is enough for all that are there."""
    buffer = open_buffer()
    buffer.add(b"a")
    assert buffer.state().woken == 1
    buffer.skip()
    assert buffer.state().woken == 2
    for _ in range(3):
        buffer.add(b"a")
        buffer.skip()
    assert buffer.state().woken == 2
    assert [buffer.take() for _ in range(5)] == [(place, False, [b"a"]) for place in (0, 2, 4, 6)] + [None]
    buffer.add(b"a")
    buffer.skip()
    assert buffer.state().woken == 3


def test_a_skipped_position_ends_the_batch(open_buffer: Open) -> None:
    buffer = open_buffer()
    buffer.skip()
    buffer.add(b"a", b"b")
    buffer.skip()
    buffer.skip()
    buffer.add(b"c")
    assert buffer.take_all() == [(1, False, [b"a", b"b"]), (5, False, [b"c"])]
    assert buffer.state().accepted == 3


def test_the_newest_is_dropped_and_leaves_a_gap(open_buffer: Open) -> None:
    buffer = open_buffer(buffer_events=2)
    assert buffer.add(b"a", b"b", b"c", b"d") == [True, True, False, False]
    batch = buffer.take_all()
    assert batch == [(0, False, [b"a", b"b"])]
    buffer.release(1, 1)
    assert buffer.add(b"e", b"f") == [True, False]
    assert buffer.take_all() == [(4, False, [b"e"])]
    assert buffer.state().dropped == 3


def test_bytes_are_limited_as_well(open_buffer: Open) -> None:
    buffer = open_buffer(buffer_bytes=5)
    assert buffer.add(b"abc", b"def", b"gh") == [True, False, True]
    assert (buffer.state().events, buffer.state().bytes) == (2, 5)
    assert buffer.take_all() == [(0, False, [b"abc"]), (2, False, [b"gh"])]


def test_a_line_of_json_counts_its_newline(open_buffer: Open) -> None:
    buffer = open_buffer(buffer_bytes=5)
    assert buffer.add(b"{}", b"{}", json=True) == [True, False]
    assert buffer.state().bytes == 3


def test_the_oldest_batch_is_dropped(open_buffer: Open) -> None:
    buffer = open_buffer(buffer_events=4, batch_events=2, on_full="drop_oldest")
    assert buffer.add(b"a", b"b", b"c", b"d", b"e", b"f") == [True] * 6
    assert buffer.take_all() == [(2, False, [b"c", b"d"]), (4, False, [b"e", b"f"])]
    assert (buffer.state().dropped, buffer.state().events, buffer.state().bytes) == (2, 4, 4)


def test_the_oldest_is_dropped_from_the_batch_being_filled_too(open_buffer: Open) -> None:
    buffer = open_buffer(buffer_events=2, on_full="drop_oldest")
    assert buffer.add(b"a", b"b", b"c") == [True] * 3
    assert buffer.take_all() == [(2, False, [b"c"])]
    assert buffer.state().dropped == 2


def test_as_many_of_the_oldest_are_dropped_as_it_takes(open_buffer: Open) -> None:
    buffer = open_buffer(buffer_bytes=4, batch_events=1, on_full="drop_oldest")
    assert buffer.add(b"a", b"b", b"c", b"def") == [True] * 4
    assert buffer.take_all() == [(2, False, [b"c"]), (3, False, [b"def"])]


def test_what_was_given_away_is_never_dropped(open_buffer: Open) -> None:
    buffer = open_buffer(buffer_events=2, on_full="drop_oldest")
    buffer.add(b"a", b"b")
    buffer.take_all()
    assert buffer.add(b"c") == [False]
    assert (buffer.state().events, buffer.state().dropped) == (2, 1)


def test_an_event_larger_than_the_buffer_is_refused_and_uses_up_its_position(open_buffer: Open) -> None:
    buffer = open_buffer(buffer_bytes=3)
    buffer.add(b"a")
    with pytest.raises(ValueError, match="The event has 4 bytes; at most 3 can be sent"):
        buffer.add(b"abcd")
    buffer.add(b"b")
    assert buffer.take_all() == [(0, False, [b"a"]), (2, False, [b"b"])]
    assert buffer.state().dropped == 0


def test_a_batch_that_does_not_fit_waits(open_buffer: Open) -> None:
    buffer = open_buffer(batch_events=3)
    buffer.add(b"a", b"b", b"c")
    assert buffer.take(events=2, cut=False) is None
    assert buffer.take(size=2, cut=False) is None
    assert buffer.take(events=3, size=3, cut=False) == (0, False, [b"a", b"b", b"c"])


def test_a_batch_is_cut_to_what_fits(open_buffer: Open) -> None:
    buffer = open_buffer(batch_events=4)
    buffer.add(b"{}", b"{}", b"{}", b"{}", json=True)
    assert buffer.take(events=1) == (0, True, [b"{}"])
    assert buffer.take(size=8) == (1, True, [b"{}", b"{}"])
    assert buffer.take(events=0) is None
    assert buffer.take(size=2) is None
    assert buffer.state().oldest_position == 3
    assert buffer.take(size=3) == (3, True, [b"{}"])
    assert buffer.take() is None


def test_a_waiting_event_that_can_never_be_sent_is_dropped(open_buffer: Open) -> None:
    buffer = open_buffer(batch_events=3)
    buffer.add(b"a", b"bcd", b"e")
    buffer.limit_event(2)
    assert buffer.take(size=2) == (0, False, [b"a"])
    assert buffer.take(size=2) == (2, False, [b"e"])
    assert (buffer.state().dropped, buffer.state().reason) == (
        1,
        "The event is larger than the sidecar accepts.",
    )
    assert (buffer.state().events, buffer.state().bytes) == (2, 2)
    with pytest.raises(ValueError, match="at most 2 can be sent"):
        buffer.add(b"fgh")


def test_a_refusing_buffer_drops_and_keeps_what_it_has(open_buffer: Open) -> None:
    buffer = open_buffer(on_full="drop_oldest")
    buffer.add(b"a")
    buffer.refuse("Because.")
    buffer.refuse("Another reason.")
    assert buffer.add(b"b") == [False]
    assert buffer.state().reason == "Because."
    assert buffer.take_all() == [(0, False, [b"a"])]
    assert buffer.state().rooms == 2


def test_the_oldest_position_is_that_of_the_first_event_held(open_buffer: Open) -> None:
    buffer = open_buffer(batch_events=2)
    assert buffer.state().oldest_position == 0
    buffer.skip()
    assert buffer.state().oldest_position == 1
    buffer.add(b"a", b"b", b"c")
    assert buffer.state().oldest_position == 1
    buffer.take()
    assert buffer.state().oldest_position == 3
    buffer.take_all()
    assert buffer.state().oldest_position == 4


def test_waiting_is_worth_it_only_where_room_may_come(open_buffer: Open) -> None:
    buffer = open_buffer(buffer_events=1, buffer_bytes=10)
    assert not buffer.is_worth_waiting(1)
    buffer.add(b"a")
    assert buffer.is_worth_waiting(1)
    assert not buffer.is_worth_waiting(11)
    buffer.refuse("Because.")
    assert not buffer.is_worth_waiting(1)


def test_a_detached_buffer_wakes_nobody_in_python() -> None:
    buffer = PythonBuffer()
    buffer.detach()
    buffer.add(b"a")
    assert buffer.state().woken == 0


def test_batches_know_their_size(open_buffer: Open) -> None:
    buffer = open_buffer(batch_events=3)
    buffer.add(b"{}", b"{ }", b"{}", json=True)
    assert buffer.take_with_size(events=1) == ((0, True, [b"{}"]), 3)
    assert buffer.take_with_size() == ((1, True, [b"{ }", b"{}"]), 7)


@pytest.fixture
def open_node(node_driver: NodeDriver) -> Callable[..., NodeBuffer]:
    return lambda **options: NodeBuffer(node_driver, **options)


OpenNode: TypeAlias = Callable[..., NodeBuffer]


def test_a_block_travels_as_it_is_under_its_positions(open_node: OpenNode) -> None:
    buffer = open_node(batch_events=4)
    buffer.add(b"{}", json=True)
    assert buffer.add_lines(b"{1}\n{2}\n{3}", 3)
    assert buffer.add_lines(b"{4}\n{5}", 2)
    assert buffer.take() == (0, True, [b"{}", b"{1}\n{2}\n{3}"])
    assert buffer.take_all() == [(4, True, [b"{4}\n{5}"])]
    assert (buffer.state().events, buffer.state().bytes, buffer.state().accepted) == (6, 23, 6)


def test_a_block_does_not_travel_with_envelopes(open_node: OpenNode) -> None:
    buffer = open_node(batch_events=10)
    buffer.add(b"a")
    buffer.add(b"{0}", json=True)
    buffer.add_lines(b"{1}\n{2}", 2)
    buffer.add(b"{3}", json=True)
    buffer.add(b"b")
    buffer.add(b"{4}", json=True)
    assert buffer.take_all() == [
        (0, None, [b"a", b" {0}"]),
        (2, True, [b"{1}\n{2}", b"{3}"]),
        (5, None, [b"b", b" {4}"]),
    ]


def test_a_block_is_dropped_as_a_whole(open_node: OpenNode) -> None:
    buffer = open_node(buffer_events=3)
    buffer.add(b"{}", json=True)
    assert not buffer.add_lines(b"{1}\n{2}\n{3}", 3)
    assert buffer.add_lines(b"{4}\n{5}", 2)
    assert buffer.take_all() == [(0, True, [b"{}"]), (4, True, [b"{4}\n{5}"])]
    assert buffer.state().dropped == 3


def test_a_block_makes_room_by_dropping_the_oldest(open_node: OpenNode) -> None:
    buffer = open_node(buffer_events=3, batch_events=1, on_full="drop_oldest")
    buffer.add(b"{}", b"{}", b"{}", json=True)
    assert buffer.add_lines(b"{1}\n{2}", 2)
    assert buffer.take_all() == [(2, True, [b"{}"]), (3, True, [b"{1}\n{2}"])]


def test_a_block_larger_than_the_buffer_is_refused_and_uses_up_its_positions(open_node: OpenNode) -> None:
    buffer = open_node(buffer_events=2, buffer_bytes=8)
    with pytest.raises(ValueError, match="The block has 3 events and 6 bytes; the buffer holds 2 and 8"):
        buffer.add_lines(b"1\n2\n3", 3)
    with pytest.raises(ValueError, match="The block has 2 events and 10 bytes"):
        buffer.add_lines(b"1234\n5678", 2)
    buffer.add(b"{}", json=True)
    assert buffer.take_all() == [(5, True, [b"{}"])]


def test_a_block_that_does_not_fit_is_cut_into_its_lines(open_node: OpenNode) -> None:
    buffer = open_node(batch_events=3)
    buffer.add_lines("{1}\n{ü}\n{3}\n{4}", 4)
    assert buffer.take(events=2, cut=False) is None
    assert buffer.take(events=0) is None
    assert buffer.take(events=2) == (0, True, [b"{1}", "{ü}".encode()])
    assert buffer.take(size=4) == (2, True, [b"{3}"])
    assert buffer.take() == (3, True, [b"{4}"])
    assert buffer.take() is None


def test_a_line_of_a_block_that_can_never_be_sent_is_dropped(open_node: OpenNode) -> None:
    buffer = open_node(batch_events=3)
    buffer.add_lines(b"{1}\n{22}\n{3}", 3)
    buffer.call("limitEvent", 4)
    assert buffer.take(size=4) == (0, True, [b"{1}"])
    assert buffer.take(size=4) == (2, True, [b"{3}"])
    assert buffer.state().dropped == 1
    # A block may still be cut, so it is taken.
    assert buffer.add_lines(b"{1}\n{2}", 2)


def test_a_block_that_has_to_be_cut_and_has_other_lines_than_was_said_is_dropped(open_node: OpenNode) -> None:
    buffer = open_node(batch_events=3)
    buffer.add_lines(b"{1}\n{2}", 3)
    buffer.add(b"{4}", json=True)
    assert buffer.take(events=1) is None
    buffer.call("markDue")
    assert buffer.take(events=1) == (3, True, [b"{4}"])
    assert buffer.state().reason == "A block does not have the announced number of lines."
    assert (buffer.state().dropped, buffer.state().events) == (3, 1)
