"""Starts programs as the users of containers, where the tests run as root."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

USER = 10001


def as_user(*command: str, user: int = USER, group: int = USER) -> list[str]:
    """Return the command, run by another user if that can be done here.

    That user may read everything, for the interpreter may lie in root's home, but write only what is its own.
    """
    return [*_switch(user, group), *command] if can_switch() else list(command)


def _switch(user: int, group: int) -> list[str]:
    return [
        *("setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={group}"),
        *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
    ]


@functools.cache
def can_switch() -> bool:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return False
    return subprocess.run([*_switch(USER, USER), "true"], capture_output=True, check=False).returncode == 0
