/** The options of a connection. */
import { isPlainObject, typeName, uniqueId } from './identity.js';

export type Origin = 'unspecified' | 'realtime' | 'replay' | 'archive';
export type OnFull = 'dropNewest' | 'dropOldest' | 'wait';

/** The options of `connect`. */
export interface Options {
  /** The producing program and its version, as `name/version`. */
  readonly source?: string | undefined;
  /** Where the producer got the events. */
  readonly origin?: Origin | undefined;
  /** First part of the events' ids. A new unique one by default; use `streamIdFor` for a replay. */
  readonly streamId?: string | undefined;
  /** The request that the events answer. */
  readonly requestId?: string | undefined;
  /** The client session that made the request. */
  readonly sessionId?: string | undefined;
  /** Additional meta entries for every event. */
  readonly meta?: Readonly<Record<string, string>> | undefined;

  /** While nothing is in flight an event is sent at once. Others gather until they are this many, */
  readonly batchEvents?: number | undefined;
  /** or this many bytes, */
  readonly batchBytes?: number | undefined;
  /** or the first of them has waited this long, or everything before them is acknowledged. */
  readonly batchDelayMs?: number | undefined;

  /** Maximum number of events, sent or not, that are kept until they are acknowledged. */
  readonly bufferEvents?: number | undefined;
  /** Maximum number of bytes that are kept this way. */
  readonly bufferBytes?: number | undefined;
  /**
   * What to do with an event when the buffer is full. `dropNewest` drops that event. `dropOldest` drops the
   * oldest unsent events, one batch at a time. `wait` makes `publishWait` wait for room. `write` and `writable`
   * wait in any case.
   */
  readonly onFull?: OnFull | undefined;
  /**
   * Maximum wait for room; then the event is dropped. By default it waits as long as it takes, with a process
   * warning for every minute in which nothing was acknowledged.
   */
  readonly maxWaitMs?: number | undefined;
  /** How long `close` waits for acknowledgements. */
  readonly closeTimeoutMs?: number | undefined;

  /** Encrypts the connection; TCP addresses only. Setting any of the files below turns it on. */
  readonly tls?: boolean | undefined;
  /** Certificates to trust instead of those built into Node.js, as PEM. */
  readonly tlsCaFile?: string | undefined;
  /** Client certificate as PEM, for mutual TLS. */
  readonly tlsCertFile?: string | undefined;
  /** Key of the client certificate, as PEM. */
  readonly tlsKeyFile?: string | undefined;
}

const DEFAULTS = {
  source: '',
  origin: 'unspecified' as Origin,
  requestId: '',
  sessionId: '',
  batchEvents: 1024,
  batchBytes: 262_144,
  batchDelayMs: 5,
  bufferEvents: 100_000,
  bufferBytes: 64 * 1024 * 1024,
  onFull: 'dropNewest' as OnFull,
  maxWaitMs: Number.POSITIVE_INFINITY,
  closeTimeoutMs: 5_000,
  tls: false,
  tlsCaFile: '',
  tlsCertFile: '',
  tlsKeyFile: '',
};

type Defaulted = { readonly [Name in keyof typeof DEFAULTS]: (typeof DEFAULTS)[Name] };

/** The options with all defaults filled in. */
export interface Settings extends Defaulted {
  /** Empty if publishing is off. */
  readonly address: string;
  readonly streamId: string;
  readonly meta: Readonly<Record<string, string>>;
  /** Identifies this run of the producer, so that it can resume after a lost connection. */
  readonly producerId: string;
}

const ORIGINS: readonly string[] = ['unspecified', 'realtime', 'replay', 'archive'] satisfies Origin[];
const ON_FULL: readonly string[] = ['dropNewest', 'dropOldest', 'wait'] satisfies OnFull[];
const NAMES = new Set([...Object.keys(DEFAULTS), 'streamId', 'meta']);
const TEXTS = ['source', 'requestId', 'sessionId', 'tlsCaFile', 'tlsCertFile', 'tlsKeyFile'] as const;
const COUNTS = ['batchEvents', 'batchBytes', 'bufferEvents', 'bufferBytes'] as const;
const TIMES = ['batchDelayMs', 'maxWaitMs', 'closeTimeoutMs'] as const;

