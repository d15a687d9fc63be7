/** Numbers that the server's thread and the publishing thread share. */

/** Events that were handed over and are not done. */
export const HELD_EVENTS = 0;
/** Characters of them. */
export const HELD_BYTES = 1;
/** How far a flush at the end of the process is. */
export const FLUSH = 2;

/** Values of `FLUSH`. The last stays: it is that of a thread that ended. */
export const UNDER_WAY = 0;
export const OVER = 1;
export const NOBODY_THERE = 2;

const COUNT = 3;

/** Wakes the thread that waits for a flush. */
export function endFlush(counters: Int32Array<SharedArrayBuffer>, state: number): void {
  Atomics.store(counters, FLUSH, state);
  Atomics.notify(counters, FLUSH);
}

export function newCounters(): Int32Array<SharedArrayBuffer> {
  return new Int32Array(new SharedArrayBuffer(COUNT * Int32Array.BYTES_PER_ELEMENT));
}
