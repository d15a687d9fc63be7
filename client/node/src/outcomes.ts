/** The outcomes of events: counted, reported to the producer, and kept for the next flush. */
import { describeFailure, type Failure } from './errors.js';
import type { Done } from './protocol.js';

/** At most this many are kept between two flushes; all are counted. */
const MOST_FAILURES = 100;

/** A snapshot of a publisher's counters since it was opened. */
export interface Stats {
  /** Events that were accepted into the buffer. */
  readonly accepted: number;
  /** Accepted events that the sidecar is done with, whatever the outcome. */
  readonly acknowledged: number;
  /** Envelopes that every back end confirmed; one JSON book change becomes several. */
  readonly published: number;
  /** Envelopes that no back end is configured to take. */
  readonly filtered: number;
  /** Events that are malformed or cannot be addressed. */
  readonly rejected: number;
  /** Events that a back end refused permanently. */
  readonly failed: number;
  /** Events that were never sent. */
  readonly dropped: number;
  /** Number of streams opened after the first one. */
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

  /** `tell` returns whether anyone listened. */
  constructor(private readonly tell: (failure: Failure) => boolean) {}

  /** Counts what is done, and reports failures to the producer. */
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

  /** Whether there are failures that were not reported to anyone. */
  get isUnreported(): boolean {
    return this.unreported > 0;
  }

  /** Returns a sentence about the unreported failures; empty if there are none. */
  takeReport(): string {
    const count = this.unreported;
    this.unreported = 0;
    return count && this.last ? `${count} events failed; the last one: ${describeFailure(this.last)}` : '';
  }
}
