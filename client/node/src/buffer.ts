/** Events waiting to be sent: bounded, cut into batches, each event at its position in the stream. */
import { type Item, splitLines } from './encoding.js';
import type { Settings } from './options.js';
import { Queue } from './queue.js';

/** Unsent events at contiguous positions. */
export class Batch {
  items: Item[] = [];
  /** Number of events in all items. */
  count = 0;
  size = 0;

  constructor(
    public firstPosition: number,
    /** Undefined if there are events of both kinds; then every item is a single event. */
    public isJson: boolean | undefined,
  ) {}

  get hasBlocks(): boolean {
    return this.items.length < this.count;
  }

  push(item: Item): void {
    this.items.push(item);
    this.count += item.count;
    this.size += item.size;
  }

  /** Splits the first items off into a batch of their own. */
  cut(items: number): Batch {
    const part = new Batch(this.firstPosition, this.isJson);
    for (const item of this.items.splice(0, items)) part.push(item);
    this.firstPosition += part.count;
    this.count -= part.count;
    this.size -= part.size;
    return part;
  }

  /** Returns how many of the first items fit within the limits. */
  countWithin(events: number, size: number): number {
    let [leftEvents, leftSize] = [events, size];
    const tooMuch = this.items.findIndex((item) => {
      leftEvents -= item.count;
      leftSize -= item.size;
      return leftEvents < 0 || leftSize < 0;
    });
    return tooMuch < 0 ? this.items.length : tooMuch;
  }
}

/** How many events were dropped, and the reason for the last one. */
export class Drops {
  total = 0;
  unreported = 0;
  reason = '';
  private sinceFlush = 0;

  add(count: number, reason: string): void {
    this.total += count;
    this.sinceFlush += count;
    this.unreported += count;
    this.reason = reason;
  }

  /** Returns the drops that have not been reported yet, and marks them as reported. */
  takeUnreported(): number {
    const count = this.unreported;
    this.unreported = 0;
    return count;
  }

  takeSinceFlush(): number {
    const count = this.sinceFlush;
    this.sinceFlush = 0;
    return count;
  }
}

/** Is notified of a buffer's changes. */
export interface BufferOwner {
  /** There is work: a batch is full or ended early, a new batch got its first event, or events were dropped. */
  wake(): void;
  /** There may be room for those who wait. */
  onRoom(): void;
}

/**
 * Takes events at the cost of an array append, and hands them out in batches.
 *
 * Events that were handed out count towards its limits until they are released.
 */
export class EventBuffer {
  /** Position of the next event. */
  position = 0;
  /** Events held here, or handed out and not released. */
  events = 0;
  bytes = 0;
  /** Why nothing is accepted anymore; empty while events are accepted. */
  refusal = '';
  /** Whether `markDue` is going to be called soon. */
  isTimed = false;
  readonly drops = new Drops();

  private readonly full = new Queue<Batch>();
  private open = new Batch(0, false);
  private isDue = false;
  private skipped = 0;
  private largestEvent: number;

  constructor(
    private readonly settings: Settings,
    private readonly owner: BufferOwner,
  ) {
    this.largestEvent = settings.bufferBytes;
  }

  /**
   * Takes an item at the next positions, or drops it and returns false.
   *
   * Throws a RangeError for an item that is too large to ever be sent. The positions are used up either way.
   */
  add(item: Item): boolean {
    if (!this.mayEverFit(item)) {
      this.skip(item.count);
      throw new RangeError(this.tooLarge(item));
    }
    if (this.lacksRoom(item) && !this.makeRoom(item)) {
      this.skip(item.count);
      this.drop(item.count, this.refusal || 'The buffer is full.');
      return false;
    }
    if (this.open.isJson !== item.isJson) this.mix(item);
    this.open.push(item);
    this.position += item.count;
    this.events += item.count;
    this.bytes += item.size;
    if (this.open.count >= this.settings.batchEvents || this.open.size >= this.settings.batchBytes) {
      this.closeBatch();
      this.owner.wake();
    } else if (!this.isTimed) {
      this.isTimed = true;
      this.owner.wake();
    }
    return true;
  }

  /** Uses up positions without events. */
  skip(count: number): void {
    this.endEarly();
    this.skipped += count;
    this.position += count;
    this.open.firstPosition = this.position;
  }

  /** Whether there is no room for an item now, but may be later. */
  isWorthWaiting(item: Item): boolean {
    return this.lacksRoom(item) && this.mayEverFit(item) && !this.refusal;
  }

