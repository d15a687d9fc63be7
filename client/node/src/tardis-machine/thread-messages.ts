/** The messages between the server's thread and the publishing thread. */
import type { MessagePort } from 'node:worker_threads';
import type { Origin } from '../options.js';
import type { HookSettings } from './settings.js';
import type { Counters } from './shared-counters.js';
import type { Region } from './shared-text.js';

/** A stream as it is announced to the sidecar. */
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
  readonly counters: Counters;
  readonly text: SharedArrayBuffer;
  /** Port for messages to the server's thread. */
  readonly news: MessagePort;
}

/** Consecutive lines of a stream. */
export interface Block {
  readonly kind: 'block';
  readonly stream: number;
  /** Position of its first event; earlier ones may have been dropped. */
  readonly position: number;
  readonly count: number;
  /** What it counts for in the buffer; released when the block is done. */
  readonly size: number;
  /** Where it is in the shared text; itself if there was no room. */
  readonly text: Region | string;
}

export type ToPublisher =
  | {
      readonly kind: 'open';
      readonly stream: number;
      readonly description: StreamDescription;
      /** What is held of this stream. */
      readonly held: Counters;
    }
  | Block
  /** `position` is that of the message after the last one, handed over or not. */
  | {
      readonly kind: 'end';
      readonly stream: number;
      readonly position: number;
      readonly isPublished: boolean;
    }
  | { readonly kind: 'flush' };

export type FromPublisher =
  /** Events that were taken but not published, and the reason for the last one. */
  | { readonly kind: 'refused'; readonly count: number; readonly reason: string }
  | { readonly kind: 'connected' }
  | { readonly kind: 'lost'; readonly reason: string };
