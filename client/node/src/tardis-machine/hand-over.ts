/** The server's half: collects messages and passes them to the publishing thread in blocks. */
import { guarded } from './guard.js';
import { PublishingThread, reasonOf } from './publishing-thread.js';
import { say } from './say.js';
import type { HookSettings } from './settings.js';
import type { FromPublisher, StreamDescription } from './thread-messages.js';
import type { Warnings } from './warnings.js';

// Passing a block costs the server's thread some microseconds, so a block should carry many messages.
const BLOCK_EVENTS = 256;
const BLOCK_CHARACTERS = 65_536;
const BLOCK_MS = 5;
// Pause before the next thread is started. It doubles each time a thread ends soon after its start.
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 64_000;
const SOON_MS = 60_000;

export class HandOver {
  private readonly waiting = new Set<Feed>();
  private thread: PublishingThread | undefined;
  private nextStartMs = 0;
  private pauseMs = FIRST_PAUSE_MS;
  private timer: NodeJS.Timeout | undefined;
  private streams = 0;

  constructor(
    private readonly settings: HookSettings,
    private readonly source: string,
    private readonly warnings: Warnings,
  ) {}

  /** Opens a stream; the sidecar learns of it with the first message. */
  open(description: StreamDescription): Feed {
    this.streams += 1;
    return new Feed(this, this.streams, description);
  }

  /** Events that were handed over and are not acknowledged. */
  get heldEvents(): number {
    return this.thread?.heldEvents ?? 0;
  }

  /** Blocks this thread until everything is acknowledged or the time is over. */
  flush(timeoutMs: number): void {
    this.handOverWaiting();
    this.thread?.flush(timeoutMs);
  }

  /** Makes sure that a feed's messages do not wait for long. */
  schedule(feed: Feed): void {
    this.waiting.add(feed);
    this.timer ??= setTimeout(this.onTimer, BLOCK_MS).unref();
  }

  /**
   * Returns the thread that takes a block of this size, and knows its stream; if there is none, counts its events as
   * dropped. `known` is the thread that knows the stream already.
   */
  threadFor(
    known: PublishingThread | undefined,
    { stream, description }: { readonly stream: number; readonly description: StreamDescription },
    count: number,
    size: number,
  ): PublishingThread | undefined {
    this.thread ??= this.startThread();
    const { thread } = this;
    if (!thread) this.warnings.missed(count);
    else if (!thread.hasRoom(count, size)) this.warnings.dropped(count);
    else if (thread !== known && !thread.open(stream, description)) this.warnings.crowded(count);
    else {
      thread.reserve(count, size);
      return thread;
    }
    return undefined;
  }

  onMessage(message: FromPublisher): void {
    this.warnings.onMessage(message);
  }

  onEnd({ startedMs, heldEvents }: PublishingThread, reason: string): void {
    this.thread = undefined;
    if (performance.now() - startedMs > SOON_MS) this.pauseMs = FIRST_PAUSE_MS;
    this.startLater(reason, heldEvents);
  }

  private readonly onTimer = guarded('timer', () => this.handOverWaiting());

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
    this.nextStartMs = performance.now() + this.pauseMs;
    this.pauseMs = Math.min(2 * this.pauseMs, LONGEST_PAUSE_MS);
  }

  private handOverWaiting(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    const feeds = [...this.waiting];
    this.waiting.clear();
    for (const feed of feeds) feed.handOverSafely();
  }
}

/** The messages of one stream that have not been handed over yet. */
export class Feed {
  private texts: string[] = [];
  private events = 0;
  private characters = 0;
  /** Position of the first of them. */
  private position = 0;
  /** The thread that knows the stream. */
  private thread: PublishingThread | undefined;

  constructor(
    private readonly owner: HandOver,
    private readonly stream: number,
    private readonly description: StreamDescription,
  ) {}

  /** Takes `count` lines, without the trailing newline. */
  add(text: string, count: number): void {
    this.texts.push(text);
    this.events += count;
    this.characters += text.length;
    if (this.events >= BLOCK_EVENTS || this.characters >= BLOCK_CHARACTERS) this.handOver();
    else if (this.texts.length === 1) this.owner.schedule(this);
  }

  handOver(): void {
    const { stream, description, texts, position, events: count } = this;
    if (!count) return;
    const size = this.characters + texts.length; // with a newline after each
    this.texts = [];
    this.events = 0;
    this.characters = 0;
    this.position += count;
    const thread = this.owner.threadFor(this.thread, { stream, description }, count, size);
    if (!thread) return;
    this.thread = thread;
    thread.post({ kind: 'block', stream, position, count, size, text: texts.join('\n') });
  }

  readonly handOverSafely = guarded('timer', () => this.handOver());

  end(): void {
    this.handOver();
    this.thread?.post({ kind: 'end', stream: this.stream, position: this.position });
    this.thread = undefined;
  }
}
