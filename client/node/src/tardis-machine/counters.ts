/** Numbers that the server's thread and the publishing thread share. */

/** Events that were handed over and are not done. */
export const HELD_EVENTS = 0;
/** Characters of them. */
export const HELD_BYTES = 1;
/** 1 when a flush at the end of the process is over. */
export const FLUSHED = 2;

const COUNT = 3;

export function newCounters(): Int32Array<SharedArrayBuffer> {
  return new Int32Array(new SharedArrayBuffer(COUNT * Int32Array.BYTES_PER_ELEMENT));
}
