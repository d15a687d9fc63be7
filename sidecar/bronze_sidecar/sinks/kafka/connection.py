"""Connects to Kafka as the options say, and keeps track of the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaClient, TopicPartition, errors
from aiokafka.protocol.metadata import MetadataRequest
from bronze_buses.errors import Refused
from bronze_buses.tls import certificate_fault, client_context, tls_error

from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient
from bronze_sidecar.sinks.kafka.tokens import Greeting, NoToken, Tokens, tokens_for

if TYPE_CHECKING:
    from bronze_sidecar.sinks.kafka.options import Kafka

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
TLS_FLAGS = "--kafka-ssl"

# What the library warns about is also raised, and lanes log it themselves.
logging.getLogger("aiokafka").addHandler(logging.NullHandler())


@contextlib.asynccontextmanager
async def connect(options: Kafka) -> AsyncIterator[KafkaConnection]:
    """Connect, log in and learn which brokers there are; close on leaving."""
    tokens = tokens_for(options)
    if tokens:
        try:
            await tokens.token()
        except NoToken as error:
            raise (Permanent if error.is_final else Transient)(str(error)) from error
    security = _security(options, tokens)
    reached, cluster_id = await _greet_one(options, security)
    client = AIOKafkaClient(
        bootstrap_servers=reached,
        client_id=options.client_id,
        request_timeout_ms=int(ANSWER_SECONDS * 1000),
        **security,
    )
    connection = KafkaConnection(client, cluster_id)
    try:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await client.bootstrap()
        except (errors.KafkaError, OSError, TimeoutError) as error:
            raise Transient(f"{reached}: {error_text(error)}") from error
        yield connection
    finally:
        await connection.close()


class KafkaConnection:
    """The library's client, which keeps a connection to each broker."""

    def __init__(self, client: Any, cluster_id: str | None) -> None:
        self.cluster_id = cluster_id
        self._client = client
        self._topics: set[str] = set()
        self._transports: dict[int, asyncio.WriteTransport] = {}

    @property
    def cluster(self) -> Any:
        """What the brokers last said about themselves and about topics."""
        return self._client.cluster

    def leader(self, place: TopicPartition) -> int | None:
        """Return the broker that leads a partition, if there is one."""
        node: int | None = self.cluster.leader_for_partition(place)
        return None if node == -1 else node

    async def send(self, node: int, request: Any) -> Any:
        """Send a request to a broker; return its answer, or None if it gives none.

        Raise NodeNotReadyError if the request was not sent, another KafkaError if that is unknown.
        """
        if await self._client.ready(node):
            self._note_transport(node)
        return await self._client.send(node, request)

    async def ask_any(self, request: Any) -> Any:
        """Return the answer of the first broker that gives one; raise Disconnected if none does."""
        reason = "no broker is known"
        brokers = sorted(self.cluster.brokers())
        random.shuffle(brokers)
        for broker in brokers:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await self.send(broker.nodeId, request)
            except (errors.KafkaError, OSError, TimeoutError) as error:
                where = f"{broker.host}:{broker.port}, the address that the broker advertises"
                reason = f"{where}: {error_text(error)}"
        raise Disconnected(reason)

    async def refresh(self, topics: Iterable[str] = ()) -> None:
        """Refresh what is known about the cluster; from now on, include these topics.

        Raise Disconnected if no broker answers.
        """
        more = set(topics) - self._topics
        self._topics |= more
        update = self._client.set_topics(self._topics) if more else self._client.force_metadata_update()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answered = await update
        except TimeoutError:
            answered = False
        if not answered:
            brokers = sorted(f"{broker.host}:{broker.port}" for broker in self.cluster.brokers())
            raise Disconnected(f"no broker answers: {', '.join(brokers)}")

    async def ping(self) -> None:
        """Return if a broker answers; raise Disconnected if none does."""
        await self.ask_any(MetadataRequest([]))

    async def close(self) -> None:
        """Close without waiting for brokers that may be gone."""
        for node, _ in list(self._client._conns):  # noqa: SLF001 - there is no other way to them
            self._note_transport(node)
        try:
            async with asyncio.timeout(1):
                await self._client.close()
        except (TimeoutError, OSError, errors.KafkaError):
            pass
        finally:
            # A frozen broker would hold unsent data forever.
            for transport in self._transports.values():
                transport.abort()

    def _note_transport(self, node: int) -> None:
        for (known, _), connection in self._client._conns.items():  # noqa: SLF001
            if known == node and connection._writer is not None:  # noqa: SLF001
                self._transports[node] = connection._writer.transport  # noqa: SLF001


