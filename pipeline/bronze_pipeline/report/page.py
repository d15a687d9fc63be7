"""The page as a whole: one file with everything in it, for light and dark, narrow and wide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bronze_pipeline.report.completeness import StreamLine
from bronze_pipeline.report.counts import Counts
from bronze_pipeline.report.delays import Delays
from bronze_pipeline.report.markup import Markup, joined, tag
from bronze_pipeline.report.quarantine import Quarantined
from bronze_pipeline.report.sections.completeness import completeness_section
from bronze_pipeline.report.sections.delays import delays_section
from bronze_pipeline.report.sections.events import events_section
from bronze_pipeline.report.sections.files import files_section
from bronze_pipeline.report.sections.parts import byte_text
from bronze_pipeline.report.sections.quarantine import quarantine_section

STYLE = Path(__file__).with_name("style.css")
ONE = {
    "events": "event",
    "days": "day",
    "exchanges": "exchange",
    "streams": "stream",
    "streams not complete": "stream not complete",
    "files": "file",
}
# A browser that follows it loads nothing from anywhere, whatever the data says.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class Findings:
    """All that the page shows."""

    place: str
    made: datetime
    counts: Counts
    streams: int
    incomplete: int
    without_id: int
    lines: Sequence[StreamLine]
    delays: Delays
    quarantined: Quarantined | None


def page(found: Findings) -> str:
    """Return the page."""
    parts = {
        "Events": events_section(found.counts),
        "Completeness": completeness_section(found.lines, found.streams, found.incomplete, found.without_id),
        "Delay": delays_section(found.delays, _files(found)),
        "Quarantine": quarantine_section(found.quarantined),
        "Sizes and files": files_section(found.counts),
    }
    ids = {title: title.lower().replace(" ", "-") for title in parts}
    title = f"Bronze table {found.place}"
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        tag("title", title),
        tag("style", Markup(STYLE.read_text())),
    )
    body = tag(
        "body",
        tag(
            "header",
            tag("h1", title),
            tag("p", f"As of {found.made:%Y-%m-%d %H:%M:%S} UTC. All times are UTC."),
            _tiles(found),
            tag(
                "nav",
                [tag("a", name, href=f"#{ids[name]}") for name in parts],
                aria_label="Sections",
            ),
        ),
        tag(
            "main",
            [
                tag("section", tag("h2", name, id=f"{ids[name]}-title"), inside, id=ids[name],
                    aria_labelledby=f"{ids[name]}-title")
                for name, inside in parts.items()
            ],
        ),
    )  # fmt: skip
    return joined(Markup("<!DOCTYPE html>\n"), tag("html", head, body, lang="en")) + "\n"


def _files(found: Findings) -> int:
    return sum(stored.files for stored in found.counts.stored.values())


def _tiles(found: Findings) -> Markup:
    counts, quarantined = found.counts, found.quarantined
    tiles = {
        "events": f"{counts.events.total():,}",
        "days": f"{len(counts.days):,}",
        "exchanges": f"{len(counts.by('exchange')):,}",
        "streams": f"{found.streams:,}",
        "streams not complete": f"{found.incomplete:,}",
        "in quarantine": "—" if quarantined is None else f"{quarantined.records:,}",
        "files": f"{_files(found):,}",
        "size": byte_text(sum(stored.bytes for stored in counts.stored.values())),
    }
    return tag(
        "dl",
        [
            tag("div", tag("dt", ONE.get(name, name) if value == "1" else name), tag("dd", value))
            for name, value in tiles.items()
        ],
        class_="tiles",
    )
