/** Starts the tardis-machine that is installed, with this client loaded into it. */
import { accessSync, constants, readFileSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, dirname, join, resolve } from 'node:path';
import { findServer } from './server-package.js';
import { start } from './start.js';
import { say } from './warnings.js';

/**
 * Makes this process ready to run the server, so that signals, output and exit status are its own. Returns whether there
 * is a server; then it is this process's main program.
 */
export function prepare(): boolean {
  const program = findProgram();
  if (!program) {
    say(
      'tardis-machine is not installed: not beside this package, in this folder, globally, or on the PATH.',
    );
    process.exitCode = 1;
    return false;
  }
  // The processes of a cluster start from these.
  process.argv[1] = program;
  const options = process.env.NODE_OPTIONS;
  const preload = `--require ${quoted(join(__dirname, 'preload.js'))}`;
  process.env.NODE_OPTIONS = options ? `${options} ${preload}` : preload;
  // Not by the preload: it may be loaded already, and did nothing because this is not the server's program.
  if (process.env.BRONZE_SIDECAR_ADDRESS) start();
  else say('BRONZE_SIDECAR_ADDRESS is not set: nothing is published.');
  return true;
}

function findProgram(): string | undefined {
  const globalModules = join(dirname(process.execPath), '..', 'lib', 'node_modules');
  for (const place of [__filename, join(process.cwd(), 'anything'), join(globalModules, 'anything')]) {
    const program = installedFrom(place);
    if (program) return program;
  }
  return onPath();
}

/** The program of the package that a file there would load. */
function installedFrom(file: string): string | undefined {
  try {
    const manifestPath = createRequire(file).resolve('tardis-machine/package.json');
    const manifest = JSON.parse(readFileSync(manifestPath, 'utf8')) as {
      bin: Record<string, string> | string;
    };
    const program = typeof manifest.bin === 'string' ? manifest.bin : manifest.bin['tardis-machine'];
    return program && resolve(dirname(manifestPath), program);
  } catch {
    return undefined;
  }
}

function onPath(): string | undefined {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    try {
      const program = realpathSync(join(folder, 'tardis-machine'));
      accessSync(program, constants.X_OK);
      if (findServer(program)) return program;
    } catch {
      // Not here.
    }
  }
  return undefined;
}

/** Writes a path as NODE_OPTIONS takes it. */
function quoted(path: string): string {
  return `"${path.replace(/["\\]/g, '\\$&')}"`;
}
