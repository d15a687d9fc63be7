/** Reads WebSocket connections that the server serves with the package `ws`. */
import type { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { guarded } from './guard.js';
import { whileStarting } from './library-tap.js';
import { parseRequest } from './requests.js';
import type { ResponseStream, ResponseStreams } from './response-stream.js';

interface Connection extends EventEmitter {
  readonly readyState: number;
  readonly _closeFrameReceived?: boolean;
  send(...given: unknown[]): unknown;
  close(...given: unknown[]): unknown;
}

type Emit = (this: EventEmitter, event: string | symbol, ...given: unknown[]) => boolean;

const OPEN = 1;
const SERVER_FAILED = 1011;

/** Follows every connection on a route for normalized messages. Throws if the package is not as expected. */
export function tapWs(ws: unknown, streams: ResponseStreams): void {
  const prototype = (ws as { WebSocketServer?: { prototype?: { emit?: Emit } } }).WebSocketServer?.prototype;
  const emit = prototype?.emit;
  if (!prototype || typeof emit !== 'function')
    throw new Error('its ws has no WebSocketServer that emits events');
  const connected = guarded('WebSocket request', (given: readonly unknown[]) => {
    const [connection, request] = given as [Connection, IncomingMessage | undefined];
    const asked = parseRequest(request?.url);
    if (!asked || asked.route === '/replay-normalized') return undefined;
    const stream = streams.open(asked, 'ws');
    follow(connection, stream);
    return stream;
  });
  prototype.emit = function (event, ...given) {
    const pass = (): boolean => Reflect.apply(emit, this, [event, ...given]) as boolean;
    const stream = event === 'connection' ? connected(given) : undefined;
    return stream ? whileStarting(stream, pass) : pass();
  };
}

function follow(connection: Connection, stream: ResponseStream): void {
  const { send, close } = connection;
  const giveUp = (): void => stream.end();
  const sent = guarded('WebSocket message', (data: unknown) => stream.message(data), giveUp);
  /** Returns whether the close must wait, and then closes the connection later. */
  const closing = guarded(
    'WebSocket close',
    (pass: () => unknown, code: unknown, reason: unknown) => {
      if (code === SERVER_FAILED && connection.readyState === OPEN) stream.failure(String(reason));
      // Also called when the client closes the connection: it does not read on.
      if (connection._closeFrameReceived) stream.end();
      else stream.complete();
      if (!stream.isWaiting) return false;
      stream.whenRoom(guarded('WebSocket close', pass));
      return true;
    },
    giveUp,
  );
  const prototype = Object.getPrototypeOf(connection) as object;
  Object.defineProperty(connection, 'bufferedAmount', {
    configurable: true,
    // The server waits for as long as something is buffered.
    get: () => Reflect.get(prototype, 'bufferedAmount', connection) || Number(stream.isWaiting),
  });
  connection.send = function (...given) {
    const isOpen = this.readyState === OPEN;
    const result = Reflect.apply(send, this, given);
    if (isOpen) sent(given[0]);
    return result;
  };
  connection.close = function (...given) {
    const pass = (): unknown => Reflect.apply(close, this, given);
    return closing(pass, given[0], given[1]) ? undefined : pass();
  };
  connection.once('close', guarded('WebSocket close', giveUp));
}
