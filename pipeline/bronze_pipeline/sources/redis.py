"""Redis Streams: `bronze.redis`.

Options: `url` (`redis://host:6379/0`, `rediss://` for TLS, without credentials), `keys` (with commas; one
with `*`, `?` or `[` is a pattern, and streams that appear later are read too); `start` (`earliest`, `latest`
or an entry id, which begins with a time in milliseconds), `maxRecordsPerBatch`, `partitions`, `onDataLoss`
(`fail`, `continue`); `cluster`, `username`, `passwordFile`, `tlsCaFile`, `tlsCertFile`, `tlsKeyFile`. Files
must be there on every worker. The user needs XINFO and XRANGE, and SCAN for patterns.

An offset is `{"keys": {<key>: {"id", "added"}}}`: the last entry that was read, and how many had been added
up to it (-1 if that is not known). With the server's own counters that tells what was trimmed before it was
read. Above 10,000 records a stream's share of `maxRecordsPerBatch` is met approximately, for a server cannot
count entries without sending them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bronze_pipeline.sources.base import (
    ROWS_IN_BATCH,
    SPARK_SCHEMA,
    Bus,
    DataLoss,
    OptionError,
    SourceOptions,
    arrived,
    loss,
    most,
)
from bronze_pipeline.sources.redis_positions import (
    NOTHING,
    UNKNOWN,
    EntryId,
    Position,
    Positions,
    StreamState,
    entries_between,
    from_offset,
    missing,
    newest,
    to_offset,
)

if TYPE_CHECKING:
    from bronze_pipeline.sources.redis_server import Server

NAME = "bronze.redis"
DEFAULT_PORT = 6379
FILE_FLAGS = ("password_file", "tls_ca_file", "tls_cert_file", "tls_key_file")
PATTERN = re.compile(r"[*?\[]")
# A stream's share of a micro-batch up to which its end is found by reading, exactly.
EXACT = 10_000


@dataclass(frozen=True)
class Piece:
    """Entries of one stream for one task, from one that is there to the last; or what was lost."""

    key: str
    first: str
    last: str
    """With `(` before it, that entry is left out."""
    lost: str = ""


@dataclass
class Pieces(InputPartition):
    """What one task reads."""

    pieces: list[Piece] = field(default_factory=list)
    weight: float = 0.0


class RedisSource(DataSource):
    """Streams, as a stream or as a batch of what they have now."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return RedisBatchReader(Streams(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        return RedisStreamReader(Streams(self.options))


