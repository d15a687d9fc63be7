/** Numbered batches: in flight, or to be sent again. */
import { Batch, type EventBuffer } from './buffer.js';
import type { Frame } from './frames.js';
import { Queue } from './queue.js';
import { decodeItems, encodeBatch, encodeEnd, lentFrame } from './wire.js';

/** The sidecar takes no more in one batch. */
const MOST_EVENTS = 1024;

/** How much may be in flight. */
export interface Credits {
  readonly events: number;
  readonly bytes: number;
  /** Most bytes of one batch; 0 from a sidecar that does not say. */
  readonly batchBytes: number;
}

/** A batch as it was first sent, and is sent again until it is acknowledged. */
interface Numbered {
  readonly sequence: number;
  readonly firstPosition: number;
  readonly isJson: boolean | undefined;
  readonly events: number;
  readonly size: number;
  readonly request: Buffer;
  /** The memory of the request, if that is lent and nobody reads it anymore once the request is acknowledged. */
  frame: Frame | undefined;
}

/** Numbers batches, keeps them until they are acknowledged, and stays within the credits. */
export class Window {
  acknowledgedEvents = 0;

  private readonly kept = new Queue<Numbered>();
  private nextSequence = 1;

  // State of this connection: how many of the kept batches, from the first on, are in flight.
  private sent = 0;
  private sentEvents = 0;
  private sentBytes = 0;
  private credits: Credits = { events: 0, bytes: 0, batchBytes: 0 };
  private mostBytes = 0;
  private largestBatch = 0;

  constructor(private readonly buffer: EventBuffer) {}

  /** Sequence number of the newest batch that is known to be done. */
  get acknowledgedSequence(): number {
    return this.nextSequence - this.kept.length - 1;
  }

  /** Whether nothing is in flight. */
  get isIdle(): boolean {
    return !this.sent;
  }

  /** Position of the first unacknowledged event, or of the next event if there is none. */
  get oldestPosition(): number {
    return this.kept.first?.firstPosition ?? this.buffer.oldestPosition;
  }

  /** Whether there are unacknowledged events. */
  get isHolding(): boolean {
    return this.buffer.events > 0;
  }

  /**
   * Starts a connection: nothing is in flight on it.
   *
   * Returns false if the sidecar would never take a batch as it was numbered, because it takes less than the one
   * before it did. All of them are then cut and numbered again, for another connection.
   */
  open(acknowledgedSequence: number, credits: Credits): boolean {
    this.sent = this.sentEvents = this.sentBytes = 0;
    this.mostBytes = 0;
    this.acknowledge(acknowledgedSequence);
    if (!this.kept.length) this.nextSequence = Math.max(this.nextSequence, acknowledgedSequence + 1);
    this.grant(credits);
    const kept: Numbered[] = [];
    for (let index = 0; index < this.kept.length; index += 1) {
      const batch = this.kept.at(index) as Numbered;
      // Sent again, it may be acknowledged as it was sent before, while this stream has not copied it yet.
      batch.frame = undefined;
      kept.push(batch);
    }
    if (kept.every((batch) => this.isTakeable(batch))) return true;
    // Numbers are not used twice: with the next one the sidecar starts a new run.
    while (this.kept.length) this.kept.shift();
    for (const batch of kept.reverse()) this.putBack(batch);
    return false;
  }

  /** Whether a batch is within what may be in flight; without credits that remains to be seen. */
  private isTakeable({ events, size }: Numbered): boolean {
    const { credits, largestBatch } = this;
    if (!credits.events || !credits.bytes) return true;
    return events <= credits.events && size <= Math.min(credits.bytes, largestBatch);
  }

  private putBack({ request, firstPosition, isJson, events, size }: Numbered): void {
    const batch = new Batch(firstPosition, isJson);
    for (const item of decodeItems(request, isJson, events, size)) batch.push(item);
    this.buffer.putBack(batch);
  }

  /** Sets how much may be in flight, and how large a batch may be. */
  grant(credits: Credits): void {
    this.credits = credits;
    this.largestBatch = credits.batchBytes || this.largestBatch || credits.bytes;
    if (credits.bytes > this.mostBytes) {
      this.mostBytes = credits.bytes;
      this.buffer.limitEvent(Math.min(credits.bytes, this.largestBatch));
    }
  }

  /** Forgets every batch up to this one. */
  acknowledge(sequence: number): void {
    let [events, size] = [0, 0];
    for (let batch = this.kept.first; batch && batch.sequence <= sequence; batch = this.kept.first) {
      this.kept.shift();
      batch.frame?.release();
      events += batch.events;
      size += batch.size;
      if (this.sent) {
        this.sent -= 1;
        this.sentEvents -= batch.events;
        this.sentBytes -= batch.size;
      }
    }
    this.acknowledgedEvents += events;
    this.buffer.release(events, size);
  }

  /** Returns the next request to send, or undefined if there is none or it has to wait. */
  next(): Buffer | undefined {
    const batch = this.sent < this.kept.length ? this.kept.at(this.sent) : this.number();
    if (!batch || !this.maySend(batch)) return undefined;
    this.sent += 1;
    this.sentEvents += batch.events;
    this.sentBytes += batch.size;
    return batch.request;
  }

  /** Adds the end of the stream, at its position. Everything before it is acknowledged. */
  end(position: number): void {
    const sequence = this.nextSequence;
    this.nextSequence += 1;
    this.kept.push({
      sequence,
      firstPosition: position,
      isJson: undefined,
      events: 0,
      size: 0,
      request: encodeEnd(sequence, position, position - this.acknowledgedEvents),
      frame: undefined,
    });
  }

  private number(): Numbered | undefined {
    const events = this.credits.events - this.sentEvents;
    const bytes = this.credits.bytes - this.sentBytes;
    // Nothing is gained by waiting for more.
    if (this.isIdle) this.buffer.markDue();
    // What is larger than a batch may be is cut at once; what only has to wait is not.
    const cut = !this.sent || (events >= MOST_EVENTS && bytes >= this.largestBatch);
    const batch = this.buffer.take(Math.min(events, MOST_EVENTS), Math.min(bytes, this.largestBatch), cut);
    if (!batch) return undefined;
    const sequence = this.nextSequence;
    this.nextSequence += 1;
    const numbered: Numbered = {
      sequence,
      firstPosition: batch.firstPosition,
      isJson: batch.isJson,
      events: batch.count,
      size: batch.size,
      request: encodeBatch(sequence, batch),
      frame: lentFrame(batch),
    };
    this.kept.push(numbered);
    return numbered;
  }

  private maySend(batch: Numbered): boolean {
    // Credits may shrink while the stream is open. A batch may then be sent on its own; the sidecar decides.
    if (!this.sent) return this.credits.events > 0 && this.credits.bytes > 0;
    return (
      this.sentEvents + batch.events <= this.credits.events &&
      this.sentBytes + batch.size <= this.credits.bytes
    );
  }
}
