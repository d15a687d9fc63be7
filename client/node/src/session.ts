/** One publisher's stream of events, from the buffer to the last acknowledgement. */
import { EventBuffer } from './buffer.js';
import { Connection } from './connection.js';
import type { Item } from './encoding.js';
import type { Failure } from './errors.js';
import { PublishError } from './errors.js';
import type { Settings } from './options.js';
import { Outcomes, type Stats } from './outcomes.js';
import type { Done } from './protocol.js';
import { Throttle } from './throttle.js';
import { timerDelay, timing } from './timing.js';
import { Window } from './window.js';

/** What a publisher emits. */
export interface PublisherEvents {
  /** The stream is open, for the first time or again. */
  connect: [];
  /** The stream was lost or cannot be opened. Emitted once per loss; the client keeps trying. */
  disconnect: [reason: string];
  /** The sidecar refused the stream for good. From now on every event is dropped. */
  refuse: [reason: string];
  /** Events dropped since the last time, and the reason for the last one. At most about once a second. */
  drop: [count: number, reason: string];
  /** An event was rejected or failed permanently. */
  failure: [failure: Failure];
}

/** Calls the listeners; returns whether there were any. */
export type Tell = <Name extends keyof PublisherEvents>(
  name: Name,
  ...args: PublisherEvents[Name]
) => boolean;

interface Waiter {
  readonly item: Item;
  readonly timer: NodeJS.Timeout | undefined;
  /** Adds the item, whether or not there is room, and settles the caller's promise. */
  readonly add: () => void;
}

interface Flush {
  readonly target: number;
  readonly done: () => void;
}

export class Session {
  readonly buffer: EventBuffer;
  private readonly window: Window;
  private readonly connection: Connection;
  private readonly outcomes: Outcomes;
  private readonly reports = new Throttle(timing.report, () => this.report());
  private readonly running: Promise<void>;
  private readonly waiters: Waiter[] = [];
  private readonly flushes = new Set<Flush>();
  private batchTimer: NodeJS.Timeout | undefined;
  /** Runs while somebody waits for room, from the last acknowledgement on. */
  private waitTimer: NodeJS.Timeout | undefined;
  private isClosed = false;
  private isDetached = false;
  private hasEnded = false;
  private refusal = '';

  constructor(
    private readonly settings: Settings,
    private readonly tell: Tell,
  ) {
    this.buffer = new EventBuffer(settings, { wake: () => this.checkBuffer(), onRoom: () => this.admit() });
    this.window = new Window(this.buffer);
    this.outcomes = new Outcomes((failure) => tell('failure', failure));
    this.connection = new Connection(settings, this.window, {
      onOpen: () => tell('connect'),
      onLost: (reason) => {
        tell('disconnect', reason) || warn(`There is no stream to ${settings.address}: ${reason}`);
      },
      onDone: (done) => this.onDone(done),
    });
    this.running = this.run();
  }

  get stats(): Stats {
    const { buffer, outcomes } = this;
    return {
      accepted: buffer.accepted,
      acknowledged: this.window.acknowledgedEvents,
      published: outcomes.published,
      filtered: outcomes.filtered,
      rejected: outcomes.rejected,
      failed: outcomes.failed,
      dropped: buffer.drops.total,
      reconnects: Math.max(0, this.connection.timesOpened - 1),
      bufferedEvents: buffer.events,
      bufferedBytes: buffer.bytes,
    };
  }

  /** Adds an item when there is room, in order of arrival, or when `maxWaitMs` is over. */
  addWhenRoom(item: Item): boolean | Promise<boolean> {
    if (!this.waiters.length && !this.buffer.isWorthWaiting(item)) return this.buffer.add(item);
    return new Promise((resolve, reject) => {
      const add = () => {
        try {
          resolve(this.buffer.add(item));
        } catch (error) {
          reject(error);
        }
      };
      const { maxWaitMs } = this.settings;
      const giveUp = () => {
        this.waiters.splice(this.waiters.indexOf(waiter), 1);
        add();
        this.admit();
      };
      const timer = maxWaitMs === Infinity ? undefined : setTimeout(giveUp, timerDelay(maxWaitMs));
      const waiter = { item, timer, add };
      this.waiters.push(waiter);
      this.waitTimer ??= setTimeout(() => this.warnOfWaiting(), timing.warning);
    });
  }

  /** Does nothing once closed: `close` has already reported everything. */
  async flush(timeoutMs: number | undefined): Promise<void> {
    if (!this.isClosed) await this.deliver(timeoutMs);
  }

