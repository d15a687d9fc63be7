"""Shows the project at work: a replay through the sidecar to a real NATS server, then tables and a chart.

It starts everything itself, ends by itself and leaves nothing behind but the chart; `--keep` leaves it
running for you to look around until Ctrl-C, and the tables after that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import demo_lake
import market
from bronze_client import Publisher, PublishError, Stats, connect, stream_id_for
from demo_readback import Findings, read_back
from google.protobuf.json_format import MessageToDict
from servers import HOST, NatsServer, Unavailable, free_port
from sidecar_process import PROGRAM, SidecarProcess

STREAM = "BRONZE"
CONFIGURATION = """\
listen:
  - {address}
  - {host}:{port}
admin_listen: {host}:{admin_port}
nats:
  servers: {nats}
  stream: BRONZE
  subject: bronze.other
  subject_template: bronze.{{{{exchange}}}}.{{{{symbol}}}}.{{{{payloadCase}}}}
  subject_routing:
    disconnect: bronze.control
    error: bronze.control
  static_headers:
    env: demo
"""
PACED_SHARE, PACED_RATE = 0.05, 2_500
STEP_SECONDS = 600.0
OUTPUT = Path(".cache/demo")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--messages", type=int, default=100_000, help="how many are sent (%(default)s)")
    arguments.add_argument("--seed", type=int, default=1, help="another one gives another market")
    arguments.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")
    arguments.add_argument(
        "--out",
        type=Path,
        default=OUTPUT,
        help="folder of the chart, and of tables that are kept (%(default)s)",
    )
    arguments.add_argument(
        "--step-seconds",
        type=float,
        default=STEP_SECONDS,
        help="how long one step may take before the demo gives up (%(default)g)",
    )
    arguments.add_argument("--without-tables", action="store_true", help="end when the stream was read back")
    chosen = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # A shell that starts programs in the background lets them ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return demonstrate(chosen)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (TimeoutError, subprocess.TimeoutExpired):
        what = f"this step took more than {chosen.step_seconds:g} seconds"
        print(f"\n  {bad(f'The demo ends here: {what}.')} A quieter machine, or --step-seconds, may help.")
    except (AssertionError, RuntimeError, OSError, Unavailable) as error:
        print(f"\n  {bad('The demo ends here:')} {indented(str(error) or type(error).__name__).strip()}")
    return 1


def demonstrate(chosen: argparse.Namespace) -> int:
    began = time.monotonic()
    count, seed = chosen.messages, chosen.seed
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bronze-demo-")))
        # What a command that is stopped half-way leaves behind goes with it.
        os.environ["TMPDIR"] = str(folder)
        heading("1. A NATS JetStream server and the sidecar")
        nats = NatsServer(folder / "nats")
        stack.callback(nats.stop)
        nats.start()
        sidecar = ConfiguredSidecar(folder / "sidecar", nats.url)
        stack.callback(sidecar.stop)
        sidecar.start()
        sidecar.wait_until_ready()
        table([("NATS", nats.url), ("sidecar", sidecar.address), ("", f"{HOST}:{sidecar.grpc_port}")])
        print(f"\n{dim('its configuration:')}\n{indented(sidecar.configuration)}")

        heading("2. A market")
        messages = list(market.replay(count, seed))
        stream_id = stream_id_for({"demo": "market", "messages": count, "seed": seed})
        size = sum(map(len, messages)) / 1e6
        print(f"  {len(messages):,} normalized messages, {size:.1f} MB, such as")
        print(f"  {dim(shortened(messages[len(messages) // 2].decode(), 4))}")

        heading("3. Through the Python client into the sidecar")
        if not asyncio.run(send(sidecar.address, stream_id, messages, chosen.step_seconds)):
            print(f"\n{dim('the last of its log:')}\n{indented(sidecar.log.read_text()[-2000:])}")
            return 1

        heading("4. What is on the bus")
        findings = asyncio.run(
            asyncio.wait_for(read_back(nats.url, STREAM, stream_id, messages), chosen.step_seconds)
        )
        show(findings)

        heading("5. Nothing missing?")
        verdict(findings, time.monotonic() - began)
        is_good = findings.is_complete
        places = None
        if is_good and not chosen.without_tables:
            lake = (chosen.out if chosen.keep else folder) / "lake"
            places = demo_lake.Places(lake, chosen.out / "chart.png")
            is_good = make_tables(nats.url, stream_id, count, places, chosen.step_seconds)
            print(f"\n  {dim(f'({time.monotonic() - began:.0f} s in all)')}")
        if chosen.keep:
            explain(nats, sidecar, places.lake if places else None)
            wait_for_interrupt()
    return 0 if is_good else 1


class ConfiguredSidecar(SidecarProcess):
    """The sidecar with the configuration above."""

    def __init__(self, directory: Path, nats: str) -> None:
        super().__init__(directory)
        self.grpc_port = free_port()
        self._nats = nats

    @property
    def configuration(self) -> str:
        return CONFIGURATION.format(
            address=self.address, host=HOST, port=self.grpc_port, admin_port=self.port, nats=self._nats
        )

    def command(self) -> Sequence[str]:
        file = self.directory / "sidecar.yaml"
        file.write_text(self.configuration)
        return [PROGRAM, "run", "--config", str(file)]


# -- tables


def make_tables(nats: str, stream_id: str, messages: int, places: demo_lake.Places, seconds: float) -> bool:
    """Read the stream into tables and draw a chart; say whether all went well."""
    heading("6. From the bus to a bronze table, by Spark")
    no_java = demo_lake.missing_java()
    if no_java:
        print(f"  {bold('Left out:')} {no_java}\n  Everything above stands without it.")
        return True
    # Of an earlier demo.
    shutil.rmtree(places.lake, ignore_errors=True)
    places.chart.parent.mkdir(parents=True, exist_ok=True)
    try:
        print(f"  {demo_lake.bronze_summary(run(demo_lake.bronze_command(nats, STREAM, places), seconds))}\n")
        print(indented(run(demo_lake.verify_command(stream_id, messages, places), seconds)))

        heading("7. Typed tables, bars and books")
        text = run(demo_lake.silver_command(places), seconds)
        table(demo_lake.silver_counts(text), right=True)
        print(f"\n  {demo_lake.book_summary(text)}")
        for title, rows in demo_lake.samples(places):
            print(f"\n  {bold(title)}")
            table(rows, header=True, right=True, indent=4)

        heading("8. A chart")
        run(demo_lake.chart_command(places), seconds)
        print(f"  {bold(str(places.chart))}")
    except demo_lake.CommandFailed as error:
        print(bad(indented(str(error))))
        return False
    return True


def run(command: Sequence[str], seconds: float) -> str:
    """Show a command, run it, and return what it printed."""
    print(f"  {dim('$')} {demo_lake.PROGRAM} {shlex.join(command)}\n", flush=True)
    return demo_lake.run(command, seconds)


# -- sending


async def send(address: str, stream_id: str, messages: Sequence[bytes], seconds: float) -> bool:
    """Send the messages; say how quickly, and return whether all of them were published."""
    paced = int(len(messages) * PACED_SHARE)
    stats = Stats()
    try:
        async with (
            asyncio.timeout(seconds),
            connect(
                address,
                source="bronze-demo/1",
                origin="replay",
                stream_id=stream_id,
                request_id="demo",
                on_full="wait",
                max_wait=math.inf,
                buffer_events=20_000,
                close_timeout=1,
            ) as publisher,
        ):
            began = time.monotonic()
            for message in messages[: len(messages) - paced]:
                await publisher.publish_wait(message)
            await publisher.flush()
            took = time.monotonic() - began
            stats = publisher.stats
            rows = [
                ("as fast as it goes", f"{stats.acknowledged:,} messages became {stats.published:,} events"),
                (
                    "",
                    f"acknowledged in {took:.1f} s: {bold(f'{stats.published / took:,.0f} events/s')}",
                ),
            ]
            latencies = await paced_latencies(publisher, messages[len(messages) - paced :])
            await publisher.flush()
            stats = publisher.stats
    except PublishError as error:
        print(f"  {bad(str(error))}")
        return False
    if latencies:
        rows.append((f"at {PACED_RATE:,} messages/s", f"{len(latencies):,} more messages, from publish() to"))
        rows.append(("", f"acknowledged: {bold(milliseconds(latencies))}"))
    table(rows)
    return stats.acknowledged == len(messages)


async def paced_latencies(publisher: Publisher, messages: Iterable[bytes]) -> list[float]:
    """Send messages at a steady rate; return how long each took to be acknowledged."""
    waiting: deque[tuple[int, float]] = deque()
    latencies: list[float] = []
    done = asyncio.Event()

    async def look() -> None:
        while waiting or not done.is_set():
            acknowledged, now = publisher.stats.acknowledged, time.monotonic()
            while waiting and waiting[0][0] <= acknowledged:
                latencies.append(now - waiting.popleft()[1])
            await asyncio.sleep(0.0005)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(look())
        due = time.monotonic()
        for message in messages:
            due += 1 / PACED_RATE
            if due > time.monotonic():
                await asyncio.sleep(due - time.monotonic())
            publisher.publish(message)
            waiting.append((publisher.stats.accepted, time.monotonic()))
        done.set()
    return latencies


def milliseconds(latencies: Sequence[float]) -> str:
    ordered = sorted(latencies)
    half, most = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"p50 {half * 1000:.1f} ms, p99 {most * 1000:.1f} ms"


# -- showing


def show(findings: Findings) -> None:
    exchanges = sorted({exchange for _, exchange in findings.cases})
    totals = {case: sum(findings.cases[case, each] for each in exchanges) for case, _ in findings.cases}
    rows = [("payload case", *exchanges, "all")]
    for case in sorted(totals, key=lambda case: -totals[case]):
        counts = [findings.cases[case, each] for each in exchanges]
        rows.append((case, *(f"{count:,}" if count else "·" for count in counts), f"{totals[case]:,}"))
    table(rows, header=True, right=True)
    print(f"\n  {len(findings.subjects)} subjects, such as")
    symbols: dict[str, str] = {}
    for subject in sorted(findings.subjects):
        symbols.setdefault(subject.rpartition(".")[0], subject)
    for subject in list(symbols.values())[:3]:
        print(f"    {subject}  {dim(f'{findings.subjects[subject]:,} events')}")
    awkward = next((subject for subject in findings.subjects if "%2F" in subject), None)
    if awkward:
        print(f"    {awkward}  {dim('BTC/USDT, escaped')}")
    for case, sample in findings.samples.items():
        event = MessageToDict(sample.event)
        payload = event.pop(case, {})
        print(f"\n  {bold(sample.subject)}")
        table(
            [
                ("headers", shortened(flat(sample.headers), 18)),
                *((name, shortened(flat(value), 18)) for name, value in event.items()),
                (case, shortened(flat(payload), 18)),
            ],
            indent=4,
        )


def verdict(findings: Findings, seconds: float) -> None:
    counts = (
        ("events expected", findings.expected, True),
        ("events read back", findings.events, findings.events == findings.expected),
        ("positions missing", findings.missing, not findings.missing),
        ("duplicates", findings.duplicates, not findings.duplicates),
        ("out of order", findings.disordered, not findings.disordered),
        ("of unknown origin", findings.foreign, not findings.foreign),
        ("end of the stream", findings.ends, findings.ends == 1),
    )
    table([(name, good(f"{count:>9,}") if fine else bad(f"{count:>9,}")) for name, count, fine in counts])
    all_there = good("Everything is there, once and in order.")
    print(
        f"\n  {all_there if findings.is_complete else bad('Something is wrong.')} {dim(f'({seconds:.0f} s)')}"
    )


def explain(nats: NatsServer, sidecar: ConfiguredSidecar, lake: Path | None) -> None:
    heading("It keeps running. Look around; Ctrl-C ends it")
    bin_ = Path(os.path.relpath(Path(sys.executable).parent))
    table(
        [
            ("health", f"curl {sidecar.url}/readyz"),
            ("status", f"curl {sidecar.url}/status"),
            ("metrics", f"curl {sidecar.url}/metrics"),
            ("send more", f"{bin_}/python tools/market.py 5000 > market.ndjson"),
            ("", f"{bin_}/bronze-sidecar send market.ndjson --to {sidecar.address}"),
            ("the stream", f"nats --server {nats.url} stream info {STREAM}"),
            ("listen", f"nats --server {nats.url} subscribe 'bronze.>'"),
            *([("the tables", f"ls {lake} {lake / 'silver'}")] if lake else []),
            ("its log", f"tail -f {sidecar.log}"),
        ]
    )


def wait_for_interrupt() -> None:
    try:
        signal.pause()
    except KeyboardInterrupt:
        print()


COLOURED = sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def styled(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if COLOURED else text


def bold(text: str) -> str:
    return styled(text, "1")


def dim(text: str) -> str:
    return styled(text, "2")


def good(text: str) -> str:
    return styled(text, "32")


def bad(text: str) -> str:
    return styled(text, "1;31")


def heading(text: str) -> None:
    print(f"\n{bold(text)}\n", flush=True)


def table(
    rows: Sequence[Sequence[str]], *, header: bool = False, right: bool = False, indent: int = 2
) -> None:
    """Print rows with aligned columns; all but the first to the right if wanted."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - (not right))]
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])]
        cells += (
            [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)] if right else row[1:]
        )
        line = " " * indent + "  ".join(cells)
        print(dim(line) if header and number == 0 else line)


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def shortened(text: str, used: int) -> str:
    """Cut a text to what the line has left; whole where there is no terminal."""
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns - used
    return text if len(text) <= width else text[: width - 1] + "…"


def flat(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {flat(entry)}" for key, entry in value.items())
    return value if isinstance(value, str) else json.dumps(value)


if __name__ == "__main__":
    sys.exit(main())
