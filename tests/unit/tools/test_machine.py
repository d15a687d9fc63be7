"""What the benchmarks measure of processes."""

from __future__ import annotations

import subprocess
import sys
import time

from machine import Family

# The second one works until its input ends, and outlives the first one.
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
sys.stdout.write(f"{child.pid}\\n")
sys.stdout.flush()
sys.stdin.readline()
"""
CHILD = """
import select, sys
while not select.select([sys.stdin], [], [], 0)[0]:
    sum(range(10_000))
"""


def test_the_time_of_a_family_is_never_taken_back() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin
    assert parent.stdout
    parent.stdout.readline()
    family = Family(parent.pid)
    deadline = time.monotonic() + 60
    while (while_both := family.look()) < 0.2:
        assert time.monotonic() < deadline
    parent.kill()
    parent.wait()
    # The child has another parent now, and goes on.
    while (without_parent := family.look()) < while_both + 0.1:
        assert time.monotonic() < deadline
    parent.stdin.close()
    # What it writes to ends with it.
    parent.stdout.read()
    assert family.look() >= without_parent
    parent.stdout.close()
