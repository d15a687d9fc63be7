/** The publishing half, in a thread of its own: one publisher for each stream. */
import './farewell.js'; // first, so that it is heard also if another module cannot be loaded
import { parentPort, workerData } from 'node:worker_threads';
import { describeFailure } from '../errors.js';
import { type Options, settle } from '../options.js';
import { Publisher } from '../publisher.js';
import { Queue } from '../queue.js';
import { endFlush, HELD_BYTES, HELD_EVENTS, OVER } from './counters.js';
import type { Block, FromPublisher, PublishingTask, StreamDescription, ToPublisher } from './protocol.js';

const LOOK_MS = 10;
const REPORT_MS = 1_000;

const { settings, source, counters, news } = workerData as PublishingTask;
const streams = new Map<number, Stream>();
let lookTimer: NodeJS.Timeout | undefined;
let reportTimer: NodeJS.Timeout | undefined;
let refused = 0;
let reason = '';

/** What of one stream is not acknowledged. */
class Stream {
  private readonly publisher: Publisher;
  private readonly blocks = new Queue<{ readonly count: number; readonly size: number }>();
  private events = 0;
  private position = 0;
  private hasEnded = false;

  constructor(description: StreamDescription) {
    const { address, tls, tlsCaFile, tlsCertFile, tlsKeyFile } = settings;
    const options: Options = {
      ...description,
      source,
      // The server's half keeps the bounds, over all streams.
      bufferEvents: Number.POSITIVE_INFINITY,
      bufferBytes: Number.POSITIVE_INFINITY,
      batchDelayMs: 0, // blocks have waited for more already
      tls,
      tlsCaFile,
      tlsCertFile,
      tlsKeyFile,
    };
    // Not by `connect`, which refuses files that cannot be read: they were there when the server started, and
    // if they are being replaced now, the next attempt finds them.
    this.publisher = new Publisher(settle(address, options));
    this.publisher.on('drop', (count, why) => report(count, why));
    this.publisher.on('failure', (failure) => report(1, describeFailure(failure)));
    this.publisher.on('refuse', (why) => this.giveUp(why));
    this.publisher.on('connect', () => tell({ kind: 'connected' }));
    this.publisher.on('disconnect', (why) => tell({ kind: 'lost', reason: why }));
  }

  add({ position, count, size, text }: Block): void {
    if (position > this.position) this.publisher.skip(position - this.position);
    this.position = position + count;
    if (!this.publish(text, count)) {
      release(count, size);
      return;
    }
    this.blocks.push({ count, size });
    this.events += count;
    lookSoon();
  }

  end(): void {
    this.hasEnded = true;
    lookSoon();
  }

  /** Makes room for what the sidecar is done with; returns whether there is nothing more to come. */
  look(): boolean {
    const { bufferedEvents } = this.publisher.stats;
    for (let block = this.blocks.first; block; block = this.blocks.first) {
      if (this.events - block.count < bufferedEvents) break;
      this.blocks.shift();
      this.events -= block.count;
      release(block.count, block.size);
    }
    return this.hasEnded && !this.events;
  }

  /** The sidecar will never take what is held. */
  private giveUp(why: string): void {
    report(this.publisher.stats.bufferedEvents, why);
    for (let block = this.blocks.shift(); block; block = this.blocks.shift())
      release(block.count, block.size);
    this.events = 0;
  }

  get isWaiting(): boolean {
    return this.events > 0 || this.hasEnded;
  }

  private publish(text: string, count: number): boolean {
    try {
      return this.publisher.publishLines(text, count);
    } catch (error) {
      report(count, String(error));
      return false;
    }
  }

  async flush(): Promise<void> {
    await this.publisher.flush();
  }

  async close(): Promise<void> {
    await this.publisher.close();
  }
}

function release(count: number, size: number): void {
  Atomics.sub(counters, HELD_EVENTS, count);
  Atomics.sub(counters, HELD_BYTES, size);
}

function lookSoon(): void {
  lookTimer ??= setTimeout(look, LOOK_MS);
}

function look(): void {
  lookTimer = undefined;
  let isWaiting = false;
  for (const [number, stream] of streams) {
    if (!stream.look()) {
      isWaiting ||= stream.isWaiting;
      continue;
    }
    streams.delete(number);
    // What was not delivered is reported already.
    stream.close().catch(() => undefined);
  }
  if (isWaiting) lookSoon();
}

async function flush(): Promise<void> {
  await Promise.allSettled([...streams.values()].map((stream) => stream.flush()));
  look();
  tellRefused();
  endFlush(counters, OVER);
}

/** Events may be refused one by one; the server's thread hears of them together. */
function report(count: number, why: string): void {
  refused += count;
  reason = why;
  reportTimer ??= setTimeout(tellRefused, REPORT_MS);
}

function tellRefused(): void {
  clearTimeout(reportTimer);
  reportTimer = undefined;
  if (refused) tell({ kind: 'refused', count: refused, reason });
  refused = 0;
}

function tell(message: FromPublisher): void {
  news.postMessage(message);
}

parentPort?.on('message', (message: ToPublisher) => {
  switch (message.kind) {
    case 'open':
      streams.set(message.stream, new Stream(message.description));
      break;
    case 'block':
      streams.get(message.stream)?.add(message);
      break;
    case 'end':
      streams.get(message.stream)?.end();
      break;
    case 'flush':
      void flush();
      break;
  }
});
