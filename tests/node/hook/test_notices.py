"""What the client tells an operator while replays wait, without real minutes: the timers are the test's."""

from __future__ import annotations

import json
import subprocess

from tardis_servers import PACKAGE, node_program

# Runs steps with a clock of its own, and writes a mark after each one.
PROGRAM = """
  const { writeSync } = require('node:fs');
  const intervals = new Set();
  globalThis.setInterval = (action, milliseconds) => {
    const interval = { action, milliseconds, elapsed: 0, unref: () => interval };
    intervals.add(interval);
    return interval;
  };
  globalThis.clearInterval = (interval) => intervals.delete(interval);
  globalThis.setTimeout = () => ({ unref() { return this; } });  // none is to try again
  const pass = (milliseconds) => {
    for (const interval of intervals) {
      for (interval.elapsed += milliseconds; interval.elapsed >= interval.milliseconds; ) {
        interval.elapsed -= interval.milliseconds;
        interval.action();
      }
    }
  };
  const { Waiting } = require(%(module)s);
  const waiting = new Waiting('host:1', undefined);
  const [first, second] = [{ waitedMs: 61_000 }, { waitedMs: 30_400 }];
  for (const step of [%(steps)s]) {
    step();
    writeSync(2, 'done\\n');
  }
"""


def said(*steps: str) -> list[list[str]]:
    """Return the lines that each step makes the client write."""
    module = json.dumps(str(PACKAGE / "dist/cjs/tardis-machine/waiting.js"))
    program = PROGRAM % {"module": module, "steps": ", ".join(f"() => {step}" for step in steps)}
    command = [node_program(), "--eval", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [part.splitlines() for part in done.stderr.split("done\n")[:-1]]


FULL = "bronze-sidecar: the buffer is full: replays go on as fast as host:1 takes their messages."


def waited(count: int, seconds: int) -> str:
    return f"bronze-sidecar: replays have been waiting for host:1: {count} now, the longest for {seconds} s."


def test_a_wait_is_said_when_it_begins_and_then_every_minute() -> None:
    assert said(
        *("waiting.add(first)", "waiting.add(second)", "pass(59_999)", "pass(1)"),
        *("waiting.remove(first)", "pass(60_000)", "pass(120_000)"),
    ) == [[FULL], [], [], [waited(2, 61)], [], [waited(1, 30)], [waited(1, 30), waited(1, 30)]]


def test_waits_that_come_and_go_are_said_once_a_minute() -> None:
    come_and_go = "{ for (let i = 0; i < 1000; i++) { waiting.add(first); waiting.remove(first); } }"
    assert said(come_and_go, "pass(60_000)", come_and_go, "pass(60_000)") == [
        *([FULL], [waited(0, 0)]),
        *([], [waited(0, 0)]),
    ]


def test_a_minute_without_a_wait_ends_it() -> None:
    steps = ("waiting.add(first)", "waiting.remove(first)", "pass(60_000)", "pass(60_000)", "pass(600_000)")
    assert said(*steps, "waiting.add(second)") == [[FULL], [], [waited(0, 0)], [], [], [FULL]]
