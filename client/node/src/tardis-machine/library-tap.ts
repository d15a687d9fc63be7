/** Observes errors and disconnects of live streams, which a client gets only if it asks for them. */
import Module from 'node:module';
import { sep } from 'node:path';
import { pathToFileURL } from 'node:url';
import { codeOfError } from './error-codes.js';
import { learnExchanges } from './exchanges.js';
import { guarded } from './guard.js';
import type { ResponseStream } from './response-stream.js';
import { say } from './say.js';
import type { ServerPackage } from './server-package.js';

type Iterator = AsyncIterableIterator<LiveMessage>;
type Streaming = (options: StreamOptions, ...normalizers: unknown[]) => Iterator;
type Combining = (...iterators: Iterator[]) => Iterator;

interface LiveMessage {
  readonly type: string;
  readonly exchange: string;
}

interface StreamOptions {
  readonly exchange: string;
  readonly onError?: (error: Error) => void;
}

interface Library {
  readonly EXCHANGES?: unknown;
  readonly streamNormalized: Streaming;
  readonly combine: Combining;
}

const MARK = '?bronze-sidecar';
const ONLY_REQUESTED =
  'errors and disconnects of live streams are published only if the client asks for them';

/** The live stream whose request is being started: the server calls the library before it first awaits. */
let starting: LiveStream | undefined;

const begin = guarded('live stream', (stream: ResponseStream) => new LiveStream(stream));

/** Calls the server's handler of a request. */
export function whileStarting<Result>(stream: ResponseStream, handle: () => Result): Result {
  starting = stream.request.isReplay ? undefined : begin(stream);
  try {
    return handle();
  } finally {
    starting = undefined;
  }
}

/** Replaces the tardis-dev that the server loads. */
export function tapLibrary(server: ServerPackage, sayOnce: typeof say): void {
  if (!server.isModule) replaceRequired(server);
  else if ('registerHooks' in Module) replaceImported(server);
  else sayOnce(`${ONLY_REQUESTED}: seeing the others needs Node.js 22.15 or newer.`);
}

/** Returns the library's functions that produce live streams, wrapped if that is possible. */
export function tapped(library: Library): Library {
  return wrapped(library) ?? library;
}

const wrapped = guarded('library', (library: Library): Library => {
  const { EXCHANGES, streamNormalized, combine } = library;
  learnExchanges(EXCHANGES);
  if (typeof streamNormalized !== 'function' || typeof combine !== 'function') {
    say(`${ONLY_REQUESTED}: this version of tardis-dev is not supported.`);
    return { streamNormalized, combine };
  }
  return {
    streamNormalized: (options, ...normalizers) => {
      const live = starting;
      if (!live) return streamNormalized(options, ...normalizers);
      const onError = (error: Error): void => {
        live.beginError();
        try {
          options.onError?.(error);
        } finally {
          live.endError(options.exchange, error);
        }
      };
      const iterator = streamNormalized({ ...options, onError }, ...normalizers);
      live.observe(iterator);
      return iterator;
    },
    combine: (...iterators) => {
      const combined = combine(...iterators);
      starting?.observe(combined);
      return combined;
    },
  };
});

/** Publishes what happens on one live stream besides what its client gets. Its methods are guarded. */
class LiveStream {
  private readonly errorsInARow = new Map<string, number>();
  private readonly asksForDisconnects: boolean;
  private last: Iterator | undefined;

  constructor(private readonly stream: ResponseStream) {
    this.asksForDisconnects = stream.request.options.some((option) => option.withDisconnectMessages);
  }

  private guarded<Given extends unknown[]>(own: (...given: Given) => void): (...given: Given) => void {
    return guarded('live stream', own, () => this.stream.end());
  }

  /** Inspects messages when the server takes them, so that they stay in order. */
  readonly observe = this.guarded((iterator: Iterator) => {
    // The server reads from the iterator that was created last; the others feed it.
    this.last = iterator;
    const { next } = iterator;
    const taken = this.guarded((result: Promise<IteratorResult<LiveMessage>>) => {
      if (this.last === iterator) result.then(this.inspect, ignore);
    });
    iterator.next = function (...given) {
      const result = Reflect.apply(next, this, given) as Promise<IteratorResult<LiveMessage>>;
      taken(result);
      return result;
    };
  });

