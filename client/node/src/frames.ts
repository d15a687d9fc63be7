/**
 * Memory for large blocks, used again and again. Memory of this size that is allocated anew for each of them makes V8
 * collect the garbage of a whole thread every few blocks, which costs as much as everything else that a block needs.
 */

/** At most this many bytes come before the data of a batch that consists of one block. */
export const HEAD = 40;
const FRAME = 384 * 1024;
/** Smaller blocks are allocated: they would leave most of a frame unused for as long as they are kept. */
const SMALLEST = 64 * 1024;
const MOST_FREE = 8;

const free: Buffer[] = [];

/** Memory that ends with the data of a block, after room for the head of a request. */
export class Frame {
  readonly data: Buffer;

  constructor(
    private readonly memory: Buffer,
    length: number,
  ) {
    this.data = memory.subarray(HEAD, HEAD + length);
  }

  /** The last bytes before the data, and the data. */
  withHead(length: number): Buffer {
    return this.memory.subarray(HEAD - length, HEAD + this.data.length);
  }

  /** Nobody reads it anymore. */
  release(): void {
    if (this.memory.length === FRAME && free.length < MOST_FREE) free.push(this.memory);
  }
}

/** Returns a copy of a block. */
export function frameOf(block: Uint8Array): Frame {
  const length = HEAD + block.length;
  const isPooled = length >= SMALLEST && length <= FRAME;
  const memory = (isPooled && free.pop()) || Buffer.allocUnsafeSlow(isPooled ? FRAME : length);
  const frame = new Frame(memory, block.length);
  frame.data.set(block);
  return frame;
}
