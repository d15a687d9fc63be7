"""Redis Streams on a server: finding them, reading entries, and where to split a range of them."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
from bronze_buses.redis import encrypting_without_asyncio, opening_error
from bronze_buses.tls import client_context
from redis.cluster import RedisCluster
from redis.exceptions import RedisClusterException

from bronze_pipeline.sources.options import read_secret
from bronze_pipeline.sources.redis.positions import EntryId, StreamState
from bronze_pipeline.sources.redis.streams import RedisOptions

DATA_FIELD = b"data"
PAGE = 10_000
KEYS_IN_PIPELINE = 1_000
SECONDS_TO_CONNECT = 10
SECONDS_TO_ANSWER = 60

# How a split is found: entries read to measure the rate, and entries skipped by that rate.
SAMPLE = 128
LARGEST_SAMPLE = 8_192
LEAP = 16_384


Entry = tuple[bytes, Any]
"""An entry's id, and its fields: names and values alternating, or a dictionary."""


@contextmanager
def connect(options: RedisOptions) -> Iterator[RedisServer]:
    """Connect; close on leaving."""
    settings: dict[str, Any] = {
        "host": options.host,
        "port": options.port,
        "username": options.username,
        "password": read_secret("--redis-password-file", options.password_file),
        "socket_connect_timeout": SECONDS_TO_CONNECT,
        "socket_timeout": SECONDS_TO_ANSWER,
        "protocol": 2,
    }
    try:
        with _client(options, settings) as client:
            # Lists as received: turning fields into dictionaries would double the time.
            client.set_response_callback("XRANGE", lambda answer, **_: answer)
            yield RedisServer(client, cluster=options.cluster)
    except (redis.RedisError, RedisClusterException) as error:
        where = f"Redis at {options.host}:{options.port}"
        raise opening_error(error, where, "--redis-username and --redis-password-file") from error


def _client(options: RedisOptions, settings: dict[str, Any]) -> Any:
    encrypted: dict[str, Any] = {}
    if options.is_encrypted:
        encrypted = {"connection_class": encrypting_without_asyncio(client_context(options, "--redis-tls"))}
    if options.cluster:
        return RedisCluster(**settings, **encrypted, ssl=options.is_encrypted)
    return redis.Redis(connection_pool=redis.ConnectionPool(db=options.db, **settings, **encrypted))


class RedisServer:
    """A connected server or cluster."""

    def __init__(self, client: Any, *, cluster: bool) -> None:
        self._client = client
        self._cluster = cluster

    def find(self, pattern: str) -> set[str]:
        """Return the keys of streams that a pattern matches."""
        everywhere = {"target_nodes": RedisCluster.PRIMARIES} if self._cluster else {}
        found = self._client.scan_iter(pattern, count=KEYS_IN_PIPELINE, _type="stream", **everywhere)
        return {key.decode() for key in found}

    def states(self, keys: Iterable[str]) -> dict[str, StreamState]:
        """Return the state of the streams; those that do not exist are left out."""
        wanted = sorted(keys)
        answers = self._ask([("XINFO", "STREAM", key) for key in wanted])
        states: dict[str, StreamState] = {}
        for key, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, redis.ResponseError) and "no such key" in str(answer):
                continue
            if isinstance(answer, Exception):
                raise answer
            states[key] = _state(dict(zip(answer[::2], answer[1::2], strict=True)))
        return states

    def entries(self, key: str, first: str, last: str, count: int) -> list[Entry]:
        # Thousands of small lists without cycles: garbage collection would take a third of the time.
        was_on = gc.isenabled()
        gc.disable()
        try:
            found: list[Entry] = self._client.execute_command("XRANGE", key, first, last, "COUNT", count)
        finally:
            if was_on:
                gc.enable()
        return found

    def firsts(self, places: Sequence[tuple[str, str, str]]) -> list[EntryId | None]:
        """Return the first entry of each range, given as key, first and last."""
        answers = self._ask([("XRANGE", *place, "COUNT", 1) for place in places])
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return [EntryId.parse(answer[0][0]) if answer else None for answer in answers]

    def _ask(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        answers: list[Any] = []
        for start in range(0, len(commands), KEYS_IN_PIPELINE):
            pipeline = self._client.pipeline() if self._cluster else self._client.pipeline(transaction=False)
            for command in commands[start : start + KEYS_IN_PIPELINE]:
                pipeline.execute_command(*command)
            answers += pipeline.execute(raise_on_error=False)
        return answers

    # -- cutting

    def nth(self, key: str, after: EntryId, count: int) -> EntryId | None:
        """Return the entry that is `count` entries after an id; None if there are fewer."""
        found = self.entries(key, f"({after}", "+", count)
        return EntryId.parse(found[-1][0]) if len(found) == count else None

    def about_nth(self, key: str, after: EntryId, count: int) -> EntryId | None:
        """Return an entry that is about `count` entries after an id; None if there are fewer.

        A server cannot count entries without sending them. So their rate is measured at many places, and the
        time between those is skipped.
        """
        taken, size, place = 0, SAMPLE, f"({after}"
        while True:
            found = self.entries(key, place, "+", size)
            if len(found) < size:
                return None
            taken += size
            ids = [EntryId.parse(found[0][0]), EntryId.parse(found[-1][0])]
            leap = min(count - taken, LEAP)
            if leap <= 0:
                return ids[1]
            span = ids[1].ms - ids[0].ms
            if span == 0:
                # So many within a millisecond that no rate shows: continue without a leap.
                size, place = min(2 * size, LARGEST_SAMPLE), f"({ids[1]}"
                continue
            size, place = SAMPLE, str(ids[1].ms + max(1, leap * span // size))
            taken += leap


def values(entries: Sequence[Entry]) -> list[bytes | None]:
    """Return the envelope in each entry; None if there is none."""
    if entries and isinstance(entries[0][1], dict):  # from the cluster client
        return [fields.get(DATA_FIELD) for _, fields in entries]
    # The sidecar writes the envelope first.
    return [fields[1] if fields[0] == DATA_FIELD else _named(fields) for _, fields in entries]


def _named(fields: Sequence[bytes]) -> bytes | None:
    pairs = zip(fields[::2], fields[1::2], strict=True)
    return next((value for name, value in pairs if name == DATA_FIELD), None)


def _state(facts: dict[bytes, Any]) -> StreamState:
    first = facts[b"first-entry"]
    return StreamState(
        last=EntryId.parse(facts[b"last-generated-id"]),
        length=facts[b"length"],
        first=EntryId.parse(first[0]) if first else None,
        added=facts.get(b"entries-added"),
        deleted=EntryId.parse(facts.get(b"max-deleted-entry-id", b"0-0")),
    )
