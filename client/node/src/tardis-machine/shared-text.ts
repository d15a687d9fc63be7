/**
 * Text on its way to the publishing thread, in memory that both threads share. Sent as part of a message, it would be
 * copied and allocated several times, which is most of what a message costs the server's thread.
 */
import { type Frame, frameOf } from '../frames.js';
import { type Counters, TEXT_READ } from './shared-counters.js';

const SIZE = 4 * 1024 * 1024;
const NEWLINE = 10;
/** A character takes at most this many bytes. */
const WIDEST = 3;
/**
 * Short texts are joined into pieces of about so many characters: to write one costs the more, the more texts there
 * are, and to join them the more, the longer the whole is.
 */
const PIECE = 8_192;

/** Where a text is. */
export interface Region {
  readonly start: number;
  readonly end: number;
}

export function newSharedText(): SharedArrayBuffer {
  return new SharedArrayBuffer(SIZE);
}

/** The server's end: texts are written one behind the other, and from the beginning again. */
export class TextWriter {
  private readonly bytes: Buffer;
  private end = 0;

  constructor(
    memory: SharedArrayBuffer,
    private readonly counters: Counters,
  ) {
    this.bytes = Buffer.from(memory);
  }

  /** Writes lines, with a newline between them. Returns undefined if there is no room. */
  write(lines: readonly string[], characters: number): Region | undefined {
    const start = this.place(WIDEST * characters + lines.length);
    if (start === undefined) return undefined;
    const together = Math.max(1, Math.floor((PIECE * lines.length) / characters));
    let end = start;
    for (let at = 0; at < lines.length; at += together) {
      const piece = together > 1 ? lines.slice(at, at + together).join('\n') : (lines[at] ?? '');
      end += this.bytes.write(piece, end);
      this.bytes[end] = NEWLINE;
      end += 1;
    }
    this.end = end - 1;
    return { start, end: this.end };
  }

  private place(size: number): number | undefined {
    const read = Atomics.load(this.counters, TEXT_READ);
    const { end } = this;
    // What is written never reaches what is not read yet: if both meet, everything is read.
    if (end < read) return end + size < read ? end : undefined;
    if (end + size <= SIZE) return end;
    return size < read ? 0 : undefined;
  }
}

/** The publishing thread's end. It reads texts in the order in which they were written. */
export class TextReader {
  private readonly bytes: Buffer;

  constructor(
    memory: SharedArrayBuffer,
    private readonly counters: Counters,
  ) {
    this.bytes = Buffer.from(memory);
  }

  /** Copies a text, and makes room for others. */
  read({ start, end }: Region): Frame {
    const text = frameOf(this.bytes.subarray(start, end));
    Atomics.store(this.counters, TEXT_READ, end);
    return text;
  }
}
