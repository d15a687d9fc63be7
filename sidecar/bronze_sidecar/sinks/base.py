"""The interface of back ends: what each declares, and how to write to a connected one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from bronze_buses.errors import BusError, Refused
from bronze_cli.options import option, options_of
from bronze_cli.problems import Fault
from bronze_cli.values import Choice, Integer, Text

from bronze_sidecar.errors import DeliveryError, Permanent, Transient
from bronze_sidecar.routing.rules import Record, Rules
from bronze_sidecar.routing.values import Cases

if TYPE_CHECKING:
    from bronze_sidecar.routing.route import Route


class Limits(NamedTuple):
    """The most that one write may carry."""

    records: int
    bytes: int


class Failed(NamedTuple):
    """A record that a write did not store, by its place in the batch."""

    place: int
    error: DeliveryError


STRICT_ORDER = "strict"


class Sink(Protocol):
    """A connected back end. It never queues, batches, retries, logs or counts: lanes do."""

    limits: Limits
    forgets_ids_after: float | None
    """How many seconds the back end drops repeated records for; None if it never does."""
    order: str
    """`strict`, or when records of a key may be stored in another order."""
    has_one_path: bool
    """Whether all records reach the bus by one server: one that is stored shows that others could be."""
    advice: str
    """What would have made the last write much faster; empty if nothing."""

    async def ping(self) -> None:
        """Return if the back end answers; raise Disconnected if it does not."""

    def prepare(self, batch: Sequence[Record]) -> Any:
        """Make ready what writing the batch sends, as far as that is known while another write is under way.

        If that one stores everything, this one follows and is handed what was made; if not, it is forgotten.
        """

    async def write(self, batch: Sequence[Record], prepared: Any = None) -> Sequence[Failed]:
        """Store the batch, in order; return after the back end has confirmed it.

        Return the records that were not stored, each with its reason; those that were not sent are NotTried.
        Raise Disconnected if it is unknown what was stored, and any other DeliveryError if nothing was. If a
        record may be stored later (Transient), no later record of its order may have been stored.
        """


def batch_size(default: int) -> Any:
    """Declare how many records are written at once."""
    return option(Integer(1, 100_000), "Maximum records written at once.", default=default)


def batch_delay(default: int) -> Any:
    """Declare how long a record waits for company on a free line."""
    return option(
        Integer(0, 60_000),
        "How long a record waits for others before it is written; 0 writes it at once, unless a write is"
        " under way.",
        default=default,
    )


def dead_letter_doc(destination: str) -> str:
    """Describe the option that names a dead-letter destination."""
    return (
        f"{destination} for events that are refused for good, with the reason in `deadLetterReason` and where"
        " they were refused in `deadLetterDestination`; nowhere if not given."
    )


def meta_prefix(default: str) -> Any:
    """Declare the prefix of headers made from meta entries."""
    return option(
        Text(may_be_empty=True),
        "Prefix under which each meta entry is added as a header; empty adds none.",
        default=default,
    )


@dataclass(frozen=True)
class Backend(ABC):
    """The options of one back end, complete and checked one by one.

    A back end is a package beside this module, with its options in `options.py`, and one line in
    `bronze_sidecar.sinks`.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    _: KW_ONLY
    include_payloads: frozenset[str] | None = option(Cases(), "Payload cases to publish; all if not given.")
    max_batch_size: int = batch_size(1024)
    max_batch_delay_ms: int = batch_delay(0)
    when_full: str = option(
        Choice("wait", "spill"),
        "What to do when the queue in memory is full: let producers wait, or spill to a queue on disk"
        " (--spool-dir).",
        default="wait",
    )

    @abstractmethod
    def open(self, route: Route) -> AbstractAsyncContextManager[Sink]:
        """Connect; close on leaving. Raise Transient if it may work later, Permanent if it never will."""

    @abstractmethod
    def rules(self) -> Rules:
        """Return how events are addressed."""

    def exposed_secrets(self) -> Iterator[str]:
        """Yield the options whose secrets would cross a network in clear text."""
        yield from ()

    @abstractmethod
    def faults(self) -> Iterator[tuple[str, Fault]]:
        """Yield conflicts between options, each with the option to name."""


def both_or_neither(backend: Backend, first: str, second: str) -> Iterator[tuple[str, Fault]]:
    """Yield one of two options if it is given without the other."""
    for given, absent in ((first, second), (second, first)):
        if getattr(backend, given) is not None and getattr(backend, absent) is None:
            yield given, Fault("has no effect on its own.", f"Add {flag(backend, absent)}.")


def needs_switch(backend: Backend, switch: str, *names: str) -> Iterator[tuple[str, Fault]]:
    """Yield options that have no effect while a switch is off."""
    for name in names:
        if getattr(backend, name) is not None and not getattr(backend, switch):
            yield name, Fault("has no effect.", f"Add {flag(backend, switch)}.")


def meta_prefix_faults(
    static_headers: Mapping[str, str] | None, prefix: str | None
) -> Iterator[tuple[str, Fault]]:
    """Yield static headers that could appear twice in a record because they look like meta headers."""
    for name in static_headers or {}:
        if prefix and name.startswith(prefix):
            yield (
                "static_headers",
                Fault(
                    f"header '{name}' starts with '{prefix}', the prefix of meta headers.",
                    "Rename one of them.",
                ),
            )


def tls_faults(backend: Backend, *, encrypted: bool) -> Iterator[tuple[str, Fault]]:
    """Yield certificates given without TLS, or one file given without the other."""
    if not encrypted:
        yield from needs_switch(backend, "tls", "tls_ca_file", "tls_cert_file", "tls_key_file")
    yield from both_or_neither(backend, "tls_cert_file", "tls_key_file")


def flag(backend: Backend, attribute: str) -> str:
    """Return the flag of an option."""
    found = next(each for each in options_of(type(backend), backend.name) if each.attribute == attribute)
    return found.flag


def delivery_error(error: BusError) -> DeliveryError:
    """Return what a lane is told if a bus cannot be opened."""
    return Permanent(str(error)) if isinstance(error, Refused) else Transient(str(error))
