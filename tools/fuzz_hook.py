"""Throws odd requests at servers like tardis-machine with the client loaded into them.

Each request goes to two servers, one with the client and one without, several at once. Both must answer
the same bytes, and after each hundred the one with the client must answer an honest request as the other.
The client must not have failed, not even quietly. Its buffer is small and full, so that replays begin to wait
and give up. Every request follows from the seed and its number alone, so one that fails can be sent again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from servers import HOST, free_port
from tardis_servers import (
    MachineServer,
    Variant,
    hook_environment,
    install_stand_in,
    new_node_program,
    send_raw,
)

VARIANTS: tuple[Variant, ...] = ("modules", "commonjs")
ROUTES = ("/replay-normalized", "/ws-replay-normalized", "/ws-stream-normalized")
MOST_FAILURES = 10
AT_ONCE = 8
BATCH = 100
WARM_UP = 5000
# Requests are limited to 16 KiB by default; larger ones must do no harm either.
LARGEST_HEAD = "--max-http-header-size=4000000"

Transport = Literal["http", "ws"]


@dataclass(frozen=True)
class Attack:
    """The bytes of a request, and after how many bytes of the answer its sender hangs up."""

    name: str
    transport: Transport
    sent: bytes
    leave_after: int | None = None


HONEST: dict[str, Any] = {
    "exchange": "bitmex",
    "symbols": ["XBTUSD"],
    "dataTypes": ["trade"],
    "from": "2024-01-01",
    "to": "2024-01-02",
    "count": 40,
    "steps": [{"trades": 2}, {"disconnect": True}, {"trades": 1}],
}

DEEP = 3000
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 5, 1.5, 1e308, "", " ", "null", "\x00", "bit\x00mex", "\ud800", "ü" * 50),
    *([], [[]], [None], [5], [{}], ["trade", None], [["trade"]], {}, {"a": {}}, {"length": 3}),
    *({"__proto__": {"exchange": 7}}, {"toString": 5}, {"then": 1}, "__proto__", "constructor", "x" * 5000),
)
FIELDS = (
    *("exchange", "symbols", "dataTypes", "from", "to", "apiKey", "withDisconnectMessages"),
    *("withErrorMessages", "autoCleanup", "waitWhenDataNotYetAvailable", "timeoutIntervalMS"),
)
# Texts in place of the options; `None` leaves them away.
ODD_TEXTS: tuple[str | None, ...] = (
    *(None, "", "null", "[null]", "[null,null]", "[]", "[[]]", "[[null]]", "{}", "[{}]", "5", "-0", "1e999"),
    *(
        '"text"',
        "true",
        "[true]",
        "[5]",
        '["bitmex"]',
        "[[{}]]",
        "undefined",
        "NaN",
        "{",
        "[",
        '{"a":}',
        "[,]",
    ),
    *('{"__proto__":null}', '[{"exchange":"bitmex"},null]', '[null,{"exchange":"bitmex"}]', "\ufeff{}"),
    "[" * DEEP + "]" * DEEP,
    '{"a":' * DEEP + "1" + "}" * DEEP,
    '[{"exchange":"bitmex","symbols":' + "[" * DEEP + "]" * DEEP + ',"dataTypes":["trade"]}]',
)
ODD_QUERIES = (
    *(
        "",
        "?",
        "?options",
        "?options=",
        "?options=%",
        "?options=%zz",
        "?options=%00",
        "?options=%5Bnull%5D%00",
    ),
    *(
        "?options=%ff%fe",
        "?options=%C3%28",
        "?options=%u0041",
        "?options=%255Bnull%255D",
        "?options=+",
        "?&&&=&",
    ),
    *(
        "?options=null&options=null",
        "?options=%5Bnull%5D&options=%7B%7D",
        "?options=%7B%7D&options=%5Bnull%5D",
    ),
    *(
        "?OPTIONS=%5Bnull%5D",
        "?options[]=null",
        "?options=%5Bnull%5D#x",
        "?options=%5Bnull%5D;a=1",
        "/?options=[null]",
    ),
)


def known_attacks() -> list[Attack]:
    """Return the requests that are always tried."""
    attacks = [attack for text in ODD_TEXTS for attack in everywhere(f"options {shorten(text)}", query(text))]
    for odd in ODD_QUERIES:
        attacks += everywhere(f"query {odd}", odd)
    for field in FIELDS:
        for value in ODD_VALUES:
            text = json.dumps([{**HONEST, field: value}, HONEST])
            attacks += everywhere(f"{field}: {shorten(json.dumps(value))}", query(text))
    long = json.dumps({**HONEST, "symbols": ["S" * 20] * 45_000})
    attacks += everywhere("a request of a megabyte", query(long))
    many = json.dumps([{**HONEST, "exchange": f"invented-{number}"} for number in range(40)])
    attacks += everywhere("forty invented exchanges", query(many))
    bodies = ("", "null", "[null]", json.dumps(HONEST), "\x00", "[" * DEEP)
    for body in bodies:
        for path in (ROUTES[0], ROUTES[0] + query("[null]")):
            attacks.append(Attack(f"POST {shorten(body)}", "http", head("POST", path, body)))
    for route in ROUTES:
        attacks += abrupt_ends(route, query(json.dumps({**HONEST, "count": 5000})))
    return attacks


def abrupt_ends(route: str, options: str) -> Iterator[Attack]:
    """Yield a request whose sender hangs up, at every stage."""
    transport, sent = request(route, options)
    for count in (0, 1, 20, len(sent) // 2, len(sent) - 1):
        yield Attack(f"{route}: only {count} bytes of a request", transport, sent[:count], 0)
    for count in (0, 1, 100, 200, 20_000):
        yield Attack(f"{route}: only {count} bytes of an answer", transport, sent, count)


def attack(seed: int, number: int) -> Attack:
    """Return a request made by chance."""
    pick = random.Random(f"hook:{seed}:{number}")  # noqa: S311 - to be the same in every run
    route = pick.choice(ROUTES)
    if pick.random() < 0.15:
        odd = pick.choice(ODD_QUERIES) + "".join(pick.choices("%&=+[]{}\"'0a", k=pick.randrange(12)))
    else:
        odd = query(odd_text(pick))
    transport, sent = request(route, odd)
    if pick.random() < 0.1:
        at = pick.randrange(len(sent))
        sent = sent[:at] + pick.randbytes(pick.randrange(4)) + sent[at + pick.randrange(4) :]
        # A server may wait for the rest of what has become too short.
        return Attack(f"{number}", transport, sent, 0)
    leave_after = pick.choice((0, 1, 150, 5000)) if pick.random() < 0.2 else None
    return Attack(f"{number}", transport, sent, leave_after)


def odd_text(pick: random.Random) -> str:
    entries: list[Any] = []
    for _ in range(pick.choice((1, 1, 1, 2, 3))):
        entry: Any = dict(HONEST)
        for _ in range(pick.randrange(4)):
            field = pick.choice(FIELDS)
            if pick.random() < 0.3:
                entry.pop(field, None)
            else:
                entry[field] = pick.choice(ODD_VALUES)
        entries.append(pick.choice(ODD_VALUES) if pick.random() < 0.2 else entry)
    text = json.dumps(entries if pick.random() < 0.6 else entries[0], ensure_ascii=pick.random() < 0.7)
    if pick.random() < 0.2:
        at = pick.randrange(len(text))
        # No digit: a longer number of trades would keep the server busy.
        text = text[:at] + pick.choice('{}[],:"\\\x00né') + text[at + pick.randrange(3) :]
    return text


def query(text: str | None) -> str:
    if text is None:
        return "?other=1"
    return "?options=" + quote(text.encode("utf-8", "surrogatepass"))


def everywhere(name: str, odd: str) -> list[Attack]:
    """Return the request on every route."""
    return [Attack(f"{route}: {name}", *request(route, odd)) for route in ROUTES]


def request(route: str, odd: str) -> tuple[Transport, bytes]:
    if not route.startswith("/ws-"):
        return "http", head("GET", route + odd)
    upgrade = (
        f"GET {route}{odd} HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==\r\n\r\n"
    )
    return "ws", upgrade.encode()


def head(method: str, path: str, body: str = "") -> bytes:
    length = f"Content-Length: {len(body.encode())}\r\n" if method == "POST" else ""
    return f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n{length}\r\n{body}".encode()


def shorten(text: str | None) -> str:
    return "none" if text is None else text if len(text) < 40 else f"{text[:37]}..."


class Pair:
    """A server with the client and one without."""

    def __init__(self, hooked: MachineServer, plain: MachineServer) -> None:
        self.hooked = hooked
        self.plain = plain
        self._ways = itertools.cycle(("replay", "ws_replay", "ws_stream"))
        self._honest = {way: getattr(plain, way)(HONEST) for way in ("replay", "ws_replay", "ws_stream")}

    def problem(self, attack: Attack) -> str | None:
        """Send a request to both; return what is wrong, if something is."""
        return self.difference(attack) or self.trouble()

    def difference(self, attack: Attack) -> str | None:
        """Send a request to both; return how the answers differ, if they do."""
        try:
            answers = [self._send(server, attack) for server in (self.plain, self.hooked)]
        except OSError as error:
            return f"a server does not answer any more: {error!r}"
        # Of those that hang up, each gets what came until then.
        if attack.leave_after is None and answers[0] != answers[1]:
            return f"without the client:\n{answers[0]!r:.2000}\nwith it:\n{answers[1]!r:.2000}"
        return None

    def trouble(self) -> str | None:
        """Send an honest request; return what is wrong with the server that has the client."""
        way = next(self._ways)
        try:
            if getattr(self.hooked, way)(HONEST) != self._honest[way]:
                return f"it answers an honest request differently: {way}"
        except OSError as error:
            return f"it does not answer any more: {error!r}"
        failures = [line for line in self.hooked.said() if "client failed" in line]
        return f"the client failed: {failures}" if failures else None

    @property
    def megabytes(self) -> float:
        """The memory of the server that has the client."""
        pages = int(Path(f"/proc/{self.hooked.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / (1 << 20)

    @staticmethod
    def _send(server: MachineServer, attack: Attack) -> bytes:
        port = server.port if attack.transport == "http" else server.port + 1
        return send_raw(port, attack.sent, attack.leave_after)


@contextmanager
def pair(directory: Path, variant: Variant, address: str) -> Iterator[Pair]:
    """Start both servers."""
    started: list[MachineServer] = []
    try:
        bounds = {"buffer_events": "2000", "max_wait_ms": "1", "flush_ms": "0"}
        for name, hook in (("plain", {}), ("hooked", hook_environment(address, **bounds))):
            program = install_stand_in(directory / name, variant)
            command = [new_node_program(variant), LARGEST_HEAD, str(program)]
            server = MachineServer(directory / name, command, (), hook)
            started.append(server)
            server.start()
        yield Pair(hooked=started[1], plain=started[0])
    finally:
        for server in started:
            server.stop()


@dataclass
class Campaign:
    """What came of the requests to one kind of server."""

    failures: int = 0
    megabytes: tuple[float, float] = (0, 0)


def run(attacks: Iterable[Attack], variant: Variant) -> Campaign:
    """Try all on one kind of server."""
    campaign = Campaign()
    rest = iter(attacks)
    with (
        tempfile.TemporaryDirectory() as folder,
        pair(Path(folder), variant, f"{HOST}:{free_port()}") as servers,
        ThreadPoolExecutor(AT_ONCE) as clients,
    ):
        number = 0
        while batch := list(itertools.islice(rest, BATCH)):
            problems = list(clients.map(servers.difference, batch))
            found = [(each, problem) for each, problem in zip(batch, problems, strict=True) if problem]
            if trouble := servers.trouble():
                found.append((batch[-1], f"{trouble}, after this request or one of the {BATCH} before it"))
            for each, problem in found:
                print(
                    f"\n{variant} server, request {each.name}\n{each.sent!r:.2000}\n{problem}",
                    file=sys.stderr,
                )
            campaign.failures += len(found)
            if campaign.failures >= MOST_FAILURES or any("any more" in problem for _, problem in found):
                break
            number += len(batch)
            # The first requests have everything compiled and allocated.
            first = servers.megabytes if number <= WARM_UP else campaign.megabytes[0]
            campaign.megabytes = (first, servers.megabytes)
    return campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000, metavar="N", help="how many to make by chance")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which ones to try")
    parser.add_argument("--only", type=int, metavar="N", help="try this one alone")
    options = parser.parse_args()
    start = time.perf_counter()
    if options.only is not None:
        known, numbers = [], range(options.only, options.only + 1)
    else:
        known, numbers = known_attacks(), range(options.inputs)
    failures = 0
    for variant in VARIANTS:
        made = (attack(options.seed, number) for number in numbers)
        campaign = run(itertools.chain(known, made), variant)
        failures += campaign.failures
        before, after = campaign.megabytes
        print(
            f"{variant}: {len(known) + len(numbers)} requests (seed {options.seed}), "
            f"{campaign.failures} failures, "
            f"memory {before:.0f} MB after the first {WARM_UP}, {after:.0f} MB at the end"
        )
    print(f"{time.perf_counter() - start:.1f} seconds")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
