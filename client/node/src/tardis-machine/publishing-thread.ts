/** The thread that publishes, as the server's thread sees it: what it holds, what it tells, and how it ends. */
import { join } from 'node:path';
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { FLUSH, HELD_BYTES, HELD_EVENTS, newCounters, OVER, UNDER_WAY } from './counters.js';
import type { FromPublisher, PublishingTask, ToPublisher } from './protocol.js';
import type { HookSettings } from './settings.js';

/** What a thread calls back. */
export interface ThreadOwner {
  hear(message: FromPublisher): void;
  /** The thread has ended, whatever was the reason, and takes nothing more. Comes once. */
  ended(thread: PublishingThread, reason: string): void;
}

export class PublishingThread {
  readonly startedMs = performance.now();
  private readonly counters = newCounters();
  private readonly news = new MessageChannel();
  private readonly worker: Worker;
  private hasEnded = false;

  constructor(
    private readonly settings: HookSettings,
    source: string,
    private readonly owner: ThreadOwner,
  ) {
    const task: PublishingTask = { settings, source, counters: this.counters, news: this.news.port2 };
    this.worker = new Worker(join(__dirname, 'worker.js'), {
      workerData: task,
      transferList: [task.news],
      // Without the environment no proxy that is meant for the exchanges comes between us and the sidecar.
      env: {},
      execArgv: [],
    });
    this.worker.on('error', (error: unknown) => this.end(error));
    // Comes after an error too; a thread that ends by itself has none.
    this.worker.on('exit', (status) => this.end(`its thread ended with status ${status}`));
    this.worker.unref();
    this.news.port1.on('message', (message: FromPublisher) => owner.hear(message)).unref();
  }

  /** Events that were handed over and are not acknowledged. */
  get heldEvents(): number {
    return Atomics.load(this.counters, HELD_EVENTS);
  }

  /** Keeps room for a block of so many events; returns whether there is any. */
  hold(count: number, size: number): boolean {
    const { bufferEvents, bufferBytes } = this.settings;
    const events = this.heldEvents;
    // One block alone is never too much: it may be a single message.
    const isFull =
      events > 0 &&
      (events + count > bufferEvents || Atomics.load(this.counters, HELD_BYTES) + size > bufferBytes);
    if (isFull) return false;
    Atomics.add(this.counters, HELD_EVENTS, count);
    Atomics.add(this.counters, HELD_BYTES, size);
    return true;
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

  /** Waits, and lets nothing else happen in the server's thread, until all is acknowledged or the time is over. */
  flush(timeoutMs: number): void {
    Atomics.compareExchange(this.counters, FLUSH, OVER, UNDER_WAY);
    this.post({ kind: 'flush' });
    Atomics.wait(this.counters, FLUSH, UNDER_WAY, timeoutMs);
    // Events would come too late: the process is about to end.
    for (;;) {
      const received = receiveMessageOnPort(this.news.port1) as { message: FromPublisher } | undefined;
      if (!received) return;
      this.owner.hear(received.message);
    }
  }

  private end(error: unknown): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.owner.ended(this, reasonOf(error));
  }
}

export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