const STREAM_ID = /^[A-Za-z0-9._-]{1,64}$/;
// After two slashes a path is absolute; without any it may be relative.
const UNIX = /^unix:(?:\/\/\/|(?!\/\/))./;
const TCP = /^(\[[0-9A-Fa-f:.%]+\]|[^:/\s[\]]+):\d{1,5}$/;

/** Fills in the defaults. Throws a RangeError that names every invalid option. */
export function settle(address: string | null | undefined, options: Options): Settings {
  checkPlain('options', options);
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  const settings: Settings = {
    ...DEFAULTS,
    streamId: uniqueId(),
    ...given,
    address: address ?? '',
    // A copy: it is sent again whenever the stream is resumed, and must not change in between.
    meta: isPlainObject(options.meta) ? { ...options.meta } : {},
    producerId: uniqueId(),
  };
  const unknown = Object.keys(given).filter((name) => !NAMES.has(name));
  const problems = [
    ...unknown.map((name) => `${name}: unknown option.`),
    ...notPlain('meta', options.meta === undefined ? {} : options.meta),
    ...wrongNames(settings),
    ...wrongLimits(settings),
    ...wrongEncryption(settings),
  ];
  if (problems.length) throw new RangeError(problems.join('\n'));
  return settings;
}

/** Throws a RangeError for what is not a plain object. */
export function checkPlain(name: string, value: unknown): void {
  const problems = notPlain(name, value);
  if (problems.length) throw new RangeError(problems.join('\n'));
}

/** What has no entries that could be read as options, such as a Map or a promise, would be ignored in silence. */
function notPlain(name: string, value: unknown): string[] {
  if (isPlainObject(value)) return [];
  const type = typeName(value);
  const article = value === null ? '' : /^[AEIO]/i.test(type) ? 'an ' : 'a ';
  return [`${name}: must be a plain object, not ${article}${type}.`];
}

/** Whether the connection uses TLS. */
export function isEncrypted(settings: Settings): boolean {
  return Boolean(settings.tls || settings.tlsCaFile || settings.tlsCertFile || settings.tlsKeyFile);
}

function isLocal(settings: Settings): boolean {
  return settings.address.startsWith('unix:');
}

function wrongNames(settings: Settings): string[] {
  const { address, origin, onFull, streamId, meta } = settings;
  const problems: string[] = [];
  if (typeof address !== 'string' || (address && !UNIX.test(address) && !TCP.test(address))) {
    problems.push(`address: '${address}' is neither host:port nor unix:///path.`);
  }
  if (!ORIGINS.includes(origin)) problems.push(`origin: '${origin}' is not one of ${ORIGINS.join(', ')}.`);
  if (!ON_FULL.includes(onFull)) problems.push(`onFull: '${onFull}' is not one of ${ON_FULL.join(', ')}.`);
  if (typeof streamId !== 'string' || !STREAM_ID.test(streamId)) {
    problems.push(`streamId: '${streamId}' is not 1 to 64 letters, digits, '-', '_' or '.'.`);
  }
  for (const name of TEXTS) {
    if (typeof settings[name] !== 'string') problems.push(`${name}: must be a string.`);
  }
  if (!Object.values(meta).every((value) => typeof value === 'string')) {
    problems.push('meta: keys and values must be strings.');
  }
  return problems;
}

function wrongLimits(settings: Settings): string[] {
  const problems: string[] = [];
  const isAtLeast = (value: unknown, least: number) => typeof value === 'number' && value >= least;
  for (const name of COUNTS) if (!isAtLeast(settings[name], 1)) problems.push(`${name}: must be 1 or more.`);
  for (const name of TIMES) if (!isAtLeast(settings[name], 0)) problems.push(`${name}: must be 0 or more.`);
  if (settings.onFull === 'wait' && settings.maxWaitMs === 0) {
    problems.push("maxWaitMs: must be more than 0 when onFull is 'wait'.");
  }
  return problems;
}

function wrongEncryption(settings: Settings): string[] {
  const problems: string[] = [];
  if (typeof settings.tls !== 'boolean') problems.push('tls: must be true or false.');
  if (isEncrypted(settings) && isLocal(settings)) problems.push('tls: a unix socket is not encrypted.');
  if (Boolean(settings.tlsCertFile) !== Boolean(settings.tlsKeyFile)) {
    problems.push('tlsCertFile and tlsKeyFile: one needs the other.');
  }
  return problems;
}
