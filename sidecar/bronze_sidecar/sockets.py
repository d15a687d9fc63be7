"""Unix sockets to listen at: made for their owner, and removed in the end."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bronze_cli.values import UNIX

from bronze_sidecar.telemetry.logs import logger


@contextlib.contextmanager
def unix_sockets(addresses: Sequence[str], mode: int) -> Iterator[Callable[[], None]]:
    """Make way for unix sockets, closed to others from their first moment; remove them in the end.

    What it gives is called when they are there: then they get their mode.
    """
    paths = [Path(address.removeprefix(UNIX)) for address in addresses if address.startswith(UNIX)]
    for path in paths:
        _remove_stale(path)
    made: dict[Path, tuple[int, ...] | None] = {}
    before = os.umask(0o177)

    def show() -> None:
        for path in paths:
            path.chmod(mode)
            made[path] = _identity(path)
            _warn_if_unsafe(path)

    try:
        yield show
    finally:
        os.umask(before)
        for path in paths:
            # The name is free once ours is closed: by now another process may have taken it.
            if path not in made or _identity(path) == made[path]:
                path.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return what tells a socket from a later one of that name, which may have the same inode."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _warn_if_unsafe(path: Path) -> None:
    mode = path.parent.stat().st_mode
    # A pod's volume is open to everyone, but only where it is mounted; a /tmp of its own is still everyone's.
    is_volume = path.parent.is_mount() and not mode & stat.S_ISVTX
    if mode & stat.S_IWOTH and not is_volume:
        logger().warning(
            "any user can take the name of this socket first; use a folder of its own",
            option="--listen",
            path=str(path),
        )


def _remove_stale(path: Path) -> None:
    """Remove a socket that a dead process left; refuse to touch anything else."""
    if not path.exists() and not path.is_symlink():
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise FileExistsError(
            f"'{path}' exists and is not a socket; remove it, or choose another path for --listen"
        )
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise FileExistsError(f"another process serves '{path}'; stop it, or choose another path for --listen")
