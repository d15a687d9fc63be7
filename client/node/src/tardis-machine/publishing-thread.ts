/** The server's view of the publishing thread: what it holds, what it reports, and how it ends. */
import { join } from 'node:path';
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { guarded } from './guard.js';
import type { HookSettings } from './settings.js';
import {
  BUSY_STREAMS,
  type Counters,
  DONE,
  FLUSH,
  HELD_BYTES,
  HELD_EVENTS,
  HELD_STREAMS,
  hold,
  newCounters,
  RUNNING,
} from './shared-counters.js';
import { newSharedText, TextWriter } from './shared-text.js';
import type {
  Block,
  FromPublisher,
  PublishingTask,
  StreamDescription,
  ToPublisher,
} from './thread-messages.js';

/** Is notified by the thread. */
export interface ThreadOwner {
  onMessage(message: FromPublisher): void;
  /** The thread has ended, for whatever reason, and takes nothing more. Called once. */
  onEnd(thread: PublishingThread, reason: string): void;
}

export class PublishingThread {
  readonly startedMs = performance.now();
  private readonly counters = newCounters();
  private readonly sharedText = newSharedText();
  private readonly text = new TextWriter(this.sharedText, this.counters);
  private readonly news = new MessageChannel();
  private readonly worker: Worker;
  private hasEnded = false;

  constructor(
    private readonly settings: HookSettings,
    source: string,
    private readonly owner: ThreadOwner,
  ) {
    const task: PublishingTask = {
      settings,
      source,
      counters: this.counters,
      text: this.sharedText,
      news: this.news.port2,
    };
    this.worker = new Worker(join(__dirname, 'publishing-worker.js'), {
      workerData: task,
      transferList: [task.news],
      // An empty environment, so that a proxy meant for the exchanges is not used for the sidecar.
      env: {},
      execArgv: [],
    });
    const ended = guarded('publishing thread', (reason: unknown) => this.end(reason));
    this.worker.on('error', ended);
    // Also emitted after an error; a thread that ends by itself emits only this.
    this.worker.on('exit', (status) => ended(`its thread ended with status ${status}`));
    this.worker.unref();
    const told = guarded('publishing thread', (message: FromPublisher) => owner.onMessage(message));
    this.news.port1.on('message', told).unref();
  }

  /** Events that were handed over and are not acknowledged. */
  get heldEvents(): number {
    return Atomics.load(this.counters, HELD_EVENTS);
  }

  /** Whether there is room for a block. */
  hasRoom(count: number, size: number): boolean {
    const { bufferEvents, bufferBytes } = this.settings;
    const events = this.heldEvents;
    // A block always fits if nothing else is held: it may be a single large message.
    return (
      !events ||
      (events + count <= bufferEvents && Atomics.load(this.counters, HELD_BYTES) + size <= bufferBytes)
    );
  }

  /**
   * Whether a stream that holds this much leaves the others their share of the buffer. All that hold something have
   * the same, and there is one more, for whoever comes next.
   */
  isShare(events: number, size: number): boolean {
    const { bufferEvents, bufferBytes } = this.settings;
    const shares = Atomics.load(this.counters, BUSY_STREAMS) + 1;
    return events * shares <= bufferEvents && size * shares <= bufferBytes;
  }

  /** Hands over a block, and counts it as held. */
  send(held: Counters, block: Omit<Block, 'text'>, lines: readonly string[]): void {
    hold(this.counters, held, block.count, block.size);
    this.post({ ...block, text: this.text.write(lines, block.size) ?? lines.join('\n') });
  }

  /** Opens a stream; returns undefined if there are too many. */
  open(stream: number, description: StreamDescription): ThreadStream | undefined {
    if (Atomics.load(this.counters, HELD_STREAMS) >= this.settings.bufferStreams) return undefined;
    Atomics.add(this.counters, HELD_STREAMS, 1);
    const held = newCounters();
    this.post({ kind: 'open', stream, description, held });
    return new ThreadStream(this, stream, held);
  }

  post(message: ToPublisher): void {
    if (this.hasEnded) return;
    try {
      this.worker.postMessage(message);
    } catch (error) {
      this.end(error);
      void this.worker.terminate();
    }
  }

  /** Blocks the server's thread for a while; returns false if this one has ended. */
  pause(milliseconds: number): boolean {
    return Atomics.wait(this.counters, FLUSH, RUNNING, milliseconds) === 'timed-out';
  }

  /** Blocks the server's thread until everything is acknowledged or the time is over. */
  flush(timeoutMs: number): void {
    Atomics.compareExchange(this.counters, FLUSH, DONE, RUNNING);
    this.post({ kind: 'flush' });
    Atomics.wait(this.counters, FLUSH, RUNNING, timeoutMs);
    // The port's events would come too late: the process is about to end.
    for (;;) {
      const received = receiveMessageOnPort(this.news.port1) as { message: FromPublisher } | undefined;
      if (!received) return;
      this.owner.onMessage(received.message);
    }
  }

  private end(error: unknown): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.owner.onEnd(this, reasonOf(error));
  }
}

/** A stream that the thread publishes. */
export class ThreadStream {
  constructor(
    readonly thread: PublishingThread,
    private readonly stream: number,
    private readonly held: Counters,
  ) {}

  /** Whether a block leaves the other streams their share of the buffer. */
  isWithinShare(count: number, size: number): boolean {
    const events = Atomics.load(this.held, HELD_EVENTS);
    return !events || this.thread.isShare(events + count, Atomics.load(this.held, HELD_BYTES) + size);
  }

  /** Hands over lines from a position on; each text may be several of them. */
  send(position: number, count: number, size: number, lines: readonly string[]): void {
    this.thread.send(this.held, { kind: 'block', stream: this.stream, position, count, size }, lines);
  }

  /** `position` is that of the message after the last one, handed over or not. */
  end(position: number, isPublished: boolean): void {
    this.thread.post({ kind: 'end', stream: this.stream, position, isPublished });
  }
}

export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
