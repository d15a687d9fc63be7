"""What a sink tells its lane about a write."""

from __future__ import annotations

from collections.abc import Mapping

from bronze_sidecar.errors import DeliveryError, Disconnected, NotTried
from bronze_sidecar.sinks.base import Failed


def failures(errors: Mapping[int, DeliveryError], count: int) -> list[Failed]:
    """Return what was not stored, by the errors of a batch of `count` records.

    Raise Disconnected if the back end was lost before it said anything about any of them.
    """
    if errors and len(errors) == count:
        lost = [error for error in errors.values() if isinstance(error, Disconnected)]
        if lost and all(isinstance(error, Disconnected | NotTried) for error in errors.values()):
            raise lost[0]
    return [Failed(place, errors[place]) for place in sorted(errors)]
