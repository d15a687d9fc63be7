/** The messages of one stream that have not been handed over to the publishing thread yet. */
import { guarded } from './guard.js';
import type { ThreadStream } from './publishing-thread.js';
import type { HookSettings } from './settings.js';
import type { StreamDescription } from './thread-messages.js';

// Handing over a block costs the server's thread tens of microseconds, mostly for waking the other thread, so a block
// should carry many messages; but it should be a small part of the buffer, into which it fits as a whole or not at all.
const BLOCK_EVENTS = 1024;
const BLOCK_CHARACTERS = 262_144;
const LARGEST_PART = 1 / 4;

/** How much a feed collects before it hands over. */
export interface BlockLimits {
  readonly events: number;
  readonly characters: number;
}

export function blockLimits({ bufferEvents, bufferBytes }: HookSettings): BlockLimits {
  return {
    events: Math.min(BLOCK_EVENTS, bufferEvents * LARGEST_PART),
    characters: Math.min(BLOCK_CHARACTERS, bufferBytes * LARGEST_PART),
  };
}

/** Why a block cannot be handed over: no room for it, too many streams, or no thread. */
export type Obstacle = 'full' | 'crowded' | 'stopped';

/** What a stream is announced as, and whether it waits for room. */
export interface FeedOptions {
  readonly stream: number;
  readonly description: StreamDescription;
  /** Whether messages that find no room wait; otherwise they are dropped. */
  readonly waits: boolean;
  readonly block: BlockLimits;
}

export interface FeedOwner {
  /** Makes sure that a feed's messages do not wait for long to be handed over. */
  schedule(feed: Feed): void;
  /** Returns the stream that takes a block of this size, or why none does. `known` took the last one. */
  place(
    options: FeedOptions,
    known: ThreadStream | undefined,
    count: number,
    size: number,
  ): ThreadStream | Obstacle;
  dropped(count: number, obstacle: Obstacle): void;
  /** A feed begins to wait for room; it is asked to hand over again until it stops waiting. */
  startWaiting(feed: Feed): void;
  stopWaiting(feed: Feed): void;
  /** Whether a feed that has been waiting since then may go on. */
  mayWait(sinceMs: number): boolean;
  /** A feed ends. */
  close(feed: Feed): void;
}

export class Feed {
  private texts: string[] = [];
  private events = 0;
  private characters = 0;
  /** Position of the first of them. */
  private position = 0;
  private stream: ThreadStream | undefined;
  /** Since when there has been no room; undefined if there is some. */
  private sinceMs: number | undefined;
  private hasGivenUp = false;
  private hasEnded = false;
  private actions: (() => void)[] = [];

  constructor(
    private readonly owner: FeedOwner,
    private readonly options: FeedOptions,
  ) {}

  /** Takes `count` lines, without the trailing newline. */
  add(text: string, count: number): void {
    this.texts.push(text);
    this.events += count;
    this.characters += text.length;
    // Whoever was asked to wait may still send what it has at hand; that goes with the rest.
    if (this.isWaiting) return;
    const { events, characters } = this.options.block;
    if (this.events >= events || this.characters >= characters) this.handOver();
    else if (this.texts.length === 1) this.owner.schedule(this);
  }

  /** Hands over what there is; if there is no room, begins to wait for it, or drops it. */
  handOver(): void {
    if (!this.events) return;
    const size = this.characters + this.texts.length; // with a newline after each
    const place = this.owner.place(this.options, this.stream, this.events, size);
    if (typeof place !== 'string') {
      this.stream = place;
      place.send(this.position, this.events, size, this.texts);
      this.hasGivenUp = false;
      this.clear();
    } else if (this.mayWait()) {
      if (this.isWaiting) return;
      this.sinceMs = performance.now();
      this.owner.startWaiting(this);
    } else {
      // Having waited in vain, it drops the rest too, until there is room again.
      this.hasGivenUp = this.isWaiting;
      this.owner.dropped(this.events, place);
      this.clear();
    }
  }

  readonly handOverSafely = guarded(
    'timer',
    () => this.handOver(),
    () => this.clear(),
  );

  /** Whether the response should wait until there is room. */
  get isWaiting(): boolean {
    return this.sinceMs !== undefined;
  }

  /** How long it has been waiting. */
  get waitedMs(): number {
    return this.sinceMs === undefined ? 0 : performance.now() - this.sinceMs;
  }

  /** Calls back as soon as nothing waits for room, perhaps now. */
  whenRoom(action: () => void): void {
    if (this.isWaiting) this.actions.push(action);
    else action();
  }

  /**
   * Ends the stream; `isPublished` says whether its end is published. What still waits for room has no response that
   * could wait for it, and is dropped.
   */
  end(isPublished: boolean): void {
    this.hasEnded = true;
    this.owner.close(this);
    this.handOver();
    // The end of a stream of which nothing found room says how much that was.
    if (isPublished && this.position) this.stream ??= this.placeForEnd();
    this.stream?.end(this.position, isPublished);
    this.stream = undefined;
  }

  /** Ends the stream because the process does: a live stream ends here, a replay is cut short. */
  endWithProcess(): void {
    this.end(this.options.description.origin === 'realtime');
  }

  private placeForEnd(): ThreadStream | undefined {
    const place = this.owner.place(this.options, undefined, 0, 0);
    return typeof place === 'string' ? undefined : place;
  }

  private mayWait(): boolean {
    if (!this.options.waits || this.hasEnded || this.hasGivenUp) return false;
    return this.owner.mayWait(this.sinceMs ?? performance.now());
  }

  private clear(): void {
    this.position += this.events;
    this.texts = [];
    this.events = 0;
    this.characters = 0;
    if (!this.isWaiting) return;
    this.sinceMs = undefined;
    this.owner.stopWaiting(this);
    const { actions } = this;
    this.actions = [];
    for (const action of actions) action();
  }
}
