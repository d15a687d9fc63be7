"""The page about a bronze table: what is found, and how it looks in a real browser. No Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import browser
import deltalake
import numpy as np
import pyarrow as pa
import pytest
from bronze_pipeline.cli import main
from bronze_pipeline.decoding.schema import QUARANTINE
from bronze_pipeline.positions import examine
from bronze_pipeline.report.completeness import Gap, lines, worst_first
from bronze_pipeline.report.counts import Kind, count
from bronze_pipeline.report.days import Days, bars_of
from bronze_pipeline.report.delays import STEPS, Spread, measure
from bronze_pipeline.report.markup import Markup, tag
from bronze_pipeline.report.quarantine import look_through
from bronze_pipeline.report.sections.completeness import moments_between
from bronze_pipeline.tables.committed import CommittedTable
from bronze_pipeline.tables.files import FileWriter
from bronze_pipeline.tables.lake import FORMATS, Lake
from conftest import missing
from servers import Unavailable
from silver_frames import Bronze, at, change, event, trade

DAY = date(2024, 1, 1)


@pytest.fixture(params=FORMATS)
def bronze(request: pytest.FixtureRequest, tmp_path: Path) -> Bronze:
    return Bronze(tmp_path / "lake", request.param)


def refuse(lake: Lake, *rows: dict[str, Any]) -> None:
    """Put records into quarantine, as the job does."""
    table = lake.quarantine()
    assert not table.has("tests", 0)
    writer = FileWriter(table.staging, QUARANTINE, "part")
    ordinary = {"date": DAY, "bus": "nats", "destination": "d", "bus_partition": "S", "bus_position": "7"}
    writer.write(pa.RecordBatch.from_pylist([ordinary | row for row in rows], QUARANTINE))
    table.commit(writer.finish(), "tests", 0)


# -- what is found


def test_events_by_day_exchange_and_kind(bronze: Bronze) -> None:
    other = {"exchange": None, "date": DAY + timedelta(1)}
    bronze.add(trade("r:0", "1", "1", 0), trade("r:1", "1", "1", 0), change("r:2.0", "BUY", "1", "1"))
    bronze.add(trade("r:3", "1", "1", 0), trade("r:4", "1", "1", 0) | other)
    found = count(CommittedTable(bronze.url))
    assert found.events == {
        Kind("2024-01-01", "x", "trade"): 3,
        Kind("2024-01-01", "x", "bookChange"): 1,
        Kind("2024-01-02", "no exchange", "trade"): 1,
    }
    assert [(day, each.events, each.files) for day, each in sorted(found.stored.items())] == [
        ("2024-01-01", 4, 2),
        ("2024-01-02", 1, 1),
    ]
    sizes = [
        file.stat().st_size for file in Path(bronze.lake.place).glob("bronze/date=2024-01-01/*/*.parquet")
    ]
    assert (found.stored["2024-01-01"].bytes, found.stored["2024-01-01"].smallest) == (sum(sizes), min(sizes))


@pytest.mark.parametrize("is_ours", [False, True])
def test_kinds_in_files_that_compaction_mixed(tmp_path: Path, is_ours: bool) -> None:
    bronze = Bronze(tmp_path)
    for position in range(3):
        bronze.add(trade(f"r:{position}", "1", "1", 0), change(f"s:{position}.0", "BUY", "1", "1"))
    if is_ours:
        assert main(["maintain", "--table", str(tmp_path / "bronze")]) == 0
    else:
        deltalake.DeltaTable(bronze.url).optimize.compact()
    table = CommittedTable(bronze.url)
    assert len(table.files) == 1
    kinds = {(DAY.isoformat(), "x", "trade"): 3, (DAY.isoformat(), "x", "bookChange"): 3}
    assert count(table).events == kinds
    # When compaction committed says nothing about the way of an event.
    delays = measure(table)
    assert (delays.of_step(STEPS[0]).events, delays.of_step(STEPS[2]).events) == (6, 0)


def test_only_files_of_several_kinds_are_opened(bronze: Bronze, monkeypatch: pytest.MonkeyPatch) -> None:
    bronze.add(trade("r:0", "1", "1", 0))
    bronze.add(trade("r:1", "1", "1", 0), change("r:2.0", "BUY", "1", "1"))
    table = CommittedTable(bronze.url)
    opened: list[str] = []
    plain = table.open

    def note(path: str) -> Any:
        opened.append(path)
        return plain(path)

    monkeypatch.setattr(table, "open", note)
    assert count(table).events.total() == 3
    assert len(opened) == 1


def test_gaps_have_the_times_of_the_messages_beside_them(bronze: Bronze) -> None:
    def message(position: int) -> dict[str, Any]:
        return trade(f"r:{position}", "1", "1", 0) | {"local_ts": at(position)}

    bronze.add(message(2), message(3), message(7))
    bronze.add(message(8), event("disconnect", "r~end:11", {}))
    table = CommittedTable(bronze.url)
    (line,) = lines(table, examine(table.read).streams)
    assert (line.began, line.ended) == (at(2), at(8))
    assert line.gaps == [Gap(0, 1, None, at(2)), Gap(4, 6, at(3), at(7)), Gap(9, 10, at(8), None)]


def test_streams_that_need_a_look_come_first(bronze: Bronze) -> None:
    bronze.add(*(trade(f"whole:{position}", "1", "1", 0) for position in range(5)))
    bronze.add(trade("late:1", "1", "1", 0), trade("later:9", "1", "1", 0), trade("small:0", "1", "1", 0))
    streams = worst_first(examine(CommittedTable(bronze.url).read).streams)
    assert [each.stream_id for each in streams] == ["later", "late", "whole", "small"]


def test_delays_of_each_step(bronze: Bronze) -> None:
    def one(position: int, origin: str, exchange: str = "x") -> dict[str, Any]:
        times = {"local_ts": at(0.25), "ingest_ts": at(1.25), "origin": origin, "exchange": exchange}
        return trade(f"r:{position}", "1", "1", 0) | times

    began = datetime.now(UTC)
    bronze.add(
        one(0, "ORIGIN_REALTIME"), one(1, "ORIGIN_REPLAY"), one(2, "ORIGIN_ARCHIVE"),
        one(3, "ORIGIN_UNSPECIFIED", "y"), event("trade_bar", "r:4", {"event_ts": at(-60)}),
    )  # fmt: skip
    bronze.add(event("disconnect", "r:5", {}, local_ts=None))
    found = measure(CommittedTable(bronze.url))
    assert {key: spread.events for key, spread in found.spreads.items()} == {
        (STEPS[0], "x"): 3,
        (STEPS[0], "y"): 1,
        (STEPS[1], "x"): 1,
        (STEPS[1], "y"): 1,
        (STEPS[2], "x"): 5,
        (STEPS[2], "y"): 1,
    }
    assert found.of_step(STEPS[0]).quantile(0.5) == pytest.approx(0.25, rel=0.06)
    assert found.of_step(STEPS[1]).quantile(0.99) == pytest.approx(1.0, rel=0.06)
    assert found.of_step(STEPS[2]).quantile(0.5) == pytest.approx((began - at(1)).total_seconds(), rel=0.06)
    # The bar and the end of the connection come from a replay too.
    assert found.replayed == 4


def test_quantiles_of_delays() -> None:
    spread = Spread()
    spread.add(np.array([-5, 0, 1, *range(1000, 101_000, 1000)], np.int64))
    assert (spread.events, spread.negative) == (103, 1)
    assert spread.quantile(0.001) == 0.0
    assert spread.quantile(0.5) == pytest.approx(0.0485, rel=0.06)
    assert spread.quantile(1) == pytest.approx(0.1, rel=0.06)


def test_quarantine_by_reason_with_samples(bronze: Bronze) -> None:
    rows = [{"reason": "too long", "raw": bytes([position]) * 300} for position in range(5)]
    refuse(bronze.lake, {"reason": "lost", "raw": None, "bus_position": "3"}, *rows)
    found = look_through(CommittedTable(bronze.lake.table_url("quarantine")))
    assert (found.records, found.others) == (6, 0)
    assert [(each.text, each.records, len(each.samples)) for each in found.reasons] == [
        ("too long", 5, 3),
        ("lost", 1, 1),
    ]
    assert [(each.raw, each.length) for each in found.reasons[0].samples] == [
        (bytes([position]) * 200, 300) for position in range(3)
    ]
    (lost,) = found.reasons[1].samples
    assert (lost.day, lost.place, lost.raw) == ("2024-01-01", ["d", "nats", "S", "3"], b"")


def test_days_without_events_have_a_place_and_many_share_a_bar() -> None:
    bars, places = bars_of(["2024-01-03", "no day", "2024-01-01"])
    assert [bar.name for bar in bars] == ["2024-01-01", "2024-01-02", "2024-01-03", "no day"]
    assert places == {"2024-01-01": 0, "2024-01-03": 2, "no day": 3}
    bars, places = bars_of(["2024-01-01", "2024-12-31"])
    assert len(bars) == 92
    assert (bars[0], bars[-1]) == (Days("2024-01-01", "2024-01-04"), Days("2024-12-30", "2024-12-31"))
    assert places == {"2024-01-01": 0, "2024-12-31": 91}
    assert bars_of([]) == ([], {})


# -- the page


def report(bronze: Bronze, *flags: str) -> int:
    place = Path(bronze.lake.place)
    return main(["report", "--table", str(place / "bronze"), "--out", str(place / "report.html"), *flags])


def written(bronze: Bronze) -> str:
    assert report(bronze) == 0
    return Path(bronze.lake.place, "report.html").read_text()


class Outline(HTMLParser):
    """What a page consists of."""

    VOID = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_what_the_data_says_is_never_markup(bronze: Bronze, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "<script>alert(1)</script>\"'&\u202e\x00"
    envelope = {"exchange": hostile.replace("\x00", ""), "payload_case": "</style><script>"}
    bronze.add(trade("<img src=x onerror=alert(1)>:1", "1", "1", 0) | envelope)
    refuse(bronze.lake, {"reason": hostile, "raw": b"</code><script>\xff", "destination": hostile})
    page = written(bronze)
    outline = Outline(page)
    assert not {"script", "img"} & set(outline.tags)
    assert not any(name.startswith("on") for name, _ in outline.attributes)
    assert "<img src=x onerror=alert(1)>" in outline.texts
    assert "</code><script>\\xff" in outline.texts
    assert "\u202e" not in page
    assert "\x00" not in page


def test_nothing_is_loaded_from_elsewhere(bronze: Bronze) -> None:
    bronze.add(trade("r:0", "1", "1", 0))
    page = written(bronze)
    outline = Outline(page)
    assert {"link", "script", "img", "iframe", "object", "embed"}.isdisjoint(outline.tags)
    links = [value for name, value in outline.attributes if name in ("href", "src", "xlink:href")]
    assert links
    assert all(value and value.startswith("#") for value in links)
    assert not re.search(r"url\(|@import", page)


def test_a_table_without_events_has_a_page(bronze: Bronze, capsys: pytest.CaptureFixture[str]) -> None:
    page = written(bronze)
    assert "There is no quarantine table beside this one." in page
    assert "No event of the table has an id with a stream and a position." in page
    out = Path(bronze.lake.place, "report.html")
    assert capsys.readouterr().out == f"{out}: 0 events, 0 streams\n"


def test_the_ledger_knows_the_gaps(bronze: Bronze, monkeypatch: pytest.MonkeyPatch) -> None:
    bronze.add(trade("r:0", "1", "1", 0), trade("r:3", "1", "1", 0))
    bronze.lake.ledger(print)
    # Whoever reads the ids of all events would fail.
    monkeypatch.setattr(CommittedTable, "read", None)
    assert "2 missing, no end seen" in written(bronze)


def test_what_cannot_be_written_or_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bronze = Bronze(tmp_path)
    bronze.add(trade("r:0", "1", "1", 0))
    place = str(tmp_path / "bronze")
    assert main(["report", "--table", place, "--out", str(tmp_path / "no" / "report.html")]) == 1
    assert f"cannot write {tmp_path}/no/report.html: No such file or directory" in capsys.readouterr().err
    assert main(["report", "--table", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err
    assert f"--table: there is no table at {tmp_path}/none." in said
    assert "--out: is missing." in said
    for file in tmp_path.glob("bronze/*/*/*.parquet"):
        file.write_bytes(b"no Parquet")
    assert main(["report", "--table", place, "--out", str(tmp_path / "report.html")]) == 1
    assert f"cannot read the table at {place}: " in capsys.readouterr().err


def test_markup_escapes_all_but_markup() -> None:
    assert tag("p", "<", Markup("<b>"), ["&", Markup("</b>")], title='"', hidden=True, id=None) == (
        '<p title="&quot;" hidden>&lt;<b>&amp;</b></p>'
    )


# -- in a browser


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    try:
        with browser.browsing(tmp_path_factory.mktemp("browser")) as page:
            yield page
    except Unavailable as reason:
        missing(reason)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a page with something in all of its parts."""
    folder = tmp_path_factory.mktemp("full")
    bronze = Bronze(folder)
    many = []
    for day in range(20):
        for exchange in range(10):
            stream = f"live-{exchange}-{'x' * 60 if exchange == 3 else ''}"
            for number in range(exchange + 1):
                position = day * (exchange + 3) + number
                many.append(
                    trade(f"{stream}:{position}", "1", "1", 0)
                    | {
                        "date": DAY + timedelta(day),
                        "exchange": f"exchange-{exchange}",
                        "local_ts": at(day * 86_400 + number),
                        "ingest_ts": at(day * 86_400 + number + 0.002 * (exchange + 1)),
                        "origin": "ORIGIN_REALTIME",
                    }
                )
    bronze.add(*many)
    refuse(
        bronze.lake,
        *({"reason": "truncated " * 20, "raw": b"\x0a" * 400} for _ in range(3)),
        {"reason": "lost"},
    )
    assert main(["report", "--table", str(folder / "bronze"), "--out", str(folder / "report.html")]) == 0
    return (folder / "report.html").as_uri()


