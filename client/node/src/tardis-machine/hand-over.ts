/** The server's half: passes messages to the publishing thread in blocks, and starts that thread. */
import {
  type BlockLimits,
  blockLimits,
  Feed,
  type FeedOptions,
  type FeedOwner,
  type Obstacle,
} from './feed.js';
import { guarded } from './guard.js';
import { PublishingThread, reasonOf, type ThreadOwner, type ThreadStream } from './publishing-thread.js';
import { say } from './say.js';
import type { HookSettings } from './settings.js';
import type { FromPublisher, StreamDescription } from './thread-messages.js';
import { RETRY_MS, Waiting } from './waiting.js';
import type { Warnings } from './warnings.js';

const BLOCK_MS = 5;
// Pause before the next thread is started. It doubles each time a thread ends soon after its start.
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 64_000;
const SOON_MS = 60_000;

export class HandOver implements FeedOwner, ThreadOwner {
  private readonly feeds = new Set<Feed>();
  private readonly scheduled = new Set<Feed>();
  private readonly waiting: Waiting;
  private readonly block: BlockLimits;
  private thread: PublishingThread | undefined;
  private nextStartMs = 0;
  private pauseMs = FIRST_PAUSE_MS;
  private timer: NodeJS.Timeout | undefined;
  private streams = 0;

  constructor(
    private readonly settings: HookSettings,
    private readonly source: string,
    private readonly warnings: Warnings,
  ) {
    this.waiting = new Waiting(settings.address, settings.maxWaitMs);
    this.block = blockLimits(settings);
  }

  /** Opens a stream; the sidecar learns of it with the first message. */
  open(description: StreamDescription, mayWait: boolean): Feed {
    this.streams += 1;
    const waits = mayWait && this.settings.whenFull === 'wait';
    const feed = new Feed(this, { stream: this.streams, description, waits, block: this.block });
    this.feeds.add(feed);
    return feed;
  }

  /** Events that were handed over and are not acknowledged. */
  get heldEvents(): number {
    return this.thread?.heldEvents ?? 0;
  }

  /** Ends all streams, and blocks this thread until everything is acknowledged or the time is over. */
  flush(timeoutMs: number): void {
    const endMs = performance.now() + timeoutMs;
    this.handOverScheduled();
    while (this.waiting.count && performance.now() < endMs && this.thread?.pause(RETRY_MS)) {
      this.waiting.retry();
    }
    for (const feed of [...this.feeds]) feed.endWithProcess();
    this.thread?.flush(Math.max(0, endMs - performance.now()));
  }

  schedule(feed: Feed): void {
    this.scheduled.add(feed);
    this.timer ??= setTimeout(this.onTimer, BLOCK_MS).unref();
  }

  place(
    { stream, description, waits }: FeedOptions,
    known: ThreadStream | undefined,
    count: number,
    size: number,
  ): ThreadStream | Obstacle {
    this.thread ??= this.startThread();
    const { thread } = this;
    if (!thread) return 'stopped';
    const opened = known?.thread === thread ? known : undefined;
    if (!thread.hasRoom(count, size)) return 'full';
    // Whoever can wait leaves room to others; a live stream takes what there is.
    if (waits && opened && !opened.isWithinShare(count, size)) return 'full';
    return opened ?? thread.open(stream, description) ?? 'crowded';
  }

  dropped(count: number, obstacle: Obstacle): void {
    this.warnings.dropped(count, obstacle);
  }

  startWaiting(feed: Feed): void {
    this.waiting.add(feed);
  }

  stopWaiting(feed: Feed): void {
    this.waiting.remove(feed);
  }

  mayWait(sinceMs: number): boolean {
    return this.waiting.mayWait(sinceMs);
  }

  close(feed: Feed): void {
    this.feeds.delete(feed);
  }

  onMessage(message: FromPublisher): void {
    if (message.kind !== 'refused') this.waiting.setAway(message.kind === 'lost');
    this.warnings.onMessage(message);
  }

  onEnd({ startedMs, heldEvents }: PublishingThread, reason: string): void {
    this.thread = undefined;
    if (performance.now() - startedMs > SOON_MS) this.pauseMs = FIRST_PAUSE_MS;
    this.startLater(reason, heldEvents);
  }

  private readonly onTimer = guarded('timer', () => this.handOverScheduled());

  private startThread(): PublishingThread | undefined {
    if (performance.now() < this.nextStartMs) return undefined;
    try {
      return new PublishingThread(this.settings, this.source, this);
    } catch (error) {
      this.startLater(reasonOf(error), 0);
      return undefined;
    }
  }

  private startLater(reason: string, held: number): void {
    say(
      `publishing stopped: ${reason}. Unacknowledged messages: ${held}. ` +
        `The server keeps running; publishing restarts in ${this.pauseMs / 1_000} s.`,
    );
    this.waiting.setAway(true);
    this.nextStartMs = performance.now() + this.pauseMs;
    this.pauseMs = Math.min(2 * this.pauseMs, LONGEST_PAUSE_MS);
  }

  private handOverScheduled(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    const feeds = [...this.scheduled];
    this.scheduled.clear();
    for (const feed of feeds) feed.handOverSafely();
  }
}
