"""AWS SQS: standard and FIFO queues."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bronze_cli.options import option
from bronze_cli.problems import Fault, control_character, shorten
from bronze_cli.values import Integer, Switch

from bronze_sidecar.routing.naming import Target
from bronze_sidecar.routing.rules import DEFAULT_KEY, FREE_TEXT, Rules
from bronze_sidecar.routing.template import Template, trusted
from bronze_sidecar.routing.values import Destination, Headers, Routing, TemplatedHeaders
from bronze_sidecar.sinks.aws.options import AwsBackend
from bronze_sidecar.sinks.base import Sink, batch_delay, batch_size, dead_letter_doc

if TYPE_CHECKING:
    from bronze_sidecar.routing.route import Route

# SQS quotas: a queue's name, a group id, and the attributes of one message.
QUEUE_NAME_LIMIT = 80
GROUP_LIMIT = 128
ATTRIBUTE_LIMIT = 10
OWN_ATTRIBUTES = ("payloadCase", "dataType")
DEAD_LETTER_ATTRIBUTES = ("deadLetterReason", "deadLetterDestination")
GROUP_CHARACTERS = frozenset(string.ascii_letters + string.digits + string.punctuation)
FIFO = ".fifo"


def queue_name(url: str) -> str:
    return url.rpartition("/")[2]


def queue_url_fault(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "it is not a valid URL"
    # `urlsplit` accepts spaces and control characters, and drops some of them.
    if not re.fullmatch(r"https?://[!-~]+", url) or not host or set("@?#") & set(url):
        return "it is not a queue URL such as https://sqs.eu-central-1.amazonaws.com/123456789012/name"
    name = queue_name(url)
    if not re.fullmatch(r"(/[\w.~-]+)+/", parts.path.removesuffix(name), re.ASCII):
        return "its path has no account before the queue's name"
    if not re.fullmatch(rf"[A-Za-z0-9_-]+({re.escape(FIFO)})?", name):
        return "its last part is not a queue name of letters, digits, '-' and '_' (and '.fifo' at the end)"
    return (
        f"the queue's name has more than {QUEUE_NAME_LIMIT} characters"
        if len(name) > QUEUE_NAME_LIMIT
        else None
    )


def group_fault(group: str) -> str | None:
    illegal = next((character for character in group if character not in GROUP_CHARACTERS), None)
    if illegal:
        return f"it contains {control_character(illegal) or repr(illegal)}"
    return f"it has more than {GROUP_LIMIT} characters" if len(group) > GROUP_LIMIT else None


def attribute_fault(name: str) -> str | None:
    if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", name) or len(name) > 256:
        what = "not a name of up to 256 letters, digits, '_', '-' and single dots"
        return f"attribute '{shorten(name)}' is {what}"
    if name.lower().startswith(("aws.", "amazon.")):
        return f"attribute '{shorten(name)}' is reserved: such names belong to AWS"
    return None


QUEUE_URL = Target(
    noun="SQS queue URL",
    limit=QUEUE_NAME_LIMIT,
    text_fault=queue_url_fault,
    escape_character="_",
    harmless=frozenset(),  # '-' is the only character in a queue's name that can separate two values
    name_of=queue_name,
)
GROUP = Target(noun="SQS message group", limit=GROUP_LIMIT, text_fault=group_fault)
DEFAULT_GROUP = trusted(DEFAULT_KEY, GROUP)


@dataclass(frozen=True)
class Sqs(AwsBackend):
    """Options of the SQS back end."""

    name = "sqs"
    title = "SQS"

    queue_url: Template = option(
        Destination(QUEUE_URL), "Default queue URL; the routing overrides it.", required=True
    )
    queue_routing: dict[str, Template] | None = option(
        Routing(QUEUE_URL), "Queue URLs by payload case; override the default."
    )
    dead_letter_queue_url: Template | None = option(Destination(QUEUE_URL), dead_letter_doc("Queue URL"))
    static_attributes: dict[str, str] | None = option(
        Headers(attribute_fault),
        "Attributes to add to every message. A message has at most 10 attributes of all kinds.",
    )
    message_attributes: dict[str, Template] | None = option(
        TemplatedHeaders(attribute_fault, FREE_TEXT),
        "Attributes with templates as values; left out if they render empty.",
    )
    message_group_template: Template | None = option(
        Destination(GROUP),
        f"Message group on FIFO queues; order is kept within a group. `{DEFAULT_KEY}` if not given.",
    )
    strict_order: bool = option(
        Switch(),
        "Send at most one message of each group per call to a FIFO queue. Without it, calls are fuller when"
        " there are few groups, but a partly stored call can change the order within a group.",
        default=True,
    )
    max_call_bytes: int = option(
        Integer(1024, 10_485_760),
        "Maximum bytes of one message, and of all messages in one call.",
        default=1_048_576,
    )
    max_batch_size: int = batch_size(1000)
    # SQS bills calls, and a call takes ten messages.
    max_batch_delay_ms: int = batch_delay(20)

    @property
    def destinations(self) -> list[Template]:
        return [self.queue_url, *(self.queue_routing or {}).values()]

    def open(self, route: Route) -> AbstractAsyncContextManager[Sink]:
        """Make a client, and check that the queues exist."""
        # Imported here: a process loads only the client libraries of back ends that are on.
        from bronze_sidecar.sinks.sqs.sink import open_sqs  # noqa: PLC0415

        return open_sqs(self, route)

    def rules(self) -> Rules:
        return Rules(
            destination=self.queue_url,
            routing=self.queue_routing or {},
            include=self.include_payloads,
            dead_letter=self.dead_letter_queue_url,
            key=self.message_group_template or DEFAULT_GROUP,
            static_headers=self.static_attributes or {},
            templated_headers=self.message_attributes or {},
            room_for_trace=max(0, ATTRIBUTE_LIMIT - self._attribute_count),
            drop_empty_headers=True,
            headers_noun="attributes",
        )

    @property
    def _own_attributes(self) -> tuple[str, ...]:
        return OWN_ATTRIBUTES + (DEAD_LETTER_ATTRIBUTES if self.dead_letter_queue_url else ())

    @property
    def _attribute_count(self) -> int:
        """How many attributes a message may have by these options."""
        return (
            len(self._own_attributes) + len(self.static_attributes or {}) + len(self.message_attributes or {})
        )

    def faults(self) -> Iterator[tuple[str, Fault]]:
        yield from super().faults()
        static, templated = self.static_attributes or {}, self.message_attributes or {}
        option_to_name = "message_attributes" if templated else "static_attributes"
        for name in static.keys() & templated.keys():
            yield (
                "message_attributes",
                Fault(f"'{name}' is given twice.", "--sqs-static-attributes already has it."),
            )
        own, count = self._own_attributes, self._attribute_count
        if count > ATTRIBUTE_LIMIT:
            yield (
                option_to_name,
                Fault(
                    f"a message would have {count} attributes; SQS allows {ATTRIBUTE_LIMIT}, including"
                    f" {' and '.join(own)}.",
                    f"Remove {count - ATTRIBUTE_LIMIT}.",
                ),
            )
        if self.message_group_template and not any(queue.text.endswith(FIFO) for queue in self.destinations):
            yield "message_group_template", Fault("has no effect: no queue is a FIFO queue.", "Remove it.")
