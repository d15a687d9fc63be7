"""The facts about a sidecar as lines of text, for terminals of any width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from textwrap import wrap
from typing import Any, NamedTuple

from bronze_cli.problems import printable

from bronze_sidecar.status.wording import clock, count, duration, percent, plural, rate, since, size

Facts = Mapping[str, Any]
PLAIN, BOLD, DIM, GOOD, BAD, WARNING = "", "1", "2", "32", "1;31", "33"
LEAST_WIDTH = 24
MOST_BARS = 20
GAP = "  "
_BARS = "▁▂▃▄▅▆▇█"


class Line(NamedTuple):
    """A line, and how it is shown where there are colours."""

    text: str
    style: str = PLAIN


class Column(NamedTuple):
    """A column of a table."""

    title: str
    is_number: bool = False
    rank: int = 0
    """Those with the highest are left out first where there is no room."""


def lines(facts: Facts, width: int) -> list[Line]:
    """Return everything that there is to see, what matters most first."""
    width = max(width, LEAST_WIDTH)
    found = chain(
        _head(facts, width),
        _problems(facts, width),
        _backends(facts, width),
        _producers(facts, width),
        _failures(facts, width),
        _destinations(facts, width),
    )
    return [Line(_cut(printable(text), width), style) for text, style in found]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def wrapped(text: str, width: int, style: str, indent: str = "") -> Iterator[Line]:
    """Break a text into lines."""
    for line in wrap(printable(text), width, initial_indent=indent, subsequent_indent=indent):
        yield Line(line, style)


def _head(facts: Facts, width: int) -> Iterator[Line]:
    received, memory = facts["received"], facts["memory"]
    used, limit = memory["resident_bytes"], memory["limit_bytes"]
    given_up = sum(each["given_up"]["events"] for each in facts["backends"].values())
    yield from wrapped(
        f"Bronze Sidecar {facts['version']} · up {duration(facts['uptime_seconds'])} ·"
        f" {clock(facts['time'], facts['time'])}",
        width,
        BOLD,
    )
    yield from wrapped(
        f"receives {rate(received['per_second'])} · {plural(received['messages'], 'message')} ·"
        f" {count(received['filtered_events'])} filtered · {count(received['rejected']['events'])} rejected ·"
        f" {count(given_up)} given up ·"
        f" memory {size(used)} of {size(limit)} ({percent(used, limit)})",
        width,
        PLAIN,
    )
    yield Line("")


def _problems(facts: Facts, width: int) -> Iterator[Line]:
    if not facts["problems"]:
        yield Line("All is well", GOOD)
    for problem in facts["problems"]:
        when = f" — {since(problem['since'], facts['time'])}" if problem["since"] else ""
        style = BAD if problem["level"] == "error" else WARNING
        yield from wrapped(f"{problem['what']}{when}", width, style)
        if problem["detail"]:
            yield from wrapped(problem["detail"], width, PLAIN, "  ")


def _backends(facts: Facts, width: int) -> Iterator[Line]:
    rows = [
        [
            each["title"],
            each["state"].partition(":")[0],
            rate(each["per_second"]),
            count(each["waiting_events"]),
            percent(
                max(each["waiting_events"] / each["most_events"], each["waiting_bytes"] / each["most_bytes"]),
                1,
            ),
            duration(each["oldest_unacknowledged_seconds"]),
            count(each["given_up"]["events"]),
            count(each["retried_events"]),
            count(each["published_events"]),
            count(each.get("on_disk_events", 0)),
            _bars(facts["history"]["backends"][name]["published_per_second"]),
        ]
        for name, each in facts["backends"].items()
    ]
    columns = [
        Column("BACK END"),
        Column("STATE"),
        Column("RATE", is_number=True),
        Column("WAITING", is_number=True),
        Column("QUEUE", is_number=True, rank=2),
        Column("OLDEST", is_number=True, rank=1),
        Column("GIVEN UP", is_number=True, rank=3),
        Column("RETRIED", is_number=True, rank=4),
        Column("PUBLISHED", is_number=True, rank=5),
        Column("ON DISK", is_number=True, rank=6),
        Column("LAST MINUTES", rank=7),
    ]
    styles = [PLAIN if each["state"] == "ready" else BAD for each in facts["backends"].values()]
    yield from _table(columns, rows, styles, width)


def _producers(facts: Facts, width: int) -> Iterator[Line]:
    rows = [
        [
            each["source"] or "(no source)",
            rate(each["messages_per_second"]) if each["connected"] else "left",
            count(each["next_position"]),
            count(each["unacknowledged_messages"]),
            count(each["rejected"]["events"] + each["given_up"]["events"]),
            each["origin"],
            each["stream_id"],
        ]
        for each in facts["producers"]
    ]
    columns = [
        Column("PRODUCER"),
        Column("RATE", is_number=True),
        Column("POSITION", is_number=True, rank=3),
        Column("UNACKNOWLEDGED", is_number=True, rank=1),
        Column("REFUSED", is_number=True, rank=2),
        Column("ORIGIN", rank=5),
        Column("STREAM", rank=4),
    ]
    styles = [
        BAD
        if each["rejected"]["events"] + each["given_up"]["events"]
        else PLAIN
        if each["connected"]
        else DIM
        for each in facts["producers"]
    ]
    yield from _table(columns, rows, styles, width)
    if facts["more_producers"]:
        yield Line(f"and {count(facts['more_producers'])} more", DIM)


def _failures(facts: Facts, width: int) -> Iterator[Line]:
    rows = [
        [
            clock(each["time"], facts["time"]),
            f"{each['stream_id']}:{each['position']}",
            facts["backends"].get(each.get("backend"), {}).get("title", "rejected"),
            each.get("destination", ""),
            each["reason"],
        ]
        for each in reversed(facts["last_failures"])
    ]
    columns = [
        Column("NOT PUBLISHED", rank=1),
        Column("EVENT"),
        Column("BY", rank=2),
        Column("DESTINATION", rank=3),
        Column("REASON"),
    ]
    yield from _table(columns, rows, [PLAIN] * len(rows), width)


def _destinations(facts: Facts, width: int) -> Iterator[Line]:
    rows = [
        [
            each["destination"],
            facts["backends"][each["backend"]]["title"],
            f"about {percent(each['share'], 1)}",
        ]
        for each in facts["destinations"]
    ]
    columns = [Column("MOST USED"), Column("BACK END", rank=1), Column("SHARE", is_number=True)]
    yield from _table(columns, rows, [PLAIN] * len(rows), width)


def _table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], styles: Sequence[str], width: int
) -> Iterator[Line]:
    """Lay out a table after an empty line; nothing if it has no rows."""
    if not rows:
        return
    widths: list[int] = [
        max(map(len, cells)) for cells in zip([each.title for each in columns], *rows, strict=True)
    ]
    kept = [*range(len(columns))]

    def needed() -> int:
        texts: int = sum(widths[place] for place in kept)
        return texts + len(GAP) * (len(kept) - 1)

    while needed() > width and any(columns[place].rank for place in kept[:-1]):
        # What stands last may be cut instead, but not down to nothing.
        if needed() - widths[kept[-1]] + LEAST_WIDTH <= width and not columns[kept[-1]].is_number:
            break
        kept.remove(max(kept, key=lambda place: columns[place].rank))
    for place in sorted(kept, key=lambda place: -widths[place]):
        if needed() > width and not columns[place].is_number:
            widths[place] = max(len(columns[place].title), widths[place] - (needed() - width))

    def line(cells: Sequence[str]) -> str:
        return GAP.join(
            cells[place].rjust(widths[place])
            if columns[place].is_number
            else _cut(cells[place], widths[place]).ljust(widths[place])
            for place in kept
        ).rstrip()

    yield Line("")
    yield Line(line([each.title for each in columns]), DIM)
    for row, style in zip(rows, styles, strict=True):
        yield Line(line(row), style)


def _bars(values: Sequence[float]) -> str:
    """Draw the newest figures."""
    newest = values[-MOST_BARS:]
    top = max(newest, default=0) or 1
    return "".join(_BARS[int(value / top * (len(_BARS) - 1))] for value in newest)
