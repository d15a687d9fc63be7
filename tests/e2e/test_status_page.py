"""The status page in a real browser, of a real sidecar under load and in trouble, as an operator sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import browser
import pytest
from buses import trade
from configurations import KAFKA, KINESIS, SQS
from conftest import missing
from servers import NatsServer, RedisServer, Unavailable
from sidecar_process import SidecarProcess, sidecar
from steady import steady

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

USERS = """
authorization {
  users = [{user: sidecar, password: s3cret-word, permissions: {publish: {deny: "bronze.bitmex.ETHUSD"}}}]
}
"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    try:
        with browser.browsing(tmp_path_factory.mktemp("browser")) as page:
            yield page
    except Unavailable as reason:
        missing(reason)


@pytest.fixture
def nats(start_nats: Callable[..., NatsServer]) -> NatsServer:
    return start_nats(config=USERS)


@pytest.fixture
def redis(start_redis: Callable[..., RedisServer]) -> RedisServer:
    return start_redis()


def options(nats: NatsServer, redis: RedisServer) -> list[str]:
    return [
        *("--nats-servers", f"127.0.0.1:{nats.port}", "--nats-stream", "BRONZE"),
        *("--nats-user", "sidecar", "--nats-pass", "s3cret-word"),
        *("--nats-subject", "bronze.{{exchange}}.{{symbol}}"),
        *("--redis-host", "127.0.0.1", "--redis-port", str(redis.port)),
        *("--redis-stream", "bronze:{{exchange}}"),
    ]


@pytest.fixture
def process(nats: NatsServer, redis: RedisServer, tmp_path: Path) -> Iterator[SidecarProcess]:
    letters = ("--dead-letter-file", str(tmp_path / "letters.jsonl"))
    with sidecar(*options(nats, redis), *letters) as process:
        process.wait_until_ready()
        yield process


def address(process: SidecarProcess) -> str:
    return f"http://127.0.0.1:{process.port}/"


def text(window: browser.Page, selector: str) -> str:
    return str(window.value(f"document.querySelector({selector!r}).innerText"))


def wait_for(window: browser.Page, selector: str, *words: str, without: str = "\0") -> str:
    """Return a part's text once all words are in it; the page has to get there by itself."""
    deadline = time.monotonic() + 60
    while True:
        found = text(window, selector)
        if all(word in found for word in words) and without not in found:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def rubbish(position: int) -> bytes:
    return b'{"type":"trade","exchange":"bitmex","price":"%d"}' % position


def only_bitcoin(position: int) -> bytes:
    return trade(position).replace(b'"ETHUSD"', b'"XBTUSD"')


def test_under_load_it_is_live_and_asks_nobody_else(
    window: browser.Page, process: SidecarProcess, tmp_path: Path
) -> None:
    with steady(process.address, 3, only_bitcoin):
        window.requests.clear()
        window.complaints.clear()
        window.open(address(process))
        flow = wait_for(window, "#producers", "exchange/3", "3 streams open")
        assert "realtime" in flow
        before = int(
            wait_for(window, "#sidecar", "Receives").split("Received\n")[1].split()[0].replace(",", "")
        )
        wait_for(window, "#live", "live")
        wait_for(window, "#sidecar", without=f"Received\n{before:,} message")
        wait_for(window, "#backends", "NATS", "Redis", "ready", without="Publishes\n0/s")
        wait_for(window, "#destinations", "bronze.bitmex.XBTUSD", "bronze:bitmex")
        assert wait_for(window, "#verdict", "All is well") == "All is well"
        window.screenshot(tmp_path / "load.png")
    configuration = text(window, "#configuration")
    assert "--nats-pass" in configuration
    assert "s3cret-word" not in configuration
    assert "s3cret-word" not in window.value("document.documentElement.outerHTML")
    assert window.complaints == []
    assert set(window.requests) == {address(process), f"{address(process)}events"}


