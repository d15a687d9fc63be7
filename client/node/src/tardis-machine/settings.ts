/** What is chosen by environment variables. Those that are not ours are left alone: a cluster may set some. */
import { readFileSync } from 'node:fs';
import { settle } from '../options.js';

export interface HookSettings {
  readonly address: string;
  /** Most events that are held until the sidecar has acknowledged them, over all streams. */
  readonly bufferEvents: number;
  /** Most bytes that are held so. */
  readonly bufferBytes: number;
  /** How long the end of the process waits for acknowledgements. */
  readonly flushMs: number;
  /** Further entries for the meta of every event. */
  readonly meta: Readonly<Record<string, string>>;
  readonly tls: boolean;
  readonly tlsCaFile: string | undefined;
  readonly tlsCertFile: string | undefined;
  readonly tlsKeyFile: string | undefined;
}

const PREFIX = 'BRONZE_SIDECAR_';
// Both are counted in 32 bits, which two threads share.
const MOST = 1_000_000_000;
const LONGEST_FLUSH_MS = 3_600_000;

const VARIABLES: Readonly<Record<string, string>> = {
  address: 'ADDRESS',
  tls: 'TLS',
  tlsCertFile: 'TLS_CERT_FILE',
  tlsKeyFile: 'TLS_KEY_FILE',
};

const OWN_META = ['transport', 'route', 'app_version'];
// What the sidecar writes itself, and so refuses.
const SIDECAR_META = [
  ...['data_type', 'data_name', 'is_snapshot', 'symbols', 'request_id', 'session_id', 'event_id'],
  ...['depth', 'interval', 'grouping', 'sequence', 'trades', 'subSequentErrorsCount', 'subsequentErrors'],
];
const TAKEN_META = new Set([...OWN_META, ...SIDECAR_META]);

/** Reads the settings; every problem is one line that names its variable. */
export function readSettings(environment: NodeJS.ProcessEnv): {
  readonly settings: HookSettings;
  readonly problems: readonly string[];
} {
  const problems: string[] = [];
  const value = (name: string): string | undefined => environment[PREFIX + name] || undefined;
  const problem = (name: string, text: string): void => {
    problems.push(`${PREFIX}${name} ${text}.`);
  };

  const count = (name: string, otherwise: number, least: number, most: number): number => {
    const text = value(name);
    if (text === undefined) return otherwise;
    const number = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (number >= least && number <= most) return number;
    problem(name, `has to be a whole number from ${least} to ${most}, not '${text}'`);
    return otherwise;
  };
  const yes = (name: string): boolean => {
    const text = value(name) ?? 'false';
    if (text !== 'true' && text !== 'false') problem(name, `has to be true or false, not '${text}'`);
    return text === 'true';
  };
  const file = (name: string): string | undefined => {
    const path = value(name);
    if (path === undefined) return undefined;
    try {
      readFileSync(path);
    } catch (error) {
      problem(name, `names a file that cannot be read: ${(error as Error).message}`);
    }
    return path;
  };

  const settings: HookSettings = {
    address: value('ADDRESS') ?? '',
    bufferEvents: count('BUFFER_EVENTS', 100_000, 1, MOST),
    bufferBytes: count('BUFFER_BYTES', 64 * 1024 * 1024, 1, MOST),
    flushMs: count('FLUSH_MS', 5_000, 0, LONGEST_FLUSH_MS),
    meta: readMeta(value('META'), (text) => problem('META', text)),
    tls: yes('TLS'),
    tlsCaFile: file('TLS_CA_FILE'),
    tlsCertFile: file('TLS_CERT_FILE'),
    tlsKeyFile: file('TLS_KEY_FILE'),
  };
  return { settings, problems: [...problems, ...wrongConnection(settings)] };
}

function readMeta(text: string | undefined, problem: (text: string) => void): Record<string, string> {
  const meta: Record<string, string> = {};
  for (const entry of text?.split(',') ?? []) {
    const colon = entry.indexOf(':');
    const key = entry.slice(0, Math.max(colon, 0)).trim();
    if (!key) problem(`has to be key:value pairs with commas between them, not '${entry}'`);
    else if (TAKEN_META.has(key)) problem(`must not have the key '${key}', which is written for every event`);
    else if (key in meta) problem(`has the key '${key}' twice`);
    else meta[key] = entry.slice(colon + 1).trim();
  }
  return meta;
}

/** Lets the client check what it will be given, and names the variables instead of its options. */
function wrongConnection(settings: HookSettings): string[] {
  const { address, tls, tlsCaFile, tlsCertFile, tlsKeyFile } = settings;
  try {
    settle(address, { tls, tlsCaFile, tlsCertFile, tlsKeyFile });
    return [];
  } catch (error) {
    const named = (line: string): string =>
      line.replace(/\b(address|tls|tlsCertFile|tlsKeyFile)\b(?=:| and)/g, (name) => PREFIX + VARIABLES[name]);
    return (error as Error).message.split('\n').map(named);
  }
}
