"""Facts about kinds of values that no configuration shows by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bronze_cli.problems import Fault
from bronze_cli.values import (
    Choice,
    File,
    Integer,
    ListOf,
    Number,
    OutputFile,
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


def test_a_file_to_write_may_be_new_or_old(tmp_path):
    assert OutputFile().parse(f"{tmp_path}/new") == Path(tmp_path, "new")
    (tmp_path / "old").write_text("")
    assert OutputFile().parse(f"{tmp_path}/old") == Path(tmp_path, "old")


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert OutputFile().parse("") == [Fault("does not name a file.")]
    assert OutputFile().parse(f"{tmp_path}/no/file") == [Fault(f"the folder '{tmp_path}/no' does not exist.")]
    assert OutputFile().parse(str(tmp_path)) == [
        Fault(f"'{tmp_path}' is a folder.", "Add the name of a file.")
    ]
    assert OutputFile().parse(f"{tmp_path}/pipe") == [Fault(f"'{tmp_path}/pipe' is not a regular file.")]
    assert OutputFile().parse(f"{tmp_path}/{'x' * 300}") == [
        Fault("the file cannot be written: File name too long.")
    ]


def test_a_file_that_this_user_may_not_write_is_refused(tmp_path, monkeypatch):
    # The user of a test may be root, who may write anything.
    allowed = set()
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) in allowed)
    (tmp_path / "file").write_text("")
    problem = f"the folder '{tmp_path}' is not writable by this user."
    assert OutputFile().parse(f"{tmp_path}/file") == [Fault(problem)]
    allowed.add(tmp_path)
    problem = f"the file '{tmp_path}/file' is not writable by this user."
    assert OutputFile().parse(f"{tmp_path}/file") == [Fault(problem)]
