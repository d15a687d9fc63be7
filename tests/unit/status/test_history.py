"""Rates and charts of the last ten minutes, made of samples."""

from __future__ import annotations

from typing import Any

import pytest
from bronze_sidecar.status import history as module
from bronze_sidecar.status.history import FlowHistory, FlowSample, LaneSample


class Flow:
    """A history whose samples a test gives."""

    def __init__(self) -> None:
        self.sample = FlowSample(0.0, 0.0, 0, [])
        self.history = FlowHistory(lambda: self.sample, list)

    def note(self, time: float, received: float, published: float, waiting: int) -> None:
        self.sample = FlowSample(time, received, int(time) * 10, [LaneSample(published, waiting)])
        self.history.note()

    def charts(self) -> dict[str, Any]:
        return self.history.charts(["nats"])


def test_charts_are_what_changed_between_samples() -> None:
    flow = Flow()
    assert flow.charts()["received_per_second"] == []
    flow.note(100, 0, 0, 5)
    assert flow.charts()["backends"]["nats"] == {"published_per_second": [], "waiting_events": [5]}
    flow.note(105, 50, 10, 6)
    flow.note(115, 51, 10, 0)
    assert flow.charts()["received_per_second"] == [10.0, 0.1]
    assert flow.charts()["resident_bytes"] == [1000, 1050, 1150]
    assert flow.charts()["backends"]["nats"] == {
        "published_per_second": [2.0, 0.0],
        "waiting_events": [5, 6, 0],
    }


def test_what_is_older_than_ten_minutes_is_forgotten() -> None:
    flow = Flow()
    for number in range(500):
        flow.note(number * module.SAMPLE_SECONDS, number, number, 0)
    assert len(flow.charts()["received_per_second"]) == 600 / module.SAMPLE_SECONDS


@pytest.mark.parametrize(("now", "expected"), [(100.0, None), (101.9, None), (102.0, 100.0), (107.5, 105.0)])
def test_rates_compare_with_what_is_a_little_older(now: float, expected: float | None) -> None:
    flow = Flow()
    flow.note(100, 0, 0, 0)
    if now > 105:
        flow.note(105, 0, 0, 0)
    before = flow.history.before(now)
    assert (before.time if before else None) == expected
