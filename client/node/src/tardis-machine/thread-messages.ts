/** What the two threads say to each other. */
import type { MessagePort } from 'node:worker_threads';
import type { Origin } from '../options.js';
import type { HookSettings } from './settings.js';

/** A stream as the sidecar is told of it. */
export interface StreamDescription {
  readonly streamId: string;
  readonly origin: Origin;
  readonly requestId: string;
  readonly sessionId: string;
  readonly meta: Readonly<Record<string, string>>;
}

/** What the publishing thread starts with. */
export interface PublishingTask {
  readonly settings: HookSettings;
  readonly source: string;
  readonly counters: Int32Array<SharedArrayBuffer>;
  /** Where the server's thread hears of what happens. */
  readonly news: MessagePort;
}

/** Lines of a stream. */
export interface Block {
  readonly kind: 'block';
  readonly stream: number;
  /** How many events of the stream came before it; some of them may have been dropped. */
  readonly position: number;
  readonly count: number;
  /** What it counts for in the bound; given back when the block is done. */
  readonly size: number;
  readonly text: string;
}

export type ToPublisher =
  | { readonly kind: 'open'; readonly stream: number; readonly description: StreamDescription }
  | Block
  | { readonly kind: 'end'; readonly stream: number }
  | { readonly kind: 'flush' };

export type FromPublisher =
  /** Events that were taken, but not published, and why the last of them was not. */
  | { readonly kind: 'refused'; readonly count: number; readonly reason: string }
  | { readonly kind: 'connected' }
  | { readonly kind: 'lost'; readonly reason: string };
