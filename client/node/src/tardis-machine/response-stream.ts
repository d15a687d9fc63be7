/** One client's request, and the stream that its response is published as. */
import { uniqueId } from '../identity.js';
import { toWellFormed } from '../unicode.js';
import { codeOfFailure } from './error-codes.js';
import { areKnown } from './exchanges.js';
import type { Feed } from './feed.js';
import type { HandOver } from './hand-over.js';
import { exchanges, type NormalizedRequest, redaction, streamId } from './requests.js';

export type Transport = 'http' | 'ws';
export type ErrorCode = 'ws_connect' | 'ws_send' | 'source_auth' | 'source_rate_limit';

/** An error as the server writes it, with its classification. */
export interface ErrorMessage {
  readonly type: string;
  readonly exchange: string;
  readonly localTimestamp: Date;
  readonly details: string;
  readonly subSequentErrorsCount?: number;
  readonly code: ErrorCode | undefined;
}

/** The exchange of an error whose request names one that nobody knows. */
const UNKNOWN = 'unknown';
/** The server repeats parts of the request in its errors, however long they are. */
const LONGEST_DETAILS = 4_096;

/** Opens a stream for each request. */
export class ResponseStreams {
  constructor(
    private readonly handOver: HandOver,
    private readonly meta: Readonly<Record<string, string>>,
  ) {}

  open(request: NormalizedRequest, transport: Transport): ResponseStream {
    const context = {
      origin: request.isReplay ? ('replay' as const) : ('realtime' as const),
      requestId: uniqueId(),
      sessionId: transport === 'ws' ? uniqueId() : '',
      meta: { ...this.meta, transport, route: request.route },
    };
    const feed = this.handOver.open({ ...context, streamId: streamId(request) }, request.isReplay);
    // A failure is not part of a replay's data: at a position of its stream it would take the id of the message
    // that is there when the same replay succeeds.
    const failureFeed = (): Feed =>
      request.isReplay ? this.handOver.open({ ...context, streamId: uniqueId() }, false) : feed;
    return new ResponseStream(request, feed, failureFeed);
  }
}

/** Takes what the server sends to one client. Those who call its methods are guarded, and end it if one throws. */
export class ResponseStream {
  private readonly redact: (text: string) => string;
  /** Undefined if tardis-dev's list of exchanges cannot be read; false if the request cannot. */
  private readonly areExchangesKnown: boolean | undefined;
  private captured: string | undefined;
  private isCapturing = false;
  private isComplete = false;
  private hasFailed = false;
  /** Whether the stream has ended. */
  isOver = false;

  constructor(
    readonly request: NormalizedRequest,
    private readonly feed: Feed,
    private readonly failureFeed: () => Feed,
  ) {
    this.redact = redaction(request);
    this.areExchangesKnown = request.options.length > 0 && areKnown(exchanges(request));
  }

  /** Publishes lines of the response, without the trailing newline. */
  lines(text: string, count: number): void {
    // There is no data of an exchange that does not exist: what comes are errors and disconnects in its name.
    if (!this.isOver && this.areExchangesKnown !== false) this.feed.add(text, count);
  }

  /** Publishes a message that was sent. */
  message(data: unknown): void {
    const text = typeof data === 'string' ? data : textOf(data);
    if (this.isCapturing) this.captured = text;
    else this.lines(text, 1);
  }

  /** From now on messages are not published, but kept: the last one for `endCapture`. */
  beginCapture(): void {
    this.captured = undefined;
    this.isCapturing = true;
  }

  endCapture(): string | undefined {
    this.isCapturing = false;
    return this.captured;
  }

  /** Publishes an error of the exchange or the data source, as the server would write it. */
  error(message: ErrorMessage): void {
    this.lines(this.written(message), 1);
  }

  /**
   * Publishes that the response ended early: once for each exchange of the request, or once for them all if one of
   * them is not known. So whoever makes up names does not make up destinations.
   */
  failure(details: string, code: ErrorCode | undefined = codeOfFailure(details)): void {
    if (this.isOver) return;
    const names = this.areExchangesKnown ? exchanges(this.request) : [UNKNOWN];
    const localTimestamp = new Date();
    const feed = this.failureFeed();
    for (const exchange of names)
      feed.add(this.written({ type: 'error', exchange, localTimestamp, details, code }), 1);
    this.hasFailed = true;
    if (feed !== this.feed) feed.end(false);
  }

  /** Hands over what there is: the response is complete, but can still be made to wait. */
  complete(): void {
    this.isComplete = !this.hasFailed;
    if (!this.isOver) this.feed.handOver();
  }

  /** Whether the response must wait until there is room in the buffer. */
  get isWaiting(): boolean {
    return this.feed.isWaiting;
  }

  /** Calls back when the response need not wait any more, perhaps now; also if the stream ends. */
  whenRoom(action: () => void): void {
    this.feed.whenRoom(action);
  }

  /**
   * Ends the stream; what comes later never reached the client. The end is published, unless it is that of a replay
   * which failed or whose client went away: the same replay may go further.
   */
  end(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.feed.end(this.isComplete || !this.request.isReplay);
  }

  private written(message: ErrorMessage): string {
    const details = this.redact(message.details).slice(0, LONGEST_DETAILS);
    return JSON.stringify({ ...message, details: toWellFormed(details) });
  }
}

function textOf(data: unknown): string {
  if (data instanceof ArrayBuffer) return Buffer.from(data).toString();
  return ArrayBuffer.isView(data)
    ? Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString()
    : String(data);
}