def test_a_bus_that_is_away_is_named_with_since_when_and_what_waits(
    window: browser.Page, process: SidecarProcess, nats: NatsServer, tmp_path: Path
) -> None:
    with steady(process.address, 2, only_bitcoin):
        window.open(address(process))
        wait_for(window, "#verdict", "All is well")
        wait_for(window, "#producers", "exchange/2")
        nats.kill()
        found = wait_for(
            window,
            "#verdict",
            "1 problem",
            "NATS is away: ",
            "since ",
            "Waiting in memory: ",
            "none of it is lost",
            without="Nothing waits",
        )
        assert "s3cret-word" not in found
        wait_for(window, "#backends", "ready", "Last error")
        window.screenshot(tmp_path / "outage.png")
        nats.start()
        wait_for(window, "#verdict", "All is well")
        # What happened stays to be seen.
        assert "Last error" in text(window, "#backends")
        window.screenshot(tmp_path / "recovered.png")


def test_a_forbidden_subject_is_named_with_what_is_lost(
    window: browser.Page, process: SidecarProcess, tmp_path: Path
) -> None:
    with steady(process.address):
        window.open(address(process))
        found = wait_for(
            window,
            "#verdict",
            "1 problem",
            "NATS has refused",
            "bronze.bitmex.ETHUSD",
            "may not publish",
            "letters.jsonl",
        )
        assert "since " in found
        wait_for(window, "#failures", "given up", "NATS", "bronze.bitmex.ETHUSD", "exchange-1:")
        window.screenshot(tmp_path / "forbidden.png")


def test_a_producer_that_sends_rubbish_is_named_with_the_reason(
    window: browser.Page, process: SidecarProcess, tmp_path: Path
) -> None:
    with steady(process.address, 2, only_bitcoin), steady(process.address, 1, rubbish, name="broken"):
        window.open(address(process))
        found = wait_for(window, "#verdict", "1 problem", "broken/1 sends what cannot be published")
        assert "trade" in found
        assert "since " in found
        wait_for(window, "#failures", "rejected", "broken/1", "broken-1:")
        rows = window.value("[...document.querySelectorAll('#producers tbody tr')].map(row => row.innerText)")
        assert [row.split("\n")[0].split("\t")[0] for row in rows] == ["broken/1", "exchange/1", "exchange/2"]
        window.screenshot(tmp_path / "rubbish.png")


def test_what_waits_on_disk_is_shown(
    window: browser.Page, nats: NatsServer, redis: RedisServer, tmp_path: Path
) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    spill = ("--nats-when-full=spill", "--spool-dir", str(folder), "--max-queue-events", "200")
    with sidecar(*options(nats, redis), *spill) as process:
        process.wait_until_ready()
        nats.kill()
        with steady(process.address, 1, only_bitcoin, each_second=500):
            window.open(address(process))
            wait_for(window, "#verdict", "NATS is away", "Waiting on disk: ")
            wait_for(window, "#backends", "On disk", "; ready")
            window.screenshot(tmp_path / "disk.png")