def error_text(error: BaseException) -> str:
    """Return what happened, and the cause if the library knows it."""
    cause = error.__cause__
    text = str(error) or type(error).__name__
    return f"{text} ({cause})" if cause is not None and str(cause) else text


# -- opening


def _security(options: Kafka, tokens: Tokens | None) -> dict[str, Any]:
    """Return how connections are encrypted and how to log in, in the library's terms."""
    protocol = ("SASL_" if options.sasl_mechanism else "") + ("SSL" if options.tls else "PLAINTEXT")
    return {
        "security_protocol": protocol,
        "ssl_context": _tls_context(options) if options.tls else None,
        "sasl_mechanism": "OAUTHBEARER" if tokens else (options.sasl_mechanism or "plain").upper(),
        "sasl_plain_username": options.sasl_username,
        "sasl_plain_password": options.sasl_password,
        "sasl_oauth_token_provider": tokens,
    }


def _tls_context(options: Kafka) -> ssl.SSLContext:
    try:
        return client_context(options, TLS_FLAGS)
    except Refused as error:
        raise Permanent(str(error)) from error


async def _greet_one(options: Kafka, security: dict[str, Any]) -> tuple[str, str | None]:
    """Return the first broker that lets us in, and its cluster; the library does not say why one refuses."""
    reasons = []
    for broker in options.brokers:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return broker, await _greet(broker, options.client_id, security)
        except (errors.KafkaError, OSError, TimeoutError) as error:
            reason = _cannot_open(error, options)
            if isinstance(reason, Permanent):
                raise reason from error
            reasons.append(f"{broker}: {reason}")
    raise Transient("; ".join(reasons))


async def _greet(broker: str, client_id: str, security: dict[str, Any]) -> str | None:
    host, _, port = broker.rpartition(":")
    timeout = int(CONNECT_SECONDS * 1000)
    connection = Greeting(
        host.strip("[]"), int(port), client_id=client_id, request_timeout_ms=timeout, **security
    )
    await connection.connect()
    try:
        answer = await connection.send(MetadataRequest([]))
        return getattr(answer, "cluster_id", None)
    finally:
        await connection.close()


def _cannot_open(error: Exception, options: Kafka) -> DeliveryError:
    text = error_text(error)
    if isinstance(error, errors.SaslAuthenticationFailed):
        if tokens := tokens_for(options):
            return Permanent(f"the broker refuses the token: {text}; {tokens.refusal}")
        return Permanent(f"the broker refuses --kafka-sasl-username and --kafka-sasl-password: {text}")
    if isinstance(error, errors.UnsupportedSaslMechanismError | errors.IllegalSaslStateError):
        return Permanent(
            f"the broker does not accept --kafka-sasl-mechanism={options.sasl_mechanism}: {text}"
        )
    fault = certificate_fault(error, TLS_FLAGS)
    if fault:
        return Permanent(fault)
    if cause := tls_error(error):
        return Transient(f"TLS failed, see --kafka-ssl: {cause}")
    if isinstance(error, TimeoutError):
        return Transient(f"no answer; does the broker expect something other than {_expected(options)}?")
    if isinstance(error, errors.KafkaConnectionError):
        return Transient(f"{text}; does the broker expect something other than {_expected(options)}?")
    return Transient(text)


def _expected(options: Kafka) -> str:
    encryption = "TLS" if options.tls else "no TLS (see --kafka-ssl)"
    return f"{encryption} and {'a' if options.sasl_mechanism else 'no'} login (see --kafka-sasl-mechanism)"
