"""Whatever clients send, and whatever fails in ours, a server like tardis-machine goes on as without it."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fuzz_hook import HONEST, Attack, attack, known_attacks, pair
from hook_bus import HookBus
from servers import HOST, free_port
from tardis_servers import (
    PACKAGE,
    MachineServer,
    Variant,
    ask_http,
    hook_environment,
    install_stand_in,
    new_node_program,
)

pytestmark = pytest.mark.servers


def selection() -> list[Attack]:
    """Return some of the campaign's requests: all without an object, and some of the others."""
    known = known_attacks()
    nulls = [each for each in known if "options [null" in each.name or "options [[" in each.name]
    some = random.Random(7).sample(known, 120)  # noqa: S311 - to be the same in every run
    return nulls + some + [attack(0, number) for number in range(60)]


def test_hostile_requests_change_nothing(tmp_path: Path, variant: Variant) -> None:
    with pair(tmp_path, variant, f"{HOST}:{free_port()}") as servers:
        for each in selection():
            assert servers.problem(each) is None, each


@pytest.mark.parametrize("route", ["/ws-stream-normalized", "/ws-replay-normalized", "/replay-normalized"])
def test_a_request_of_nothing(tmp_path: Path, variant: Variant, route: str) -> None:
    with pair(tmp_path, variant, f"{HOST}:{free_port()}") as servers:
        for each in known_attacks():
            if each.name == f"{route}: options [null]":
                assert servers.problem(each) is None


# -- failures of our own


def start_broken(
    directory: Path, variant: Variant, preload: str, environment: Mapping[str, str]
) -> MachineServer:
    """Start a server with code that runs before the client is loaded."""
    program = install_stand_in(directory, variant)
    breaking = directory / "breaking.cjs"
    breaking.write_text(preload)
    changed = {**environment, "NODE_OPTIONS": f"--require {breaking} {environment['NODE_OPTIONS']}"}
    server = MachineServer(directory, [new_node_program(variant), str(program)], (), changed)
    server.start()
    return server


def start_plain(directory: Path, variant: Variant) -> MachineServer:
    server = MachineServer(directory, [new_node_program(variant), str(install_stand_in(directory, variant))])
    server.start()
    return server


FAILING = {**HONEST, "failAfter": 35, "failText": "no more of it"}
FAILING_AT_ONCE = {**HONEST, "failAfter": 0, "failStatus": 401}
LIVE = {**HONEST, "steps": [{"trades": 300}, {"error": "odd"}, {"disconnect": True}, {"trades": 1}]}
LIVE_THAT_FAILS = {**HONEST, "steps": [{"trades": 1}, {"fail": "given up"}]}
LONG = {**HONEST, "count": 2000}


def answers(server: MachineServer) -> list[Any]:
    """Ask for everything that the client sees."""
    return [
        *(server.replay(request) for request in (HONEST, FAILING, FAILING_AT_ONCE, LONG, [HONEST, HONEST])),
        *(server.ws_replay(request) for request in (HONEST, FAILING, LONG)),
        *(server.ws_stream(request) for request in (HONEST, LIVE, LIVE_THAT_FAILS, [LIVE, HONEST])),
    ]


PARTS = [
    *("requests", "response-stream", "hand-over", "feed", "waiting", "publishing-thread"),
    *("warnings", "error-codes", "exchanges"),
]

CHAOS = """
  const { subscribe } = require('node:diagnostics_channel');
  const { isMainThread } = require('node:worker_threads');
  const PARTS = %(parts)s;
  const ODD = [new Error('chaos'), null, undefined, 7, Object.create(null), new RangeError('chaos')];
  let isOn = false;
  let state = %(seed)d;
  const chance = (count) => {
    state = (state * 1103515245 + 12345) %% 2147483648;
    return Math.floor(state / 65536) %% count;
  };
  const failing = (own) => function (...given) {
    if (isOn && chance(%(one_in)d) === 0) throw ODD[chance(ODD.length)];
    return Reflect.apply(own, this, given);
  };
  if (isMainThread && process.env.BRONZE_SIDECAR_ADDRESS) {
    for (const part of PARTS) {
      const exported = require(`${%(package)s}/dist/cjs/tardis-machine/${part}.js`);
      for (const [name, value] of Object.entries(exported)) {
        if (typeof value !== 'function') continue;
        const methods = Object.getOwnPropertyDescriptors(value.prototype ?? {});
        const isClass = Object.keys(methods).length > 1;
        if (!isClass) exported[name] = failing(value);
        for (const [method, { value: own }] of Object.entries(methods)) {
          if (isClass && method !== 'constructor' && own) value.prototype[method] = failing(own);
        }
      }
    }
    subscribe('http.server.request.start', ({ request }) => {
      isOn ||= request.url.startsWith('/chaos');
    });
  }
"""


