"""The SQS sink: messages in SendMessageBatch calls, in order per group where the queue is FIFO."""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from bronze_sidecar.errors import DeliveryError, Permanent
from bronze_sidecar.routing.rules import Address, Record
from bronze_sidecar.sinks.aws.calls import IN_TURN, Call, CallLimits, CallPlan, carry_out
from bronze_sidecar.sinks.aws.service import (
    AwsService,
    Question,
    open_service,
    plain_destinations,
    refused_entry,
)
from bronze_sidecar.sinks.base import STRICT_ORDER, Failed, Limits
from bronze_sidecar.sinks.sqs.options import FIFO

if TYPE_CHECKING:
    from bronze_sidecar.routing.route import Route
    from bronze_sidecar.sinks.sqs.options import Sqs

# API_SendMessageBatch: the most messages in one call.
CALL_MESSAGES = 10
CALLS_IN_FLIGHT = 16
WRITE_BYTES = 16 * 1024 * 1024
# API_SendMessage: how long a FIFO queue drops repeated messages.
DEDUPLICATION_SECONDS = 300.0
ADVICE = (
    "strict order limits the rate of a message group to one message a call; --sqs-message-group-template can"
    " make more groups"
)
STRING = "String"
# API_SendMessage: all characters of a message must be among these.
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REPLACEMENT = "\ufffd"


@asynccontextmanager
async def open_sqs(options: Sqs, route: Route) -> AsyncIterator[SqsSink]:
    """Make a client, and check that it can reach the queues whose names are fixed."""
    async with open_service(options, "SendMessageBatch", CALLS_IN_FLIGHT) as service:
        queues = plain_destinations(
            route, "--sqs-queue-url", "--sqs-queue-routing", "--sqs-dead-letter-queue-url"
        )
        questions = [
            Question("get_queue_attributes", {"QueueUrl": queue, "AttributeNames": ["QueueArn"]}, option)
            for queue, option in queues.items()
        ]
        questions = questions or [Question("list_queues", {"MaxResults": 1})]
        for question in questions:
            await service.check(question)
        yield SqsSink(service, options, route, questions[0])


class MessageParts:
    """What all messages of an address have in common."""

    __slots__ = ("attributes", "group", "order", "size")

    def __init__(self, address: Address) -> None:
        self.order = address.order
        is_fifo = address.destination.endswith(FIFO)
        self.group = b',"MessageGroupId":%b' % json.dumps(address.key).encode() if is_fifo else b""
        """Empty for a standard queue."""
        self.attributes, self.size = attributes(address.headers)


def _order(*, fifo: bool, is_strict: bool) -> str:
    if not fifo:
        return "none: a standard queue has no order"
    return STRICT_ORDER if is_strict else "a refused message may be stored after later ones of its group"


class EncodedMessage(NamedTuple):
    """A message without the id that its call puts first."""

    text: bytes
    size: int


class SqsSink:
    """Queues of one account and region.

    A call may store only some of its messages, so a call to a FIFO queue carries one message of each group,
    unless strict order is off. A standard queue has no order.
    """

    has_one_path = False

    def __init__(self, service: AwsService, options: Sqs, route: Route, question: Question) -> None:
        self.limits = Limits(options.max_batch_size, WRITE_BYTES)
        fifo = any(queue.text.endswith(FIFO) for queue in options.destinations)
        self.forgets_ids_after = DEDUPLICATION_SECONDS if fifo else None
        self.order = _order(fifo=fifo, is_strict=options.strict_order)
        self.advice = ""
        self._service = service
        self._question = question
        self._event_headers = route.event_headers if route.has_event_headers else None
        run = 1 if options.strict_order else CALL_MESSAGES
        self._call_limits = CallLimits(CALL_MESSAGES, options.max_call_bytes, run)

    async def ping(self) -> None:
        await self._service.ping(self._question)

    def prepare(self, batch: Sequence[Record]) -> None:
        """Prepare nothing: the service takes longer than that."""

    async def write(self, batch: Sequence[Record], prepared: Any = None) -> Sequence[Failed]:  # noqa: ARG002
        messages = [self._message(record) for record in batch]
        sizes = [message.size for message in messages]
        most = self._call_limits.bytes
        errors: dict[int, DeliveryError] = {
            place: Permanent(
                f"the message has {size} bytes, more than the {most} allowed by --sqs-max-call-bytes"
            )
            for place, size in enumerate(sizes)
            if size > most
        }
        plan = CallPlan(_orders(batch), sizes, errors, self._call_limits)
        self.advice = ADVICE if self._call_limits.run == 1 and plan.longest >= IN_TURN else ""

        async def send(call: Call) -> Mapping[int, DeliveryError]:
            return await self._send(call.destination, [messages[place].text for place in call.places])

        return await carry_out(plan, send, CALLS_IN_FLIGHT)

    async def _send(self, queue: str, messages: list[bytes]) -> Mapping[int, DeliveryError]:
        entries = b",".join([b'{"Id":"%d"%b}' % entry for entry in enumerate(messages)])
        body = b'{"QueueUrl":%b,"Entries":[%b]}' % (json.dumps(queue).encode(), entries)
        answer = await self._service.send("send_message_batch", body)
        return {int(entry["Id"]): _meaning(entry) for entry in answer.get("Failed", ())}

    def _message(self, record: Record) -> EncodedMessage:
        address, event = record.address, record.event
        start: MessageParts = address.prepared or self._prepare(address)
        body = b2a_base64(event.envelope, newline=False)
        shown, size = start.attributes, start.size
        if self._event_headers:
            more, more_size = attributes(self._event_headers(event))
            shown, size = b",".join(filter(None, (shown, more))), size + more_size
        text = b',"MessageBody":"%b","MessageAttributes":{%b}' % (body, shown)
        if start.group:
            text += b'%b,"MessageDeduplicationId":"%b"' % (start.group, event.id.encode())
        return EncodedMessage(text, len(body) + size)

    def _prepare(self, address: Address) -> MessageParts:
        start = address.prepared = MessageParts(address)
        return start


def _orders(batch: Sequence[Record]) -> list[tuple[str, Any]]:
    """Return the order of each message; in a standard queue, each message has its own."""
    starts: list[MessageParts] = [record.address.prepared for record in batch]
    return [start.order if start.group else (start.order[0], place) for place, start in enumerate(starts)]


def attributes(headers: Iterable[tuple[str, str]]) -> tuple[bytes, int]:
    """Encode attributes, without the braces around them; also return how many bytes SQS counts."""
    kept = [(name, FORBIDDEN.sub(REPLACEMENT, value)) for name, value in headers if value]
    encoded = [
        f'{json.dumps(name)}:{{"DataType":"{STRING}","StringValue":{json.dumps(value)}}}'
        for name, value in kept
    ]
    size = sum(len(name) + len(STRING) + len(value.encode()) for name, value in kept)
    return ",".join(encoded).encode(), size


def _meaning(entry: Mapping[str, Any]) -> DeliveryError:
    """Return why a message was not stored."""
    code, text = str(entry.get("Code", "")), str(entry.get("Message", ""))
    return refused_entry(code, text, senders_fault=bool(entry.get("SenderFault")))
