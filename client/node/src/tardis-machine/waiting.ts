/** The replays whose responses wait for room in the buffer: when they try again, and for how long. */
import type { Feed } from './feed.js';
import { guarded } from './guard.js';
import { say } from './say.js';

/** How often there may be room. */
export const RETRY_MS = 5;
/** How long a replay waits for a sidecar that is away. */
const LONGEST_ABSENCE_MS = 30_000;
const NOTICE_MS = 60_000;

export class Waiting {
  private readonly feeds = new Set<Feed>();
  private timer: NodeJS.Timeout | undefined;
  private noticeTimer: NodeJS.Timeout | undefined;
  private hasWaited = false;
  /** Since when there has been no connection to the sidecar. */
  private awaySinceMs: number | undefined;

  constructor(
    private readonly address: string,
    /** Undefined if a replay waits for as long as there is a sidecar. */
    private readonly longestMs: number | undefined,
  ) {}

  get count(): number {
    return this.feeds.size;
  }

  add(feed: Feed): void {
    this.feeds.add(feed);
    this.timer ??= setTimeout(this.onTimer, RETRY_MS).unref();
    this.hasWaited = true;
    if (this.noticeTimer) return;
    say(`the buffer is full: replays go on as fast as ${this.address} takes their messages.`);
    this.noticeTimer = setInterval(this.onNotice, NOTICE_MS).unref();
  }

  remove(feed: Feed): void {
    this.feeds.delete(feed);
  }

  /** Whether a replay that has been waiting since then may wait longer. */
  mayWait(sinceMs: number): boolean {
    const now = performance.now();
    if (this.longestMs !== undefined) return now - sinceMs < this.longestMs;
    return this.awaySinceMs === undefined || now - this.awaySinceMs < LONGEST_ABSENCE_MS;
  }

  /** The sidecar is there, or not. */
  setAway(isAway: boolean): void {
    this.awaySinceMs = isAway ? (this.awaySinceMs ?? performance.now()) : undefined;
  }

  /** Lets each try again, those that have waited longest first. */
  retry(): void {
    for (const feed of [...this.feeds]) feed.handOverSafely();
  }

  private readonly onTimer = guarded('timer', () => {
    this.timer = undefined;
    this.retry();
    if (this.feeds.size) this.timer ??= setTimeout(this.onTimer, RETRY_MS).unref();
  });

  private readonly onNotice = guarded('timer', () => {
    if (!this.hasWaited) {
      clearInterval(this.noticeTimer);
      this.noticeTimer = undefined;
      return;
    }
    this.hasWaited = this.feeds.size > 0;
    const longest = Math.max(0, ...[...this.feeds].map((feed) => feed.waitedMs));
    say(
      `replays have been waiting for ${this.address}: ${this.feeds.size} now, ` +
        `the longest for ${Math.round(longest / 1_000)} s.`,
    );
  });
}
