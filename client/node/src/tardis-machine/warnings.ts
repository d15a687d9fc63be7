/** What is not published, and whether there is a connection: told to the operator. */
import { guarded } from './guard.js';
import { say } from './say.js';
import type { FromPublisher } from './thread-messages.js';

const INTERVAL_MS = 10_000;

/** Counts what is not published and reports it, at most every ten seconds. */
export class Warnings {
  private droppedNow = 0;
  private crowdedNow = 0;
  private missedNow = 0;
  private refusedNow = 0;
  private total = 0;
  private reason = '';
  private isLost = false;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly address: string) {}

  /** Events were dropped because the buffer is full. */
  dropped(count: number): void {
    this.droppedNow += count;
    this.soon(count);
  }

  /** Events were dropped because too many other streams are held. */
  crowded(count: number): void {
    this.crowdedNow += count;
    this.soon(count);
  }

  /** Events were dropped because there was no publishing thread. */
  missed(count: number): void {
    this.missedNow += count;
    this.soon(count);
  }

  /** Handles a message of the publishing thread. */
  onMessage(message: FromPublisher): void {
    switch (message.kind) {
      case 'refused':
        this.refusedNow += message.count;
        this.reason = message.reason;
        this.soon(message.count);
        break;
      case 'lost':
        if (!this.isLost) say(`no connection to ${this.address}: ${message.reason} Messages are buffered.`);
        this.isLost = true;
        break;
      case 'connected':
        if (this.isLost) say(`connected to ${this.address}.`);
        this.isLost = false;
        break;
    }
  }

  /** Reports now what was not reported yet. */
  report(): void {
    if (!this.hasUnreported) return;
    const parts: string[] = [];
    if (this.droppedNow) parts.push(`${this.droppedNow} dropped because the buffer is full`);
    if (this.crowdedNow) parts.push(`${this.crowdedNow} dropped because there are too many streams`);
    if (this.missedNow) parts.push(`${this.missedNow} dropped while publishing was stopped`);
    if (this.refusedNow) parts.push(`${this.refusedNow} refused (last reason: ${this.reason})`);
    this.droppedNow = 0;
    this.crowdedNow = 0;
    this.missedNow = 0;
    this.refusedNow = 0;
    say(`messages not published to ${this.address}: ${parts.join(', ')}; ${this.total} since the start.`);
  }

  private get hasUnreported(): boolean {
    return this.droppedNow + this.crowdedNow + this.missedNow + this.refusedNow > 0;
  }

  private soon(count: number): void {
    this.total += count;
    if (this.timer) return;
    this.report();
    this.timer = setInterval(this.onInterval, INTERVAL_MS).unref();
  }

  private readonly onInterval = guarded('timer', () => {
    if (this.hasUnreported) {
      this.report();
      return;
    }
    clearInterval(this.timer);
    this.timer = undefined;
  });
}