@pytest.mark.servers
@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 1280), (False, 360), (True, 360)])
def test_it_works_offline_in_light_and_dark_wide_and_narrow(
    window: browser.Page, full: str, dark: bool, width: int, tmp_path: Path
) -> None:
    window.requests.clear()
    window.complaints.clear()
    window.open(full, dark=dark, width=width)
    assert window.requests == [full]
    assert window.complaints == []
    # Nothing makes the page itself wider than the window.
    assert window.value("document.documentElement.scrollWidth") <= width
    background = window.value("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 22, 26)" if dark else "rgb(246, 247, 249)")
    drawn = (
        "[...document.querySelectorAll('svg rect')].every(each => each.getBoundingClientRect().width > 0.5)"
    )
    assert window.value(drawn)
    window.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.servers
@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_what_is_behind_it(window: browser.Page, full: str, dark: bool) -> None:
    """The contrast that WCAG's level AA asks for."""
    window.open(full, dark=dark)
    assert window.weak_texts() == []


@pytest.mark.servers
def test_a_screen_reader_and_the_keyboard_get_everything(window: browser.Page, full: str) -> None:
    window.open(full)
    pictures = [*window.named("image"), *window.named("img")]
    # Two of events, ten streams, three delays, two of files.
    assert len(pictures) == 17
    assert all(pictures)
    assert "Events by day and exchange, 2024-01-01 to 2024-01-20: exchange-9 200" in " ".join(pictures)
    assert window.named("heading")[1:] == ["Events", "Completeness", "Delay", "Quarantine", "Sizes and files"]
    # A table behind a plot opens by keyboard alone.
    window.value("document.querySelector('details summary').focus()")
    window.press("Enter", 13)
    assert window.value("document.querySelector('details').open") is True
    assert window.value("document.querySelector('details .scroll').tabIndex") == 0
    window.press("Tab", 9)
    assert window.value("document.activeElement.className") == "scroll"


@pytest.mark.parametrize(
    ("length", "first", "last"),
    [
        (timedelta(seconds=3), "12:00:00.300", "12:00:02.700"),
        (timedelta(seconds=10), "12:00:01", "12:00:09"),
        (timedelta(hours=10), "01 Jan 13:00", "01 Jan 21:00"),
        (timedelta(days=10), "2024-01-02", "2024-01-10"),
    ],
)
def test_moments_of_a_time_line_are_told_apart(length: timedelta, first: str, last: str) -> None:
    names = [name for _, name in moments_between(at(0), at(0) + length)]
    assert (names[0], names[-1]) == (first, last)
    assert len(set(names)) == 5