  /** The server is about to be told that an attempt to get data failed; the library keeps trying. */
  readonly beginError = this.guarded(() => this.stream.beginCapture());

  /** The server was told, and may have told its client. */
  readonly endError = this.guarded((exchange: string, error: unknown) => {
    const sent = this.stream.endCapture();
    const count = (this.errorsInARow.get(exchange) ?? 0) + 1;
    this.errorsInARow.set(exchange, count);
    const code = codeOfError(error);
    const details = String((error as Error | undefined)?.message ?? error);
    const own = {
      type: 'error',
      exchange,
      localTimestamp: new Date(),
      details,
      subSequentErrorsCount: count,
    };
    this.stream.error({ ...(sent ? (JSON.parse(sent) as typeof own) : own), code });
  });

  private readonly inspect = this.guarded((result: IteratorResult<LiveMessage>) => {
    const message = result.value as LiveMessage | undefined;
    if (result.done || !message) return;
    if (message.type !== 'disconnect') this.errorsInARow.set(message.exchange, 0);
    else if (!this.asksForDisconnects) this.stream.message(JSON.stringify(message));
  });
}

/** For a server of CommonJS modules: replaces what `require` returns. */
function replaceRequired(server: ServerPackage): void {
  const loader = Module as unknown as {
    _load: (request: string, parent?: { readonly filename?: string }) => unknown;
  };
  const load = loader._load;
  let replacement: unknown;
  const replace = guarded('library', (loaded: unknown, ...given: Parameters<typeof load>) => {
    const [, parent] = given;
    if (!parent?.filename?.startsWith(server.directory + sep)) return loaded;
    replacement ??= inherit(loaded as Library);
    return replacement;
  });
  loader._load = function (...given) {
    const loaded = Reflect.apply(load, this, given);
    return given[0] === 'tardis-dev' ? (replace(loaded, ...given) ?? loaded) : loaded;
  };
}

/** The exports cannot be changed, but an object that inherits from them can override some. */
function inherit(library: Library): Library {
  const { streamNormalized, combine } = tapped(library);
  return Object.create(library, {
    streamNormalized: { value: streamNormalized, enumerable: true },
    combine: { value: combine, enumerable: true },
  }) as Library;
}

interface LoadedModule {
  readonly url?: string;
  readonly format?: string;
  readonly source?: string;
  readonly shortCircuit?: boolean;
}

type Next<Context> = (what: string, context: Context) => LoadedModule;

interface LoaderHooks {
  resolve(specifier: string, context: { readonly parentURL?: string }, next: Next<unknown>): LoadedModule;
  load(url: string, context: unknown, next: Next<unknown>): LoadedModule;
}

/** For a server of ES modules: replaces the library with a module that re-exports everything else. */
function replaceImported(server: ServerPackage): void {
  const { registerHooks } = Module as unknown as { registerHooks: (hooks: LoaderHooks) => void };
  const home = pathToFileURL(server.directory + sep).href;
  const mark = guarded('library', (resolved: LoadedModule, parentURL: string | undefined) =>
    parentURL?.startsWith(home) ? { ...resolved, url: resolved.url + MARK, format: 'module' } : resolved,
  );
  registerHooks({
    resolve(specifier, context, next) {
      const resolved = next(specifier, context);
      return specifier === 'tardis-dev' ? (mark(resolved, context.parentURL) ?? resolved) : resolved;
    },
    load(url, context, next) {
      if (!url.endsWith(MARK)) return next(url, context);
      return { format: 'module', source: replacementOf(url.slice(0, -MARK.length)), shortCircuit: true };
    },
  });
}

function replacementOf(url: string): string {
  const [library, tap] = [JSON.stringify(url), JSON.stringify(__filename)];
  return `
    import { createRequire } from 'node:module';
    import * as library from ${library};
    const { streamNormalized, combine } = createRequire(${tap})(${tap}).tapped(library);
    export * from ${library};
    export { streamNormalized, combine };
  `;
}

function ignore(): void {}
