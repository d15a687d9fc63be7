"""Redis streams: which to read, from where to where, in which tasks, and reading them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
from bronze_buses.tls import TlsFiles
from bronze_cli.options import option
from bronze_cli.problems import Fault
from bronze_cli.values import File, ListOf, Scalar, Switch, Text
from pyspark.sql.datasource import InputPartition

from bronze_pipeline.sources.base import ROWS_IN_BATCH, DataLoss, arrived, loss
from bronze_pipeline.sources.options import Start, StreamOptions, both_or_neither, read_options
from bronze_pipeline.sources.redis.positions import (
    NOTHING,
    EntryId,
    Position,
    Positions,
    StreamState,
    entries_between,
    missing,
)

if TYPE_CHECKING:
    from bronze_pipeline.sources.redis.server import RedisServer

NAME = "bronze.redis"
SCHEMES = ("redis", "rediss")
DEFAULT_PORT = 6379
PATTERN = re.compile(r"[*?\[]")
# Up to this share of a micro-batch, a stream's end is found exactly, by reading.
EXACT = 10_000


@dataclass(frozen=True)
class Piece:
    """Entries of one stream for one task, from an existing entry to the last; or what was lost."""

    key: str
    first: str
    last: str
    """With `(` before it, the entry itself is excluded."""
    lost: str = ""


@dataclass
class Pieces(InputPartition):
    """What one task reads."""

    pieces: list[Piece] = field(default_factory=list)
    weight: float = 0.0


class EntryStart(Start):
    """An entry's id, or either end of the streams."""

    def is_position(self, text: str) -> bool:
        return re.fullmatch(r"[0-9]{1,19}(-[0-9]{1,19})?", text) is not None

    def choices(self) -> str:
        return "earliest, latest or an entry id"


class ServerUrl(Scalar):
    """A server as a redis:// or rediss:// URL, without credentials."""

    metavar = "URL"

    def read(self, text: str) -> str | list[Fault]:
        url = urlsplit(text)
        try:
            url.port  # noqa: B018 - reading it checks it
        except ValueError:
            return [Fault("has no valid port.", f"It looks like redis://host:{DEFAULT_PORT}/0.")]
        db = url.path.strip("/") or "0"
        if "@" in url.netloc:
            return [Fault("holds credentials.", "Use the user name and password file options instead.")]
        if url.scheme not in SCHEMES or not url.hostname or not (db.isascii() and db.isdigit()):
            return [Fault("is not a server URL.", f"It looks like redis://host:{DEFAULT_PORT}/0.")]
        return text


@dataclass(frozen=True)
class RedisAccess(TlsFiles):
    """How to log in."""

    username: str | None = option(Text(), "User name, if the server has users.")
    password_file: Path | None = option(File(), "File with the password.")
    cluster: bool = option(Switch(), "The server is part of a Redis Cluster.", default=False)


@dataclass(frozen=True)
class RedisOptions(RedisAccess, StreamOptions):
    """Everything about streams and how to reach them; it is sent to workers, so it holds plain values."""

    url: str = option(ServerUrl(), "Server to read.", required=True)
    keys: tuple[str, ...] = option(ListOf(Text()), "Stream keys and patterns.", required=True)
    start: str = option(
        EntryStart(), "Where a new checkpoint begins: earliest, latest or a position.", default="earliest"
    )

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or DEFAULT_PORT

    @property
    def db(self) -> int:
        return int(urlsplit(self.url).path.strip("/") or "0")

    @property
    def is_encrypted(self) -> bool:
        return urlsplit(self.url).scheme == "rediss"

    def faults(self) -> Iterator[tuple[str, Fault]]:
        yield from both_or_neither(self, "--redis", ("tls_cert_file", "tls_key_file"))
        if self.tls_ca_file and not self.is_encrypted:
            yield "tls_ca_file", Fault("has no effect.", "Use a rediss:// URL.")
        yield from both_or_neither(self, "--redis", ("username", "password_file")) if self.username else ()
        if self.cluster and self.db:
            yield "url", Fault(f"names the database {self.db}, but a cluster has only 0.")


class Streams:
    """The streams, for the driver and for workers."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._options = options = read_options(RedisOptions, NAME, given)
        self.max_records = options.max_records_per_batch
        self.partitions = options.partitions
        self.goes_on_after_loss = options.goes_on_after_loss
        self.start = options.start
        self._patterns = [key for key in options.keys if PATTERN.search(key)]
        self._names = [key for key in options.keys if not PATTERN.search(key)]

    def connect(self) -> AbstractContextManager[RedisServer]:
        from bronze_pipeline.sources.redis.server import connect  # noqa: PLC0415 - each process loads its own

        return connect(self._options)

    def states(self, server: RedisServer, known: Sequence[str] = ()) -> dict[str, StreamState]:
        """Return the state of the streams to read, including known ones that still match."""
        wanted = set(self._names)
        for pattern in self._patterns:
            wanted |= server.find(pattern)
        return server.states(wanted | {key for key in known if self.wants(key)})

    def wants(self, key: str) -> bool:
        """Return whether a stream that was read before is still wanted."""
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
        server: RedisServer,
        start: Positions,
        ends: Positions,
        states: Mapping[str, StreamState],
        limit: int | None,
    ) -> dict[str, Position]:
        """Return how far a micro-batch goes, if each stream is read at most to its end."""
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
        self, server: RedisServer, key: str, start: Position, state: StreamState, count: int
    ) -> Position | None:
        """Return the position `count` entries further on; None if there are fewer."""
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

    def plan(self, server: RedisServer, start: Positions, end: Positions) -> list[InputPartition]:
        """Divide the entries between two positions among tasks."""
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
        server: RedisServer,
        key: str,
        start: Position | None,
        end: Position | None,
        state: StreamState | None,
    ) -> tuple[list[Piece], float]:
        """Return a stream's share, split if it is large, and its approximate number of entries."""
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

    def _read(self, server: RedisServer, piece: Piece) -> Iterator[pa.RecordBatch]:
        from bronze_pipeline.sources.redis.server import PAGE, values  # noqa: PLC0415 - each process loads its own

        expected, is_new = piece.first.encode(), True
        while True:
            # Each page begins with an entry known to exist, so that trimming is noticed.
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
        what = f"entries of the stream {piece.key} from {expected} on were removed while being read"
        if not self.goes_on_after_loss:
            raise DataLoss(what)
        return loss(piece.key, piece.key, expected, what)


def _matches(pattern: str, key: str) -> bool:
    """Match as Redis does."""
    return re.fullmatch(_expression(pattern), key, re.DOTALL) is not None


def _expression(pattern: str) -> str:
    parts = re.findall(r"\\.|\[\^?(?:\\.|[^\]])*\]|.", pattern, re.DOTALL)
    plain = {"*": ".*", "?": "."}
    return "".join(
        part if part[0] in "[\\" and len(part) > 1 else plain.get(part, re.escape(part)) for part in parts
    )
