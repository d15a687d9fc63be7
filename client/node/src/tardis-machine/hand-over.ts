/** The server's half: collects messages and hands them to the publishing thread in blocks, within bounds. */
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { FLUSHED, HELD_BYTES, HELD_EVENTS, newCounters } from './counters.js';
import type { FromPublisher, PublishingTask, StreamDescription, ToPublisher } from './protocol.js';
import type { HookSettings } from './settings.js';
import { say, type Warnings } from './warnings.js';

// A hand-over costs the server's thread some microseconds, so it should carry many messages.
const BLOCK_EVENTS = 256;
const BLOCK_CHARACTERS = 65_536;
const BLOCK_MS = 5;

export class HandOver {
  private readonly counters = newCounters();
  private readonly waiting = new Set<Feed>();
  private worker: Worker | undefined;
  private hasEnded = false;
  private timer: NodeJS.Timeout | undefined;
  private streams = 0;

  constructor(
    private readonly settings: HookSettings,
    private readonly source: string,
    private readonly warnings: Warnings,
  ) {}

  /** Opens a stream; the sidecar hears of it with its first message. */
  open(description: StreamDescription): Feed {
    this.streams += 1;
    return new Feed(this, this.streams, description);
  }

  /** Events that were handed over and are not acknowledged. */
  get heldEvents(): number {
    return Atomics.load(this.counters, HELD_EVENTS);
  }

  /** Waits, and lets nothing else happen in this thread, until everything is acknowledged or the time is over. */
  flush(timeoutMs: number): void {
    this.handOverWaiting();
    if (!this.worker || this.hasEnded || !this.heldEvents) return;
    Atomics.store(this.counters, FLUSHED, 0);
    this.post({ kind: 'flush' });
    Atomics.wait(this.counters, FLUSHED, 0, timeoutMs);
  }

  /** Sees to it that a feed's messages do not wait for long. */
  schedule(feed: Feed): void {
    this.waiting.add(feed);
    this.timer ??= setTimeout(() => this.handOverWaiting(), BLOCK_MS).unref();
  }

  /** Makes a block and hands it over if there is room for it; returns whether there was. */
  take(count: number, size: number, makeBlock: () => ToPublisher): boolean {
    if (this.hasEnded || this.lacksRoom(count, size)) {
      this.warnings.dropped(count);
      return false;
    }
    Atomics.add(this.counters, HELD_EVENTS, count);
    Atomics.add(this.counters, HELD_BYTES, size);
    this.post(makeBlock());
    return true;
  }

  post(message: ToPublisher): void {
    if (this.hasEnded) return;
    this.worker ??= this.startWorker();
    this.worker.postMessage(message);
  }

  private lacksRoom(count: number, size: number): boolean {
    const { bufferEvents, bufferBytes } = this.settings;
    return (
      Atomics.load(this.counters, HELD_EVENTS) + count > bufferEvents ||
      Atomics.load(this.counters, HELD_BYTES) + size > bufferBytes
    );
  }

  private handOverWaiting(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    const feeds = [...this.waiting];
    this.waiting.clear();
    for (const feed of feeds) feed.handOver();
  }

  private startWorker(): Worker {
    const { settings, source, counters } = this;
    const task: PublishingTask = { settings, source, counters };
    // Without the environment no proxy that is meant for the exchanges comes between us and the sidecar.
    const worker = new Worker(join(__dirname, 'worker.js'), { workerData: task, env: {}, execArgv: [] });
    worker.on('message', (message: FromPublisher) => this.warnings.hear(message));
    worker.on('error', (error) => {
      this.hasEnded = true;
      say(`publishing ended: ${error.message}. The server goes on without it.`);
    });
    worker.unref();
    return worker;
  }
}

/** The messages of one stream that were not handed over yet. */
export class Feed {
  private texts: string[] = [];
  private events = 0;
  private characters = 0;
  private skipped = 0;
  private isOpen = false;

  constructor(
    private readonly owner: HandOver,
    private readonly stream: number,
    private readonly description: StreamDescription,
  ) {}

  /** Takes `count` lines, without the last newline. */
  add(text: string, count: number): void {
    this.texts.push(text);
    this.events += count;
    this.characters += text.length;
    if (this.events >= BLOCK_EVENTS || this.characters >= BLOCK_CHARACTERS) this.handOver();
    else if (this.texts.length === 1) this.owner.schedule(this);
  }

  handOver(): void {
    const { events: count, texts } = this;
    if (!count) return;
    const size = this.characters + texts.length; // with a newline behind each
    this.texts = [];
    this.events = 0;
    this.characters = 0;
    const isTaken = this.owner.take(count, size, () => {
      this.openStream();
      const text = texts.join('\n');
      return { kind: 'block', stream: this.stream, skipped: this.skipped, count, size, text };
    });
    this.skipped = isTaken ? 0 : this.skipped + count;
  }

  end(): void {
    this.handOver();
    if (this.isOpen) this.owner.post({ kind: 'end', stream: this.stream });
    this.isOpen = false;
  }

  private openStream(): void {
    if (this.isOpen) return;
    this.isOpen = true;
    this.owner.post({ kind: 'open', stream: this.stream, description: this.description });
  }
}
