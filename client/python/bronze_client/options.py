"""What can be chosen about a connection, declared once for both kinds of client."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar, get_args

from bronze_client.errors import Failure
from bronze_client.identity import unique_id

Origin = Literal["unspecified", "realtime", "replay", "archive"]
OnFull = Literal["drop_newest", "drop_oldest", "wait"]

P = ParamSpec("P")
T = TypeVar("T")

_STREAM_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# After two slashes a path is absolute; without any it may be relative.
_UNIX = re.compile(r"unix:(?:///|(?!//)).")
_TCP = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:/\s\[\]]+):\d{1,5}")


@dataclass(frozen=True)
class Options:
    """Where to publish and how. Raise ValueError for invalid values."""

    address: str | None
    """The sidecar: `host:port` or `unix:///path`. None or empty turns publishing off."""
    _: KW_ONLY

    source: str = ""
    """The producing program and its version, as `name/version`."""
    origin: Origin = "unspecified"
    """Where the producer got the events."""
    stream_id: str | None = None
    """First part of the events' ids. A new unique one if None; use `stream_id_for` for a replay."""
    request_id: str = ""
    """The request that the events answer."""
    session_id: str = ""
    """The client session that made the request."""
    meta: Mapping[str, str] | None = None
    """Additional meta entries for every event."""

    batch_events: int = 1024
    """While nothing is in flight an event is sent at once. Others gather until they are this many,"""
    batch_bytes: int = 262_144
    """or this many bytes,"""
    batch_delay: float = 0.005
    """or the first of them has waited this many seconds, or everything before them is acknowledged."""

    buffer_events: int = 100_000
    """Maximum number of events, sent or not, that are kept until they are acknowledged."""
    buffer_bytes: int = 64 * 1024 * 1024
    """Maximum number of bytes that are kept this way."""
    on_full: OnFull = "drop_newest"
    """What to do with an event when the buffer is full.

    `drop_newest` drops that event. `drop_oldest` drops the oldest unsent events, one batch at a time. `wait`
    makes `publish_wait`, and the `publish` of `connect_sync`, wait for room, which is right for a replay.
    """
    max_wait: float = math.inf
    """Maximum wait for room, in seconds; then the event is dropped. By default it waits as long as it takes.

    A warning is logged for every minute in which nothing was acknowledged.
    """
    on_drop: Callable[[int, str], None] | None = None
    """Called with the number of events dropped since the last call, and the reason for the last one.

    At most about once a second. If it is None, a warning is logged instead.
    """
    on_failure: Callable[[Failure], None] | None = None
    """Called for every event that was rejected or failed permanently. If it is None, a warning is logged."""
    close_timeout: float = 5.0
    """How long `close` waits for acknowledgements, in seconds."""

    tls: bool = False
    """Encrypts the connection; TCP addresses only. Setting any of the files below turns it on."""
    tls_ca_file: str | Path | None = None
    """Certificates to trust instead of the system's, as PEM."""
    tls_cert_file: str | Path | None = None
    """Client certificate as PEM, for mutual TLS."""
    tls_key_file: str | Path | None = None
    """Key of the client certificate, as PEM."""

    producer_id: str = field(default_factory=unique_id, init=False)
    """Identifies this run of the producer, so that it can resume after a lost connection."""

    def __post_init__(self) -> None:
        if self.stream_id is None:
            object.__setattr__(self, "stream_id", unique_id())
        # A copy, because it is sent again whenever the stream is resumed, and has to be the same then.
        if self.meta is None or isinstance(self.meta, Mapping):
            object.__setattr__(self, "meta", dict(self.meta or {}))
        if problems := [*self._wrong_names(), *self._wrong_limits(), *self._wrong_encryption()]:
            raise ValueError("\n".join(problems))

    @property
    def is_local(self) -> bool:
        """Whether the address is a unix socket."""
        return (self.address or "").startswith("unix:")

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return self.tls or any((self.tls_ca_file, self.tls_cert_file, self.tls_key_file))

    def _wrong_names(self) -> list[str]:
        problems = []
        if self.address and not _UNIX.match(self.address) and not _TCP.fullmatch(self.address):
            problems.append(f"address: {self.address!r} is neither host:port nor unix:///path.")
        if self.origin not in get_args(Origin):
            problems.append(f"origin: {self.origin!r} is not one of {', '.join(get_args(Origin))}.")
        if self.on_full not in get_args(OnFull):
            problems.append(f"on_full: {self.on_full!r} is not one of {', '.join(get_args(OnFull))}.")
        if not _STREAM_ID.fullmatch(self.stream_id or ""):
            problems.append(f"stream_id: {self.stream_id!r} is not 1 to 64 letters, digits, '-', '_' or '.'.")
        if not isinstance(self.meta, Mapping):
            problems.append(f"meta: must be a mapping, not {type(self.meta).__name__}.")
        elif not all(isinstance(text, str) for entry in self.meta.items() for text in entry):
            problems.append("meta: keys and values must be strings.")
        return problems

    def _wrong_limits(self) -> list[str]:
        counts = ("batch_events", "batch_bytes", "buffer_events", "buffer_bytes")
        times = ("batch_delay", "max_wait", "close_timeout")
        problems = [f"{name}: must be 1 or more." for name in counts if not getattr(self, name) >= 1]
        problems += [f"{name}: must be 0 or more." for name in times if not getattr(self, name) >= 0]
        if self.on_full == "wait" and self.max_wait == 0:
            problems.append("max_wait: must be more than 0 when on_full is 'wait'.")
        return problems

    def _wrong_encryption(self) -> list[str]:
        problems = []
        if self.is_encrypted and self.is_local:
            problems.append("tls: a unix socket is not encrypted.")
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            problems.append("tls_cert_file and tls_key_file: one needs the other.")
        return problems


def taking(options: Callable[P, Options]) -> Callable[[Callable[[Options], T]], Callable[P, T]]:
    """Let a function of options take the options' own arguments."""

    def decorate(function: Callable[[Options], T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return function(options(*args, **kwargs))

        result = inspect.signature(function).return_annotation
        signature = inspect.signature(options).replace(return_annotation=result)
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return decorate