  /**
   * Delivers what is left within the timeout, then closes the stream in any case. If all is done and the producer
   * has `ended`, the sidecar is told so first.
   */
  async close(timeoutMs: number, ended: boolean): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    this.buffer.refuse('The publisher is closed.');
    const deadline = performance.now() + timeoutMs;
    try {
      await this.deliver(timeoutMs);
    } finally {
      if (ended && this.canTellEnd()) {
        await this.tellEnd(Math.max(deadline - performance.now(), timing.finish));
      }
      await this.stop();
    }
  }

  /** Whether there is a stream that has had messages, all of which are done. */
  private canTellEnd(): boolean {
    const { position } = this.buffer;
    const isDone = !this.hasEnded && this.window.oldestPosition >= position;
    return isDone && position > 0 && this.connection.takesEnd;
  }

  private async tellEnd(timeoutMs: number): Promise<void> {
    const position = this.buffer.end();
    this.window.end(position);
    await this.waitUntilDone(position + 1, timeoutMs);
    if (this.window.oldestPosition <= position) {
      warn(`The sidecar has not acknowledged the stream's end. ${this.obstacle()}`);
    }
  }

  private async run(): Promise<void> {
    try {
      this.refusal = await this.connection.run();
    } catch (error) {
      this.refusal = `The client failed: ${String(error)}.`;
    }
    this.hasEnded = true;
    if (this.refusal) {
      this.buffer.refuse(this.refusal);
      this.tell('refuse', this.refusal) ||
        warn(`Publishing to ${this.settings.address} has stopped: ${this.refusal}`);
    }
    this.settleFlushes();
  }

  private async deliver(timeoutMs: number | undefined): Promise<void> {
    const target = this.buffer.position;
    this.buffer.markDue();
    await this.waitUntilDone(target, timeoutMs);
    this.throwIfUndelivered(target);
  }

  /** Waits until everything before a position is acknowledged, or never will be, or the time is over. */
  private async waitUntilDone(target: number, timeoutMs: number | undefined): Promise<void> {
    this.connection.work();
    if (!this.isPending(target)) return;
    await new Promise<void>((resolve) => {
      const timer =
        timeoutMs === undefined ? undefined : setTimeout(() => flush.done(), timerDelay(timeoutMs));
      const flush: Flush = {
        target,
        done: () => {
          clearTimeout(timer);
          this.flushes.delete(flush);
          resolve();
        },
      };
      this.flushes.add(flush);
    });
  }

  private async stop(): Promise<void> {
    if (!this.isPending(this.buffer.position) && this.connection.isOpen) {
      this.connection.finish();
      const timer = setTimeout(() => this.connection.stop(), timing.finish);
      await this.running;
      clearTimeout(timer);
    }
    this.connection.stop();
    await this.running;
    this.isDetached = true;
    clearTimeout(this.batchTimer);
    this.reports.finish();
    this.settleFlushes();
  }

  /** Acts on the buffer's state: a batch to send now or soon, drops to report. */
  private checkBuffer(): void {
    if (this.isDetached) return;
    if (this.buffer.hasBatch || this.window.isIdle) this.connection.work();
    if (this.buffer.isTimed && !this.batchTimer) {
      this.batchTimer = setTimeout(() => this.onBatchTimer(), timerDelay(this.settings.batchDelayMs));
    }
    if (this.buffer.drops.unreported) {
      this.reports.ask();
      this.settleFlushes();
    }
  }

  private onBatchTimer(): void {
    this.batchTimer = undefined;
    this.buffer.markDue();
    this.checkBuffer();
  }

  private warnOfWaiting(): void {
    const why = this.refusal || this.connection.trouble || 'The sidecar is connected.';
    const { address } = this.settings;
    warn(
      `Publishing to ${address} waits for room: nothing was acknowledged for ${timing.warning / 1000} s. ${why}`,
    );
    this.waitTimer = setTimeout(() => this.warnOfWaiting(), timing.warning);
  }

  /** Admits waiting items in order of arrival. */
  private admit(): void {
    for (
      let first = this.waiters[0];
      first && !this.buffer.isWorthWaiting(first.item);
      first = this.waiters[0]
    ) {
      this.waiters.shift();
      clearTimeout(first.timer);
      first.add();
    }
    this.waitTimer?.refresh();
    if (!this.waiters.length) {
      clearTimeout(this.waitTimer);
      this.waitTimer = undefined;
    }
  }

  private onDone(done: Done): void {
    this.outcomes.add(done);
    if (this.outcomes.isUnreported) this.reports.ask();
    this.settleFlushes();
  }

  private report(): void {
    const failures = this.outcomes.takeReport();
    if (failures) warn(failures);
    const dropped = this.buffer.drops.takeUnreported();
    const { reason } = this.buffer.drops;
    if (dropped) this.tell('drop', dropped, reason) || warn(`${dropped} events were dropped: ${reason}`);
    this.settleFlushes();
  }

  private isPending(target: number): boolean {
    return !this.hasEnded && this.window.oldestPosition < target;
  }

  /** Ends the flushes that have nothing left to wait for. */
  private settleFlushes(): void {
    for (const flush of this.flushes) if (!this.isPending(flush.target)) flush.done();
  }

  private throwIfUndelivered(target: number): void {
    const unacknowledged = this.window.oldestPosition < target ? this.buffer.events : 0;
    const dropped = this.buffer.drops.takeSinceFlush();
    const { failed, failures } = this.outcomes.takeFailures();
    if (!unacknowledged && !dropped && !failed) return;
    const reason = unacknowledged ? this.obstacle() : dropped ? this.buffer.drops.reason : '';
    throw new PublishError({ unacknowledged, dropped, failed, failures, reason });
  }

  private obstacle(): string {
    if (this.refusal || this.connection.trouble) return this.refusal || this.connection.trouble;
    if (!this.connection.isOpen) return 'The sidecar has not opened the stream yet.';
    return 'The sidecar has not acknowledged them yet.';
  }
}

/** For events without a listener. */
export function warn(text: string): void {
  process.emitWarning(text, 'BronzeSidecarWarning');
}
