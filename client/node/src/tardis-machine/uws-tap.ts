/** Reads WebSocket connections that the server serves with uWebSockets.js. */
import { whileStarting } from './library-tap.js';
import { type NormalizedRequest, parseRequest } from './requests.js';
import type { ResponseStream, ResponseStreams } from './response-stream.js';

interface Connection {
  send(...given: unknown[]): unknown;
  end(code?: number, reason?: unknown): unknown;
}

interface Request {
  getUrl(): string;
  getQuery(): string;
}

/** The handlers of a WebSocket route; there may be more. */
interface Behavior {
  upgrade?: (response: unknown, request: Request, context: unknown) => unknown;
  open?: (connection: Connection) => unknown;
  close?: (connection: Connection, ...given: unknown[]) => unknown;
}

interface Application {
  ws(pattern: string, behavior: Behavior): unknown;
}

const SERVER_FAILED = 1011;
/** What `send` returns for a message that was dropped because its buffer was full. */
const DROPPED = 2;

/** Follows every connection on a route for normalized messages. Throws if the package is not as expected. */
export function tapUWebSockets(module: unknown, streams: ResponseStreams): void {
  const exported = module as { App?: (...given: unknown[]) => Application };
  const { App } = exported;
  if (typeof App !== 'function') throw new Error('its uWebSockets.js has no App');
  exported.App = (...given) => {
    const application = App(...given);
    const { ws } = application;
    application.ws = (pattern, behavior) =>
      Reflect.apply(ws, application, [pattern, tapped(behavior, streams)]);
    return application;
  };
}

function tapped(behavior: Behavior, streams: ResponseStreams): Behavior {
  const { upgrade, open, close } = behavior;
  if (!upgrade || !open) return behavior;
  const followed = new WeakMap<Connection, ResponseStream>();
  let asked: NormalizedRequest | undefined;
  return {
    ...behavior,
    upgrade(response, request, context) {
      asked = parseRequest(`${request.getUrl()}?${request.getQuery()}`);
      try {
        // The connection opens within this call, and the request cannot be read after it.
        return upgrade(response, request, context);
      } finally {
        asked = undefined;
      }
    },
    open(connection) {
      if (!asked || asked.route === '/replay-normalized') return open(connection);
      const stream = streams.open(asked, 'ws');
      follow(connection, stream);
      followed.set(connection, stream);
      return whileStarting(stream, () => open(connection));
    },
    close(connection, ...given) {
      followed.get(connection)?.end();
      return close?.(connection, ...given);
    },
  };
}

function follow(connection: Connection, stream: ResponseStream): void {
  const { send, end } = connection;
  connection.send = function (...given) {
    const result = Reflect.apply(send, this, given);
    if (result !== DROPPED) stream.message(given[0]);
    return result;
  };
  connection.end = function (code, reason) {
    if (code === SERVER_FAILED) stream.failure(String(reason), undefined);
    return Reflect.apply(end, this, [code, reason]);
  };
}
