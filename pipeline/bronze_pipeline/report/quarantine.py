"""What could not be decoded, by reason, with a few samples of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bronze_pipeline.tables.committed import CommittedTable

MOST_REASONS = 1000
MOST_SAMPLES = 3
BYTES_OF_SAMPLE = 200
COLUMNS = ["reason", "destination", "bus", "bus_partition", "bus_position"]
RAW_AT_ONCE = 256


@dataclass(frozen=True)
class Sample:
    """One record."""

    day: str
    place: Sequence[str]
    """Where it was: the values of the columns that say so."""
    raw: bytes
    """Its first bytes."""
    length: int


@dataclass
class Reason:
    """The records that share a reason."""

    text: str
    records: int = 0
    samples: list[Sample] = field(default_factory=list)


@dataclass
class Quarantined:
    """What a quarantine table holds."""

    reasons: list[Reason]
    """The most frequent first."""
    records: int
    others: int
    """Records with reasons beyond those that are listed."""


def look_through(table: CommittedTable, on_file: Callable[[], None] = lambda: None) -> Quarantined:
    """Count the records of a quarantine table by reason."""
    reasons: dict[str, Reason] = {}
    records = others = 0
    for path, day in zip(*(table.files[name].to_pylist() for name in ("path", "date")), strict=True):
        on_file()
        file = table.open(path)
        for group in range(file.num_row_groups):
            samples: dict[int, tuple[Reason, dict[str, Any]]] = {}
            for place, row in enumerate(file.read_row_group(group, COLUMNS).to_pylist()):
                records += 1
                text = row["reason"] or "no reason"
                if text not in reasons and len(reasons) == MOST_REASONS:
                    others += 1
                    continue
                reason = reasons.setdefault(text, Reason(text))
                reason.records += 1
                taken = len(reason.samples) + sum(each is reason for each, _ in samples.values())
                if taken < MOST_SAMPLES:
                    samples[place] = (reason, row)
            _take(file, group, day or "", samples)
    return Quarantined(sorted(reasons.values(), key=lambda each: -each.records), records, others)


def _take(file: Any, group: int, day: str, samples: dict[int, tuple[Reason, dict[str, Any]]]) -> None:
    """Read the bytes of some rows; those of the others may be large."""
    start = 0
    for batch in file.iter_batches(RAW_AT_ONCE, row_groups=[group], columns=["raw"]) if samples else ():
        for place in [each for each in samples if start <= each < start + len(batch)]:
            reason, row = samples.pop(place)
            raw = batch["raw"][place - start].as_py() or b""
            reason.samples.append(
                Sample(day, [row[name] or "" for name in COLUMNS[1:]], raw[:BYTES_OF_SAMPLE], len(raw))
            )
        start += len(batch)
        if not samples:
            return
