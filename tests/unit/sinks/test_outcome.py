"""What a lane is told about a write."""

from __future__ import annotations

import pytest
from bronze_sidecar.errors import DeliveryError, Disconnected, NotTried, Permanent, Transient
from bronze_sidecar.sinks.outcome import failures

LOST, AGAIN = Disconnected("lost"), Disconnected("lost again")
BUSY, BAD, BEHIND = Transient("busy"), Permanent("bad"), NotTried("behind")


@pytest.mark.parametrize(
    ("errors", "count"),
    [
        ({}, 0),
        ({}, 2),
        ({1: LOST}, 2),
        ({0: BUSY, 1: BUSY}, 2),
        ({0: BUSY, 1: BEHIND}, 2),
        ({0: BAD, 1: LOST}, 2),
        ({0: BUSY, 1: LOST, 2: BEHIND}, 3),
        ({0: BEHIND, 1: BEHIND}, 2),
    ],
)
def test_what_is_known_is_told_by_record(errors: dict[int, DeliveryError], count: int) -> None:
    assert failures(errors, count) == list(errors.items())


def test_places_are_told_in_order() -> None:
    assert failures({2: BUSY, 0: BAD}, 4) == [(0, BAD), (2, BUSY)]


@pytest.mark.parametrize("errors", [{0: LOST}, {0: BEHIND, 1: LOST, 2: AGAIN}])
def test_a_write_of_which_nothing_is_known_is_lost(errors: dict[int, DeliveryError]) -> None:
    with pytest.raises(Disconnected) as caught:
        failures(errors, len(errors))
    assert caught.value is LOST