@pytest.mark.parametrize("one_in", [1, 3, 20])
def test_no_failure_of_the_client_reaches_the_server(tmp_path: Path, variant: Variant, one_in: int) -> None:
    """Everything that the client's entry points call fails now and then, in every way that there is."""
    preload = CHAOS % {
        "parts": json.dumps(PARTS),
        "package": json.dumps(str(PACKAGE)),
        "seed": 11,
        "one_in": one_in,
    }
    environment = hook_environment(f"{HOST}:{free_port()}", flush_ms="0")
    plain, server = start_plain(tmp_path / "plain", variant), None
    try:
        server = start_broken(tmp_path / "hooked", variant, preload, environment)
        assert answers(server) == answers(plain)
        assert not [line for line in server.said() if "client failed" in line]
        ask_http(server.port, "/chaos", {})
        expected = answers(plain)
        for _ in range(4):
            assert answers(server) == expected
        assert server.terminate() == -signal.SIGTERM
        reports = [line for line in server.said() if line.startswith("the client failed (")]
        # The first failure is told at once, the others at most every ten seconds.
        assert reports
        assert int(reports[-1].rpartition(": ")[2].rstrip(".")) >= len(reports)
    finally:
        for each in (plain, server):
            if each is not None:
                each.stop()


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("settings", "readSettings"),
        ("server-package", "findServer"),
        ("http-tap", "tapHttp"),
        ("ws-tap", "tapWs"),
        ("uws-tap", "tapUWebSockets"),
        ("library-tap", "tapLibrary"),
        ("exchanges", "learnExchanges"),
        ("flush-at-exit", "flushAtExit"),
    ],
)
def test_a_start_that_fails_leaves_the_server_alone(
    tmp_path: Path, variant: Variant, part: str, name: str
) -> None:
    preload = f"""
      const part = require({json.dumps(f"{PACKAGE}/dist/cjs/tardis-machine/{part}.js")});
      part.{name} = () => {{ throw new Error('it cannot start'); }};
    """
    environment = hook_environment(f"{HOST}:{free_port()}", flush_ms="0")
    plain, server = start_plain(tmp_path / "plain", variant), None
    try:
        server = start_broken(tmp_path / "hooked", variant, preload, environment)
        assert answers(server) == answers(plain)
        assert server.terminate() == -signal.SIGTERM
        is_used = {"tapWs": variant == "modules", "tapUWebSockets": variant == "commonjs"}.get(name, True)
        assert any("it cannot start" in line for line in server.said()) == is_used
    finally:
        for each in (plain, server):
            if each is not None:
                each.stop()


def test_a_client_that_cannot_be_loaded_leaves_the_server_alone(tmp_path: Path, variant: Variant) -> None:
    preload = """
      const modules = require('node:module');
      const load = modules._load;
      modules._load = function (name, ...more) {
        if (name.endsWith('/guard.js')) throw new Error('it cannot be read');
        return load.call(this, name, ...more);
      };
    """
    server = start_broken(tmp_path, variant, preload, hook_environment(f"{HOST}:1"))
    try:
        assert len(server.replay(HONEST).lines) == HONEST["count"]
        assert (
            "bronze-sidecar: the client cannot be loaded: Error: it cannot be read" in server.log.read_text()
        )
    finally:
        server.stop()


# -- names that nobody knows


@pytest.mark.parametrize("way", ["replay", "ws_replay", "ws_stream"])
def test_invented_exchanges_make_one_error(
    tmp_path: Path, own_bus: HookBus, variant: Variant, way: str
) -> None:
    invented = [
        {**HONEST, "exchange": f"invented-{number}", "failAfter": 0, "steps": [{"fail": "no such exchange"}]}
        for number in range(40)
    ]
    with hooked(tmp_path, variant, own_bus.address) as server:
        ask: Callable[..., object] = getattr(server, way)
        ask(invented)
        ask([HONEST, *invented])
        events = own_bus.wait_for(2)
    assert {event.exchange for event in events} == {"unknown"}
    assert all(event.HasField("error") for event in events)


def test_errors_and_disconnects_of_an_invented_exchange_are_one_error(
    tmp_path: Path, own_bus: HookBus, variant: Variant
) -> None:
    """As tardis-dev has them: it tries again and again, and the server gives up in the end."""
    steps = [*([{"error": "no mapper"}, {"disconnect": True}] * 50), {"fail": "too many errors"}]
    request = {
        **HONEST,
        "exchange": "invented",
        "steps": steps,
        "withDisconnectMessages": True,
        "withErrorMessages": True,
    }
    with hooked(tmp_path, variant, own_bus.address) as server:
        assert len(server.ws_stream(request).messages) == 100
        (event,) = own_bus.wait_for(1)
    assert (event.exchange, event.error.details) == ("unknown", "Error: too many errors")


def test_long_reasons_are_cut(tmp_path: Path, own_bus: HookBus) -> None:
    request = {**HONEST, "failAfter": 0, "failText": "x" * 9000}
    with hooked(tmp_path, "modules", own_bus.address) as server:
        server.replay(request)
        (event,) = own_bus.wait_for(1)
    assert event.error.details == "x" * 4096


class hooked:  # noqa: N801 - a context manager
    """A server with the client."""

    def __init__(self, directory: Path, variant: Variant, address: str, **settings: str) -> None:
        program = install_stand_in(directory, variant)
        command = [new_node_program(variant), str(program)]
        self._server = MachineServer(directory, command, (), hook_environment(address, **settings))

    def __enter__(self) -> MachineServer:
        self._server.start()
        return self._server

    def __exit__(self, *_: object) -> None:
        self._server.stop()
