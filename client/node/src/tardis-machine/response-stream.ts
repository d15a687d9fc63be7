/** One client's request, and the stream that its response is published as. */
import { uniqueId } from '../identity.js';
import type { Feed, HandOver } from './hand-over.js';
import { exchanges, type NormalizedRequest, redaction, streamId } from './requests.js';
import { say } from './warnings.js';

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
    const feed = this.handOver.open({ ...context, streamId: streamId(request) });
    // A failure is not part of a replay's data: at a position of its stream it would take the id of the message
    // that is there when the same replay succeeds.
    const failureFeed = (): Feed =>
      request.isReplay ? this.handOver.open({ ...context, streamId: uniqueId() }) : feed;
    return new ResponseStream(request, feed, failureFeed);
  }
}

/** Takes what the server sends to one client. Its methods never throw: the response comes first. */
export class ResponseStream {
  private readonly redact: (text: string) => string;
  private captured: string | undefined;
  private isCapturing = false;
  private isOver = false;

  constructor(
    readonly request: NormalizedRequest,
    private readonly feed: Feed,
    private readonly failureFeed: () => Feed,
  ) {
    this.redact = redaction(request);
  }

  /** Publishes lines of the response, without the trailing newline. */
  lines(text: string, count: number): void {
    if (this.isOver) return;
    try {
      this.feed.add(text, count);
    } catch (error) {
      this.giveUp(error);
    }
  }

  /** Publishes a message that was sent. */
  message(data: unknown): void {
    const text = typeof data === 'string' ? data : textOf(data);
    if (this.isCapturing) this.captured = text;
    else this.lines(text, 1);
  }

  /** Returns what the server sends during a call, instead of publishing it. */
  capture(call: () => void): string | undefined {
    this.captured = undefined;
    this.isCapturing = true;
    try {
      call();
    } finally {
      this.isCapturing = false;
    }
    return this.captured;
  }

  /** Publishes an error of the exchange or the data source, as the server would write it. */
  error(message: ErrorMessage, feed = this.feed): void {
    if (this.isOver) return;
    try {
      feed.add(JSON.stringify({ ...message, details: this.redact(message.details) }), 1);
    } catch (error) {
      this.giveUp(error);
    }
  }

  /** Publishes that the response ended early, once for each exchange of the request. */
  failure(details: string, code: ErrorCode | undefined): void {
    const names = exchanges(this.request);
    if (this.isOver || !names.length) return;
    const localTimestamp = new Date();
    const feed = this.failureFeed();
    for (const exchange of names)
      this.error({ type: 'error', exchange, localTimestamp, details, code }, feed);
    if (feed !== this.feed) feed.end();
  }

  /** Ends the stream; what comes later never reached the client. */
  end(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.feed.end();
  }

  private giveUp(error: unknown): void {
    say(`the rest of a response will not be published: ${String(error)}.`);
    this.end();
  }
}

function textOf(data: unknown): string {
  if (data instanceof ArrayBuffer) return Buffer.from(data).toString();
  return ArrayBuffer.isView(data)
    ? Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString()
    : String(data);
}
