"""The log beside a queue on disk: whether SQLite would pass over a part of it without a word.

SQLite reads its log up to the first page whose checksum is wrong, and takes whatever follows for a write that
a crash cut short. If that was a byte that changed, it forgets what was acknowledged. The two can be told
apart: a transaction is written only when the disk has the one before it, so nothing stands behind one that
was cut short. Only damage to the last transaction looks the same.
"""

from __future__ import annotations

import array
import struct
import sys
from pathlib import Path
from typing import BinaryIO

# https://www.sqlite.org/fileformat2.html#the_write_ahead_log
_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682
"""Its last bit says whether checksums are made of big-endian numbers."""
_WORD = 0xFFFFFFFF

Pair = tuple[int, int]


def is_damaged(log: Path) -> bool:
    """Tell whether a log holds transactions that SQLite would not find."""
    with log.open("rb") as file:
        header = file.read(_HEADER.size)
        # One that was never written belongs to an empty log.
        if len(header) < _HEADER.size or not any(header):
            return False
        magic, _, page_size, _, salt, other_salt, *expected = _HEADER.unpack(header)
        is_big = bool(magic & 1)
        sums = _add((0, 0), header[:-8], is_big=is_big)
        if magic & ~1 != _MAGIC or sums != tuple(expected):
            return True
        return _passes_over(file, page_size, (salt, other_salt), sums, is_big=is_big)


def _passes_over(file: BinaryIO, page_size: int, salts: Pair, sums: Pair, *, is_big: bool) -> bool:
    """Tell whether there are pages behind the end of a transaction that will not be found."""
    is_intact, is_end_lost = True, False
    while len(page := file.read(_FRAME.size + page_size)) == _FRAME.size + page_size:
        _, is_end, salt, other_salt, *expected = _FRAME.unpack_from(page)
        # Others were written before the log began anew.
        is_current = (salt, other_salt) == salts
        if is_intact and is_current:
            sums = _add(sums, page[:8] + page[_FRAME.size :], is_big=is_big)
        is_intact = is_intact and is_current and sums == tuple(expected)
        if is_current and not is_intact:
            if is_end_lost:
                return True
            is_end_lost = bool(is_end)
    return False


def _add(sums: Pair, data: bytes, *, is_big: bool) -> Pair:
    """Continue SQLite's checksum."""
    words = array.array("I", data)
    if is_big != (sys.byteorder == "big"):
        words.byteswap()
    first, second = sums
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & _WORD
        second = (second + other + first) & _WORD
    return first, second
