"""Redis Streams entries: encoding them, adding them, and reading the results."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from redis.exceptions import ClusterCrossSlotError, NoPermissionError, NoScriptError

from bronze_sidecar.envelope import native
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.errors import DeliveryError, NotTried, Permanent
from bronze_sidecar.routing.rules import Address, Record
from bronze_sidecar.sinks.base import STRICT_ORDER, Failed, Limits
from bronze_sidecar.sinks.outcome import failures
from bronze_sidecar.sinks.redis.answers import VALUE_TOO_LARGE, KeyRefused, classify, classify_text
from bronze_sidecar.sinks.redis.connection import connect, may_run, value_limit
from bronze_sidecar.sinks.redis.durability import Unconfirmed
from bronze_sidecar.sinks.redis.entries import script_entries
from bronze_sidecar.sinks.redis.link import Link, PackedCommand, bulk

if TYPE_CHECKING:
    from bronze_sidecar.routing.route import Route
    from bronze_sidecar.sinks.redis.options import Redis

SCRIPT = b"""\
local failed, blocked, commands = {}, {}, {}
local hole, at = tonumber(ARGV[1]), 3
for number = 1, tonumber(ARGV[2]) do
  local count = tonumber(ARGV[at])
  commands[number] = {'XADD', unpack(ARGV, at + 1, at + count)}
  at = at + count + 1
