"""An object store as a file system of Arrow's, by delta-rs: one client and one set of options for all.

It makes no objects that stand for folders, as Arrow's own file system for S3 does.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.fs
from deltalake.fs import DeltaStorageHandler


class _Output:
    """A stream of delta-rs', which takes nothing but bytes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: bytes | pa.Buffer) -> int:
        written: int = self._stream.write(data if isinstance(data, bytes) else bytes(data))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Handler(DeltaStorageHandler):
    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:  # type: ignore[override] # noqa: ARG002 - as Arrow calls it
        # There are no folders: one that is missing is empty.
        for found in self._handler.get_file_info_selector(path, True, True):
            if found.is_file:
                self._handler.delete_file(found.path)

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
        return pa.PythonFile(_Output(self._handler.open_output_stream(path, metadata)))


def object_store(url: str, options: dict[str, str] | None) -> pyarrow.fs.FileSystem:
    """Return the store of a URL without a path; paths on it are keys."""
    return pyarrow.fs.PyFileSystem(_Handler(url, options))
