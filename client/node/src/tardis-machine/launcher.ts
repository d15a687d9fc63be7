/** Finds the installed tardis-machine and prepares to run it with this client loaded. */
import { accessSync, constants, readFileSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, dirname, join, resolve } from 'node:path';
import { guarded } from './guard.js';
import { say } from './say.js';
import { findServer } from './server-package.js';
import { start } from './start.js';

/** The file that loads the client into a server: the argument of `node --require`, in whatever folder. */
export const preload = join(__dirname, 'preload.js');

/**
 * Prepares this process to run the server itself, so that signals, output and exit status are the server's. Returns
 * false if there is no server.
 */
export function prepare(): boolean {
  const program = guarded('launcher', findProgram)();
  if (!program) {
    say(
      'tardis-machine was not found next to this package, in this folder, in the global packages or on the PATH.',
    );
    process.exitCode = 1;
    return false;
  }
  // Cluster processes are started from these.
  process.argv[1] = program;
  const options = process.env.NODE_OPTIONS;
  process.env.NODE_OPTIONS = options ? `${options} ${nodeOptions()}` : nodeOptions();
  // Not by the preload: it may be loaded already, and did nothing because this was not the server's program yet.
  if (process.env.BRONZE_SIDECAR_ADDRESS) start();
  else say('BRONZE_SIDECAR_ADDRESS is not set; nothing will be published.');
  return true;
}

/** Returns the NODE_OPTIONS that load the client into a server, in whatever folder that is started. */
export function nodeOptions(): string {
  return `--require ${quoted(preload)}`;
}

function findProgram(): string | undefined {
  const globalModules = join(dirname(process.execPath), '..', 'lib', 'node_modules');
  for (const place of [__filename, join(process.cwd(), 'anything'), join(globalModules, 'anything')]) {
    const program = installedFrom(place);
    if (program) return program;
  }
  return onPath();
}

/** Returns the program of the tardis-machine package that this file would load. */
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

/** Quotes a path for NODE_OPTIONS. */
function quoted(path: string): string {
  return `"${path.replace(/["\\]/g, '\\$&')}"`;
}