def test_a_sidecar_that_is_gone_leaves_old_figures_that_say_so(
    window: browser.Page, process: SidecarProcess, tmp_path: Path
) -> None:
    window.open(address(process))
    wait_for(window, "#live", "live", without="not")
    process.kill()
    wait_for(window, "#live", "not live")
    assert text(window, "#verdict").startswith("The sidecar does not answer")
    for part in (".flow", "[data-live=verdict]"):
        assert window.value(f"getComputedStyle(document.querySelector('{part}')).opacity") == "0.55"
    window.screenshot(tmp_path / "gone.png")
    process.start()
    wait_for(window, "#live", "live", without="not")
    assert text(window, "#verdict") == "All is well"
    assert window.value("getComputedStyle(document.querySelector('.flow')).opacity") == "1"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """Run a sidecar with 20 producers and all back ends, three of which cannot be reached."""
    folder = tmp_path_factory.mktemp("crowded")
    with ExitStack() as stack:
        try:
            nats, redis = NatsServer(folder / "n", config=USERS), RedisServer(folder / "r")
        except Unavailable as reason:
            missing(reason)
        stack.callback(nats.stop)
        stack.callback(redis.stop)
        nats.start()
        redis.start()
        away = ("--kinesis-endpoint-url=http://127.0.0.1:9", "--sqs-endpoint-url=http://127.0.0.1:9")
        keys = [
            f"--{name}-{key}"
            for name in ("kinesis", "sqs")
            for key in ("access-key=AKIATEST", "secret-key=hidden-one")
        ]
        kafka = (KAFKA[0].replace(":9092", ":9"), KAFKA[1])
        process = stack.enter_context(
            sidecar(*options(nats, redis), *kafka, *KINESIS, *SQS, *away, *keys, "--max-queue-events=2000")
        )
        for number in range(10):
            name = "tardis-machine" if number else "a-program-with-a-very-long-name-that-nobody-can-remember"
            message = rubbish if number == 5 else trade
            stack.enter_context(steady(process.address, 2, message, each_second=20, name=f"{name}-{number}"))
        while process.status()["streams"]["open"] < 20:
            time.sleep(0.1)
        yield process


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("look", [(False, 1600), (True, 1280), (False, 360), (True, 360)])
def test_twenty_producers_and_five_back_ends_are_readable_anywhere(
    window: browser.Page, crowded: SidecarProcess, look: tuple[bool, int], scripts: bool, tmp_path: Path
) -> None:
    dark, width = look
    window.call("Emulation.setScriptExecutionDisabled", value=not scripts)
    try:
        window.open(address(crowded), dark=dark, width=width)
        background = window.value("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(22, 21, 19)" if dark else "rgb(246, 245, 242)")
        assert window.value("document.querySelectorAll('#producers tbody tr').length") == 20
        titles = window.value("[...document.querySelectorAll('#backends h3')].map(each => each.innerText)")
        assert titles == ["Kafka", "NATS", "Kinesis", "Redis", "SQS"]
        found = text(window, "#verdict")
        for title in ("Kafka", "Kinesis", "SQS"):
            assert f"{title} is not connected yet" in found or f"{title} is away" in found
        assert window.value("document.documentElement.scrollWidth") <= width
        live = text(window, "#live")
        assert ("JavaScript is off" in live) is not scripts
        assert window.value(CUT_OFF) == []
        assert window.weak_texts() == []
        window.screenshot(tmp_path / "page.png")
    finally:
        window.call("Emulation.setScriptExecutionDisabled", value=False)


CUT_OFF = """
[...document.querySelectorAll('main *')]
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest('.wide'))
  .filter((each) => getComputedStyle(each).position !== 'absolute')
  .map((each) => each.outerHTML.slice(0, 100))
"""


def test_a_screen_reader_gets_everything(window: browser.Page, crowded: SidecarProcess) -> None:
    window.open(address(crowded))
    assert window.named("heading")[0] == "Bronze Sidecar"
    assert {"Producers", "Sidecar", "Back ends", "Kafka", "Most used destinations"} <= {
        *window.named("heading")
    }
    pictures = [*window.named("image"), *window.named("img")]
    assert len(pictures) == 2 + 2 * 5
    assert all("the last ten minutes" in each or "nothing yet" in each for each in pictures)
    meters = window.named("meter")
    assert len(meters) == 1 + 5
    assert all(":" in each for each in meters)
    assert {"What is wrong", "Producers", "Sidecar", "Back ends"} <= {*window.named("region")}


def test_a_keyboard_is_enough(window: browser.Page, crowded: SidecarProcess) -> None:
    window.open(address(crowded))
    wait_for(window, "#live", "live", without="not")
    focused = "document.activeElement.outerHTML.slice(0, 40)"
    seen = []
    for _ in range(30):
        window.press("Tab", 9)
        seen.append(window.value(focused))
        if "summary" in seen[-1]:
            break
    assert seen[0].startswith('<a class="skip"')
    assert seen[1].startswith('<button id="pause"')
    window.press("Enter", 13)
    wait_for(window, "#configuration", "--max-streams")
    # What is opened and focused stays so while the page goes on.
    shown = text(window, "#about, [data-live=about]")
    wait_for(window, "[data-live=about]", without=shown)
    assert window.value("document.querySelector('details').open") is True
    assert "summary" in window.value(focused)
    window.value("document.getElementById('pause').focus()")
    window.press("Enter", 13)
    assert text(window, "#live") == "paused"
    window.press("Enter", 13)
    wait_for(window, "#live", "live")
