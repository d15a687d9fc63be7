/** The publishing half, in its own thread: one publisher per stream. */
import './worker-exit.js'; // first, so that it works even if another module cannot be loaded
import { parentPort, workerData } from 'node:worker_threads';
import { describeFailure } from '../errors.js';
import type { Frame } from '../frames.js';
import { type Options, settle } from '../options.js';
import { Publisher } from '../publisher.js';
import { Queue } from '../queue.js';
import { type Counters, DONE, endFlush, HELD_STREAMS, release } from './shared-counters.js';
import { TextReader } from './shared-text.js';
import type {
  Block,
  FromPublisher,
  PublishingTask,
  StreamDescription,
  ToPublisher,
} from './thread-messages.js';

const CHECK_MS = 10;
const REPORT_MS = 1_000;

const { settings, source, counters, text: sharedText, news } = workerData as PublishingTask;
const texts = new TextReader(sharedText, counters);
const streams = new Map<number, PublishedStream>();
/** Streams that are being closed. */
const closing = new Set<Promise<void>>();
let checkTimer: NodeJS.Timeout | undefined;
let reportTimer: NodeJS.Timeout | undefined;
let refused = 0;
let reason = '';

/** One stream's publisher, and the blocks that are not acknowledged. */
class PublishedStream {
  private readonly publisher: Publisher;
  private readonly blocks = new Queue<{ readonly count: number; readonly size: number }>();
  private events = 0;
  private position = 0;
  private hasEnded = false;
  /** Whether the sidecar must be told of the end. */
  private owesEnd = false;
  private isConnected = false;
  private isRefused = false;
  /** Resolves when the sidecar has opened the stream for the first time, or refused it. */
  private readonly answered: Promise<void>;

  constructor(
    description: StreamDescription,
    private readonly held: Counters,
  ) {
    const { address, tls, tlsCaFile, tlsCertFile, tlsKeyFile } = settings;
    const options: Options = {
      ...description,
      source,
      // The server's half enforces the limits, over all streams.
      bufferEvents: Number.POSITIVE_INFINITY,
      bufferBytes: Number.POSITIVE_INFINITY,
      batchDelayMs: 0, // blocks have waited already
      // When a stream is closed only its end is left, and that is sent until it is acknowledged, like all before it.
      closeTimeoutMs: Number.POSITIVE_INFINITY,
      tls,
      tlsCaFile,
      tlsCertFile,
      tlsKeyFile,
    };
    // Not with `connect`, which throws if a TLS file cannot be read: the files were there when the server started,
    // and if they are being replaced right now, the next attempt finds them.
    this.publisher = new Publisher(settle(address, options));
    this.publisher.on('drop', (count, why) => report(count, why));
    this.publisher.on('failure', (failure) => report(1, describeFailure(failure)));
    this.answered = new Promise((resolve) => {
      this.publisher.once('connect', () => resolve());
      this.publisher.once('refuse', () => resolve());
    });
    this.publisher.on('refuse', (why) => this.giveUp(why));
    this.publisher.on('connect', () => {
      this.isConnected = true;
      post({ kind: 'connected' });
    });
    this.publisher.on('disconnect', (why) => {
      this.isConnected = false;
      post({ kind: 'lost', reason: why });
    });
  }

  add({ position, count, size }: Block, text: string | Frame): void {
    this.skipTo(position);
    this.position = position + count;
    if (!this.publish(text, count)) {
      release(counters, this.held, count, size);
      return;
    }
    this.blocks.push({ count, size });
    this.events += count;
    checkSoon();
  }

  /** Leaves a gap for messages that were dropped before they got here. */
  private skipTo(position: number): void {
    if (position > this.position) this.publisher.skip(position - this.position);
    this.position = position;
  }

  end(position: number, isPublished: boolean): void {
    this.skipTo(position);
    this.owesEnd = isPublished && !this.isRefused;
    this.hasEnded = true;
    checkSoon();
  }

  /** Releases what the sidecar is done with; returns true if the stream is complete. */
  releaseDone(): boolean {
    // Nothing is acknowledged meanwhile, nor can the end be told; and there may be many streams.
    if (!this.isConnected && (this.events || this.owesEnd)) return false;
    const { bufferedEvents } = this.publisher.stats;
    for (let block = this.blocks.first; block; block = this.blocks.first) {
      if (this.events - block.count < bufferedEvents) break;
      this.blocks.shift();
      this.events -= block.count;
      release(counters, this.held, block.count, block.size);
    }
    return this.hasEnded && !this.events;
  }

  /** The sidecar refused the stream: releases everything that is held. */
  private giveUp(why: string): void {
    this.isRefused = true;
    this.owesEnd = false;
    report(this.publisher.stats.bufferedEvents, why);
    for (let block = this.blocks.shift(); block; block = this.blocks.shift())
      release(counters, this.held, block.count, block.size);
    this.events = 0;
  }

  get isWaiting(): boolean {
    return this.events > 0 || this.hasEnded;
  }

  private publish(text: string | Frame, count: number): boolean {
    try {
      return typeof text === 'string'
        ? this.publisher.publishLines(text, count)
        : this.publisher.publishFrame(text, count);
    } catch (error) {
      report(count, String(error));
      return false;
    }
  }

  /** Resolves when everything is acknowledged and, if the stream has ended, that can be told. */
  async flush(): Promise<void> {
    await Promise.allSettled([this.publisher.flush(), this.owesEnd && this.answered]);
  }

  async close(): Promise<void> {
    await this.publisher.close(undefined, { ended: this.owesEnd });
  }
}

function checkSoon(): void {
  checkTimer ??= setTimeout(checkStreams, CHECK_MS);
}

function checkStreams(): void {
  checkTimer = undefined;
  let isWaiting = false;
  for (const [number, stream] of streams) {
    if (!stream.releaseDone()) {
      isWaiting ||= stream.isWaiting;
      continue;
    }
    streams.delete(number);
    // What was not delivered has been reported already.
    const closed = stream.close().catch(() => undefined);
    closing.add(closed);
    void closed.then(() => {
      closing.delete(closed);
      Atomics.sub(counters, HELD_STREAMS, 1);
    });
  }
  if (isWaiting) checkSoon();
}

async function flush(): Promise<void> {
  await Promise.all([...streams.values()].map((stream) => stream.flush()));
  checkStreams();
  // The end of a stream travels as it is closed.
  await Promise.all(closing);
  reportRefused();
  endFlush(counters, DONE);
}

/** Events may be refused one by one; they are reported to the server's thread together. */
function report(count: number, why: string): void {
  refused += count;
  reason = why;
  reportTimer ??= setTimeout(reportRefused, REPORT_MS);
}

function reportRefused(): void {
  clearTimeout(reportTimer);
  reportTimer = undefined;
  if (refused) post({ kind: 'refused', count: refused, reason });
  refused = 0;
}

function post(message: FromPublisher): void {
  news.postMessage(message);
}

function textOf({ text }: Block): string | Frame {
  return typeof text === 'string' ? text : texts.read(text);
}

parentPort?.on('message', (message: ToPublisher) => {
  switch (message.kind) {
    case 'open':
      streams.set(message.stream, new PublishedStream(message.description, message.held));
      break;
    case 'block':
      streams.get(message.stream)?.add(message, textOf(message));
      break;
    case 'end':
      streams.get(message.stream)?.end(message.position, message.isPublished);
      break;
    case 'flush':
      void flush();
      break;
  }
});
