"""Facts about kinds of values that no configuration shows by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from bronze_cli.problems import Fault
from bronze_cli.values import (
    Choice,
    File,
    Integer,
    ListOf,
    Number,
    Scalar,
    Secret,
    SocketMode,
    Switch,
    Text,
    is_loopback,
)
from bronze_sidecar.routing.values import Cases, Pairs


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "127.255.0.9:1", "localhost:1", "[::1]:1", "unix:///run/x.sock"]
)
def test_only_this_machine_can_reach_these(address):
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "host:1", "127.example.org:1", "127.0.0.1.example.org:1"]
)
def test_others_may_reach_these(address):
    assert not is_loopback(address)


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (Text(), "a b", "a b"),
        (Secret(), "hunter2", "***"),
        (Integer(0, 9), 7, "7"),
        (Number(0, 9), 2.5, "2.5"),
        (Number(0, 99), 25.0, "25"),
        (Switch(), True, "true"),
        (Switch(), False, "false"),
        (SocketMode(), 0o600, "600"),
        (ListOf(Text()), ("a", "b"), "a, b"),
        (Cases(), frozenset({"quote", "trade"}), "trade, quote"),
        (Pairs(), {"a": "b", "c": "d"}, "a:b, c:d"),
    ],
)
def test_a_value_is_shown_as_an_operator_would_write_it(kind, value, shown):
    assert kind.show(value) == shown


@pytest.mark.parametrize("text", ["660", "0660", "600", "777"])
def test_access_rights_are_octal(text):
    assert SocketMode().parse(text) == int(text, 8)


@pytest.mark.parametrize("text", ["", "66", "888", "0o660", "rw-rw----", "1660"])
def test_what_are_no_access_rights_is_refused(text):
    assert SocketMode().parse(text) == [
        Fault(f"'{text}' is not a file mode.", "Use three octal digits, such as 660.")
    ]


def test_a_number_that_is_a_choice_needs_no_quotes_in_the_file():
    assert Choice("all", "1", "-1").json_schema() == {"enum": ["all", "1", "-1", 1, -1]}


def test_a_kind_must_say_how_it_is_read():
    with pytest.raises(NotImplementedError):
        Scalar().parse("x")
    with pytest.raises(NotImplementedError):
        Pairs().parse("a:b")


def test_a_file_is_given_as_its_path(tmp_path):
    (tmp_path / "file").write_text("")
    assert File().parse(f"{tmp_path}/file") == Path(tmp_path, "file")