class Streams:
    """The streams with their options; it goes to the workers, so it holds plain values."""

    def __init__(self, given: Mapping[str, str]) -> None:
        options = SourceOptions(NAME, given)
        self.max_records = options.max_records
        self.partitions = options.partitions
        self.goes_on_after_loss = options.goes_on_after_loss
        self.start = options.start
        if self.start not in {"earliest", "latest"} and not re.fullmatch(r"\d{1,19}(-\d{1,19})?", self.start):
            raise OptionError(
                f"{NAME}: 'start' is '{self.start}', but must be earliest, latest or an entry id."
            )
        keys = [part.strip() for part in options.required("keys").split(",") if part.strip()]
        self._patterns = [key for key in keys if PATTERN.search(key)]
        self._names = [key for key in keys if not PATTERN.search(key)]
        self._access = _access(options)

    def connect(self) -> AbstractContextManager[Server]:
        from bronze_pipeline.sources.redis_server import Access, connect  # noqa: PLC0415 - each process its own

        return connect(Access(**self._access))

    def states(self, server: Server, known: Sequence[str] = ()) -> dict[str, StreamState]:
        """Return what the streams are that should be read, and those known before that still match."""
        wanted = set(self._names)
        for pattern in self._patterns:
            wanted |= server.find(pattern)
        return server.states(wanted | {key for key in known if self.wants(key)})

    def wants(self, key: str) -> bool:
        """Tell whether a stream that was read before is still asked for."""
        return key in self._names or any(_matches(pattern, key) for pattern in self._patterns)

    # -- positions

    def initial(self, states: Mapping[str, StreamState]) -> dict[str, Position]:
        """Return where to begin without a checkpoint."""
        return {key: self._initial(state) for key, state in states.items()}

    def _initial(self, state: StreamState) -> Position:
        if self.start == "earliest":
            return Position(NOTHING, state.removed)
        if self.start == "latest":
            return Position(state.last, state.added)
        ms, number = EntryId.parse(self.start)
        before = EntryId(ms, number - 1) if number else EntryId(max(0, ms - 1), (1 << 64) - 1)
        return Position(NOTHING if ms == number == 0 else before, None)

    def advance(
        self,
        server: Server,
        start: Positions,
        ends: Positions,
        states: Mapping[str, StreamState],
        limit: int | None,
    ) -> dict[str, Position]:
        """Return how far a micro-batch goes, if each stream is to be read to its end at most."""
        behind = {key: entries_between(start[key], ends[key], states[key]) for key in ends}
        left = sum(behind.values()) if limit is None else limit
        reached: dict[str, Position] = {}
        waiting = sorted((count, key) for key, count in behind.items())
        for place, (count, key) in enumerate(waiting):
            take = min(count, left // (len(waiting) - place))
            left -= take
            cut = self._cut(server, key, start[key], states[key], take) if take < count else None
            reached[key] = cut if cut is not None and cut.id < ends[key].id else ends[key]
        return reached

    def _cut(
        self, server: Server, key: str, start: Position, state: StreamState, count: int
    ) -> Position | None:
        """Return the position `count` entries on; None if there are not so many."""
        if count == 0:
            return start
        if count > EXACT:
            about = server.about_nth(key, start.id, count)
            return Position(about, None) if about is not None else None
        exact = server.nth(key, start.id, count)
        if exact is None:
            return None
        trimmed = state.first is None or state.first > start.id
        before = state.removed if trimmed else start.added
        return Position(exact, None if before is None else before + count)

    # -- planning

    def plan(self, server: Server, start: Positions, end: Positions) -> list[InputPartition]:
        """Divide what lies between two positions among tasks."""
        changed = [key for key in start.keys() | end.keys() if start.get(key) != end.get(key)]
        states = server.states(changed)
        parts = [Pieces() for _ in range(self.partitions)]
        for key in sorted(changed):
            pieces, weight = self._pieces(server, key, start.get(key), end.get(key), states.get(key))
            for piece in pieces:
                lightest = min(parts, key=lambda part: part.weight)
                lightest.pieces.append(piece)
                lightest.weight += weight / len(pieces)
        return [part for part in parts if part.pieces]

    def _pieces(
        self,
        server: Server,
        key: str,
        start: Position | None,
        end: Position | None,
        state: StreamState | None,
    ) -> tuple[list[Piece], float]:
        """Return a stream's share, cut where it is large, and about how many entries that are."""
        begin = start or Position(NOTHING, 0)
        pieces: list[Piece] = []
        lost = missing(key, begin, end, state)
        if lost:
            if not self.goes_on_after_loss:
                raise DataLoss(lost)
            pieces.append(Piece(key, str(begin.id), str(begin.id), lost))
        if end is None or state is None:
            return pieces, 0.0
        after = begin.id if begin.id < end.id else NOTHING
        first = server.firsts([(key, f"({after}", str(end.id))])[0]
        if first is None:
            return pieces, 0.0
        count = None if begin.added is None or end.added is None else end.added - begin.added
        if count is not None and count <= ROWS_IN_BATCH:
            return [*pieces, Piece(key, str(first), str(end.id))], float(count)
        # By time: entries have no other address.
        span = end.id.ms - first.ms
        times = [str(first.ms + span * number // self.partitions) for number in range(1, self.partitions)]
        found = server.firsts([(key, time, str(end.id)) for time in times])
        edges = sorted({first, *(edge for edge in found if edge is not None and edge > first)})
        lasts = [f"({edge}" for edge in edges[1:]] + [str(end.id)]
        cuts = [Piece(key, str(edge), last) for edge, last in zip(edges, lasts, strict=True)]
        return [*pieces, *cuts], float(count if count is not None else self.max_records)

    # -- reading, in a worker

    def read(self, part: Pieces) -> Iterator[pa.RecordBatch]:
        with self.connect() as server:
            for piece in part.pieces:
                if piece.lost:
                    yield loss(piece.key, piece.key, piece.first, piece.lost)
                else:
                    yield from self._read(server, piece)

    def _read(self, server: Server, piece: Piece) -> Iterator[pa.RecordBatch]:
        from bronze_pipeline.sources.redis_server import PAGE, values  # noqa: PLC0415 - each process its own

        expected, is_new = piece.first.encode(), True
        while True:
            # Each page begins with an entry that is known to be there, so that trimming is noticed.
            page = server.entries(piece.key, expected.decode(), piece.last, PAGE)
            if not page or page[0][0] != expected:
                yield self._trimmed(piece, expected.decode())
                is_new = True
            fresh = page if is_new else page[1:]
            if fresh:
                positions = [entry[0].decode() for entry in fresh]
                yield arrived([piece.key] * len(fresh), piece.key, positions, values(fresh))
            if len(page) < PAGE:
                return
            expected, is_new = page[-1][0], False

    def _trimmed(self, piece: Piece, expected: str) -> pa.RecordBatch:
        what = f"entries of the stream {piece.key} from {expected} on were removed while they were read"
        if not self.goes_on_after_loss:
            raise DataLoss(what)
        return loss(piece.key, piece.key, expected, what)


class RedisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams from a checkpoint on."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._targets: dict[str, Position] | None = None
        """Where availableNow ends."""
        self._seen: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with self._streams.connect() as server:
            return to_offset(self._streams.initial(self._streams.states(server)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._streams.max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        with self._streams.connect() as server:
            self._targets = newest(self._streams.states(server))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        begin = from_offset(start)
        streams = self._streams
        with streams.connect() as server:
            states = streams.states(server, list(begin))
            ends = newest(states)
            # A stream that is no longer asked for keeps its place; one that is gone has none.
            kept = {key: place for key, place in begin.items() if key in states or not streams.wants(key)}
            self._seen = to_offset(kept | ends)
            if self._targets is not None:
                ends = {key: self._targets[key] for key in ends.keys() & self._targets.keys()}
                ends = {key: end for key, end in ends.items() if key not in begin or end.id > begin[key].id}
            new = {key: Position(NOTHING, 0) for key in ends.keys() - begin.keys()}
            reached = streams.advance(server, begin | new, ends, states, most(limit))
        untouched = {key for key in new if reached[key] == new[key]}
        return to_offset(kept | {key: place for key, place in reached.items() if key not in untouched})

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return self._seen

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with self._streams.connect() as server:
            return self._streams.plan(server, from_offset(start), from_offset(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Pieces)  # noqa: S101 - from `partitions`
        return self._streams.read(partition)


class RedisBatchReader(DataSourceReader):
    """Reads what the streams have now."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def partitions(self) -> Sequence[InputPartition]:
        with self._streams.connect() as server:
            states = self._streams.states(server)
            return self._streams.plan(server, self._streams.initial(states), newest(states))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Pieces)  # noqa: S101 - from `partitions`
        return self._streams.read(partition)


class RedisBus(Bus):
    """Redis on the command line."""

    name = "redis"
    schemes = ("redis", "rediss")
    url_form = "redis://host:6379/0?keys=bronze:*"
    data_source = RedisSource
    subject = ("keys",)

    def add_flags(self, parser: argparse.ArgumentParser) -> None:
        group = parser.add_argument_group("Redis")
        group.add_argument("--redis-username", metavar="NAME", help="user name, where the server has users")
        group.add_argument("--redis-password-file", metavar="FILE", help="file with the password")
        group.add_argument(
            "--redis-cluster", action="store_true", help="the server is one of a Redis Cluster"
        )
        group.add_argument("--redis-tls-ca-file", metavar="FILE", help="certificates to trust")
        group.add_argument("--redis-tls-cert-file", metavar="FILE", help="client certificate, for mutual TLS")
        group.add_argument("--redis-tls-key-file", metavar="FILE", help="key of the client certificate")

    def options(self, url: SplitResult, flags: argparse.Namespace) -> dict[str, str]:
        if "@" in url.netloc:
            raise OptionError("--from: holds credentials. Give --redis-username and --redis-password-file.")
        query = parse_qs(url.query, keep_blank_values=True)
        if not url.hostname or set(query) != {"keys"} or not all(query["keys"]):
            raise OptionError(f"--from: name the server and the keys, as in {self.url_form}.")
        if (flags.redis_tls_cert_file is None) != (flags.redis_tls_key_file is None):
            raise OptionError("--redis-tls-cert-file and --redis-tls-key-file: give both, or neither.")
        given = {name: getattr(flags, f"redis_{name}") for name in ("username", *FILE_FLAGS)}
        texts = {_camel(name): value for name, value in given.items() if value is not None}
        cluster = {"cluster": "true"} if flags.redis_cluster else {}
        address = url._replace(query="").geturl()
        return {"url": address, "keys": ",".join(query["keys"]), **texts, **cluster}

    def lag(self, end: Mapping[str, Any], latest: Mapping[str, Any]) -> int | None:
        reached = {key: place["added"] for key, place in end["keys"].items()}
        counts = [(place["added"], reached.get(key, 0)) for key, place in latest["keys"].items()]
        if any(UNKNOWN in pair for pair in counts):
            return None
        return sum(max(0, int(latest_count) - int(read)) for latest_count, read in counts)


# -- options


def _access(options: SourceOptions) -> dict[str, Any]:
    url = urlsplit(options.required("url"))
    try:
        host, port = url.hostname, url.port or DEFAULT_PORT
    except ValueError as error:
        raise OptionError(f"{NAME}: 'url' has no valid port.") from error
    db = url.path.strip("/") or "0"
    if "@" in url.netloc:
        raise OptionError(f"{NAME}: 'url' holds credentials. Give 'username' and 'passwordFile'.")
    if url.scheme not in RedisBus.schemes or not host or not (db.isascii() and db.isdigit()):
        raise OptionError(f"{NAME}: 'url' must look like redis://host:{DEFAULT_PORT}/0.")
    cluster = options.choice("cluster", ("false", "true")) == "true"
    if cluster and int(db):
        raise OptionError(f"{NAME}: 'url' names the database {db}, but a cluster has only 0.")
    texts = {name: options.text(_camel(name)) for name in ("username", *FILE_FLAGS)}
    return {
        "host": host,
        "port": port,
        "db": int(db),
        "cluster": cluster,
        "tls": url.scheme == "rediss",
        **texts,
    }


def _matches(pattern: str, key: str) -> bool:
    """Match as Redis does."""
    return re.fullmatch(_expression(pattern), key, re.DOTALL) is not None


def _expression(pattern: str) -> str:
    parts = re.findall(r"\\.|\[\^?(?:\\.|[^\]])*\]|.", pattern, re.DOTALL)
    plain = {"*": ".*", "?": "."}
    return "".join(
        part if part[0] in "[\\" and len(part) > 1 else plain.get(part, re.escape(part)) for part in parts
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
