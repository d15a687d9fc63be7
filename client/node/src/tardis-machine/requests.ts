/** What a request for normalized messages says. */
import { streamIdFor, uniqueId } from '../identity.js';

/** One entry of a request's options. */
export interface RequestOptions {
  readonly exchange?: string;
  readonly apiKey?: string;
  readonly withDisconnectMessages?: boolean;
}

export interface NormalizedRequest {
  readonly route: string;
  readonly isReplay: boolean;
  readonly options: readonly RequestOptions[];
}

/** The routes for normalized messages, and whether each replays. */
const ROUTES: ReadonlyMap<string, boolean> = new Map([
  ['/replay-normalized', true],
  ['/ws-replay-normalized', true],
  ['/ws-stream-normalized', false],
]);

// They decide who may ask and what stays in the cache, not what is answered.
const WITHOUT_EFFECT = new Set(['apiKey', 'autoCleanup', 'waitWhenDataNotYetAvailable']);

/** Returns what a URL asks for, or nothing if that is no normalized route or cannot be understood. */
export function parseRequest(url: string | undefined): NormalizedRequest | undefined {
  if (!url?.includes('-normalized')) return undefined;
  try {
    const { pathname, searchParams } = new URL(url, 'http://localhost');
    const route = pathname.replace(/\/$/, '').toLowerCase();
    const isReplay = ROUTES.get(route);
    const options: unknown = JSON.parse(searchParams.get('options') ?? 'null');
    if (isReplay === undefined || typeof options !== 'object' || options === null) return undefined;
    return { route, isReplay, options: (Array.isArray(options) ? options : [options]) as RequestOptions[] };
  } catch {
    return undefined;
  }
}

/**
 * Names a stream. A replay's name follows from the request, however it came: the answer is the same over HTTP and
 * WebSocket. A live stream has a name of its own.
 */
export function streamId({ isReplay, options }: NormalizedRequest): string {
  if (!isReplay) return uniqueId();
  try {
    return streamIdFor({ kind: 'replay-normalized', options: withEffect(options) });
  } catch {
    // Text that is not Unicode: no exchange or symbol, so the server will hardly answer.
    return uniqueId();
  }
}

export function exchanges(request: NormalizedRequest): string[] {
  const names = request.options.map((option) => option?.exchange);
  return [...new Set(names.filter((name): name is string => typeof name === 'string' && name !== ''))];
}

/** Returns a function that takes the keys of the request and of the server out of a text. */
export function redaction(request: NormalizedRequest): (text: string) => string {
  const keys = [
    ...request.options.map((option) => option?.apiKey),
    process.env.TM_API_KEY,
    ...keysOf(process.argv),
  ].filter((key): key is string => typeof key === 'string' && key !== '');
  return (text) => keys.reduce((redacted, key) => redacted.replaceAll(key, '***'), text);
}

function keysOf(programArguments: readonly string[]): (string | undefined)[] {
  return programArguments.flatMap((argument, index) => {
    const found = /^--(?:api-key|apiKey)(?:=(.*))?$/s.exec(argument);
    return found ? [found[1] ?? programArguments[index + 1]] : [];
  });
}

function withEffect(value: unknown): unknown {
  // Numbers with a fraction are written differently by different languages.
  if (typeof value === 'number') return Number.isSafeInteger(value) ? value : String(value);
  if (Array.isArray(value)) return value.map(withEffect);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).filter(([key]) => !WITHOUT_EFFECT.has(key));
  return Object.fromEntries(entries.map(([key, entry]) => [key, withEffect(entry)]));
}
