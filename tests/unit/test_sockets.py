"""Unix sockets to listen at."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from bronze_sidecar.sockets import unix_sockets
from structlog.testing import capture_logs


def listening(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


def test_they_are_removed_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "sidecar.sock"
    with unix_sockets([f"unix://{path}"], 0o660) as show, listening(path):
        show()
        assert path.stat().st_mode & 0o777 == 0o660
    assert not path.exists()


def test_one_that_another_process_has_made_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "sidecar.sock"
    with unix_sockets([f"unix://{path}"], 0o600) as show:
        with listening(path):
            show()
        # Ours is closed and delivers what it has; the next one takes its name.
        path.unlink()
        other = listening(path)
    with other:
        assert path.is_socket()


def test_one_that_is_gone_already_is_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "sidecar.sock"
    with unix_sockets([f"unix://{path}"], 0o600) as show, listening(path):
        show()
        path.unlink()
    assert not path.exists()


@pytest.mark.parametrize(
    ("mode", "is_mounted", "warns"),
    [
        (0o700, False, False),
        (0o777, False, True),
        # As Kubernetes makes a volume for containers that share it.
        (0o2777, True, False),
        (0o1777, True, True),
    ],
)
def test_folders_that_any_user_can_write_to_are_warned_of_unless_they_are_volumes(
    mode: int, is_mounted: bool, warns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_mount", lambda folder: is_mounted and folder == tmp_path)
    tmp_path.chmod(mode)
    path = tmp_path / "sidecar.sock"
    with capture_logs() as logs, unix_sockets([f"unix://{path}"], 0o660) as show, listening(path):
        show()
    assert ["name of this socket" in line["event"] for line in logs] == [True] * warns
