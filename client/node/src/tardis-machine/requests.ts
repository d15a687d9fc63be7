/** Parses requests for normalized messages. */
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

/** The routes for normalized messages, and whether each is a replay. */
const ROUTES: ReadonlyMap<string, boolean> = new Map([
  ['/replay-normalized', true],
  ['/ws-replay-normalized', true],
  ['/ws-stream-normalized', false],
]);

// They affect access and caching, not the response.
const WITHOUT_EFFECT = new Set(['apiKey', 'autoCleanup', 'waitWhenDataNotYetAvailable']);

/** Returns what a URL requests, or undefined if it is not a valid request for normalized messages. */
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
 * Returns the id of a stream. A replay's id is derived from the request, the same for HTTP and WebSocket, because the
 * messages are the same. A live stream gets a unique id.
 */
export function streamId({ isReplay, options }: NormalizedRequest): string {
  if (!isReplay) return uniqueId();
  try {
    return streamIdFor({ kind: 'replay-normalized', options: withEffect(options) });
  } catch {
    // Not valid Unicode, so not an exchange or symbol that the server knows.
    return uniqueId();
  }
}

export function exchanges(request: NormalizedRequest): string[] {
  const names = request.options.map((option) => option?.exchange);
  return [...new Set(names.filter((name): name is string => typeof name === 'string' && name !== ''))];
}

/** Returns a function that removes the API keys of the request and of the server from a text. */
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
  // Languages format fractions differently.
  if (typeof value === 'number') return Number.isSafeInteger(value) ? value : String(value);
  if (Array.isArray(value)) return value.map(withEffect);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).filter(([key]) => !WITHOUT_EFFECT.has(key));
  return Object.fromEntries(entries.map(([key, entry]) => [key, withEffect(entry)]));
}
