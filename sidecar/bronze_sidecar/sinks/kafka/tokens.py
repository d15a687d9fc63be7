"""Tokens to log in to Kafka with: from an OAuth server, or signed for Amazon MSK."""

from __future__ import annotations

import asyncio
import base64
import http
import http.client
import json
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from aiokafka import errors
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection
from bronze_buses.errors import Refused
from bronze_buses.tls import certificate_fault
from bronze_buses.web import exchange

if TYPE_CHECKING:
    from bronze_sidecar.sinks.kafka.options import Kafka

FLAGS = "--kafka-oauth"
RENEW_SECONDS = 10.0
"""How long before its end a token is not used for new connections any more; at most half of its life."""
UNKNOWN_LIFE_SECONDS = 60.0
"""For a token whose server does not say how long it is valid."""


class NoToken(errors.KafkaError):  # type: ignore[misc] # the library has no types
    """There is no token to log in with; `is_final` if there will be none until someone changes something."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_final = is_final

    def __str__(self) -> str:
        return self.reason


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Gives a token to each connection, the same one as long as it is valid."""

    refusal: str
    """What to check if a broker refuses a token."""

    def __init__(self, options: Kafka) -> None:
        self._options = options
        self._token = ""
        self._renew_at = 0.0
        self._turn = asyncio.Lock()

    async def token(self) -> str:
        async with self._turn:
            if time.monotonic() >= self._renew_at:
                self._token, seconds = await asyncio.to_thread(self._new)
                self._renew_at = time.monotonic() + max(seconds / 2, seconds - RENEW_SECONDS)
            return self._token

    @abstractmethod
    def _new(self) -> tuple[str, float]:
        """Return a token, and for how many seconds it is valid; raise NoToken."""


class OAuthTokens(Tokens):
    """The client credentials grant, https://datatracker.ietf.org/doc/html/rfc6749#section-4.4."""

    refusal = "check --kafka-oauth-client-id, --kafka-oauth-scope, and what the broker expects of a token"

    def _new(self) -> tuple[str, float]:
        options = self._options
        assert options.oauth_token_url  # noqa: S101 - checked with the configuration
        names = (options.oauth_client_id or "", options.oauth_client_secret or "")
        credentials = ":".join(quote(each, safe="") for each in names)
        headers = {
            "Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        form = {"grant_type": "client_credentials"} | (
            {"scope": options.oauth_scope} if options.oauth_scope else {}
        )
        try:
            status, text = exchange(
                "POST",
                options.oauth_token_url,
                urlencode(form).encode(),
                headers,
                ca_file=options.oauth_ca_file,
                flags=FLAGS,
            )
        except Refused as error:
            raise NoToken(str(error), is_final=True) from error
        except (OSError, http.client.HTTPException) as error:
            if fault := certificate_fault(error, FLAGS):
                raise NoToken(f"the token server: {fault}", is_final=True) from error
            raise NoToken(f"{FLAGS}-token-url cannot be reached: {error or type(error).__name__}") from error
        return _read(status, text)


def _read(status: int, text: bytes) -> tuple[str, float]:
    """Return what a token server's answer holds."""
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    answer = answer if isinstance(answer, dict) else {}
    token = answer.get("access_token")
    if status == http.HTTPStatus.OK and isinstance(token, str) and token.isascii() and token.isprintable():
        seconds = answer.get("expires_in")
        return token, float(seconds) if isinstance(seconds, int | float) else UNKNOWN_LIFE_SECONDS
    # Only what the standard defines as a message: the rest may hold anything.
    said = " ".join(str(answer[name]) for name in ("error", "error_description") if name in answer)[:200]
    if status == http.HTTPStatus.OK:
        raise NoToken(f"{FLAGS}-token-url gives no access token")
    if status in {http.HTTPStatus.BAD_REQUEST, http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN}:
        which = f"{FLAGS}-client-id, {FLAGS}-client-secret or {FLAGS}-scope"
        raise NoToken(f"the token server refuses {which}: {said or status}", is_final=True)
    is_final = status == http.HTTPStatus.NOT_FOUND
    raise NoToken(f"{FLAGS}-token-url answers {status}{said and f': {said}'}", is_final=is_final)


class MskTokens(Tokens):
    """A signed request of AWS, which Amazon MSK takes for a token."""

    refusal = (
        "check --kafka-aws-region, and that the AWS credentials may kafka-cluster:Connect to the cluster"
    )

    def __init__(self, options: Kafka) -> None:
        super().__init__(options)
        self._credentials: Any = None

    def _new(self) -> tuple[str, float]:
        import botocore.session  # noqa: PLC0415 - slow, and needed here alone
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415
        from botocore.credentials import CredentialProvider  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        class Found(CredentialProvider):
            """Hands on what was found, which renews itself."""

            def __init__(self, credentials: Any) -> None:
                super().__init__()
                self._credentials = credentials

            def load(self) -> Any:
                return self._credentials

        try:
            if self._credentials is None:
                self._credentials = botocore.session.Session().get_credentials()
            if self._credentials is None:
                raise NoToken(
                    "no AWS credentials were found for --kafka-sasl-mechanism=aws_msk_iam", is_final=True
                )
            token, ends_at = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(
                self._options.aws_region, Found(self._credentials.get_frozen_credentials())
            )
        except (BotoCoreError, ClientError, OSError, ValueError) as error:
            self._credentials = None
            raise NoToken(f"the AWS credentials cannot be used: {type(error).__name__}") from error
        return token, ends_at / 1000 - time.time()


def tokens_for(options: Kafka) -> Tokens | None:
    """Return what gives tokens, if that is how to log in."""
    kinds: dict[str | None, type[Tokens]] = {"oauthbearer": OAuthTokens, "aws_msk_iam": MskTokens}
    kind = kinds.get(options.sasl_mechanism)
    return kind(options) if kind else None


class Greeting(AIOKafkaConnection):  # type: ignore[misc]
    """A connection that notices when a token is refused; the library takes the refusal for success."""

    def authenticator_oauth(self) -> Any:
        return _WithRefusal(super().authenticator_oauth())


class _WithRefusal:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def step(self, said: bytes | None) -> Any:
        # https://datatracker.ietf.org/doc/html/rfc7628#section-3.2.3
        return (b"\x01", True) if said else await self._inner.step(said)
