"""The memory through which text goes to the publishing thread: what is read is what was written."""

from __future__ import annotations

import json
import subprocess

from tardis_servers import PACKAGE, node_program

# Writes and reads blocks of odd sizes, the reader more or less far behind.
PROGRAM = """
  const { newSharedText, TextReader, TextWriter } = require(%(text)s);
  const { newCounters } = require(%(counters)s);
  const [memory, counters] = [newSharedText(), newCounters()];
  const [writer, reader] = [new TextWriter(memory, counters), new TextReader(memory, counters)];
  let seed = %(seed)d;
  const random = (below) => {
    seed = (seed * 1103515245 + 12345) %% 2147483648;
    return Math.floor((seed / 2147483648) * below);
  };
  const counts = { written: 0, refused: 0, wrong: 0, begun: 0 };
  const waiting = [];
  for (let step = 0; step < 3000; step += 1) {
    const character = ['a', 'ü', '€', '\\u{1f600}'][random(4)];
    const longest = step %% 2 ? 40 : 4000;
    const lines = Array.from({ length: 1 + random(40) }, () => character.repeat(random(longest)));
    const size = lines.reduce((total, line) => total + line.length + 1, 0);
    const region = writer.write(lines, size);
    if (region) waiting.push([region, lines.join('\\n')]);
    counts[region ? 'written' : 'refused'] += 1;
    counts.begun += Number(region?.start === 0);
    const behind = step %% 300 < 150 ? 3 : 1000;
    while (waiting.length > behind || (!region && waiting.length)) {
      const [oldest, text] = waiting.shift();
      counts.wrong += Number(reader.read(oldest).data.toString() !== text);
    }
  }
  console.log(JSON.stringify(counts));
"""


def test_what_is_read_is_what_was_written() -> None:
    for seed in range(3):
        modules = {
            name: json.dumps(str(PACKAGE / f"dist/cjs/tardis-machine/{file}.js"))
            for name, file in (("text", "shared-text"), ("counters", "shared-counters"))
        }
        program = PROGRAM % {**modules, "seed": seed}
        found = subprocess.run(
            [node_program(), "-e", program], capture_output=True, text=True, check=True, timeout=60
        )
        counts = json.loads(found.stdout)
        assert counts["wrong"] == 0
        # It went round several times, and was full at times.
        assert counts["written"] > 2000
        assert counts["refused"] > 5
        assert counts["begun"] > 5
