/** Reads WebSocket connections that the server serves with uWebSockets.js. */
import { guarded } from './guard.js';
import { whileStarting } from './library-tap.js';
import { type NormalizedRequest, parseRequest } from './requests.js';
import type { ResponseStream, ResponseStreams } from './response-stream.js';

interface Connection {
  send(...given: unknown[]): unknown;
  end(...given: unknown[]): unknown;
  getBufferedAmount(...given: unknown[]): unknown;
}

interface Request {
  getUrl(): string;
  getQuery(): string;
}

/** The handlers of a WebSocket route; there may be more. */
interface Behavior {
  upgrade?: (response: unknown, request: Request, ...given: unknown[]) => unknown;
  open?: (connection: Connection, ...given: unknown[]) => unknown;
  close?: (connection: Connection, ...given: unknown[]) => unknown;
}

interface Application {
  ws(pattern: string, behavior: Behavior, ...given: unknown[]): unknown;
}

const SERVER_FAILED = 1011;
/** What `send` returns for a message that the client has not read yet. */
const BUFFERED = 0;
/** What it returns for a message that was dropped because its buffer was full. */
const DROPPED = 2;

/** Follows every connection on a route for normalized messages. Throws if the package is not as expected. */
export function tapUWebSockets(module: unknown, streams: ResponseStreams): void {
  const exported = module as { App?: (...given: unknown[]) => Application };
  const { App } = exported;
  if (typeof App !== 'function') throw new Error('its uWebSockets.js has no App');
  const tapApplication = guarded('WebSocket server', (application: Application) => {
    const { ws } = application;
    const tapBehavior = guarded('WebSocket route', (behavior: Behavior) => tapped(behavior, streams));
    application.ws = (pattern, behavior, ...given) =>
      Reflect.apply(ws, application, [pattern, tapBehavior(behavior) ?? behavior, ...given]);
  });
  exported.App = (...given) => {
    const application = App(...given);
    tapApplication(application);
    return application;
  };
}

function tapped(behavior: Behavior, streams: ResponseStreams): Behavior {
  const { upgrade, open, close } = behavior;
  if (!upgrade || !open) return behavior;
  const followed = new WeakMap<Connection, ResponseStream>();
  const parse = guarded('WebSocket request', (request: Request) =>
    parseRequest(`${request.getUrl()}?${request.getQuery()}`),
  );
  const opened = guarded('WebSocket request', (connection: Connection) => {
    if (!asked || asked.route === '/replay-normalized') return undefined;
    const stream = streams.open(asked, 'ws');
    follow(connection, stream);
    followed.set(connection, stream);
    return stream;
  });
  const closed = guarded('WebSocket close', (connection: Connection) => followed.get(connection)?.end());
  let asked: NormalizedRequest | undefined;
  return {
    ...behavior,
    upgrade(response, request, ...given) {
      asked = parse(request);
      try {
        // The connection opens within this call, and the request cannot be read after it.
        return upgrade(response, request, ...given);
      } finally {
        asked = undefined;
      }
    },
    open(connection, ...given) {
      const stream = opened(connection);
      const pass = (): unknown => open(connection, ...given);
      return stream ? whileStarting(stream, pass) : pass();
    },
    close(connection, ...given) {
      closed(connection);
      return close?.(connection, ...given);
    },
  };
}

function follow(connection: Connection, stream: ResponseStream): void {
  const { send, end, getBufferedAmount } = connection;
  const giveUp = (): void => stream.end();
  /** Returns whether the server must wait. */
  const sent = guarded(
    'WebSocket message',
    (data: unknown) => {
      stream.message(data);
      return stream.isWaiting;
    },
    giveUp,
  );
  /** Returns whether the end must wait, and then ends the connection later. */
  const ending = guarded(
    'WebSocket close',
    (pass: () => unknown, code: unknown, reason: unknown) => {
      if (code === SERVER_FAILED) stream.failure(String(reason));
      stream.complete();
      if (!stream.isWaiting) return false;
      const passIfOpen = (): unknown => stream.isOver || pass();
      stream.whenRoom(guarded('WebSocket close', passIfOpen));
      return true;
    },
    giveUp,
  );
  connection.send = function (...given) {
    const result = Reflect.apply(send, this, given);
    return result !== DROPPED && sent(given[0]) ? BUFFERED : result;
  };
  connection.getBufferedAmount = function (...given) {
    return Reflect.apply(getBufferedAmount, this, given) || Number(stream.isWaiting);
  };
  connection.end = function (...given) {
    const pass = (): unknown => Reflect.apply(end, this, given);
    return ending(pass, given[0], given[1]) ? undefined : pass();
  };
}
