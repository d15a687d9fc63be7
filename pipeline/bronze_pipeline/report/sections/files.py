"""The section on sizes and files."""

from __future__ import annotations

from bronze_pipeline.report.counts import Counts
from bronze_pipeline.report.days import bars_of
from bronze_pipeline.report.markup import Markup, joined
from bronze_pipeline.report.plots import Bar, stacked
from bronze_pipeline.report.sections.parts import byte_text, figure, numbers


def files_section(counts: Counts) -> Markup:
    bars, places = bars_of(counts.days)
    sizes, numbers_of = [0] * len(bars), [0] * len(bars)
    for day, stored in counts.stored.items():
        sizes[places[day]] += stored.bytes
        numbers_of[places[day]] += stored.files
    drawn = [Bar(bar.name, [size]) for bar, size in zip(bars, sizes, strict=True)]
    counted = [Bar(bar.name, [number]) for bar, number in zip(bars, numbers_of, strict=True)]
    all_bytes = sum(sizes)
    rows = [
        [
            day,
            f"{stored.files:,}",
            byte_text(stored.bytes),
            byte_text(stored.bytes / stored.files),
            byte_text(stored.smallest or 0),
            f"{stored.events:,}",
            f"{stored.bytes / max(1, stored.events):.1f}",
        ]
        for day, stored in sorted(counts.stored.items(), reverse=True)
    ]
    heads = ["day", "files", "size", "mean size", "smallest", "events", "bytes per event"]
    return joined(
        figure(
            "Size by day", stacked(drawn, [""], label=f"Size by day: {byte_text(all_bytes)} in all", unit="B")
        ),
        figure("Files by day", stacked(counted, [""], label=f"Files by day: {sum(numbers_of):,} in all")),
        numbers(heads, rows, "Sizes and files"),
    )