  /**
   * Hands out the oldest batch that is full or due, if it is within the limits. If it is not and `mayCut` is set,
   * hands out the part that is. An event larger than the largest limit so far is dropped.
   */
  take(events: number, size: number, mayCut: boolean): Batch | undefined {
    for (;;) {
      const batch = this.oldest();
      if (!batch) return undefined;
      if (batch.count <= events && batch.size <= size) return this.full.shift();
      if (!mayCut || events < 1 || size < 1) return undefined;
      const whole = batch.countWithin(events, size);
      if (whole) return batch.cut(whole);
      if (!this.breakUpFirst(batch)) return undefined;
    }
  }

  /** Takes a batch back that was handed out; it is the oldest again. */
  putBack(batch: Batch): void {
    this.full.unshift(batch);
  }

  /** Makes room: this much of what was handed out is done. */
  release(events: number, size: number): void {
    this.events -= events;
    this.bytes -= size;
    this.owner.onRoom();
  }

  /** Allows the batch that is being filled to be taken as it is. */
  markDue(): void {
    this.isTimed = false;
    this.isDue = this.open.count > 0;
  }

  /** Refuses larger events from now on: they could never be sent. */
  limitEvent(size: number): void {
    this.largestEvent = Math.min(this.settings.bufferBytes, size);
  }

  /** Accepts nothing from now on; events that are already here stay. */
  refuse(reason: string): void {
    this.refusal ||= reason;
    this.owner.onRoom();
  }

  /** Uses up the position of the stream's end; returns it. */
  end(): number {
    this.skip(1);
    return this.position - 1;
  }

  /** Number of events that were accepted. */
  get accepted(): number {
    return this.position - this.skipped;
  }

  /** Whether there is something to take. */
  get hasBatch(): boolean {
    return this.full.length > 0 || this.isDue;
  }

  /** Position of the oldest event that is here, or of the next event if there is none. */
  get oldestPosition(): number {
    return (this.full.first ?? this.open).firstPosition;
  }

  /** Makes progress with an item that does not fit: returns true if it was split or dropped. */
  private breakUpFirst(batch: Batch): boolean {
    const first = batch.items[0];
    if (!first) return false;
    if (first.count > 1) {
      const lines = splitLines(first);
      if (lines.length) batch.items = [...lines, ...batch.items.slice(1)];
      else this.giveUp(batch.cut(1), 'A block does not have the announced number of lines.');
    } else if (first.size > this.largestEvent) {
      this.giveUp(batch.cut(1), 'The event is larger than the sidecar accepts.');
    } else {
      return false;
    }
    if (!batch.count) this.full.shift();
    return true;
  }

  private mayEverFit(item: Item): boolean {
    // A block can be cut into its lines, so only the buffer limits it.
    const largest = item.count > 1 ? this.settings.bufferBytes : this.largestEvent;
    return item.size <= largest && item.count <= this.settings.bufferEvents;
  }

  private tooLarge(item: Item): string {
    if (item.count === 1) {
      return `The event has ${item.size} bytes; at most ${this.largestEvent} can be sent.`;
    }
    const { bufferEvents, bufferBytes } = this.settings;
    return (
      `The block has ${item.count} events and ${item.size} bytes; ` +
      `the buffer holds ${bufferEvents} and ${bufferBytes}.`
    );
  }

  private closeBatch(): void {
    if (this.open.count) {
      this.full.push(this.open);
      this.open = new Batch(this.position, this.open.isJson);
      this.isDue = false;
    }
  }

  /** Closes a batch that cannot grow anymore, although it is not full. */
  private endEarly(): void {
    const hadBatch = this.full.length > 0;
    this.closeBatch();
    if (this.full.length && !hadBatch) this.owner.wake();
  }

  /** Prepares for an item of another kind than the last; a block stays among its kind, so that it travels as it is. */
  private mix(item: Item): void {
    if (item.count > 1 || this.open.hasBlocks) this.endEarly();
    this.open.isJson = this.open.count ? undefined : item.isJson;
  }

  private oldest(): Batch | undefined {
    if (!this.full.length && this.isDue) {
      this.closeBatch();
    }
    return this.full.first;
  }

  private lacksRoom(item: Item): boolean {
    return (
      this.refusal !== '' ||
      this.events + item.count > this.settings.bufferEvents ||
      this.bytes + item.size > this.settings.bufferBytes
    );
  }

  private makeRoom(item: Item): boolean {
    if (this.settings.onFull !== 'dropOldest' || this.refusal) return false;
    this.closeBatch();
    while (this.full.first && this.lacksRoom(item)) {
      const oldest = this.full.shift();
      if (oldest) this.giveUp(oldest, 'The buffer is full.');
    }
    return !this.lacksRoom(item);
  }

  private giveUp(batch: Batch, reason: string): void {
    this.events -= batch.count;
    this.bytes -= batch.size;
    this.drop(batch.count, reason);
  }

  private drop(count: number, reason: string): void {
    const isFirst = !this.drops.unreported;
    this.drops.add(count, reason);
    if (isFirst) this.owner.wake();
  }
}
