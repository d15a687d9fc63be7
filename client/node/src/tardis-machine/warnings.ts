/** What is not published, and whether there is a connection: told to the operator. */
import type { Obstacle } from './feed.js';
import { guarded } from './guard.js';
import { say } from './say.js';
import type { FromPublisher } from './thread-messages.js';

const INTERVAL_MS = 10_000;

/** Counts what is not published and reports it, at most every ten seconds. */
export class Warnings {
  private readonly droppedNow = { full: 0, crowded: 0, stopped: 0 };
  private refusedNow = 0;
  private total = 0;
  private reason = '';
  private isLost = false;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly address: string) {}

  /** Events were dropped. */
  dropped(count: number, obstacle: Obstacle): void {
    this.droppedNow[obstacle] += count;
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
    const { full, crowded, stopped } = this.droppedNow;
    const parts: string[] = [];
    if (full) parts.push(`${full} dropped because the buffer is full`);
    if (crowded) parts.push(`${crowded} dropped because there are too many streams`);
    if (stopped) parts.push(`${stopped} dropped while publishing was stopped`);
    if (this.refusedNow) parts.push(`${this.refusedNow} refused (last reason: ${this.reason})`);
    Object.assign(this.droppedNow, { full: 0, crowded: 0, stopped: 0 });
    this.refusedNow = 0;
    say(`messages not published to ${this.address}: ${parts.join(', ')}; ${this.total} since the start.`);
  }

  private get hasUnreported(): boolean {
    const { full, crowded, stopped } = this.droppedNow;
    return full + crowded + stopped + this.refusedNow > 0;
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
