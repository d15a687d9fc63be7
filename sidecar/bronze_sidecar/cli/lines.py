"""Lines of a file or a pipe, plain or compressed, in small pieces."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import stat
import threading
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator
from itertools import chain
from typing import NamedTuple, Protocol

from bronze_cli.values import STANDARD_INPUT

LONGEST_LINE = 64 << 20
"""A longer line means the wrong file, not a message."""

_CHUNK_BYTES = 1 << 18
_BLOCKS_AHEAD = 2
# Four bytes of zstd can become 128 KiB, and only the size of its input limits its output.
_STEP_BYTES = 1 << 10
_ZLIB_WITH_GZIP_HEADER = 31
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")


class Broken(Exception):  # noqa: N818 - named for what the input is
    """The input cannot be read any further; the text says why and where."""


class _Decompressor(Protocol):
    """One compressed stream, possibly of several in sequence."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class _Form(NamedTuple):
    """A compression format."""

    name: str
    start: Callable[[], _Decompressor]
    error: type[Exception]


class Lines:
    """The lines of one input, read once.

    One thread may read them while another looks at the figures.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.name = "standard input" if path == STANDARD_INPUT else f"'{path}'"
        self.size = 0
        """Size of the file in bytes; 0 if unknown."""
        self.bytes_read = 0
        """Of the file as stored, before decompression."""
        self.count = 0
        """Complete lines so far."""

    def blocks(self) -> Iterator[list[bytes]]:
        """Yield the lines in blocks, without their newlines. Raise Broken where the input is broken.

        The last line needs no newline, unless the input is broken: then it is incomplete and left out.
        """
        rest: list[bytes] = []
        rest_bytes = 0
        for chunk in self._plain():
            head, newline, tail = chunk.rpartition(b"\n")
            if newline:
                lines = b"".join([*rest, head]).split(b"\n")
                self.count += len(lines)
                rest, rest_bytes = [], 0
                yield lines
            if tail:
                rest.append(tail)
                rest_bytes += len(tail)
            if rest_bytes > LONGEST_LINE:
                raise self._broken(f"a line has more than {LONGEST_LINE} bytes")
        if rest:
            self.count += 1
            yield [b"".join(rest)]

    def _broken(self, what: str) -> Broken:
        return Broken(f"{self.name}: {what}, after {self.count} lines and {self.bytes_read} bytes.")

    def _plain(self) -> Iterator[bytes]:
        """Yield the input, decompressed."""
        stored = self._stored()
        first = next(stored, b"")
        stored = chain([first], stored)
        if first.startswith(_GZIP):
            yield from self._decompressed(_gzip(), stored)
        elif first.startswith(_ZSTD) or _ZSTD_SKIPPABLE.match(first):
            yield from self._decompressed(_zstd(), stored)
        else:
            yield from stored

    def _stored(self) -> Iterator[bytes]:
        """Yield the input as stored; the first piece is long enough to recognize the format."""
        try:
            with self._open() as file:
                status = os.fstat(file.fileno())
                self.size = status.st_size if stat.S_ISREG(status.st_mode) else 0
                first = b""
                while len(first) < len(_ZSTD) and (chunk := self._read(file)):
                    first += chunk
                yield first
                while chunk := self._read(file):
                    yield chunk
        except OSError as error:
            raise self._broken(f"cannot be read: {error.strerror}") from None

    def _open(self) -> io.FileIO:
        # Unbuffered: a thread that waits for a pipe would hold the buffer's lock and so hold up the exit.
        is_standard = self._path == STANDARD_INPUT
        return io.FileIO(0 if is_standard else self._path, closefd=not is_standard)

    def _read(self, file: io.FileIO) -> bytes:
        chunk = file.read(_CHUNK_BYTES) or b""
        self.bytes_read += len(chunk)
        return chunk

    def _decompressed(self, form: _Form, stored: Iterator[bytes]) -> Iterator[bytes]:
        """Yield what one or more compressed streams hold, up to where they are damaged or cut off."""
        plain: list[bytes] = []
        current = form.start()
        for piece in stored:
            for begin in range(0, len(piece), _STEP_BYTES):
                data = piece[begin : begin + _STEP_BYTES]
                # Zeros may pad a gzip file after its end; neither format begins with one.
                data = data.lstrip(b"\0") if current.eof else data
                try:
                    while data:
                        if current.eof:
                            current = form.start()
                        plain.append(current.decompress(data))
                        data = current.unused_data.lstrip(b"\0") if current.eof else b""
                except form.error as error:
                    yield b"".join(plain)
                    raise self._broken(f"the {form.name} data is damaged ({error})") from None
                if sum(map(len, plain)) >= _CHUNK_BYTES:
                    yield b"".join(plain)
                    plain = []
            yield b"".join(plain)
            plain = []
        if not current.eof:
            raise self._broken(f"the {form.name} data is cut off")


def _gzip() -> _Form:
    return _Form("gzip", lambda: zlib.decompressobj(_ZLIB_WITH_GZIP_HEADER), zlib.error)


def _zstd() -> _Form:
    # Imported here: most input is not zstd.
    import zstandard  # noqa: PLC0415

    return _Form("zstd", zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError)


async def read_ahead(lines: Lines) -> AsyncGenerator[list[bytes], None]:
    """Yield the blocks of an input. A thread reads slightly ahead, because reading may block."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[list[bytes] | Exception | None] = asyncio.Queue()
    room = threading.Semaphore(_BLOCKS_AHEAD)
    is_over = threading.Event()

    def hand_over(item: list[bytes] | Exception | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody needs it any more
            loop.call_soon_threadsafe(arrived.put_nowait, item)

    def read() -> None:
        try:
            for block in lines.blocks():
                hand_over(block)
                room.acquire()
                if is_over.is_set():
                    return
        except Exception as error:  # noqa: BLE001 - raised again below
            hand_over(error)
        else:
            hand_over(None)

    # A daemon: it may wait for a pipe forever, and must not hold up the exit.
    threading.Thread(target=read, name="input", daemon=True).start()
    try:
        while (item := await arrived.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
            room.release()
            # Give other tasks their turn, however much input there is.
            await asyncio.sleep(0)
    finally:
        is_over.set()
        room.release()
