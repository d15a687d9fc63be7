"""A disk of a test's own that can be full: a small tmpfs that only programs in its namespace see."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from servers import Unavailable
from sidecar_process import SidecarProcess

# The namespace lives as long as the shell, which waits for its input to end.
HOLD = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo ready && read -r _'


class SmallDisk:
    """Mounted at a folder, for programs that are started by `command`."""

    def __init__(self, folder: Path, holder: int) -> None:
        self.folder = folder
        self._holder = holder

    def command(self, program: Sequence[str]) -> list[str]:
        """Return the command that runs a program where the disk is."""
        nsenter = shutil.which("nsenter")
        assert nsenter is not None, "it comes with unshare"
        enter = [nsenter, f"--target={self._holder}", "--user", "--preserve-credentials", "--mount"]
        return [*enter, "--", *program]

    def run(self, *program: str) -> None:
        subprocess.run(self.command(program), check=True)

    @property
    def seen_from_outside(self) -> Path:
        return Path(f"/proc/{self._holder}/root{self.folder}")

    def fill(self) -> None:
        """Leave not a byte free, by a file that has nothing to do with anything."""
        with (self.seen_from_outside / "filler").open("ab", buffering=0) as filler:
            with contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(1 << 20))
            with contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(512))

    def make_room(self) -> None:
        (self.seen_from_outside / "filler").unlink()


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a disk in a namespace of its own; raise Unavailable where this user may not."""
    folder.mkdir()
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", HOLD, "sh", size, str(folder)]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except FileNotFoundError as error:
        raise Unavailable("a disk of its own needs the program unshare") from error
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != b"ready\n":
            said = process.stderr.read().decode().strip()
            raise Unavailable(f"this user may not mount a disk of its own: {said}")
        yield SmallDisk(folder, process.pid)
        process.communicate(b"\n")


class SidecarOnDisk(SidecarProcess):
    """A sidecar that sees a small disk."""

    def __init__(self, disk: SmallDisk, directory: Path, *arguments: str) -> None:
        super().__init__(directory, *arguments)
        self._disk = disk

    def command(self) -> Sequence[str]:
        return self._disk.command(super().command())
