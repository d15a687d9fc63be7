"""Reading lines: plain and compressed, whole and broken."""

from __future__ import annotations

import gzip
import os
import threading

import pytest
import zstandard
from bronze_sidecar.cli import lines as module
from bronze_sidecar.cli.lines import Broken, Lines

TEXT = b"".join(b'{"line":%d}\n' % number for number in range(50_000))
EXPECTED = [b'{"line":%d}' % number for number in range(50_000)]


def read(path):
    """Return all lines, and why there are no more."""
    found = []
    try:
        for block in Lines(str(path)).blocks():
            found += block
    except Broken as error:
        return found, str(error)
    return found, ""


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "input"
        path.write_bytes(content)
        return path

    return write


def zstd(text):
    # With a checksum, as the program `zstd` writes it.
    return zstandard.ZstdCompressor(write_checksum=True).compress(text)


def skippable(content):
    return b"\x53\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        TEXT.rstrip(b"\n"),
        gzip.compress(TEXT),
        zstd(TEXT),
        gzip.compress(TEXT[:300_000]) + gzip.compress(TEXT[300_000:]),
        zstd(TEXT[:300_000]) + zstd(TEXT[300_000:]),
        gzip.compress(TEXT) + bytes(3000),
        skippable(b"note") + zstd(TEXT),
    ],
    ids=["plain", "unended", "gzip", "zstd", "two gzip", "two zstd", "padded gzip", "skippable zstd"],
)
def test_every_form_gives_the_same_lines(file, content):
    assert read(file(content)) == (EXPECTED, "")


@pytest.mark.parametrize("content", [b"", gzip.compress(b""), zstd(b"")], ids=["plain", "gzip", "zstd"])
def test_nothing_gives_no_line(file, content):
    assert read(file(content)) == ([], "")


def test_empty_lines_are_kept_for_the_reader_to_judge(file):
    assert read(file(b"a\n\nb\n")) == ([b"a", b"", b"b"], "")


@pytest.mark.parametrize("compress", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_a_file_that_is_cut_off_gives_its_complete_lines_and_says_where(file, compress):
    content = compress(TEXT)
    cut = file(content[: len(content) // 2])
    found, reason = read(cut)
    assert 10_000 < len(found) < 50_000
    assert found == EXPECTED[: len(found)]
    form = "gzip" if compress is gzip.compress else "zstd"
    size = len(content) // 2
    assert reason == f"'{cut}': the {form} data is cut off, after {len(found)} lines and {size} bytes."


@pytest.mark.parametrize("compress", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_damage_ends_the_lines_and_is_told(file, compress):
    content = bytearray(compress(os.urandom(200_000).hex().encode() + b"\n"))
    content[len(content) // 2] ^= 0xFF
    content[len(content) // 2 + 1] ^= 0xFF
    _, reason = read(file(bytes(content)))
    assert " data is damaged (" in reason


def test_garbage_behind_a_compressed_stream_is_damage(file):
    found, reason = read(file(gzip.compress(b"a\n") + b"garbage"))
    assert found == [b"a"]
    assert "the gzip data is damaged" in reason


def test_a_line_without_end_is_refused_before_it_fills_the_memory(file, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_LINE", 1_000_000)
    found, reason = read(file(b"a\n" + b"x" * 3_000_000))
    assert found == [b"a"]
    assert "a line has more than 1000000 bytes, after 1 lines" in reason


def test_zeros_that_compress_to_nothing_are_read_in_small_pieces(file):
    # 10 kB of zstd.
    found, reason = read(file(zstd(bytes(300 << 20))))
    assert found == []
    assert "a line has more than 67108864 bytes" in reason


def test_a_file_that_is_gone_is_broken(tmp_path):
    found, reason = read(tmp_path / "none")
    assert found == []
    assert reason.endswith("cannot be read: No such file or directory, after 0 lines and 0 bytes.")


def test_lines_of_a_pipe_come_as_they_are_written(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    seen = threading.Event()

    def write():
        with path.open("wb", buffering=0) as pipe:
            pipe.write(b'{"a":1}\n{"b"')
            assert seen.wait(30)
            pipe.write(b":2}\n")

    writer = threading.Thread(target=write)
    writer.start()
    lines = Lines(str(path))
    blocks = lines.blocks()
    assert next(blocks) == [b'{"a":1}']
    seen.set()
    assert list(blocks) == [[b'{"b":2}']]
    assert lines.size == 0
    writer.join()


def test_a_pipe_that_begins_with_single_bytes_is_recognized(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    content = gzip.compress(b"a\nb\n")

    def write():
        with path.open("wb", buffering=0) as pipe:
            for byte in content:
                pipe.write(bytes([byte]))

    writer = threading.Thread(target=write)
    writer.start()
    assert read(path) == ([b"a", b"b"], "")
    writer.join()


def test_how_much_was_read_is_known(file):
    lines = Lines(str(file(b"a\nb\n")))
    assert [*lines.blocks()] == [[b"a", b"b"]]
    assert (lines.size, lines.bytes_read, lines.count) == (4, 4, 2)
