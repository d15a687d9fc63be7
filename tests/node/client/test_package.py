"""The npm package as users install it: both kinds of module, types, and what a process pays for it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from clients import ROOT
from scripted_sidecar import ScriptedSidecar, obliging

PACKAGE = ROOT / "client/node"

MODULE = """
import { connect, PublishError, streamIdFor } from 'bronze-sidecar-client';
import type { Failure, Options, Publisher } from 'bronze-sidecar-client';
import { NormalizedEventSchema, type NormalizedEvent } from 'bronze-sidecar-client/schema';

const options: Options = { source: 'test/1', origin: 'replay', onFull: 'dropOldest', meta: { route: 'a' } };
const publisher: Publisher = connect(null, options);
publisher.on('drop', (count: number, reason: string) => console.log(count, reason));
publisher.on('failure', (failure: Failure) => console.log(failure.level?.toFixed()));
// @ts-expect-error: there is no such event.
publisher.on('nonsense', () => undefined);
// @ts-expect-error: there is no such option.
connect('127.0.0.1:1', { batchEvent: 1 });
interface Message { readonly type: 'trade' }
const message: Message = { type: 'trade' };
const accepted: boolean = publisher.publish(message);
const envelope: NormalizedEvent['exchange'] = NormalizedEventSchema.typeName;
publisher.flush(1000).catch((error: unknown) => {
  if (error instanceof PublishError) console.log(error.failures[0]?.position, accepted, envelope);
});
console.log(publisher.stats.bufferedEvents, streamIdFor({ exchange: 'binance' }));
"""


def copied(folder: Path) -> Path:
    """Copy the package as a clone has it: nothing is installed or built."""
    left_out = shutil.ignore_patterns("node_modules", "dist", "*.tgz")
    return Path(shutil.copytree(PACKAGE, folder, ignore=left_out))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's project with the packed package; its dependencies are those that are installed already."""
    folder = tmp_path_factory.mktemp("a project")
    # Packing builds, so it is done in a copy: other tests use the build of the original.
    package = copied(folder / "clone")
    (package / "node_modules").symlink_to(PACKAGE / "node_modules")
    subprocess.run(
        ["npm", "pack", "--pack-destination", folder], cwd=package, check=True, capture_output=True
    )
    (packed,) = folder.glob("*.tgz")
    modules = folder / "node_modules"
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    modules.mkdir()
    (folder / "package").rename(modules / "bronze-sidecar-client")
    for dependency in (PACKAGE / "node_modules").iterdir():
        if not dependency.name.startswith("."):
            (modules / dependency.name).symlink_to(dependency)
    return folder


