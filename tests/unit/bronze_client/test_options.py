"""The options of every client."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from bronze_client import connect, connect_sync
from bronze_client.options import Options
from clients import ClientUnderTest


def test_both_python_clients_take_the_same_arguments() -> None:
    parameters = inspect.signature(connect).parameters
    assert list(parameters)[:4] == ["address", "source", "origin", "stream_id"]
    assert inspect.signature(connect_sync).parameters == parameters
    assert parameters["source"].kind is inspect.Parameter.KEYWORD_ONLY


def test_stream_and_producer_are_unique_by_default(client: ClientUnderTest) -> None:
    first, second = client.check_options("127.0.0.1:1"), client.check_options("127.0.0.1:1")
    assert len({first.stream_id, second.stream_id, first.producer_id, second.producer_id}) == 4


@pytest.mark.parametrize(
    "address",
    ["", "unix:///run/bronze.sock", "unix:bronze.sock", "127.0.0.1:50051", "[::1]:1", "sidecar:65535"],
)
def test_addresses_that_are_understood(client: ClientUnderTest, address: str) -> None:
    assert client.check_options(address).address == address


def test_no_address_is_as_good_as_an_empty_one(client: ClientUnderTest) -> None:
    assert not client.check_options(None).address


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"address": "localhost"}, "address: 'localhost' is neither host:port nor unix:///path."),
        ({"address": "http://localhost:1"}, "address: 'http://localhost:1' is neither"),
        ({"address": "unix://rel"}, "address: 'unix://rel' is neither host:port nor unix:///path."),
        ({"address": "unix:"}, "address: 'unix:' is neither"),
        ({"address": "unix:///"}, "address: 'unix:///' is neither"),
        ({"stream_id": ""}, "stream_id: '' is not 1 to 64 letters"),
        ({"stream_id": "a:b"}, "stream_id: 'a:b' is not"),
        ({"stream_id": "a" * 65}, "is not 1 to 64"),
        ({"origin": "live"}, "origin: 'live' is not one of unspecified, realtime, replay, archive."),
        ({"batch_events": float("nan")}, "batch_events: must be 1 or more."),
        ({"on_full": "drop"}, "on_full: 'drop' is not one of drop_newest, drop_oldest, wait."),
        ({"on_full": "wait", "max_wait": 0}, "max_wait: must be more than 0 when on_full is 'wait'."),
        ({"batch_events": 0}, "batch_events: must be 1 or more."),
        ({"buffer_bytes": -1}, "buffer_bytes: must be 1 or more."),
        ({"max_wait": -1}, "max_wait: must be 0 or more."),
        ({"batch_delay": float("nan")}, "batch_delay: must be 0 or more."),
        ({"meta": {"a": 1}}, "meta: keys and values must be strings."),
        ({"address": "unix:///a", "tls": True}, "tls: a unix socket is not encrypted."),
        ({"tls_cert_file": "a"}, "tls_cert_file and tls_key_file: one needs the other."),
    ],
)
def test_what_cannot_be_meant_is_refused(
    client: ClientUnderTest, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        client.check_options(**{"address": "127.0.0.1:1", **options})
    assert client.spelled(problem) in str(caught.value)


def test_all_problems_are_told_at_once(client: ClientUnderTest) -> None:
    with pytest.raises(ValueError, match=client.spelled(r"(?s)address.*origin.*batch_events")):
        client.check_options("nowhere", origin="live", batch_events=0)


def test_an_option_that_does_not_exist_is_refused(client: ClientUnderTest) -> None:
    with pytest.raises((TypeError, ValueError), match=r"buffer_?[eE]vent\b"):
        client.check_options("127.0.0.1:1", buffer_event=1)


@pytest.mark.parametrize("option", ["tls", "tls_ca_file"])
def test_any_tls_option_switches_it_on(option: str) -> None:
    assert Options("127.0.0.1:1", **{option: "yes"}).is_encrypted  # type: ignore[arg-type]
    assert not Options("127.0.0.1:1").is_encrypted


@pytest.mark.parametrize("meta", ["env", [("env", "test")], 5])
def test_meta_that_is_no_mapping_is_named(meta: object) -> None:
    problem = rf"origin.*\nmeta: must be a mapping, not {type(meta).__name__}\."
    with pytest.raises(ValueError, match=problem):
        Options("127.0.0.1:1", origin="live", meta=meta)  # type: ignore[arg-type]
