/** The public API. */
import { EventEmitter } from 'node:events';
import { Writable } from 'node:stream';
import { checkFiles } from './connection.js';
import { encode, encodeFrame, encodeLines, type Item } from './encoding.js';
import { PublishError } from './errors.js';
import type { Frame } from './frames.js';
import { checkPlain, type Options, type Settings, settle } from './options.js';
import type { Stats } from './outcomes.js';
import { type PublisherEvents, Session, type Tell, warn } from './session.js';

const NOTHING: Stats = {
  accepted: 0,
  acknowledged: 0,
  published: 0,
  filtered: 0,
  rejected: 0,
  failed: 0,
  dropped: 0,
  reconnects: 0,
  bufferedEvents: 0,
  bufferedBytes: 0,
};

/**
 * Publishes events to a sidecar at least once, until it is closed. `connect` creates one.
 *
 * Every call of `publish`, `publishWait` or `write` uses up one position of the stream, and `publishLines` one per line,
 * whether the events are accepted, dropped or refused by an exception. So a missing event leaves a gap that is
 * visible downstream, and the same events get the same ids when they are published again.
 *
 * It emits the events of `PublisherEvents`. An event without a listener becomes a process warning, except
 * `connect`. A listener that throws does not stop the publisher; that becomes a warning too.
 */
export class Publisher extends EventEmitter<PublisherEvents> implements AsyncDisposable {
  /** Id of the stream: the first part of every event's id. */
  readonly streamId: string;
  // Absent if publishing is off.
  private readonly session: Session | undefined;

  /** @internal */
  constructor(private readonly settings: Settings) {
    super();
    this.streamId = settings.streamId;
    if (settings.address) this.session = new Session(settings, this.tell);
  }

  /**
   * Takes an event and returns immediately: true if it is accepted, false if it is dropped.
   *
   * An event is a normalized message, as an object or JSON text, or an encoded envelope. Bytes that start with
   * `{` are JSON. Bytes are not copied: do not change them afterwards. Events are sent when control returns to the
   * event loop: code that publishes without ever awaiting only fills the buffer.
   *
   * Throws a TypeError for anything else, and a RangeError for an event that could never be sent.
   */
  publish(event: object | string | Uint8Array): boolean {
    if (!this.session) return false;
    return this.session.buffer.add(this.encoded(this.session, event));
  }

  /** Like `publish`, but with `onFull: 'wait'` it waits up to `maxWaitMs` for room. */
  async publishWait(event: object | string | Uint8Array): Promise<boolean> {
    if (!this.session) return false;
    const item = this.encoded(this.session, event);
    return this.settings.onFull === 'wait' ? this.session.addWhenRoom(item) : this.session.buffer.add(item);
  }

  /**
   * Resolves when the event is accepted, which may mean waiting for room: the call for a replay, of which nothing
   * must be dropped. Rejects with a PublishError if it is dropped, because `maxWaitMs` is over or the publisher is
   * closed or refused. Without an address it does nothing.
   */
  async write(event: object | string | Uint8Array): Promise<void> {
    if (!this.session) return;
    if (!(await this.session.addWhenRoom(this.encoded(this.session, event)))) {
      const { reason } = this.session.buffer.drops;
      throw new PublishError({ unacknowledged: 0, dropped: 1, failed: 0, failures: [], reason });
    }
  }

  /**
   * Returns a stream that writes every event it gets, so that a fast source is slowed down to what the sidecar takes:
   * `await pipeline(source, publisher.writable())`. It holds up to `highWaterMark` events beside the publisher's
   * buffer. It finishes when everything is acknowledged, with the error of `flush` if something was not delivered.
   * The publisher stays open.
   */
  writable(options: { readonly highWaterMark?: number } = {}): Writable {
    checkPlain('options', options);
    const { highWaterMark = 16 } = options;
    const settle = (work: Promise<void>, done: (error?: Error) => void) => {
      work.then(() => done(), done);
    };
    return new Writable({
      objectMode: true,
      highWaterMark,
      write: (event, _, done) => settle(this.write(event), done),
      final: (done) => settle(this.flush(), done),
    });
  }

  /**
   * Takes a block of `count` JSON messages as it is: the cheapest way to publish. The messages are separated by
   * newlines, with none at the end. The block is accepted or dropped as a whole. The count is not checked, and no
   * line may be blank.
   *
   * Throws a RangeError for a block that could never be sent.
   */
  publishLines(block: string | Uint8Array, count: number): boolean {
    if (!this.session) return false;
    checkCount(count);
    const { buffer } = this.session;
    let item: Item;
    try {
      item = encodeLines(block, count);
    } catch (error) {
      buffer.skip(count);
      throw error;
    }
    return buffer.add(item);
  }

  /**
   * Like `publishLines`, of a block that is not empty. The frame is released when the sidecar is done with it.
   *
   * @internal
   */
  publishFrame(frame: Frame, count: number): boolean {
    return this.session?.buffer.add(encodeFrame(frame, count)) ?? false;
  }

  /** Uses up positions for events that were lost before they got here, so that the gap is visible. */
  skip(count: number): void {
    checkCount(count);
    this.session?.buffer.skip(count);
  }

  /**
   * Sends everything now, and resolves when every event so far is acknowledged. Waits at most `timeoutMs`.
   *
   * Rejects with a PublishError if any event since the last flush is not acknowledged, was dropped, or failed.
   */
  async flush(timeoutMs?: number): Promise<void> {
    await this.session?.flush(timeoutMs);
  }

  /**
   * Flushes within `timeoutMs`, by default `closeTimeoutMs`, and closes the stream.
   *
   * If everything is acknowledged or dropped by then, the stream's end is published too, with the number of its
   * positions; with `ended: false` it is not, for a producer that did not get to its end. Rejects like `flush`; the
   * publisher is closed anyway. Later events are dropped, and closing again does nothing.
   */
  async close(
    timeoutMs: number = this.settings.closeTimeoutMs,
    options: { readonly ended?: boolean } = {},
  ): Promise<void> {
    checkPlain('options', options);
    const { ended = true } = options;
    await this.session?.close(timeoutMs, ended);
  }

  /** Closes the publisher at the end of an `await using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** The current counters. */
  get stats(): Stats {
    return this.session?.stats ?? NOTHING;
  }

  private encoded(session: Session, event: object | string | Uint8Array): Item {
    try {
      return encode(event);
    } catch (error) {
      session.buffer.skip(1);
      throw error;
    }
  }

  private readonly tell: Tell = (name, ...args) => {
    try {
      return (this as EventEmitter).emit(name, ...args);
    } catch (error) {
      warn(`A listener for '${name}' failed: ${error instanceof Error ? error.stack : String(error)}`);
      return true;
    }
  };
}

/**
 * Opens a stream of events to a sidecar at `host:port` or `unix:///path`. Without an address the publisher does
 * nothing, and neither gRPC nor Protobuf is loaded.
 *
 * It does not wait for the sidecar: events are kept, within the buffer's limits, until it is available. An open
 * stream keeps the process alive, and so does an unacknowledged event: close the publisher when you are done.
 *
 * Throws a RangeError for invalid options, and the error of a TLS file that cannot be read, with its option.
 */
export function connect(address: string | null | undefined, options: Options = {}): Publisher {
  const settings = settle(address, options);
  if (settings.address) checkFiles(settings);
  return new Publisher(settings);
}

function checkCount(count: number): void {
  if (!Number.isSafeInteger(count) || count < 1) throw new RangeError('count: must be 1 or more.');
}
