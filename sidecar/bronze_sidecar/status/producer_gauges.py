"""Metrics of producers, by what they call themselves: few enough at any time, whatever they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bronze_sidecar.ingest.session import ProducerSession

MOST_SOURCES = 20
OTHERS = "(others)"
"""The source under which those are added up that are too many."""
_GAUGES = (
    ("streams", "Open streams of a producing program."),
    ("unacknowledged_messages", "Its messages that are not acknowledged yet."),
    ("unacknowledged_bytes", "Their bytes."),
    ("refused_messages", "Its messages, of the runs that are remembered, that were rejected or given up."),
)


class ProducerGauges(Collector):
    """Adds the sessions up by source, whenever metrics are read."""

    def __init__(self, sessions: Callable[[], Sequence[tuple[tuple[str, str], ProducerSession]]]) -> None:
        self._sessions = sessions

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Name the metrics, so that nobody is asked for values to know them."""
        for name, doc in _GAUGES:
            yield GaugeMetricFamily(f"bronze_producer_{name}", doc, labels=["source"])

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges, with the sources that have most on the way first."""
        sums: dict[str, list[int]] = {}
        for _, session in self._sessions():
            figures = sums.setdefault(session.context.source, [0] * len(_GAUGES))
            tallies = session.tallies
            own = (
                int(session.take_over is not None),
                session.events_on_the_way,
                session.bytes_on_the_way,
                tallies.rejected.count + tallies.failed.count,
            )
            for place, figure in enumerate(own):
                figures[place] += figure
        ranked = sorted(sums.items(), key=lambda each: each[1], reverse=True)
        shown = dict(ranked[:MOST_SOURCES])
        if len(ranked) > MOST_SOURCES:
            shown[OTHERS] = [
                sum(column) for column in zip(*(each for _, each in ranked[MOST_SOURCES:]), strict=True)
            ]
        for place, family in enumerate(self.describe()):
            for source, figures in shown.items():
                family.add_metric([source], figures[place])
            yield family
