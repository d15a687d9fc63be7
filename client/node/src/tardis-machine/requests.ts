/** Parses requests for normalized messages, and checks what is used of them. */
import { streamIdFor, uniqueId } from '../identity.js';

/** One entry of a request's options. Everything else in it is the server's business, and may be of any type. */
export interface RequestOptions {
  readonly exchange: string;
  readonly apiKey?: unknown;
  readonly withDisconnectMessages?: unknown;
}

export interface NormalizedRequest {
  readonly route: string;
  readonly isReplay: boolean;
  /** None if they cannot be read. */
  readonly options: readonly RequestOptions[];
}

/** What is left out most cheaply. */
const MAYBE_NORMALIZED = /-normalized/i;

/** The routes for normalized messages, and whether each is a replay. */
const ROUTES: ReadonlyMap<string, boolean> = new Map([
  ['/replay-normalized', true],
  ['/ws-replay-normalized', true],
  ['/ws-stream-normalized', false],
]);

// They affect access and caching, not the response.
const WITHOUT_EFFECT = new Set(['apiKey', 'autoCleanup', 'waitWhenDataNotYetAvailable']);

/** Returns what a URL requests, or undefined if that is not a request for normalized messages. */
export function parseRequest(url: string | undefined): NormalizedRequest | undefined {
  const parsed = url && MAYBE_NORMALIZED.test(url) ? readUrl(url) : undefined;
  const route = parsed?.pathname.replace(/\/$/, '').toLowerCase() ?? '';
  const isReplay = ROUTES.get(route);
  if (!parsed || isReplay === undefined) return undefined;
  return { route, isReplay, options: readOptions(parsed.searchParams.get('options')) };
}

function readUrl(url: string): URL | undefined {
  try {
    return new URL(url, 'http://localhost');
  } catch {
    // Neither can the server read it.
    return undefined;
  }
}

/** Each entry must be an object that names an exchange, or the server cannot answer with messages. */
function readOptions(text: string | null): readonly RequestOptions[] {
  let options: unknown;
  try {
    options = JSON.parse(text ?? '');
  } catch {
    return [];
  }
  const entries: unknown[] = Array.isArray(options) ? options : [options];
  return entries.every(isEntry) ? entries : [];
}

function isEntry(value: unknown): value is RequestOptions {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const { exchange } = value as Readonly<Record<string, unknown>>;
  return typeof exchange === 'string' && exchange !== '';
}

/**
 * Returns the id of a stream. A replay's id is derived from the request, the same for HTTP and WebSocket, because the
 * messages are the same. A live stream gets a unique id.
 */
export function streamId({ isReplay, options }: NormalizedRequest): string {
  if (!isReplay || !options.length) return uniqueId();
  try {
    return streamIdFor({ kind: 'replay-normalized', options: withEffect(options) });
  } catch {
    // Not valid Unicode, or nested too deeply: not an exchange or symbol that the server knows.
    return uniqueId();
  }
}

export function exchanges(request: NormalizedRequest): string[] {
  return [...new Set(request.options.map(({ exchange }) => exchange))];
}

/** Returns a function that removes the API keys of the request and of the server from a text. */
export function redaction(request: NormalizedRequest): (text: string) => string {
  const given = [
    ...request.options.map(({ apiKey }) => apiKey),
    process.env.TM_API_KEY,
    ...keysOf(process.argv),
  ];
  const keys = new Set(given.filter((key): key is string => typeof key === 'string' && key !== ''));
  return (text) => {
    let redacted = text;
    for (const key of keys) redacted = redacted.replaceAll(key, '***');
    return redacted;
  };
}

function keysOf(programArguments: readonly string[]): (string | undefined)[] {
  return programArguments.flatMap((argument, index) => {
    const found = /^--(?:api-key|apiKey)(?:=(.*))?$/s.exec(argument);
    return found ? [found[1] ?? programArguments[index + 1]] : [];
  });
}

function withEffect(value: unknown): unknown {
  // Languages format fractions differently.
  if (typeof value === 'number') return Number.isSafeInteger(value) ? value : String(value);
  if (Array.isArray(value)) return value.map(withEffect);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).filter(([key]) => !WITHOUT_EFFECT.has(key));
  return Object.fromEntries(entries.map(([key, entry]) => [key, withEffect(entry)]));
}
