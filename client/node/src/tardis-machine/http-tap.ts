/** Reads the responses to HTTP requests. */
import { subscribe } from 'node:diagnostics_channel';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { codeOfStatus } from './error-codes.js';
import { guarded } from './guard.js';
import { parseRequest } from './requests.js';
import type { ResponseStream, ResponseStreams } from './response-stream.js';

/** Follows the response to every request for normalized messages. */
export function tapHttp(streams: ResponseStreams): void {
  const start = guarded('HTTP request', (event: unknown) => {
    const { request, response } = event as { request: IncomingMessage; response: ServerResponse };
    const asked = request.method === 'GET' ? parseRequest(request.url) : undefined;
    if (asked?.route === '/replay-normalized') follow(response, streams.open(asked, 'http'));
  });
  // This channel publishes before the server's own handler is called.
  subscribe('http.server.request.start', start);
}

function follow(response: ServerResponse, stream: ResponseStream): void {
  const body = new ResponseBody(stream);
  const { write, end, emit } = response;
  const giveUp = (): void => stream.end();
  // While it is withheld, the server waits for the event that tells it to go on.
  let isDrainWithheld = false;
  const drain = guarded('HTTP response', () => {
    isDrainWithheld = false;
    // Otherwise Node.js emits it as soon as the client has read on.
    if (!response.writableNeedDrain) Reflect.apply(emit, response, ['drain']);
  });
  /** Returns whether the server must wait. */
  const written = guarded(
    'HTTP response',
    (chunk: unknown) => {
      body.add(chunk);
      if (stream.isWaiting && !isDrainWithheld) {
        isDrainWithheld = true;
        stream.whenRoom(drain);
      }
      return stream.isWaiting;
    },
    giveUp,
  );
  /** Returns whether the end must wait, and then ends the response later. */
  const ended = guarded(
    'HTTP response',
    (chunk: unknown, pass: () => unknown) => {
      body.add(chunk);
      body.finish(response.statusCode);
      stream.complete();
      if (!stream.isWaiting) return false;
      stream.whenRoom(guarded('HTTP response', pass));
      return true;
    },
    giveUp,
  );
  response.write = function (this: ServerResponse, ...given: unknown[]): boolean {
    const result = Reflect.apply(write, this, given) as boolean;
    return !written(given[0]) && result;
  };
  response.end = function (this: ServerResponse, ...given: unknown[]): ServerResponse {
    const pass = (): ServerResponse => Reflect.apply(end, this, given) as ServerResponse;
    return ended(given[0], pass) ? this : pass();
  } as typeof end;
  response.emit = function (this: ServerResponse, event: string | symbol, ...given: unknown[]): boolean {
    if (event === 'drain' && isDrainWithheld) return false;
    return Reflect.apply(emit, this, [event, ...given]) as boolean;
  } as typeof emit;
  // Also emitted when the client disconnects, which the server does not notice.
  response.once('close', guarded('HTTP response', giveUp));
}

/** Separates complete lines from the unterminated text that ends a failed replay. */
class ResponseBody {
  private rest = '';

  constructor(private readonly stream: ResponseStream) {}

  add(chunk: unknown): void {
    if (typeof chunk !== 'string' && !(chunk instanceof Uint8Array)) return;
    const text = this.rest + (typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString());
    const end = text.lastIndexOf('\n');
    this.rest = text.slice(end + 1);
    if (end > 0) this.stream.lines(text.slice(0, end), countLines(text, end));
  }

  finish(status: number): void {
    if (!this.rest) return;
    const { message, details } = readTail(this.rest);
    if (message) this.stream.message(this.rest);
    else this.stream.failure(details, codeOfStatus(status));
    this.rest = '';
  }
}

function countLines(text: string, end: number): number {
  let count = 1;
  for (let at = text.indexOf('\n'); at < end; at = text.indexOf('\n', at + 1)) count += 1;
  return count;
}

/** Reads the unterminated end of a response: a message, or the reason for a failure. */
function readTail(text: string): { readonly message: boolean; readonly details: string } {
  try {
    const { type, message, responseText } = JSON.parse(text) as Readonly<Record<string, unknown>>;
    const reasons = [message, responseText].filter((each) => typeof each === 'string');
    // The message of a failed download contains the text of the response.
    const [first = '', ...more] = reasons;
    const details = [first, ...more.filter((each) => !first.includes(each))].filter(Boolean).join(' ');
    return { message: typeof type === 'string', details: details || text };
  } catch {
    return { message: false, details: text };
  }
}
