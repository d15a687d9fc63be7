"""Which ids a bronze table has, answered without looking at its files.

    segments (settled, never changed) <- entries of the newest versions (in memory too) <- the table's log

An entry is written right after its version was committed. It follows from the files of that version alone,
so one that is missing after a crash is made from the table's log. Now and then the older entries become a
segment. A batch whose positions are all above those known of their streams needs no look at a segment; others
read the few groups of rows with their positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bronze_pipeline.ledger.entries import ID_COLUMNS, IDS, LedgerEntry, entry_of, overlaps, rows_of, united
from bronze_pipeline.ledger.runs import Flags, Numbers, Runs, contains, normal, of_tables
from bronze_pipeline.ledger.segments import Segment, Wanted
from bronze_pipeline.ledger.store import Damaged, Manifest, Store, damage_is_named
from bronze_pipeline.tables.files import Folder, read_file
from bronze_pipeline.tables.history import Forgotten, History

ENTRIES_MOST, ENTRIES_KEPT = 128, 16
"""How many entries there may be, and how many newest ones remain; late events are mostly in those."""
RUNS_MOST = 1_000_000
"""How many runs entries may have."""
SEGMENT_RUNS_MOST = 2_000_000
"""How many runs a segment may have after others are merged with it."""
STREAMS_REMEMBERED = 1_000_000
SAID_EVERY_SECONDS = 30.0


@dataclass(frozen=True)
class Own:
    """The batch that this job has just committed, so that its files need not be read again."""

    job: str
    batch: int
    entry: LedgerEntry


@dataclass
class Ledger:
    """The ledger of the table at a place."""

    url: str
    history: History
    say: Callable[[str], None] = field(default=lambda _: None)
    writes: bool = True
    """Whether the files are kept up to date; a reader only does so in memory."""

    def __post_init__(self) -> None:
        self._store = Store(self.url)
        self._folder = Folder(self.url, ())
        self._forget()

    def _forget(self) -> None:
        self.version = self._newest = -1
        self.segments: list[Segment] = []
        self.entries: dict[int, LedgerEntry] = {}
        self._settled_without_id = 0
        self._recent: dict[str, int] = {}
        self._settled: dict[str, int] = {}

    @property
    def without_id(self) -> int:
        """How many rows have no id of our form."""
        return self._settled_without_id + sum(entry.without_id for entry in self.entries.values())

    def open(self) -> None:
        """Bring it up to the table's version; build it from the table's files if there is none."""
        try:
            if self.load():
                self.advance()
                return
            reason = None
        except Damaged as error:
            reason = str(error)
        self.build(reason)

    def load(self) -> bool:
        """Read what is stored; return whether there is anything; raise Damaged."""
        self._forget()
        manifest = self._store.read()
        if manifest is None:
            return False
        if manifest.table != self.history.table_id():
            raise Damaged("it belongs to another table")
        self.version, self.segments = manifest.version, list(manifest.segments)
        self._settled_without_id = manifest.without_id
        # Versions that follow may be gone, if nobody looked for long.
        self._newest = self.history.newest(-1)
        stored = self._store.versions()
        while self.version + 1 in stored:
            try:
                entry = self._store.entry(self.version + 1)
            except Damaged:
                # The log says again what it had.
                break
            self._remember(self.version + 1, entry)
        with damage_is_named():
            # Needed for every stream that is new, so damage shows now.
            for segment in self.segments:
                _ = segment.summary
        return True

    def advance(self, own: Own | None = None) -> None:
        """Take in what the table's log has beyond what is known."""
        self._follow(own)
        if self._is_long():
            self._adopt()
        for mend in (self._reload, self.build):
            if not self._is_long():
                return
            try:
                with damage_is_named():
                    self._settle()
            except Damaged as error:
                mend(str(error))

    def _follow(self, own: Own | None = None) -> None:
        for version in range(self.version + 1, self.history.newest(max(self.version, self._newest)) + 1):
            try:
                change = self.history.change(version)
            except Forgotten as error:
                return self.build(f"the table's log no longer has {error}")
            if change.removes_rows:
                return self.build(f"version {version} of the table removed rows")
            if own is not None and (own.job, own.batch) in change.batches:
                entry = own.entry
            else:
                entry = entry_of(self._ids(change.added))
            if self.writes:
                self._store.add(version, entry)
            self._remember(version, entry)
        return None

    def _ids(self, paths: Iterable[str]) -> Iterator[pa.Table]:
        # What delta-rs writes has other types of text.
        return (read_file(self._folder, path, ID_COLUMNS).cast(IDS) for path in paths)

    def _remember(self, version: int, entry: LedgerEntry) -> None:
        self.version = version
        self.entries[version] = entry
        summary = entry.summary
        for name, highest in zip(summary["stream"].to_pylist(), summary["highest"].to_pylist(), strict=True):
            self._recent[name] = max(highest, self._recent.get(name, -1))

    def _is_long(self) -> bool:
        """Return whether it is time to settle."""
        runs = sum(len(entry.runs) for entry in self.entries.values())
        return self.writes and (len(self.entries) > ENTRIES_MOST or runs > RUNS_MOST)

    # -- questions

    def known(self, ids: Runs) -> Flags:
        """Tell which ids the table has."""
        for mend in (self._reload, self.build):
            try:
                with damage_is_named():
                    return self._known(ids)
            except Damaged as error:
                mend(str(error))
        return self._known(ids)

    def _reload(self, reason: str) -> None:
        """Read again what is stored: another job may have replaced what this one knew."""
        try:
            if self.load():
                return self._follow()
        except Damaged as error:
            reason = str(error)
        return self.build(reason)

    def _known(self, ids: Runs) -> Flags:
        found = np.zeros(len(ids), np.bool_)
        names = ids.names.to_pylist()
        recent = np.array([self._recent.get(name, -1) for name in names], np.int64)
        maybe = np.flatnonzero(ids.first <= recent[ids.stream])
        if len(maybe):
            asked = ids.take(maybe)
            streams, lowest, highest = _spans(asked)
            for entry in self.entries.values():
                if overlaps(entry.summary, asked.names.take(pa.array(streams)), lowest, highest).any():
                    found[maybe] |= contains(entry.runs, asked)
        settled = self._highest_settled(names)
        maybe = np.flatnonzero((ids.first <= settled[ids.stream]) & ~found)
        if len(maybe):
            asked = ids.take(maybe)
            wanted = [
                Wanted(names[stream], int(lowest), int(highest))
                for stream, lowest, highest in zip(*_spans(asked), strict=True)
            ]
            for segment in self.segments:
                there = segment.read(wanted)
                if len(there):
                    found[maybe] |= contains(of_tables([there]), asked)
        return found

    def _highest_settled(self, names: Sequence[str]) -> Numbers:
        """Return the highest position that segments have of each stream."""
        unknown = [name for name in names if name not in self._settled]
        if unknown:
            if len(self._settled) > STREAMS_REMEMBERED:
                self._settled.clear()
                unknown = list(names)
            asked = pa.array(unknown, pa.string())
            highest = np.full(len(unknown), -1, np.int64)
            for segment in self.segments:
                highest = np.maximum(highest, segment.highest(asked))
            self._settled.update(zip(unknown, highest.tolist(), strict=True))
        return np.array([self._settled[name] for name in names], np.int64)

    # -- settling

    def _adopt(self) -> None:
        """Go on from what another job has settled: that job removes the segments that it does not name."""
        try:
            stored = self._store.read()
        except Damaged as error:
            return self._reload(str(error))
        if stored is None:
            return self._reload("it was removed")
        if [each.name for each in stored.segments] != [each.name for each in self.segments]:
            return self._reload("another job has settled it")
        return None

    def _settle(self) -> None:
        """Make a segment of all but the newest entries."""
        versions = sorted(self.entries)[: -ENTRIES_KEPT or None]
        self._settle_parts([self.entries.pop(version) for version in versions])
        self._write(versions[-1])
        rest = self.entries
        self.entries, self._recent, self._settled = {}, {}, {}
        for version, each in rest.items():
            self._remember(version, each)

    def _add_segment(self, entry: LedgerEntry) -> None:
        """Store an entry as a segment, merged with the last ones as long as these are not much larger."""
        if not len(entry.runs):
            return
        count, merged = len(entry.runs), []
        while self.segments and self.segments[-1].count <= min(2 * count, SEGMENT_RUNS_MOST - count):
            merged.append(self.segments.pop())
            count += merged[-1].count
        runs, rows = entry.runs, entry.rows
        if merged:
            runs = normal(of_tables([runs.to_table(), *(segment.read_all() for segment in merged)]))
            rows = rows_of(runs.names, [entry.summary, *(segment.summary for segment in merged)])
        self.segments.append(self._store.add_segment(runs, rows))

    def _write(self, version: int) -> None:
        self._store.settle(
            Manifest(self.history.table_id(), version, tuple(self.segments), self._settled_without_id)
        )

    def build(self, reason: str | None) -> None:
        """Make the ledger from the table's files, in bounded memory."""
        if not self.writes:
            raise Damaged(reason or "there is none")
        self._forget()
        version = self.history.newest(-1)
        paths = self.history.paths(version) if version >= 0 else []
        began = said = time.monotonic()
        if reason is not None:
            self.say(f"the ledger of {self.url} cannot be used: {reason}")
        if paths:
            self.say(f"making the ledger of {self.url} from {len(paths):,} files; this is done once")
        parts: list[LedgerEntry] = []
        count = 0
        for number, path in enumerate(paths):
            parts.append(entry_of(self._ids([path])))
            count += len(parts[-1].runs)
            if len(parts) > ENTRIES_MOST:
                # Neighbours become one run.
                parts = [united(parts)]
                count = len(parts[0].runs)
            if count > RUNS_MOST:
                self._settle_parts(parts)
                parts, count = [], 0
            if time.monotonic() - said > SAID_EVERY_SECONDS:
                said = time.monotonic()
                self.say(f"ledger: {number + 1:,} of {len(paths):,} files read")
        self._settle_parts(parts)
        self.version = version
        self._write(version)
        if paths:
            self.say(f"the ledger is complete after {time.monotonic() - began:.0f} s")

    def _settle_parts(self, parts: Iterable[LedgerEntry]) -> None:
        entry = united(parts)
        self._settled_without_id += entry.without_id
        self._add_segment(entry)


def _spans(ids: Runs) -> tuple[Numbers, Numbers, Numbers]:
    """Return the streams of ids, and the lowest and highest position of each."""
    streams, places = np.unique(ids.stream, return_inverse=True)
    lowest = np.full(len(streams), np.iinfo(np.int64).max)
    highest = np.full(len(streams), -1)
    np.minimum.at(lowest, places, ids.first)
    np.maximum.at(highest, places, ids.first)
    return streams, lowest, highest
