"""Clients of AWS services: connecting as the options say, making calls, and what errors mean."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore.exceptions import BotoCoreError, ClientError
from botocore.loaders import Loader, create_loader
from bronze_buses.aws_errors import Meaning, error_code, meaning_of, meaning_of_code

from bronze_sidecar.envelope.payloads import PAYLOAD_CASES
from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient

if TYPE_CHECKING:
    from aiobotocore.client import AioBaseClient

    from bronze_sidecar.routing.route import Route
    from bronze_sidecar.sinks.aws.options import AwsBackend

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
LARGE_BODY = 1 << 20

_body: ContextVar[bytes] = ContextVar("_body")
"""The body of the call that this task is making."""


class BadCredentials(Disconnected):
    """AWS does not know the credentials, or no longer does; a new session may find others."""


class Unavailable(Transient):
    """One stream or queue cannot be written to; others may be."""


class Missing(Unavailable):
    """There is no such stream or queue."""


class Denied(Unavailable):
    """The credentials are valid but do not allow the call."""


class InvalidCall(Permanent):
    """The service will never accept the call as it is."""


class Question(NamedTuple):
    """A call that changes nothing."""

    operation: str
    parameters: dict[str, Any]
    option: str = ""
    """The option that names what it asks about."""


class AwsService:
    """A client of one AWS service. Its calls raise only what lanes understand."""

    def __init__(self, client: AioBaseClient, options: AwsBackend) -> None:
        self._client: Any = client
        self._options = options
        self.endpoint: str = client.meta.endpoint_url

    async def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Make a call in the library's ordinary way."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer: dict[str, Any] = await getattr(self._client, operation)(**parameters)
                return answer
        except TimeoutError as error:
            raise Disconnected(f"{self.endpoint} did not answer within {ANSWER_SECONDS:g} s") from error
        except (BotoCoreError, ClientError, OSError) as error:
            raise self._meaning(error) from error

    async def send(self, operation: str, body: bytes) -> dict[str, Any]:
        """Make a call whose body is ready; the library adds the address, the signature and the rest."""
        _body.set(body)
        return await self.call(operation)

    async def check(self, question: Question) -> None:
        """Check that the service answers, knows our credentials, and has what the option names."""
        try:
            await self.call(question.operation, **question.parameters)
        except Denied:
            pass  # a writer may not have permission to look
        except Missing as error:
            raise Permanent(f"{question.option}: {error}") from error
        except BadCredentials as error:
            raise Permanent(str(error)) from error
        except Disconnected as error:
            raise Transient(str(error)) from error

    async def ping(self, question: Question) -> None:
        """Return if the service answers, whatever the answer is."""
        try:
            await self.call(question.operation, **question.parameters)
        except Disconnected:
            raise
        except DeliveryError:
            pass

    def _meaning(self, error: Exception) -> DeliveryError:
        match meaning_of(error):
            case Meaning.NO_CREDENTIALS:
                return BadCredentials(
                    f"there are no usable credentials: {error}; {self._credential_options()}"
                )
            case Meaning.CREDENTIALS_REFUSED:
                # The text from AWS may contain parts of the request.
                code = error_code(getattr(error, "response", {}))
                return BadCredentials(f"AWS refuses the credentials ({code}); {self._credential_options()}")
            case Meaning.DENIED:
                return Denied(f"{error}")
            case Meaning.MISSING:
                return Missing(f"{error}")
            case Meaning.KEY_UNUSABLE:
                return Unavailable(f"{error}")
            case Meaning.BAD_REQUEST:
                return InvalidCall(f"{error}")
            case Meaning.TLS_FAILED:
                option = f"--{self._options.name}-tls-ca-file"
                return Disconnected(f"cannot connect with TLS (see {option}): {error}")
            case Meaning.UNREACHABLE:
                return Disconnected(f"cannot reach {self.endpoint}: {error}")
        text = f"{error}" if isinstance(error, ClientError) else f"{type(error).__name__}: {error}"
        return Transient(text)

    def _credential_options(self) -> str:
        prefix = f"--{self._options.name}"
        names = f"{prefix}-access-key, {prefix}-secret-key and {prefix}-session-token"
        if self._options.access_key is None:
            return f"they come from the default AWS credential chain, because {names} are not given"
        return f"check {names}"


def refused_entry(code: str, text: str, *, senders_fault: bool = False) -> DeliveryError:
    """Return what it means that a call stored other records but not this one.

    A sender's fault is for good, unless the code says that it can be put right without changing the record.
    """
    meaning = meaning_of_code(code)
    for_good = meaning is Meaning.BAD_REQUEST or (senders_fault and meaning is Meaning.OTHER)
    said = f"{code}: {text}"
    return Permanent(said) if for_good else Transient(said)


def plain_destinations(
    route: Route, option: str, routing_option: str, dead_letter_option: str
) -> dict[str, str]:
    """Return the destinations in use that do not depend on events, and the option that names each."""
    rules = route.rules
    used = {case: rules.template_of(case) for case in PAYLOAD_CASES if route.takes(case)}
    named = [
        (template, routing_option if case in rules.routing else option) for case, template in used.items()
    ]
    if rules.dead_letter:
        named.append((rules.dead_letter, dead_letter_option))
    return {template.text: name for template, name in named if not template.placeholders}


@asynccontextmanager
async def open_service(options: AwsBackend, writing: str, most_calls: int) -> AsyncIterator[AwsService]:
    """Make a client; close it on leaving. `writing` is the operation whose bodies are passed to `send`."""
    config = AioConfig(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=ANSWER_SECONDS,
        retries={"total_max_attempts": 1},  # lanes retry, in order
        parameter_validation=False,  # a call's body is made here
        max_pool_connections=most_calls + 1,
        user_agent="bronze-sidecar",  # otherwise it is rebuilt for each call
        connector_args={"socket_factory": _socket},
    )
    session: Any = AioSession()  # its types know each service by its literal name
    session.register_component("data_loader", _loader())
    async with AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(
                session.create_client(
                    options.name,
                    region_name=options.region,
                    endpoint_url=options.endpoint_url,
                    aws_access_key_id=options.access_key,
                    aws_secret_access_key=options.secret_key,
                    aws_session_token=options.session_token,
                    verify=str(options.tls_ca_file) if options.tls_ca_file else None,
                    config=config,
                )
            )
        except (BotoCoreError, ValueError, OSError) as error:
            raise Permanent(f"cannot create the AWS client: {error}") from error
        client.meta.events.register(f"before-call.{options.name}.{writing}", _put_body)
        yield AwsService(client, options)


def _put_body(params: dict[str, Any], **_: Any) -> None:
    body = _body.get()
    # The HTTP client writes a file piece by piece, but warns about large bytes objects.
    params["body"] = body if len(body) <= LARGE_BODY else io.BytesIO(body)


@cache
def _loader() -> Loader:
    """Return the shared loader of service descriptions: reading them takes longer than all other steps."""
    return create_loader()


def _socket(address: Any) -> socket.socket:
    """Make a socket that the kernel closes when the other side stops accepting data."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(ANSWER_SECONDS * 1000))
    return made
