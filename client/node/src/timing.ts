/** Timeouts and intervals in milliseconds, in one object so that tests can shorten them. */
export const timing = {
  /** If the sidecar has not opened the stream by then, try again. */
  open: 10_000,
  firstPause: 100,
  /** What is lost of the time since the sidecar is back, at most. */
  longestPause: 2_000,
  /** Drops are reported at most this often. */
  report: 1_000,
  /** How long nothing may be acknowledged, while somebody waits for room, until that is reported, and again. */
  warning: 60_000,
  /** How long the sidecar may take to end a stream cleanly. */
  finish: 1_000,
};

const LONGEST_TIMER = 2 ** 31 - 1;

/** Limits a delay to what `setTimeout` supports: a longer one, or infinity, would fire immediately. */
export function timerDelay(milliseconds: number): number {
  return Math.min(milliseconds, LONGEST_TIMER);
}
