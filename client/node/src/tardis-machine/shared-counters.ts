/** Counters that the server's thread and the publishing thread share. */

/** Index: events that were handed over and are not done. */
export const HELD_EVENTS = 0;
/** Index: their size in characters. */
export const HELD_BYTES = 1;
/** Index: streams that were opened and are not complete. */
export const HELD_STREAMS = 2;
/** Index: state of the flush at the end of the process. */
export const FLUSH = 3;

/** States of the flush. `THREAD_ENDED` is final. */
export const RUNNING = 0;
export const DONE = 1;
export const THREAD_ENDED = 2;

const COUNT = 4;

/** Wakes the thread that waits for the flush. */
export function endFlush(counters: Int32Array<SharedArrayBuffer>, state: number): void {
  Atomics.store(counters, FLUSH, state);
  Atomics.notify(counters, FLUSH);
}

export function newCounters(): Int32Array<SharedArrayBuffer> {
  return new Int32Array(new SharedArrayBuffer(COUNT * Int32Array.BYTES_PER_ELEMENT));
}
