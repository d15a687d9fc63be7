/** Counters that the server's thread and the publishing thread share: of all streams, or of one. */

/** Index: events that were handed over and are not done. */
export const HELD_EVENTS = 0;
/** Index: their size in characters. */
export const HELD_BYTES = 1;
/** Index, of all streams: those that were opened and are not complete. */
export const HELD_STREAMS = 2;
/** Index, of all streams: those that hold events. */
export const BUSY_STREAMS = 3;
/** Index, of all streams: state of the flush at the end of the process. */
export const FLUSH = 4;
/** Index, of all streams: where the publishing thread has read up to in the shared text. */
export const TEXT_READ = 5;

/** States of the flush. `THREAD_ENDED` is final. */
export const RUNNING = 0;
export const DONE = 1;
export const THREAD_ENDED = 2;

const COUNT = 6;

export type Counters = Int32Array<SharedArrayBuffer>;

/** Counts a block as held. */
export function hold(all: Counters, own: Counters, events: number, size: number): void {
  if (!Atomics.add(own, HELD_EVENTS, events)) Atomics.add(all, BUSY_STREAMS, 1);
  Atomics.add(own, HELD_BYTES, size);
  Atomics.add(all, HELD_EVENTS, events);
  Atomics.add(all, HELD_BYTES, size);
}

/** Counts a block as done. */
export function release(all: Counters, own: Counters, events: number, size: number): void {
  Atomics.sub(own, HELD_BYTES, size);
  if (Atomics.sub(own, HELD_EVENTS, events) === events) Atomics.sub(all, BUSY_STREAMS, 1);
  Atomics.sub(all, HELD_BYTES, size);
  Atomics.sub(all, HELD_EVENTS, events);
}

/** Wakes the thread that waits for the flush. */
export function endFlush(counters: Counters, state: number): void {
  Atomics.store(counters, FLUSH, state);
  Atomics.notify(counters, FLUSH);
}

export function newCounters(): Counters {
  return new Int32Array(new SharedArrayBuffer(COUNT * Int32Array.BYTES_PER_ELEMENT));
}
