/** How long things may take, in milliseconds. In one object, so that tests can make them short. */
export const timing = {
  /** A sidecar that has not opened the stream by then is tried again. */
  open: 10_000,
  firstPause: 100,
  longestPause: 5_000,
  /** Drops are reported at most this often. */
  report: 1_000,
  /** How long the sidecar may take to end a stream in good order. */
  finish: 1_000,
};

const LONGEST_TIMER = 2 ** 31 - 1;

/** `setTimeout` takes a longer time, also infinity, for none at all. */
export function timerDelay(milliseconds: number): number {
  return Math.min(milliseconds, LONGEST_TIMER);
}
