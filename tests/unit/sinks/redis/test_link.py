"""How commands are sent to a Redis server."""

from __future__ import annotations

from bronze_sidecar.sinks.redis.link import ANSWER_SECONDS, pack


def test_a_command_as_it_is_sent() -> None:
    assert pack(b"SET", b"a\r\nb", b"") == b"*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$0\r\n\r\n"


def test_a_silent_server_is_given_up_within_ten_seconds() -> None:
    assert ANSWER_SECONDS <= 10