end
for entry = at, #ARGV, 3 do
  local command = commands[tonumber(ARGV[entry])]
  local key = command[2]
  if not blocked[key] then
    command[hole], command[hole + 2] = ARGV[entry + 1], ARGV[entry + 2]
    local answer = redis.pcall(unpack(command))
    if type(answer) == 'table' then
      blocked[key] = true
      failed[#failed + 1] = (entry - at) / 3
      failed[#failed + 1] = answer.err
    end
  end
end
return failed
"""
"""Adds entries in order; after one fails, adds no more to its key. Returns places and errors.

A plain pipeline could not stop: entries after a failed one would be stored before it. What entries have
in common is sent once, as a command with two holes; then each entry is the number of its command, an envelope
and an id. So the script costs the server no more than plain commands.
"""
SHA = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()
NO_ENTRIES = (b"0", b"0", b"0")
ID_FIELD = bulk(b"eventId")
HOLES = bulk(b"") + ID_FIELD + bulk(b"")
BY_SHA = bulk(b"EVALSHA") + bulk(SHA)
BY_TEXT = bulk(b"EVAL") + bulk(SCRIPT)

# A server does nothing else while it runs a script; this many entries take about a tenth of a second.
LIMITS = Limits(records=10_000, bytes=16 * 1024 * 1024)

# Errors for which a single key may stop a call for several.
WHOLE_CALL_ERRORS = (ClusterCrossSlotError, NoPermissionError)

# Lua passes at most 8,000 words to a function.
META_LIMIT = 3_000
# The meta of a producer's session is used again and again; an event's own is not worth more space.
REMEMBERED_METAS = 1_000


@asynccontextmanager
async def open_redis(options: Redis, route: Route) -> AsyncIterator[RedisSink]:
    """Connect; close on leaving."""
    async with connect(options) as (link, connection):
        scripted = await may_run(connection, (b"EVAL", SCRIPT, *NO_ENTRIES), (b"EVALSHA", SHA, *NO_ENTRIES))
        limit = await value_limit(connection)
        encoder = Encoder(route.rules.meta_prefix, options.maxlen, limit, is_native=route.is_native)
        yield RedisSink(link, encoder, scripted=scripted)


class Words:
    """Words of a command as sent to the server."""

    __slots__ = ("count", "packed")

    def __init__(self, words: Sequence[bytes]) -> None:
        self.packed = b"".join(map(bulk, words))
        self.count = len(words)


NO_META = Words(())


class PreparedCalls(NamedTuple):
    """A write as far as it can be made ahead."""

    errors: dict[int, DeliveryError]
    """What can never be stored, by place."""
    places: list[int]
    """The others."""
    groups: list[list[int]]
    """Which of them go in one call; none without the script."""
    calls: list[PackedCommand]


class EntryParts:
    """What all entries of an address have in common."""

    __slots__ = ("after", "before", "key")

    def __init__(self, key: bytes, before: Words, after: Words) -> None:
        self.key = key
        self.before = before
        """From the key to the name of the field that holds the envelope."""
        self.after = after
        """What follows the event's id."""


class Encoder:
    """Turns records into commands."""

    def __init__(
        self, meta_prefix: str, maxlen: int | None, value_limit: int, *, is_native: bool = False
    ) -> None:
        self._entries = native.compiled.script_entries if is_native else script_entries
        self._meta_prefix = meta_prefix
        self._trim = (b"MAXLEN", b"~", b"%d" % maxlen) if maxlen else ()
        self._hole = bulk(b"%d" % (len(self._trim) + 5))
        self._value_limit = value_limit
        self._metas: dict[tuple[tuple[str, str], ...], Words] = {}

    def faults(self, batch: Sequence[Record]) -> dict[int, DeliveryError]:
        """Return why records can never be stored, by place."""
        limit = self._value_limit
        places = [
            place
            for place, event in enumerate([record.event for record in batch])
            if len(event.envelope) > limit or len(event.meta) > META_LIMIT
        ]
        return {place: self._fault(batch[place].event) for place in places}

    def _fault(self, event: Event) -> Permanent:
        size = len(event.envelope)
        if size > self._value_limit:
            return Permanent(f"the event has {size} bytes; the server allows {self._value_limit}")
        return Permanent(f"the event has {len(event.meta)} meta entries; {META_LIMIT} are allowed")

    def script_call(self, records: Iterable[Record], by: bytes) -> bytes:
        """Return a single script call for all records."""
        numbers: dict[tuple[EntryParts, Words], bytes] = {}

        def number_of(record: Record) -> bytes:
            address = record.address
            meta = self._words_of(record.event.meta) if self._meta_prefix else NO_META
            shared = address.prepared or self._prepare(address), meta
            return numbers.get(shared) or numbers.setdefault(shared, bulk(b"%d" % (len(numbers) + 1)))

        entries, count = self._entries(records, number_of, bool(self._meta_prefix))
        keys = {start.key for start, _ in numbers}
        lengths = [_length(*shared) for shared in numbers]
        words = 5 + len(keys) + sum(lengths) + len(lengths) + 3 * count
        call = [b"*%d\r\n" % words, by, bulk(b"%d" % len(keys)), *map(bulk, keys)]
        call += [self._hole, bulk(b"%d" % len(numbers))]
        for (start, meta), length in zip(numbers, lengths, strict=True):
            call += bulk(b"%d" % length), start.before.packed, HOLES, start.after.packed, meta.packed
        return b"".join((*call, entries))

    def plain_call(self, record: Record) -> bytes:
        """Return the plain command for one record."""
        address, event = record.address, record.event
        start = address.prepared or self._prepare(address)
        meta = self._words_of(event.meta) if self._meta_prefix else NO_META
        count = b"*%d\r\n" % (1 + _length(start, meta))
        own = bulk(event.envelope) + ID_FIELD + bulk(event.id.encode())
        return count + bulk(b"XADD") + start.before.packed + own + start.after.packed + meta.packed

    def _prepare(self, address: Address) -> EntryParts:
        key = address.destination.encode()
        start = EntryParts(
            key,
            before=Words((key, *self._trim, b"*", b"data")),
            after=Words([word.encode() for header in address.headers for word in header]),
        )
        address.prepared = start
        return start

    def _words_of(self, meta: Mapping[str, str]) -> Words:
        items = tuple(meta.items())
        return self._metas.get(items) or self._remember(items)

    def _remember(self, items: tuple[tuple[str, str], ...]) -> Words:
        if len(self._metas) >= REMEMBERED_METAS:
            self._metas.clear()
        words = [word.encode() for name, value in items for word in (self._meta_prefix + name, value)]
        meta = self._metas[items] = Words(words)
        return meta


def _length(start: EntryParts, meta: Words) -> int:
    """Return the number of words, counted from the key."""
    return start.before.count + 3 + start.after.count + meta.count


class RedisSink:
    """A connected server or cluster.

    If the user may run scripts, one call stores all entries of a write (in a cluster, of a stream).
    Otherwise entries are added by plain commands, and each entry of a stream is sent after the previous
    one is confirmed: order is the same, but a stream takes one entry per round trip.
    """

    limits = LIMITS
    forgets_ids_after: float | None = None
    order = STRICT_ORDER
    advice = ""

    def __init__(self, link: Link, encoder: Encoder, *, scripted: bool) -> None:
        self.has_one_path = link.one_node
        self._link = link
        self._encoder = encoder
        self._scripted = scripted
        self._one_call = link.one_node
        """Whether a call may name several keys."""

    async def ping(self) -> None:
        await self._link.ping()

    def prepare(self, batch: Sequence[Record]) -> PreparedCalls:
        errors = self._encoder.faults(batch)
        places = [place for place in range(len(batch)) if place not in errors]
        groups: list[list[int]] = []
        if places and self._scripted:
            groups = [places] if self._one_call else _by_key(batch, places)
        return PreparedCalls(errors, places, groups, self._calls(batch, groups, BY_SHA))

    async def write(self, batch: Sequence[Record], prepared: PreparedCalls | None = None) -> Sequence[Failed]:
        errors, places, groups, calls = prepared or self.prepare(batch)
        if self._scripted:
            await self._by_script(batch, groups, calls, errors)
        else:
            await self._one_by_one(batch, places, errors)
        if any(isinstance(error, Unconfirmed) for error in errors.values()):
            # The same connection can tell when they are confirmed: it must not be opened anew.
            return [Failed(place, error) for place, error in sorted(errors.items())]
        return failures(errors, len(batch))

    # -- with the script

    async def _by_script(
        self,
        batch: Sequence[Record],
        groups: list[list[int]],
        calls: list[PackedCommand],
        errors: dict[int, DeliveryError],
    ) -> None:
        for group, answer in zip(groups, await self._run(batch, groups, calls), strict=True):
            if isinstance(answer, ClusterCrossSlotError):
                self._one_call = False  # a proxy hides that this is a cluster
            keys = _by_key(batch, group) if isinstance(answer, WHOLE_CALL_ERRORS) else []
            if len(keys) > 1:
                answers = await self._run(batch, keys, self._calls(batch, keys, BY_SHA))
                for key, its_answer in zip(keys, answers, strict=True):
                    _note(batch, key, its_answer, errors)
            else:
                _note(batch, group, answer, errors)

    async def _run(
        self, batch: Sequence[Record], groups: list[list[int]], calls: list[PackedCommand]
    ) -> list[Any]:
        """Run the script for each group; send it along where the server has forgotten it."""
        answers = await self._link.exchange(calls) if calls else []
        lost = [place for place, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if lost:
            with_text = self._calls(batch, [groups[place] for place in lost], BY_TEXT)
            for place, answer in zip(lost, await self._link.exchange(with_text), strict=True):
                answers[place] = answer
        return answers

    def _calls(self, batch: Sequence[Record], groups: list[list[int]], by: bytes) -> list[PackedCommand]:
        return [
            PackedCommand(
                batch[group[0]].address.destination.encode(),
                self._encoder.script_call([batch[place] for place in group], by),
            )
            for group in groups
        ]

    # -- without it

    async def _one_by_one(
        self, batch: Sequence[Record], places: list[int], errors: dict[int, DeliveryError]
    ) -> None:
        queues = [deque(group) for group in _by_key(batch, places)]
        while queues:
            commands = [
                PackedCommand(record.address.destination.encode(), self._encoder.plain_call(record))
                for record in (batch[queue[0]] for queue in queues)
            ]
            for queue, answer in zip(queues, await self._link.exchange(commands), strict=True):
                place = queue.popleft()
                if isinstance(answer, Exception):
                    _note(batch, [place], answer, errors)
                    for behind in queue:
                        errors[behind] = _behind(errors[place])
                    queue.clear()
            queues = [queue for queue in queues if queue]


def _by_key(batch: Sequence[Record], places: list[int]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for place in places:
        groups.setdefault(batch[place].address.destination, []).append(place)
    return list(groups.values())


def _note(batch: Sequence[Record], group: list[int], answer: Any, errors: dict[int, DeliveryError]) -> None:
    """Record what the answer to a group's command means for its records."""
    if isinstance(answer, Exception):
        if VALUE_TOO_LARGE in str(answer):
            _note_too_large(batch, group, errors)
        else:
            for place in group:
                errors[place] = _naming(batch[place], classify(answer))
        return
    if not answer:
        return
    failed = dict(zip(answer[::2], answer[1::2], strict=True))
    rest: dict[str, DeliveryError] = {}
    for index, place in enumerate(group):
        key = batch[place].address.destination
        if index in failed:
            errors[place] = _naming(batch[place], classify_text(failed[index].decode().lstrip("-")))
            rest[key] = _behind(errors[place])
        elif key in rest:
            errors[place] = rest[key]


def _behind(error: DeliveryError) -> DeliveryError:
    """Return what the failure of an entry means for those of its key that were to follow."""
    return error if isinstance(error, KeyRefused) else NotTried("an earlier entry failed")


def _note_too_large(batch: Sequence[Record], group: list[int], errors: dict[int, DeliveryError]) -> None:
    """Blame the largest value: the server does not say which one is too large, but the largest must be."""
    largest = max(group, key=lambda place: len(batch[place].event.envelope))
    for place in group:
        errors[place] = NotTried("another event was too large for the server")
    size = len(batch[largest].event.envelope)
    errors[largest] = Permanent(f"the event has {size} bytes, more than the server allows")


def _naming(record: Record, error: DeliveryError) -> DeliveryError:
    """Add the stream to an error that concerns it."""
    if isinstance(error, Permanent):
        return type(error)(f"stream '{record.address.destination}': {error}")
    return error
