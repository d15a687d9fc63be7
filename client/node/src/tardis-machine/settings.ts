/** Settings from environment variables. Unknown ones are ignored: Kubernetes sets some with the same prefix. */
import { readFileSync } from 'node:fs';
import { settle } from '../options.js';

export type WhenFull = 'wait' | 'drop';

export interface HookSettings {
  readonly address: string;
  /** Maximum number of events that are kept until they are acknowledged, over all streams. */
  readonly bufferEvents: number;
  /** Maximum number of bytes that are kept this way. */
  readonly bufferBytes: number;
  /** Maximum number of streams that are open, or have ended and wait for acknowledgements. */
  readonly bufferStreams: number;
  /** What a replay does when the buffer is full. Live streams never wait. */
  readonly whenFull: WhenFull;
  /** How long it waits at most; undefined if it waits for as long as there is a sidecar. */
  readonly maxWaitMs: number | undefined;
  /** How long the process waits for acknowledgements before it ends. */
  readonly flushMs: number;
  /** Additional meta entries for every event. */
  readonly meta: Readonly<Record<string, string>>;
  readonly tls: boolean;
  readonly tlsCaFile: string | undefined;
  readonly tlsCertFile: string | undefined;
  readonly tlsKeyFile: string | undefined;
}

const PREFIX = 'BRONZE_SIDECAR_';
// They are 32-bit counters, shared by two threads.
const MOST = 1_000_000_000;
const LONGEST_FLUSH_MS = 3_600_000;

const VARIABLES: Readonly<Record<string, string>> = {
  address: 'ADDRESS',
  tls: 'TLS',
  tlsCertFile: 'TLS_CERT_FILE',
  tlsKeyFile: 'TLS_KEY_FILE',
};

const OWN_META = ['transport', 'route', 'app_version'];
// Written by the sidecar, which refuses them from clients.
export const SIDECAR_META = [
  ...['data_type', 'data_name', 'is_snapshot', 'symbols', 'request_id', 'session_id', 'event_id'],
  ...['depth', 'interval', 'grouping', 'sequence', 'trades', 'subSequentErrorsCount', 'subsequentErrors'],
];
const RESERVED_META = new Set([...OWN_META, ...SIDECAR_META]);

/** Reads the settings; each problem is one line that names the variable. */
export function readSettings(environment: NodeJS.ProcessEnv): {
  readonly settings: HookSettings;
  readonly problems: readonly string[];
} {
  const problems: string[] = [];
  const value = (name: string): string | undefined => environment[PREFIX + name] || undefined;
  const problem = (name: string, text: string): void => {
    problems.push(`${PREFIX}${name} ${text}.`);
  };

  const count = <Default>(
    name: string,
    otherwise: Default,
    least: number,
    most: number,
  ): number | Default => {
    const text = value(name);
    if (text === undefined) return otherwise;
    const number = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (number >= least && number <= most) return number;
    problem(name, `must be a whole number from ${least} to ${most}, not '${text}'`);
    return otherwise;
  };
  const whenFull = (): WhenFull => {
    const text = value('WHEN_FULL') ?? 'wait';
    if (text === 'wait' || text === 'drop') return text;
    problem('WHEN_FULL', `must be wait or drop, not '${text}'`);
    return 'wait';
  };
  const yes = (name: string): boolean => {
    const text = value(name) ?? 'false';
    if (text !== 'true' && text !== 'false') problem(name, `must be true or false, not '${text}'`);
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
    bufferStreams: count('BUFFER_STREAMS', 1_000, 1, MOST),
    whenFull: whenFull(),
    maxWaitMs: count('MAX_WAIT_MS', undefined, 1, MOST),
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
    if (!key) problem(`must be key:value pairs separated by commas, not '${entry}'`);
    else if (RESERVED_META.has(key)) problem(`must not contain the key '${key}', which is reserved`);
    else if (key in meta) problem(`contains the key '${key}' twice`);
    else meta[key] = entry.slice(colon + 1).trim();
  }
  return meta;
}

/** Checks the client's options, and names the variables instead of the options. */
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
