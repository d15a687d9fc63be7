"""The section on streams: where they are complete, and where and when they have gaps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bronze_pipeline.report.completeness import Gap, StreamLine
from bronze_pipeline.report.markup import Markup, joined, tag
from bronze_pipeline.report.plots import Span, axis, line
from bronze_pipeline.report.sections.parts import figure, numbers

MOST_GAPS_LISTED = 100


def completeness_section(
    lines: Sequence[StreamLine], streams: int, incomplete: int, without_id: int
) -> Markup:
    if not streams:
        return tag("p", "No event of the table has an id with a stream and a position.")
    said = f"Streams: {streams:,}, of which not complete: {incomplete:,}."
    if len(lines) < streams:
        said += f" The {len(lines):,} that need a look most, or have most events, are shown."
    if without_id:
        said += f" {without_id:,} events have no id, or one without stream and position."
    moments = [each for drawn in lines for each in (drawn.began, drawn.ended) if each]
    if not moments:
        return tag("p", said)
    began, ended = min(moments), max(moments)
    return joined(
        tag("p", said),
        figure(
            "Streams and their gaps",
            tag(
                "ul",
                [
                    tag("li", tag("i", class_=kind), what)
                    for kind, what in (("there", "there"), ("gap", "missing"))
                ],
                class_="legend",
                aria_hidden="true",
            ),
            [_stream(drawn, began, ended) for drawn in lines],
            axis(moments_between(began, ended)),
            _streams_table(lines),
            _gaps_table(lines),
        ),
    )


def state(drawn: StreamLine) -> str:
    """Return what there is to say of a stream, in a few words."""
    report = drawn.report
    found = [
        f"{count:,} {what}"
        for count, what in (
            (report.missing_messages, "missing"),
            (report.duplicates, "double"),
            (len(report.cut), "cut"),
        )
        if count
    ]
    return (", ".join(found) or "complete") + ("" if report.has_end else ", no end seen")


def _stream(drawn: StreamLine, began: datetime, ended: datetime) -> Markup:
    length = (ended - began) / timedelta(microseconds=1) or 1.0

    def share(moment: datetime) -> float:
        return (moment - began) / timedelta(microseconds=1) / length

    first, last = drawn.began or began, drawn.ended or ended
    spans = [Span(share(first), share(last), f"{_moment(first)} to {_moment(last)}", "there")]
    for gap in drawn.gaps:
        # Only one side is known if a gap is at the beginning or the end.
        left, right = gap.after or gap.before or first, gap.before or gap.after or last
        spans.append(Span(share(left), share(max(left, right)), _words(gap), "gap"))
    name = tag("b", drawn.report.stream_id)
    is_complete = drawn.report.is_complete
    said = tag("span", state(drawn), class_="good" if is_complete else "bad")
    label = f"{drawn.report.stream_id}: {state(drawn)}, {_moment(first)} to {_moment(last)}"
    return tag("div", tag("div", name, said), line(spans, label=label), class_="stream")


def _words(gap: Gap) -> str:
    where = f"{gap.first:,}" if gap.first == gap.last else f"{gap.first:,} to {gap.last:,}"
    return f"missing: {where}"


def _streams_table(lines: Sequence[StreamLine]) -> Markup:
    heads = ["stream", "state", "first", "last", "messages", "events", "missing", "double", "cut"]
    rows = []
    for drawn in lines:
        report = drawn.report
        found = (report.messages, report.events, report.missing_messages, report.duplicates, len(report.cut))
        times = (_moment(each) if each else "" for each in (drawn.began, drawn.ended))
        rows.append([report.stream_id, state(drawn), *times, *(f"{each:,}" for each in found)])
    return numbers(heads, rows, "Streams", texts=4)


def _gaps_table(lines: Sequence[StreamLine]) -> Markup:
    gaps = sorted(
        ((gap, drawn.report.stream_id) for drawn in lines for gap in drawn.gaps),
        key=lambda each: -each[0].messages,
    )
    if not gaps:
        return Markup()
    rows = [
        [
            stream,
            f"{_moment(gap.after) if gap.after else 'the beginning'}",
            f"{_moment(gap.before) if gap.before else 'the end'}",
            f"{gap.first:,}",
            f"{gap.last:,}",
            f"{gap.messages:,}",
        ]
        for gap, stream in gaps[:MOST_GAPS_LISTED]
    ]
    heads = ["stream", "after", "before", "first missing", "last missing", "messages"]
    what = "Gaps" if len(gaps) <= MOST_GAPS_LISTED else f"The largest {MOST_GAPS_LISTED} gaps"
    return numbers(heads, rows, what, texts=3)


def moments_between(began: datetime, ended: datetime) -> list[tuple[float, str]]:
    """Return moments as names of an axis, no two alike."""
    length = ended - began
    form = (
        "%Y-%m-%d"
        if length > timedelta(days=5)
        else "%d %b %H:%M"
        if length > timedelta(hours=1)
        else "%H:%M:%S"
    )
    moments = [(share, began + length * share) for share in (0.1, 0.3, 0.5, 0.7, 0.9)]
    if length < timedelta(seconds=10):
        return [(share, f"{moment:{form}}.{moment.microsecond // 1000:03}") for share, moment in moments]
    return [(share, f"{moment:{form}}") for share, moment in moments]


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
