/** Publishing, as programs see it. */
import { EventEmitter } from 'node:events';
import { checkFiles } from './connection.js';
import { encode, encodeLines, type Item } from './encoding.js';
import { type Options, type Settings, settle } from './options.js';
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
 * Publishes events to a sidecar, each at least once, for as long as it is open. `connect` makes one.
 *
 * Every call of `publish` or `publishWait` uses up one position of the stream, and `publishLines` one for each
 * line, whether the events are accepted, dropped or refused by an exception: what is missing leaves a gap that
 * can be seen downstream, and the same events get the same ids when they are published again.
 *
 * It emits the events of `PublisherEvents`. What nobody listens to, except `connect`, becomes a warning of the
 * process. A listener that throws does not stop the publisher; that becomes a warning too.
 */
export class Publisher extends EventEmitter<PublisherEvents> implements AsyncDisposable {
  /** Names the stream: the first part of every event's id. */
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
   * Takes an event and returns at once: true if it is accepted, false if it is dropped.
   *
   * An event is a normalized message, as an object or as JSON text, or an envelope's bytes; bytes that begin
   * with `{` are JSON. Bytes are not copied: do not change them afterwards. The event travels later, when the
   * event loop turns: code that publishes much without ever awaiting something only fills the buffer.
   *
   * Throws a TypeError for anything else, a RangeError for an event that could never be sent.
   */
  publish(event: object | string | Uint8Array): boolean {
    if (!this.session) return false;
    return this.session.buffer.add(this.encoded(this.session, event));
  }

  /** Does as `publish`, but with `onFull: 'wait'` waits for room for up to `maxWaitMs` first. */
  async publishWait(event: object | string | Uint8Array): Promise<boolean> {
    if (!this.session) return false;
    const item = this.encoded(this.session, event);
    return this.settings.onFull === 'wait' ? this.session.addWhenRoom(item) : this.session.buffer.add(item);
  }

  /**
   * Takes a block of `count` JSON messages, separated by newlines and with none at the end, as it is: the
   * cheapest way. It is accepted or dropped as a whole. The count is trusted, and no line may be blank.
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

  /** Uses up positions for events that were lost before they came here, so that the gap can be seen. */
  skip(count: number): void {
    checkCount(count);
    this.session?.buffer.skip(count);
  }

  /**
   * Sends everything now; resolves when every event so far is acknowledged. Waits no longer than `timeoutMs`.
   *
   * Rejects with a PublishError unless every event since the last flush was published, or filtered, by every
   * back end: that is, if some are not acknowledged, were dropped, or failed.
   */
  async flush(timeoutMs?: number): Promise<void> {
    await this.session?.flush(timeoutMs);
  }

  /**
   * Flushes within `timeoutMs`, by default `closeTimeoutMs`, and ends the stream. Rejects as `flush` does; it is
   * closed anyway. Later events are dropped, and closing again does nothing.
   */
  async close(timeoutMs: number = this.settings.closeTimeoutMs): Promise<void> {
    await this.session?.close(timeoutMs);
  }

  /** Closes the publisher at the end of an `await using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** The counters as they are now. */
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
      warn(`A listener of '${name}' has failed: ${error instanceof Error ? error.stack : String(error)}`);
      return true;
    }
  };
}

/**
 * Opens a stream of events to a sidecar at `host:port` or `unix:///path`; without an address the publisher does
 * nothing, and neither gRPC nor Protobuf is loaded.
 *
 * It does not wait for the sidecar: events are kept, within the buffer's limits, until it is there. An open
 * stream keeps the process alive, and so does an event that is not acknowledged: close the publisher at the end.
 *
 * Throws a RangeError for options that cannot be meant, and the error of a TLS file that cannot be read.
 */
export function connect(address: string | null | undefined, options: Options = {}): Publisher {
  const settings = settle(address, options);
  if (settings.address) checkFiles(settings);
  return new Publisher(settings);
}

function checkCount(count: number): void {
  if (!Number.isSafeInteger(count) || count < 1) throw new RangeError('count: has to be 1 or more.');
}
