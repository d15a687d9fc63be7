/** Finds out whether this process runs tardis-machine, and which version. */
import { readFileSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

export interface ServerPackage {
  readonly version: string;
  /** Whether it is written as ES modules. */
  readonly isModule: boolean;
  readonly dependencies: ReadonlySet<string>;
  /** The folder that its package.json is in. */
  readonly directory: string;
  /** Loads one of its dependencies: the same copy that the server gets. */
  load(name: string): unknown;
}

interface Manifest {
  readonly name?: string;
  readonly version?: string;
  readonly type?: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

/** Returns the package that a program belongs to, if that is tardis-machine. */
export function findServer(program: string | undefined): ServerPackage | undefined {
  if (!program) return undefined;
  let directory = dirname(realPath(program));
  for (;;) {
    const manifest = readManifest(join(directory, 'package.json'));
    if (manifest?.name) return manifest.name === 'tardis-machine' ? describe(directory, manifest) : undefined;
    const parent = dirname(directory);
    if (parent === directory) return undefined;
    directory = parent;
  }
}

function describe(directory: string, manifest: Manifest): ServerPackage {
  return {
    version: manifest.version ?? 'unknown',
    isModule: manifest.type === 'module',
    dependencies: new Set(Object.keys(manifest.dependencies ?? {})),
    directory,
    load: createRequire(join(directory, 'package.json')),
  };
}

function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

function readManifest(path: string): Manifest | undefined {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Manifest;
  } catch {
    return undefined;
  }
}
