/** What a producer learns about events that were not delivered. */

/** An event that at least one back end did not get. Sending it again would not help. */
export interface Failure {
  /** Its position in the stream. */
  readonly position: number;
  /** `rejected`: it is malformed or cannot be addressed. `failed`: a back end refused it permanently. */
  readonly kind: 'rejected' | 'failed';
  /** Why, in plain text. */
  readonly reason: string;
  /** The back end that refused it; empty if the event never reached one. */
  readonly backend: string;
  /** Index of the level, for one level of a JSON book change; otherwise absent. */
  readonly level?: number;
}

export function describeFailure(failure: Failure): string {
  const level = failure.level === undefined ? '' : `.${failure.level}`;
  const backend = failure.backend ? ` by ${failure.backend}` : '';
  return `position ${failure.position}${level} ${failure.kind}${backend}: ${failure.reason}`;
}

/** What happened to the events that were not delivered. */
export interface Undelivered {
  /** Accepted events that are not acknowledged. They may or may not have been published. */
  readonly unacknowledged: number;
  /** Events dropped since the last flush; they were never sent. */
  readonly dropped: number;
  /** Events rejected or permanently failed since the last flush. */
  readonly failed: number;
  /** The first of those; `failed` counts all of them. */
  readonly failures: readonly Failure[];
  /** What prevents or last prevented delivery, such as the connection's last error; may be empty. */
  readonly reason: string;
}

/** Not every event since the last flush was delivered; the properties say what happened to the others. */
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
