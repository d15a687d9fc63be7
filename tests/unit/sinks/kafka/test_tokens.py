"""Tokens without a broker: when a secret crosses a network in clear text, when a token is renewed."""

from __future__ import annotations

import pytest
from bronze_sidecar.sinks.kafka.tokens import NoToken, Tokens
from configurations import backend_of

OAUTH = ("--kafka-topic=t", "--kafka-sasl-mechanism=oauthbearer", "--kafka-oauth-client-id=c")
CLIENT = "--kafka-oauth-client-secret=s"
MSK = ("--kafka-topic=t", "--kafka-sasl-mechanism=aws_msk_iam", "--kafka-aws-region=eu-west-1")


@pytest.mark.parametrize(
    ("flags", "exposed"),
    [
        (
            ["--kafka-brokers=192.0.2.1:1", *OAUTH, CLIENT, "--kafka-oauth-token-url=http://192.0.2.1"],
            ["--kafka-sasl-mechanism", "--kafka-oauth-client-secret"],
        ),
        (
            [
                "--kafka-brokers=192.0.2.1:1",
                "--kafka-ssl",
                *OAUTH,
                CLIENT,
                "--kafka-oauth-token-url=https://i",
            ],
            [],
        ),
        (["--kafka-brokers=127.0.0.1:1", *OAUTH, CLIENT, "--kafka-oauth-token-url=http://127.0.0.1"], []),
        (["--kafka-brokers=192.0.2.1:1", *MSK], ["--kafka-sasl-mechanism"]),
        (["--kafka-brokers=192.0.2.1:1", "--kafka-ssl", *MSK], []),
    ],
)
def test_what_others_can_see_is_named(flags: list[str], exposed: list[str]) -> None:
    assert list(backend_of(*flags).exposed_secrets()) == exposed


class Counted(Tokens):
    """Gives numbered tokens, each valid for so long."""

    refusal = ""

    def __init__(self, seconds: float) -> None:
        super().__init__(None)  # type: ignore[arg-type] # it needs no options
        self._seconds = seconds
        self._count = 0

    def _new(self) -> tuple[str, float]:
        self._count += 1
        if self._count == 3:
            raise NoToken("the server is away")
        return str(self._count), self._seconds


async def test_a_token_serves_until_shortly_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("bronze_sidecar.sinks.kafka.tokens.time.monotonic", lambda: now)
    tokens = Counted(100.0)
    assert await tokens.token() == "1"
    now = 1089.9
    assert await tokens.token() == "1"
    now = 1090.0
    assert await tokens.token() == "2"
    now = 1180.0
    with pytest.raises(NoToken, match="the server is away"):
        await tokens.token()
    assert await tokens.token() == "4"
    short = Counted(4.0)
    assert await short.token() == "1"
    now = 1181.9
    assert await short.token() == "1"
    now = 1182.0
    assert await short.token() == "2"
