/** What the operator is told, on the error stream. */
import { writeSync } from 'node:fs';
import type { FromPublisher } from './protocol.js';

const STANDARD_ERROR = 2;
const INTERVAL_MS = 10_000;

/** Writes one line. At once, because the process may be about to end. */
export function say(text: string): void {
  try {
    writeSync(STANDARD_ERROR, `bronze-sidecar: ${text.replaceAll('\n', ' ')}\n`);
  } catch {
    // Nobody reads it.
  }
}

/** Counts what is not published and says so, at most every ten seconds. */
export class Warnings {
  private droppedNow = 0;
  private missedNow = 0;
  private refusedNow = 0;
  private total = 0;
  private reason = '';
  private isLost = false;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly address: string) {}

  /** There was no room for events. */
  dropped(count: number): void {
    this.droppedNow += count;
    this.soon(count);
  }

  /** There was nobody to publish events. */
  missed(count: number): void {
    this.missedNow += count;
    this.soon(count);
  }

  /** The publishing thread has news. */
  hear(message: FromPublisher): void {
    switch (message.kind) {
      case 'refused':
        this.refusedNow += message.count;
        this.reason = message.reason;
        this.soon(message.count);
        break;
      case 'lost':
        if (!this.isLost)
          say(`no connection to ${this.address}: ${message.reason} Messages are held for it.`);
        this.isLost = true;
        break;
      case 'connected':
        if (this.isLost) say(`connected to ${this.address}.`);
        this.isLost = false;
        break;
    }
  }

  /** Says now what was not said yet. */
  report(): void {
    if (!this.hasSomething) return;
    const parts: string[] = [];
    if (this.droppedNow) parts.push(`${this.droppedNow} dropped because the buffer is full`);
    if (this.missedNow) parts.push(`${this.missedNow} dropped before publishing started again`);
    if (this.refusedNow) parts.push(`${this.refusedNow} refused (the last one: ${this.reason})`);
    this.droppedNow = 0;
    this.missedNow = 0;
    this.refusedNow = 0;
    say(
      `messages that are not published to ${this.address}: ${parts.join(', ')}; ${this.total} since the start.`,
    );
  }

  private get hasSomething(): boolean {
    return this.droppedNow + this.missedNow + this.refusedNow > 0;
  }

  private soon(count: number): void {
    this.total += count;
    if (this.timer) return;
    this.report();
    this.timer = setInterval(() => {
      if (this.hasSomething) {
        this.report();
        return;
      }
      clearInterval(this.timer);
      this.timer = undefined;
    }, INTERVAL_MS).unref();
  }
}
