"""The command line of `send`: what it takes, and what it refuses."""

from __future__ import annotations

import pytest
from bronze_cli.problems import ConfigError
from bronze_sidecar.cli.main import main
from bronze_sidecar.cli.send import read_command_line


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "messages.ndjson"
    path.write_text("{}\n")
    return str(path)


def problems(*arguments):
    with pytest.raises(ConfigError) as refused:
        read_command_line(arguments)
    return [str(problem) for problem in refused.value.problems]


def test_a_file_and_an_address_are_enough(file):
    path, options = read_command_line([file, "--to", "127.0.0.1:50051"])
    assert (path, options.to, options.meta) == (file, "127.0.0.1:50051", None)
    assert (options.origin, options.rate, options.timeout, options.stream_id) == ("replay", None, None, None)
    assert options.connect_timeout == 30


def test_flags_may_stand_anywhere_in_both_forms(file):
    path, options = read_command_line(
        ["--to=unix:///tmp/s", "--source", "x/1", file, "--rate=5", "--meta", "a:1", "--meta=b:2:3"]
    )
    assert (path, options.to, options.source, options.rate) == (file, "unix:///tmp/s", "x/1", 5)
    assert options.meta == {"a": "1", "b": "2:3"}


def test_a_switch_takes_no_value(file):
    path, options = read_command_line(["--tls", file, "--to=h:1"])
    assert (path, options.tls) == (file, True)


def test_standard_input_is_a_file():
    assert read_command_line(["-", "--to=h:1"])[0] == "-"


def test_meta_may_contain_commas(file):
    assert read_command_line([file, "--to=h:1", "--meta=a:1,2"])[1].meta == {"a": "1,2"}


def test_every_problem_is_named_at_once():
    assert problems(
        *("--too", "h:1", "--rate=fast", "none.ndjson", "--meta", "a", "--meta=data_type:x"),
        *("--origin=repay", "--stream-id=a b", "--timeout"),
    ) == [
        "--too: no such option. Did you mean --to?",
        "--timeout: needs a value. Write --timeout=N.",
        "--rate: 'fast' is not a valid number. It must be a number from 0.01 to 1e+09.",
        "--meta: 'a' has no ':'. Write KEY:VALUE.",
        "--origin: 'repay' is not one of the choices. Did you mean 'replay'?",
        "--to: is missing. Write --to=ADDRESS.",
        "FILE: the file 'none.ndjson' does not exist.",
        "--stream-id: must have 1 to 64 characters, of which each is a letter, a digit, '.', '_' or '-'.",
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--to=h:1"], "FILE: is missing. Write the path of a file, or - for standard input."),
        (["-", "b", "--to=h:1"], "FILE: 'b' is a second file. Give one at a time."),
        (["/", "--to=h:1"], "FILE: the file '/' is a folder."),
        (
            ["-", "--to=h:1", "--meta=data_type:x"],
            "--meta: must not have the key 'data_type': the sidecar writes it.",
        ),
        (
            ["-", "--to=/run/s.sock"],
            "--to: '/run/s.sock' is a path. For a unix socket write unix:///run/s.sock.",
        ),
        (["-", "--to=h"], "--to: is not an address. Write host:port, with a port up to 65535."),
        (["-", "--to=h:1", "--meta=a:1", "--meta=a:2"], "--meta: 'a' is given twice."),
        (["-", "--to=h:1", "--meta"], "--meta: needs a value. Write --meta=KEY:VALUE."),
        (["-", "--to=h:1", "--meta=:1"], "--meta: must not have an empty key."),
        (["-", "--to=h:1", "--rate=1", "--rate=2"], "--rate: is given twice. Give it once."),
        (["-", "--to=unix:///s", "--tls"], "--tls: a unix socket is not encrypted."),
        (["-", "--to=h:1", "--rate=0"], "--rate: 0 is out of range. It must be a number from 0.01 to 1e+09."),
    ],
)
def test_what_is_wrong_is_said_with_the_remedy(arguments, problem):
    assert problems(*arguments) == [problem]


def test_a_key_needs_its_certificate(file):
    assert problems(file, "--to=h:1", f"--tls-key-file={file}") == [
        "--tls-cert-file and --tls-key-file: one needs the other."
    ]


def test_wrong_usage_ends_with_status_2(capsys):
    assert main(["send"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "FILE: is missing." in captured.err


def test_help_describes_every_option(capsys):
    assert main(["send", "--help"]) == 0
    text = capsys.readouterr().out
    for flag in ("--to ADDRESS", "--stream-id TEXT", "--rate N", "--tls\n"):
        assert f"  {flag}" in text