def run(project: Path, program: str, suffix: str = "mjs") -> str:
    file = project / f"program.{suffix}"
    file.write_text(program)
    done = subprocess.run(["node", file], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout


def test_it_contains_what_is_built_and_no_sources(project: Path) -> None:
    installed = project / "node_modules/bronze-sidecar-client"
    names = {"LICENSE", "README.md", "bin", "dist", "package.json"}
    assert {path.name for path in installed.iterdir()} == names
    assert (installed / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert {path.name for path in (installed / "dist").iterdir()} == {"cjs", "esm"}


def test_it_says_where_it_comes_from(project: Path) -> None:
    manifest = json.loads((project / "node_modules/bronze-sidecar-client/package.json").read_text())
    address = "https://github.com/bronze-sidecar/bronze-sidecar"
    assert manifest["repository"] == {"type": "git", "url": f"git+{address}.git", "directory": "client/node"}
    assert manifest["homepage"] == f"{address}/tree/main/client/node#readme"
    assert manifest["bugs"] == f"{address}/issues"


@pytest.mark.parametrize("command", [["pack"], ["run", "prepare"]], ids=" ".join)
def test_without_the_compiler_it_says_what_to_do(tmp_path: Path, command: list[str]) -> None:
    """`npm pack` runs `prepack`, and `npm install <folder>` runs `prepare`."""
    package = copied(tmp_path / "clone")
    done = subprocess.run(["npm", *command], cwd=package, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("bronze-sidecar-client:"))
    folder = package.resolve()
    assert line == f"bronze-sidecar-client: the compiler is not installed; run `npm ci` in {folder} first."
    assert "node:" not in done.stderr  # a stack trace
    assert not list(package.glob("*.tgz"))


def test_a_build_that_failed_is_not_taken_for_one(tmp_path: Path) -> None:
    package = copied(tmp_path / "clone")
    (package / "node_modules").symlink_to(PACKAGE / "node_modules")
    (package / "src/wrong.ts").write_text("export const text: string = 1;\n")
    for _ in range(2):
        done = subprocess.run(
            ["npm", "run", "prepare"], cwd=package, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert "wrong.ts" in done.stdout


def test_it_can_be_imported(project: Path) -> None:
    program = """
import { connect, PublishError, streamIdFor } from 'bronze-sidecar-client';
import { NormalizedEventSchema } from 'bronze-sidecar-client/schema';
console.log(typeof connect, PublishError.name, typeof streamIdFor, NormalizedEventSchema.typeName);
"""
    assert run(project, program) == "function PublishError function lakehouse.bronze.v1.NormalizedEvent\n"


def test_it_can_be_required(project: Path) -> None:
    program = """
const { connect, PublishError, streamIdFor } = require('bronze-sidecar-client');
const { NormalizedEventSchema } = require('bronze-sidecar-client/schema');
console.log(typeof connect, PublishError.name, typeof streamIdFor, NormalizedEventSchema.typeName);
"""
    expected = "function PublishError function lakehouse.bronze.v1.NormalizedEvent\n"
    assert run(project, program, "cjs") == expected


def test_its_types_are_found(project: Path) -> None:
    for suffix in ("mts", "cts"):
        (project / f"types.{suffix}").write_text(MODULE)
    strict = ["--strict", "--exactOptionalPropertyTypes", "--noEmit", "--types", "node"]
    kind = ["--module", "nodenext", "--target", "es2022", "--lib", "es2022"]
    done = subprocess.run(
        [PACKAGE / "node_modules/.bin/tsc", *strict, *kind, "types.mts", "types.cts"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("", 0)


def test_the_printed_options_load_it_from_any_folder(project: Path, tmp_path: Path) -> None:
    program = project / "node_modules/bronze-sidecar-client/bin/bronze-tardis-machine.js"
    printed = subprocess.run(
        ["node", program, "--print-node-options"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (printed.stdout.count("\n"), printed.stderr) == (1, "")
    environment = {**os.environ, "NODE_OPTIONS": printed.stdout.strip(), "BRONZE_SIDECAR_ADDRESS": ""}
    loaded = "console.log(Object.keys(require.cache).join())"
    done = subprocess.run(
        ["node", "--eval", loaded], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    preload = project / "node_modules/bronze-sidecar-client/dist/cjs/tardis-machine/preload.js"
    assert (done.stdout, done.stderr) == (f"{preload}\n", "")


@pytest.mark.parametrize("address", ["undefined", "''"])
def test_without_an_address_nothing_is_loaded(project: Path, address: str) -> None:
    program = f"""
const {{ connect }} = require('bronze-sidecar-client');
(async () => {{
  const publisher = connect({address}, {{ source: 'a/1' }});
  const accepted = [publisher.publish({{ type: 'trade' }}), publisher.publishLines('{{}}', 1)];
  publisher.skip(1);
  await publisher.flush();
  await publisher.close();
  const loaded = Object.keys(require.cache).filter((file) => /@grpc|@bufbuild|protobuf/.test(file));
  console.log(JSON.stringify([accepted, publisher.stats.accepted, loaded]));
}})();
"""
    assert json.loads(run(project, program, "cjs")) == [[False, False], 0, []]


@pytest.fixture
def free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_publisher_without_stream_and_events_lets_the_process_end(project: Path, free_address: str) -> None:
    program = f"""
import {{ connect }} from 'bronze-sidecar-client';
connect('{free_address}').on('disconnect', () => console.log('not there'));
"""
    assert run(project, program) == "not there\n"


def test_an_event_that_waits_keeps_the_process_alive(project: Path, free_address: str) -> None:
    program = f"""
import {{ connect }} from 'bronze-sidecar-client';
const publisher = connect('{free_address}');
publisher.once('disconnect', () => {{
  publisher.publish({{ type: 'trade' }});
  console.log('published');
}});
"""
    (project / "waits.mjs").write_text(program)
    process = subprocess.Popen(["node", project / "waits.mjs"], stdout=subprocess.PIPE)
    sidecar = ScriptedSidecar(obliging)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"published\n"
        sidecar.start(free_address)
        while not sidecar.batches():
            assert process.poll() is None, "it has ended before its event was sent"
            time.sleep(0.01)
        sidecar.stop()
    finally:
        process.kill()
        process.communicate()


def test_an_await_using_block_closes_it(project: Path) -> None:
    program = """
import { connect } from 'bronze-sidecar-client';
const publisher = connect('127.0.0.1:1', { closeTimeoutMs: 0 }).on('disconnect', () => undefined);
await publisher[Symbol.asyncDispose]();
console.log(publisher.publish({ type: 'trade' }));
"""
    assert run(project, program) == "false\n"


def test_a_wrong_input_is_named(project: Path) -> None:
    program = """
        import { connect } from 'bronze-sidecar-client';
        const said = (action) => { try { action(); } catch (error) { console.log(error.message); } };
        said(() => connect('127.0.0.1:1', { tlsCaFile: 'missing.pem' }));
        const publisher = connect('127.0.0.1:1');
        publisher.on('disconnect', () => undefined);
        for (const event of [new Map([['a', 1]]), Promise.resolve({}), new Error('no'), 'not json']) {
          said(() => publisher.publish(event));
        }
        const map = new Map([['origin', 'replay']]);
        for (const options of [map, Promise.resolve({ origin: 'replay' }), ['replay'], 'replay', null]) {
          said(() => connect('127.0.0.1:1', options));
        }
        for (const meta of [map, [['env', 'test']], 'env', null]) {
          said(() => connect('127.0.0.1:1', { meta }));
        }
        for (const tls of [map, 'true']) said(() => connect('127.0.0.1:1', { tls, origin: map }));
        said(() => publisher.writable(map));
        await publisher.close(0, map).catch((error) => console.log(error.message));
        await publisher.close(0).catch(() => undefined);
    """
    known = "An event must be an object, JSON text or an encoded envelope, not"
    assert run(project, program).splitlines() == [
        "tlsCaFile: ENOENT: no such file or directory, open 'missing.pem'.",
        f"{known} Map.",
        f"{known} Promise.",
        f"{known} Error.",
        "The event is not a JSON object, which begins with '{'.",
        "options: must be a plain object, not a Map.",
        "options: must be a plain object, not a Promise.",
        "options: must be a plain object, not an Array.",
        "options: must be a plain object, not a string.",
        "options: must be a plain object, not null.",
        "meta: must be a plain object, not a Map.",
        "meta: must be a plain object, not an Array.",
        "meta: must be a plain object, not a string.",
        "meta: must be a plain object, not null.",
        "origin: '[object Map]' is not one of unspecified, realtime, replay, archive.",
        "tls: must be true or false.",
        "origin: '[object Map]' is not one of unspecified, realtime, replay, archive.",
        "tls: must be true or false.",
        "options: must be a plain object, not a Map.",
        "options: must be a plain object, not a Map.",
    ]
