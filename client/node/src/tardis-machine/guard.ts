/**
 * Keeps the client's failures away from the server.
 *
 * Every function of the client that the server's code, an event, a diagnostics channel or a timer calls is wrapped by
 * `guarded`. The server's own functions are called outside of it: their exceptions are the server's.
 */
import { say } from './say.js';

const INTERVAL_MS = 10_000;

let failures = 0;
let unreported = 0;
let last = '';
let reportedMs = Number.NEGATIVE_INFINITY;

/**
 * Returns a function that never throws. If `own` throws, that is counted and reported, `onFailure` is called, and the
 * result is undefined.
 */
export function guarded<This, Given extends unknown[], Result>(
  part: string,
  own: (this: This, ...given: Given) => Result,
  onFailure?: () => void,
): (this: This, ...given: Given) => Result | undefined {
  return function (...given) {
    try {
      return Reflect.apply(own, this, given);
    } catch (error) {
      failed(part, error);
    }
    try {
      onFailure?.();
    } catch (error) {
      failed(part, error);
    }
    return undefined;
  };
}

/** Reports the failures that were not reported yet. */
export function reportFailures(): void {
  if (!unreported) return;
  unreported = 0;
  reportedMs = performance.now();
  say(
    `the client failed (${last}). The server is not affected, but something is not published; ` +
      `failures since the start: ${failures}.`,
  );
}

function failed(part: string, error: unknown): void {
  failures += 1;
  unreported += 1;
  last = `${part}: ${textOf(error)}`;
  // The others are part of a later report, or of the one at the end of the process.
  if (performance.now() - reportedMs >= INTERVAL_MS) reportFailures();
}

/** Describes whatever was thrown; even an object that has no text. */
function textOf(error: unknown): string {
  try {
    return String(error);
  } catch {
    return typeof error;
  }
}
