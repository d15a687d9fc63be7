/** The server's half: collects messages and hands them to the publishing thread in blocks, within bounds. */
import { join } from 'node:path';
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { FLUSH, HELD_BYTES, HELD_EVENTS, newCounters, OVER, UNDER_WAY } from './counters.js';
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
  private readonly news = new MessageChannel();
  private worker: Worker | undefined;
  private hasEnded = false;
  private timer: NodeJS.Timeout | undefined;
  private streams = 0;

  constructor(
    private readonly settings: HookSettings,
    private readonly source: string,
    private readonly warnings: Warnings,
  ) {
    this.news.port1.on('message', (message: FromPublisher) => warnings.hear(message)).unref();
  }

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
    if (!this.worker || this.hasEnded) return;
    Atomics.compareExchange(this.counters, FLUSH, OVER, UNDER_WAY);
    this.post({ kind: 'flush' });
    Atomics.wait(this.counters, FLUSH, UNDER_WAY, timeoutMs);
    // Events would come too late: the process is about to end.
    for (;;) {
      const received = receiveMessageOnPort(this.news.port1) as { message: FromPublisher } | undefined;
      if (!received) return;
      this.warnings.hear(received.message);
    }
  }

  /** Sees to it that a feed's messages do not wait for long. */
  schedule(feed: Feed): void {
    this.waiting.add(feed);
    this.timer ??= setTimeout(() => this.handOverWaiting(), BLOCK_MS).unref();
  }

  /** Makes a block and hands it over if there is room for it; returns whether there was. */
  take(count: number, size: number, makeBlock: () => ToPublisher): boolean {
    if (this.hasEnded) return false;
    if (this.lacksRoom(count, size)) {
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
    try {
      this.worker ??= this.startWorker();
      this.worker.postMessage(message);
    } catch (error) {
      this.giveUp(error);
    }
  }

  private lacksRoom(count: number, size: number): boolean {
    const { bufferEvents, bufferBytes } = this.settings;
    const events = Atomics.load(this.counters, HELD_EVENTS);
    // One block alone is never too much: it may be a single message.
    return (
      events > 0 &&
      (events + count > bufferEvents || Atomics.load(this.counters, HELD_BYTES) + size > bufferBytes)
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
    const task: PublishingTask = { settings, source, counters, news: this.news.port2 };
    const worker = new Worker(join(__dirname, 'worker.js'), {
      workerData: task,
      transferList: [task.news],
      // Without the environment no proxy that is meant for the exchanges comes between us and the sidecar.
      env: {},
      execArgv: [],
    });
    worker.on('error', (error: unknown) => this.giveUp(error));
    // Comes after an error too; a thread that ends by itself has none.
    worker.on('exit', (status) => this.giveUp(`its thread ended with status ${status}`));
    worker.unref();
    return worker;
  }

  /** There is nobody to publish; what comes from now on is not even counted. */
  private giveUp(error: unknown): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    const held = Atomics.exchange(this.counters, HELD_EVENTS, 0);
    const reason = error instanceof Error ? error.message : String(error);
    say(
      `publishing ended: ${reason}. The server goes on without it; ${held} messages were not acknowledged.`,
    );
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
