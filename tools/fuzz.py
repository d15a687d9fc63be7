"""Throws odd configurations and messages at the parsers: each must be taken, or refused with a reason.

Every input follows from the seed and its number alone, so that one that fails can be run again by itself.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from bronze_cli.problems import ConfigError
from bronze_client.schema import NormalizedEvent
from bronze_sidecar.cli.check import as_table, report
from bronze_sidecar.configuration.config import Config, load
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.envelope.payloads import PAYLOAD_CASES
from bronze_sidecar.envelope.wire import timestamp_field
from bronze_sidecar.errors import Rejected
from bronze_sidecar.mapping.mapper import Mapper, StreamContext

# Stands for a secret, and must never be seen; no name of an option or word of a message is like it.
MARKER = "S3cr3tQXZ"
MOST_FAILURES = 10
MOST_SECONDS_PER_INPUT = 10

QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/"
# Options by flag; each configuration loads as it stands.
CONFIGURATIONS: tuple[dict[str, str], ...] = (
    {
        "--kafka-brokers": "a:9092,b:9092",
        "--kafka-topic": "bronze",
        "--kafka-topic-template": "bronze.{{exchange}}.{{ symbol }}.{{payloadCase}}",
        "--kafka-topic-routing": "trade:trades,book_change:books.{{symbol}}",
        "--kafka-key-template": "{{meta.request_id}}|{{symbol}}",
        "--kafka-include-payloads": "trade,book_change,quote",
        "--kafka-static-headers": "env:prod,team:market data",
        "--kafka-meta-headers-prefix": "meta-",
        "--kafka-sasl-mechanism": "scram-sha-256",
        "--kafka-sasl-username": "user",
        "--kafka-sasl-password": MARKER,
        "--kafka-schema-registry-url": "http://registry:8081",
        "--kafka-schema-registry-auth-username": "user",
        "--kafka-schema-registry-auth-password": MARKER,
        "--kafka-acks": "-1",
        "--kafka-compression": "zstd",
        "--kafka-ssl": "true",
    },
    {
        "--nats-servers": "nats://a:4222,tls://b:4222,[::1]:4222",
        "--nats-subject": "bronze.{{exchange}}.{{symbol}}",
        "--nats-subject-routing": "error:control,disconnect:control.{{source}}",
        "--nats-static-headers": "env:prod",
        "--nats-user": "user",
        "--nats-pass": MARKER,
        "--nats-stream": "BRONZE",
        "--nats-max-batch-size": "100",
    },
    {"--nats-servers": "a:4222", "--nats-subject": "bronze", "--nats-token": MARKER},
    {
        "--kinesis-stream": "bronze-{{payloadCase}}-{{symbol}}",
        "--kinesis-region": "eu-central-1",
        "--kinesis-partition-key-template": "{{exchange}}:{{symbol}}",
        "--kinesis-static-headers": "env:prod",
        "--kinesis-access-key": MARKER,
        "--kinesis-secret-key": MARKER,
        "--kinesis-session-token": MARKER,
        "--kinesis-endpoint-url": "https://localhost:4566",
    },
    {
        "--redis-host": "localhost",
        "--redis-stream": "bronze",
        "--redis-stream-template": "bronze:{{origin}}:{{exchange}}:{{symbol}}",
        "--redis-port": "6380",
        "--redis-username": "user",
        "--redis-password": MARKER,
        "--redis-maxlen": "1000000",
        "--redis-db": "3",
    },
    {"--redis-url": f"rediss://user:{MARKER}@host:6380/1", "--redis-stream": "bronze"},
    {
        "--sqs-queue-url": QUEUE + "{{exchange}}-{{symbol}}.fifo",
        "--sqs-region": "eu-central-1",
        "--sqs-queue-routing": f"trade:{QUEUE}trades,quote:{QUEUE}quotes.fifo",
        "--sqs-static-attributes": "env:prod",
        "--sqs-message-attributes": "id:{{meta.event_id}},where:{{exchange}} {{symbol}}",
        "--sqs-message-group-template": "{{symbol}}",
        "--sqs-access-key": MARKER,
        "--sqs-secret-key": MARKER,
        "--sqs-session-token": MARKER,
    },
    {
        "--listen": "127.0.0.1:50051,unix:///tmp/bronze.sock",
        "--admin-listen": "[::1]:9464",
        "--log-level": "debug",
        "--grace-seconds": "2.5",
        "--max-queue-bytes": "2097152",
        "--retry-limit": "3",
    },
)

MESSAGES: tuple[dict[str, Any], ...] = (
    {"type": "trade", "id": "1", "price": 1.5, "amount": 2, "side": "buy"},
    {
        "type": "book_change",
        "isSnapshot": True,
        "bids": [{"price": 1.5, "amount": 2}, {"price": 1, "amount": 0}],
        "asks": [{"price": 1e21, "amount": 1e-7}],
    },
    {"type": "book_change", "isSnapshot": False, "bids": [], "asks": []},
    {
        "type": "book_snapshot",
        "name": "book_snapshot_2_50ms",
        "depth": 2,
        "interval": 50,
        "grouping": 10,
        "bids": [{"price": 1, "amount": 2}, {}],
        "asks": [{"price": 3, "amount": 4}],
    },
    {"type": "grouped_book_snapshot", "depth": 1, "interval": 0, "bids": [], "asks": [{"price": 1}]},
    {"type": "quote", "bidPrice": 1, "bidAmount": 2, "askPrice": None, "askAmount": 4},
    {"type": "book_ticker", "bidPrice": 1, "bidAmount": 2, "askPrice": 3, "askAmount": 4},
    {"type": "derivative_ticker", "markPrice": 1.25, "indexPrice": 1, "fundingRate": -0.0001},
    {"type": "liquidation", "id": "x", "side": "sell", "price": 1, "amount": 2},
    {"type": "option_summary", "markIV": 50.5, "delta": 0.5, "gamma": 1e-5, "theta": -1, "vega": 2},
    {"type": "option_summary", "bestBidIV": None, "bestAskIV": 1, "openInterest": 3},
    {
        "type": "trade_bar",
        "name": "trade_bar_1.5vol",
        "kind": "volume",
        "interval": 1.5,
        "open": 1,
        "high": 2,
        "low": 1,
        "close": 2,
        "volume": 3,
        "trades": 4,
        "openTimestamp": "2026-01-02T03:04:05.000Z",
        "closeTimestamp": "2026-01-02T03:04:06.123456Z",
    },
    {"type": "disconnect", "symbols": ["A", "B"]},
    {"type": "error", "details": "lost", "subSequentErrorsCount": 3, "code": "ws_send"},
)
COMMON = {
    "symbol": "BTC/USDT",
    "exchange": "binance",
    "timestamp": "2026-01-02T03:04:05.678Z",
    "localTimestamp": "2026-01-02T03:04:05.678901Z",
}

ODD_TEXTS = (
    *(
        "",
        " ",
        "\x00",
        "\x1b[31m",
        "\n",
        "\r\n",
        "\t",
        "\x7f",
        "\x85",
        "\u2028",
        "\ufeff",
        "\u202e",
        "\ud800",
    ),
    *("é", "日本円", "😀", "\N{COMBINING ACUTE ACCENT}", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"),
    *("{{", "}}", "{{symbol}}", "{{ exchange}}", "{{meta.a}}", "{{nothing}}", "{{}}", "{", "}"),
    *("*", ">", ".", "..", "$", "/", "//", "\\", "|", "%", "%41", "_", "__", "-", "--", "=", ":", ",", ";"),
    *("@", "://", "user:pass@", "trade:", "book-change", "payloadCase:x", "'", '"', "`", "#"),
    *("&a", "*a", "!", "!!int", "? ", "null", "~", "true", "no", "[]", "{}", "[1]", '{"a":1}'),
    *("0", "-0", "-1", "1.5", "1e999", "-1e-999", "NaN", "Infinity", "0x1F", "007", "1_000"),
    *("9" * 19, "9" * 400, "[" * 400, "{a: " * 200, "- " * 300, '{"a":' * 400),
    *("x" * 300, "é" * 300, "ab," * 300, "a:b," * 300),
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 1e300, 2**32, 2**63, 2**64, -(2**63), 10**30),
    *("", "x", "buy", "unknown", "\ud800", "日本円", "\x00", "X" * 300),
    *("2026-01-02T03:04:05Z", "2026-13-02T03:04:05.000Z", "1969-12-31T23:59:59.999999Z"),
    *("0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"),
    *([], [None], [[]], {}, {"price": 1}, [{"price": "1", "amount": 1}], ["a", None]),
    [{"price": 1, "amount": 1}] * 3,
)
AWKWARD_VALUES = (
    *("BTC/USDT", "XBT.P", "1000*", ">", "a b", "a|b", "", "日本円", "$SYS", "%41", "_41", "\x00"),
    "X" * 300,
)
LEGAL = {
    "kafka": re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}"),
    "nats": re.compile(r"(?!\$)(?=.{1,255}$)[^\x00-\x20\x7f.*>\s]+(\.[^\x00-\x20\x7f.*>\s]+)*"),
    "kinesis": re.compile(r"[A-Za-z0-9_.-]{1,128}"),
    "redis": re.compile(r"[^\x00-\x1f\x7f]{1,1024}"),
    "sqs": re.compile(r"https?://[!-~]+/(?=.{1,80}$)[A-Za-z0-9_-]+(\.fifo)?"),
}


class Broken(Exception):  # noqa: N818 - it says what the program is
    """Something that must always hold does not."""


@dataclass
class Tally:
    """What became of the inputs."""

    accepted: int = 0
    refused: int = 0
    messages: set[str] = field(default_factory=set)
    failures: int = 0
    last_failure: str = ""


# Odd text


def mutate(text: str, pick: random.Random) -> str:
    """Change a text in one of many ways."""
    at = pick.randint(0, len(text))
    to = min(len(text), at + pick.choice((1, 1, 2, 5, 40)))
    way = pick.randrange(8)
    if way == 0:
        return text[:at] + pick.choice(ODD_TEXTS) + text[at:]
    if way == 1:
        return text[:at] + text[to:]
    if way == 2:
        return text[:to] + text[at:to] * pick.choice((1, 2, 50)) + text[to:]
    if way == 3:
        return text[:at] + chr(pick.choice((pick.randrange(128), pick.randrange(0x3000)))) + text[to:]
    if way == 4:
        return text[:at]
    if way == 5:
        return pick.choice(ODD_TEXTS)
    if way == 6:
        return text[:at] + text[at:to].swapcase() + text[to:]
    return text[at:to] + text[:at] + text[to:]


def mutate_bytes(content: bytes, pick: random.Random) -> bytes:
    """Change bytes so that they may be no text any more."""
    changed = bytearray(content)
    for _ in range(pick.choice((1, 1, 3, 20))):
        at = pick.randrange(len(changed) + 1)
        if pick.random() < 0.5 and at < len(changed):
            changed[at] ^= 1 << pick.randrange(8)
        else:
            changed[at:at] = pick.randbytes(pick.choice((1, 2, 8)))
    return bytes(changed[: pick.randint(0, len(changed))] if pick.random() < 0.2 else changed)


# Configurations


@dataclass
class Given:
    """A configuration, as the program gets it."""

    arguments: list[str]
    environ: dict[str, str]
    file: bytes | None
    hides_secrets: bool
    """Whether secrets still stand where secrets belong, and so must not be shown."""


def odd_configuration(pick: random.Random) -> Given:
    options: dict[str, str] = {}
    for chosen in pick.sample(CONFIGURATIONS, k=pick.choice((1, 1, 1, 2, 3))):
        options |= chosen
    for _ in range(pick.choice((0, 0, 0, 1, 1, 2))):
        flag = pick.choice(list(options))
        if MARKER not in options[flag]:
            options[flag] = mutate(options[flag], pick)
        elif pick.random() < 0.3:
            del options[flag]
    kinds = ("flag", "variable", "file") if pick.random() < 0.5 else ("flag", "variable")
    sources = pick.choices(kinds, k=len(options))
    given = Given([], {}, None, hides_secrets=True)
    document: dict[str, Any] = {}
    for (flag, value), source in zip(options.items(), sources, strict=True):
        if source == "flag":
            given.arguments += [f"{flag}={value}"] if pick.random() < 0.7 else [flag, value]
        elif source == "variable":
            given.environ["SIDECAR_" + flag[2:].replace("-", "_").upper()] = value
        else:
            put_into(document, flag, value, pick)
    if document:
        given.file = file_of(document, pick)
    if pick.random() < 0.2:
        spoil(given, pick)
    return given


def put_into(document: dict[str, Any], flag: str, value: str, pick: random.Random) -> None:
    """Give an option in the file, sometimes as a list, a mapping or something odd."""
    group, _, name = flag[2:].partition("-")
    place, key = document, flag[2:].replace("-", "_")
    if group in LEGAL:
        place, key = document.setdefault(group, {}), name.replace("-", "_")
    form = pick.randrange(40)
    if form == 0 and MARKER not in value:
        place[key] = pick.choice(ODD_VALUES)
    elif form in {1, 2} or (form < 20 and "," in value):
        place[key] = value.split(",")
    elif form == 3 or (form < 30 and "," in value):
        place[key] = dict(pair.partition(":")[::2] for pair in value.split(","))
    else:
        place[key] = value


def file_of(document: dict[str, Any], pick: random.Random) -> bytes:
    try:
        text = yaml.safe_dump(document, allow_unicode=True) if pick.random() < 0.3 else json.dumps(document)
        return text.encode()
    except (UnicodeEncodeError, RecursionError):
        return json.dumps(document).encode()


def spoil(given: Given, pick: random.Random) -> None:
    """Damage the form of a configuration, beside its values."""
    way = pick.randrange(5)
    if way == 0 and given.file:
        # What becomes of a secret is anyone's guess now: it may have become the name of an option.
        given.file = mutate_bytes(given.file, pick)
        given.hides_secrets = False
    elif way == 1 and given.file:
        given.file = mutate(given.file.decode(), pick).encode("utf-8", "surrogatepass")
        given.hides_secrets = False
    elif way == 2 and given.arguments:
        # A flag's name is mistyped; its value follows, or stands behind '='.
        at = pick.randrange(len(given.arguments))
        name, equals, value = given.arguments[at].partition("=")
        if MARKER not in name:
            given.arguments[at] = "--" + mutate(name[2:], pick).replace("=", "") + equals + value
    elif way == 3 and given.environ:
        name = pick.choice(list(given.environ))
        given.environ["SIDECAR_" + mutate(name[8:], pick)] = given.environ.pop(name)
    else:
        given.arguments.insert(pick.randint(0, len(given.arguments)), pick.choice(ODD_TEXTS))


def try_configuration(given: Given, path: Path) -> str | None:
    """Load it, and route awkward events if that works; return why it is refused, if it is."""
    arguments = given.arguments
    if given.file is not None:
        path.write_bytes(given.file)
        arguments = [*arguments, f"--config={path}"]
    try:
        config = load(arguments, given.environ)
    except ConfigError as error:
        text = str(error)
        check_refusal(error, text, given)
        return text
    if MARKER in repr(config):
        raise Broken("the configuration shows a secret")
    try_routes(config)
    return None


def check_refusal(error: ConfigError, text: str, given: Given) -> None:
    if given.hides_secrets and MARKER in text + repr(error.problems):
        raise Broken(f"a secret is shown: {text}")
    if not error.problems or text.count("\n") != len(error.problems):
        raise Broken(f"a problem is no line of its own: {text}")
    if not all(problem.where and problem.what.endswith(".") for problem in error.problems):
        raise Broken(f"a problem has no place or reason: {text}")
    if len(text) > 2000 * len(error.problems):
        raise Broken(f"a problem takes a page: {text[:300]}")


def try_routes(config: Config) -> None:
    events = awkward_events()
    rows = report(config, events)
    for row in rows:
        if not row["filtered"] and not LEGAL[row["backend"]].fullmatch(row["destination"]):
            raise Broken(f"an illegal destination: {row}")
    # Encoding fails where a lone surrogate came through, as it would when it is printed or published.
    if MARKER.encode() in as_table(config, rows).encode():
        raise Broken("the report shows a secret")


def awkward_events() -> list[Event]:
    return [
        Event(
            envelope=b"",
            id=f"stream:{number}",
            payload_case=PAYLOAD_CASES[number % len(PAYLOAD_CASES)],
            exchange=AWKWARD_VALUES[(number * 5) % len(AWKWARD_VALUES)],
            symbol=value,
            data_type=value,
            source=value,
            origin="replay",
            meta={"a": value, "request_id": value},
        )
        for number, value in enumerate(AWKWARD_VALUES)
    ]


# Messages


def odd_message(pick: random.Random) -> bytes:
    if pick.random() < 0.03:
        return pick.randbytes(pick.randrange(60))
    message = {**pick.choice(MESSAGES), **COMMON}
    for _ in range(pick.choice((0, 0, 1, 1, 2, 4))):
        change_field(message, pick)
    text = json.dumps(message, ensure_ascii=pick.random() < 0.5)
    if pick.random() < 0.4:
        text = mutate(text, pick)
    content = text.encode("utf-8", "surrogatepass")
    return mutate_bytes(content, pick) if pick.random() < 0.15 else content


def change_field(message: dict[str, Any], pick: random.Random) -> None:
    name = pick.choice(list(message) or ["type"])
    way = pick.randrange(6)
    if way == 0:
        del message[name]
    elif way == 1:
        message[mutate(name, pick)] = message.pop(name)
    elif way == 2 and isinstance(message[name], str):
        message[name] = mutate(message[name], pick)
    elif way == 3:
        other = pick.choice(MESSAGES)
        message[name] = other[pick.choice(list(other))]
    elif way == 4:
        message["type"] = pick.choice(MESSAGES)["type"]
    else:
        message[name] = pick.choice(ODD_VALUES)


def try_message(content: bytes, mapper: Mapper, ingest_field: bytes) -> str | None:
    """Map it, and read the envelopes again if that works; return why it is refused, if it is."""
    try:
        events = mapper.events(content, 7, ingest_field)
    except Rejected as error:
        text = str(error)
        if len(text) > 1000 or not text:
            raise Broken(f"a reason takes a page, or is missing: {text[:300]}") from None
        return text
    if not events:
        raise Broken("a message gave no event")
    for event in events:
        envelope = NormalizedEvent.FromString(event.envelope)
        case = str(envelope.WhichOneof("payload")).replace("_", "")
        facts = (envelope.exchange, envelope.symbol, envelope.meta["event_id"], case)
        if facts != (event.exchange, event.symbol, event.id, event.payload_case.lower()):
            raise Broken(f"the envelope says {facts}, the event {event}")
    return None


# The run


def run(numbers: Sequence[int], seed: int) -> Tally:
    tally = Tally()
    mapper = Mapper(StreamContext(stream_id="fuzz", source="fuzz", request_id="r", meta={"route": "x"}))
    ingest_field = timestamp_field(5, 1_700_000_000, 1)
    # In memory where there is such a place: the file is written thousands of times.
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        path = Path(folder, "fuzz.yaml")
        for number in numbers:
            pick = random.Random(f"{seed}:{number}")  # noqa: S311 - to be the same in every run
            tried: Given | bytes
            if number % 5 < 2:
                tried = odd_configuration(pick)
                trial = partial(try_configuration, tried, path)
            else:
                tried = odd_message(pick)
                trial = partial(try_message, tried, mapper, ingest_field)
            if not attempt(tally, trial):
                again = f"tools/fuzz.py --seed {seed} --only {number}"
                print(f"\n{again}\n{tried!r}\n{tally.last_failure}", file=sys.stderr)
            if tally.failures >= MOST_FAILURES:
                break
    return tally


def attempt(tally: Tally, trial: Callable[[], str | None]) -> bool:
    """Make one trial; tell whether it ended in success or a refusal."""
    start = time.perf_counter()
    try:
        refusal = trial()
        if time.perf_counter() - start > MOST_SECONDS_PER_INPUT:
            raise Broken(f"took {time.perf_counter() - start:.1f} seconds")  # noqa: TRY301 - as others
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        tally.failures += 1
        tally.last_failure = traceback.format_exc()
        return False
    if refusal is None:
        tally.accepted += 1
    else:
        tally.refused += 1
        tally.messages.add(refusal)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, metavar="N", help="how many to try")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which ones to try")
    parser.add_argument("--only", type=int, metavar="N", help="try this one alone")
    options = parser.parse_args()
    start = time.perf_counter()
    tally = run([options.only] if options.only is not None else range(options.inputs), options.seed)
    print(
        f"{tally.accepted + tally.refused + tally.failures} inputs (seed {options.seed}):"
        f" {tally.accepted} accepted, {tally.refused} refused with {len(tally.messages)} distinct messages,"
        f" {tally.failures} failures, {time.perf_counter() - start:.1f} seconds"
    )
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
