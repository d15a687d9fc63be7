/** What became of events: counted, told to the producer, and kept for the next flush. */
import { describeFailure, type Failure } from './errors.js';
import type { Done } from './protocol.js';

/** So many are kept between two flushes; all are counted. */
const MOST_FAILURES = 100;

/** A publisher's counters at one moment, since it was opened. */
export interface Stats {
  /** Events that went into the buffer. */
  readonly accepted: number;
  /** Events of those that the sidecar is done with, whatever became of them. */
  readonly acknowledged: number;
  /** Envelopes that every back end has confirmed; one JSON book change becomes several. */
  readonly published: number;
  /** Envelopes that no back end takes. */
  readonly filtered: number;
  /** Events that are malformed or cannot be addressed. */
  readonly rejected: number;
  /** Events that a back end refused for good. */
  readonly failed: number;
  /** Events that were never sent. */
  readonly dropped: number;
  /** Streams that were opened after the first one. */
  readonly reconnects: number;
  /** Events that are accepted and not acknowledged. */
  readonly bufferedEvents: number;
  readonly bufferedBytes: number;
}

/** Counts outcomes and passes failures on. */
export class Outcomes {
  published = 0;
  filtered = 0;
  rejected = 0;
  failed = 0;
  private sinceFlush = 0;
  private first: Failure[] = [];
  private unreported = 0;
  private last: Failure | undefined;

  /** `tell` returns whether somebody listened. */
  constructor(private readonly tell: (failure: Failure) => boolean) {}

  /** Counts what is done, and tells the producer of failures. */
  add({ published, filtered, failures }: Done): void {
    this.published += published;
    this.filtered += filtered;
    for (const failure of failures) {
      this[failure.kind] += 1;
      this.sinceFlush += 1;
      if (this.first.length < MOST_FAILURES) this.first.push(failure);
      if (!this.tell(failure)) {
        this.unreported += 1;
        this.last = failure;
      }
    }
  }

  /** Returns how many events failed since the last call, and the first of them. */
  takeFailures(): { readonly failed: number; readonly failures: readonly Failure[] } {
    const taken = { failed: this.sinceFlush, failures: this.first };
    this.sinceFlush = 0;
    this.first = [];
    return taken;
  }

  /** Whether there are failures of which nobody was told. */
  get isUnreported(): boolean {
    return this.unreported > 0;
  }

  /** Returns a sentence about the failures of which nobody was told; empty if there are none. */
  takeReport(): string {
    const count = this.unreported;
    this.unreported = 0;
    return count && this.last ? `${count} events failed; the last one: ${describeFailure(this.last)}` : '';
  }
}
