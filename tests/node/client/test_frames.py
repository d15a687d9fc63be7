"""Memory of large blocks is used again, but never while a request that is still to be sent is in it."""

from __future__ import annotations

import json
import subprocess

from tardis_servers import PACKAGE, node_program

# Sends blocks of odd sizes, acknowledges some, and loses the connection at times. What a connection is given
# again it copies late: by then it may be acknowledged, for it came over an earlier one.
PROGRAM = """
  const { EventBuffer } = require(%(buffer)s);
  const { encodeFrame } = require(%(encoding)s);
  const { frameOf } = require(%(frames)s);
  const { settle } = require(%(options)s);
  const { Window } = require(%(window)s);
  let seed = %(seed)d;
  const random = (below) => {
    seed = (seed * 1103515245 + 12345) %% 2147483648;
    return Math.floor((seed / 2147483648) * below);
  };
  const limits = { bufferEvents: Infinity, bufferBytes: Infinity };
  const buffer = new EventBuffer(settle('127.0.0.1:1', limits), { wake() {}, onRoom() {} });
  const window = new Window(buffer);
  const credits = { events: 1e6, bytes: 1e9, batchBytes: 2 ** 22 };
  const counts = { sent: 0, again: 0, wrong: 0, most: 0 };
  const memories = new Set();
  let [waiting, sent, uncopied, acknowledged] = [[], [], [], 0];
  const check = (request, text) => (counts.wrong += Number(!request.subarray(-text.length).equals(text)));
  const send = () => {
    for (let request = window.next(); request; request = window.next()) {
      const [text, before] = waiting.shift();
      check(request, text);
      if (before) counts.wrong += Number(!before.equals(request));
      if (request.buffer.byteLength === 393216) memories.add(request.buffer);
      counts[before ? 'again' : 'sent'] += 1;
      sent.push([text, Buffer.from(request), request]);
    }
  };
  window.open(0, credits);
  for (let step = 0; step < 600; step += 1) {
    const character = String.fromCharCode(97 + (step %% 26));
    const text = Buffer.from(`${step}:${character.repeat(random(step %% 3 ? 390000 : 90000))}`);
    buffer.add(encodeFrame(frameOf(text), 1));
    buffer.markDue();
    waiting.push([text]);
    send();
    counts.most = Math.max(counts.most, sent.length);
    for (const [text, , request] of [...sent, ...uncopied]) check(request, text);
    if (!random(10)) uncopied = [];
    if (sent.length > 5 || !random(4)) {
      const done = random(sent.length + 1);
      acknowledged += done;
      sent.splice(0, done);
      window.acknowledge(acknowledged);
    }
    if (%(loses)s && !random(20)) {
      waiting = [...sent.map(([text, before]) => [text, before]), ...waiting];
      sent = [];
      window.open(acknowledged, credits);
      send();
      uncopied = [...sent];
    }
  }
  console.log(JSON.stringify({ ...counts, memories: memories.size }));
"""


def run(seed: int, *, loses: bool) -> dict[str, int]:
    files = ("buffer", "encoding", "frames", "options", "window")
    modules = {name: json.dumps(str(PACKAGE / f"dist/cjs/{name}.js")) for name in files}
    found = subprocess.run(
        [node_program(), "-e", PROGRAM % {**modules, "seed": seed, "loses": json.dumps(loses)}],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    counts: dict[str, int] = json.loads(found.stdout)
    assert counts["wrong"] == 0
    assert counts["sent"] == 600
    return counts


def test_a_request_stays_as_it_is_until_it_is_acknowledged_and_then_its_memory_is_used_again() -> None:
    for seed in range(3):
        counts = run(seed, loses=False)
        # No more than were ever in use together.
        assert 3 < counts["memories"] <= counts["most"] + 1


def test_a_request_that_is_sent_again_stays_as_it_is_until_the_connection_has_copied_it() -> None:
    for seed in range(3):
        counts = run(seed, loses=True)
        assert counts["again"] > 20
