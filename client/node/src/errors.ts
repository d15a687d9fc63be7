/** What a producer is told about events that did not get through. */

/** An event that at least one back end did not get. Sending it again is of no use. */
export interface Failure {
  /** Its position in the stream. */
  readonly position: number;
  /** `rejected`: the event is malformed or cannot be addressed. `failed`: a back end refused it for good. */
  readonly kind: 'rejected' | 'failed';
  /** Why, in words. */
  readonly reason: string;
  /** The back end that refused it; empty if it never got that far. */
  readonly backend: string;
  /** Which of the events that one JSON book change became; absent for all others. */
  readonly level?: number;
}

export function describeFailure(failure: Failure): string {
  const level = failure.level === undefined ? '' : `.${failure.level}`;
  const backend = failure.backend ? ` by ${failure.backend}` : '';
  return `position ${failure.position}${level} ${failure.kind}${backend}: ${failure.reason}`;
}

/** What became of the events that were not delivered. */
export interface Undelivered {
  /** Accepted events that are not acknowledged. They may or may not have been published. */
  readonly unacknowledged: number;
  /** Events that were never sent, since the last flush. */
  readonly dropped: number;
  /** Events that were rejected or failed for good, since the last flush. */
  readonly failed: number;
  /** The first of those; `failed` counts them all. */
  readonly failures: readonly Failure[];
  /** What stands or last stood in the way, such as the connection's last error; may be empty. */
  readonly reason: string;
}

/** Not every event since the last flush was delivered; the properties say what became of the others. */
export class PublishError extends Error implements Undelivered {
  override readonly name = 'PublishError';
  readonly unacknowledged: number;
  readonly dropped: number;
  readonly failed: number;
  readonly failures: readonly Failure[];
  readonly reason: string;

  constructor(undelivered: Undelivered) {
    super(describe(undelivered));
    this.unacknowledged = undelivered.unacknowledged;
    this.dropped = undelivered.dropped;
    this.failed = undelivered.failed;
    this.failures = undelivered.failures;
    this.reason = undelivered.reason;
  }
}

function describe({ unacknowledged, dropped, failed, failures, reason }: Undelivered): string {
  const parts: string[] = [];
  if (unacknowledged) parts.push(`${unacknowledged} not acknowledged`);
  if (dropped) parts.push(`${dropped} dropped`);
  if (failed) {
    const [first] = failures;
    parts.push(`${failed} failed${first ? ` (first: ${describeFailure(first)})` : ''}`);
  }
  const text = `Events were not delivered: ${parts.join(', ')}.`;
  return reason ? `${text} ${reason}` : text;
}
