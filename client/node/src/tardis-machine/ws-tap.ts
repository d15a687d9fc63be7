/** Reads WebSocket connections that the server serves with the package `ws`. */
import type { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { whileStarting } from './library-tap.js';
import { parseRequest } from './requests.js';
import type { ResponseStream, ResponseStreams } from './response-stream.js';

interface Connection extends EventEmitter {
  readonly readyState: number;
  send(...given: unknown[]): void;
  close(code?: number, reason?: string | Buffer): void;
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
  prototype.emit = function (event, ...given) {
    const pass = (): boolean => Reflect.apply(emit, this, [event, ...given]) as boolean;
    if (event !== 'connection') return pass();
    const [connection, request] = given as [Connection, IncomingMessage | undefined];
    const asked = parseRequest(request?.url);
    if (!asked || asked.route === '/replay-normalized') return pass();
    const stream = streams.open(asked, 'ws');
    follow(connection, stream);
    return whileStarting(stream, pass);
  };
}

function follow(connection: Connection, stream: ResponseStream): void {
  const { send, close } = connection;
  connection.send = function (...given) {
    const isOpen = this.readyState === OPEN;
    Reflect.apply(send, this, given);
    if (isOpen) stream.message(given[0]);
  };
  connection.close = function (code, reason) {
    if (code === SERVER_FAILED && this.readyState === OPEN) stream.failure(String(reason), undefined);
    Reflect.apply(close, this, [code, reason]);
  };
  connection.once('close', () => stream.end());
}
