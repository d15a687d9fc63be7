/** Encodes what a producer publishes for the wire. */
import type { Frame } from './frames.js';
import { isPlainObject } from './identity.js';
import { isWellFormed } from './unicode.js';

/** One event, or a block of lines that is sent as it is. */
export interface Item {
  readonly data: string | Uint8Array;
  readonly isJson: boolean;
  /** Number of events. */
  readonly count: number;
  /** Number of bytes; for JSON, including the newline that follows. */
  readonly size: number;
  /** The memory of the data, if that is lent. */
  readonly frame?: Frame;
}

// No field of the envelope has one of these values as its tag. A newline is not in the set: it is the tag of
// `source`, which most envelopes start with.
const JSON_STARTS: ReadonlySet<number | undefined> = new Set(Buffer.from('{ \t\r'));

const NEWLINE = 10;
const RETURN = 13;
const BLANK = 32;
const TAB = 9;
const BRACE = 0x7b;

/**
 * Encodes one event; JSON becomes a single line.
 *
 * Throws a TypeError for anything that is not an event, and a RangeError for an event that is empty, no JSON object or
 * not valid Unicode.
 */
export function encode(event: object | string | Uint8Array): Item {
  if (typeof event === 'string') return encodeText(event);
  if (event instanceof Uint8Array) return encodeBytes(event);
  if (typeof event === 'object' && event !== null && !('$typeName' in event)) {
    const text: unknown = JSON.stringify(event);
    // A Map, a Promise or an Error has no fields that JSON knows.
    const hasFields = text !== '{}' || isPlainObject(event);
    if (hasFields && typeof text === 'string' && text.startsWith('{')) return line(text);
  }
  throw new TypeError(
    `An event must be an object, JSON text or an encoded envelope, not ${describe(event)}.`,
  );
}

/** Encodes a block of `count` lines. */
export function encodeLines(block: string | Uint8Array, count: number): Item {
  if (!block.length) throw new RangeError('The block is empty.');
  if (typeof block === 'string' && !isWellFormed(block)) {
    throw new RangeError('The block contains an unpaired surrogate.');
  }
  return line(block, count);
}

/** Takes a block of `count` lines as it is. */
export function encodeFrame(frame: Frame, count: number): Item {
  return { ...line(frame.data, count), frame };
}

/** Splits a block into its lines; returns an empty list if their number is not the announced one. */
export function splitLines(block: Item): Item[] {
  const bytes = typeof block.data === 'string' ? Buffer.from(block.data) : block.data;
  const lines: Item[] = [];
  for (let start = 0; start <= bytes.length; ) {
    const found = bytes.indexOf(NEWLINE, start);
    const end = found < 0 ? bytes.length : found;
    lines.push(line(bytes.subarray(start, end)));
    start = end + 1;
  }
  return lines.length === block.count ? lines : [];
}

function line(data: string | Uint8Array, count = 1): Item {
  const length = typeof data === 'string' ? Buffer.byteLength(data) : data.length;
  return { data, isJson: true, count, size: length + 1 };
}

function encodeText(text: string): Item {
  if (!isWellFormed(text)) throw new RangeError('The event contains an unpaired surrogate.');
  // In JSON a newline can only occur between tokens, where a space does as well.
  const one = text.includes('\n') || text.includes('\r') ? text.replace(/[\r\n]/g, ' ') : text;
  if (!one.startsWith('{')) checkStart(one.trimStart());
  return line(one);
}

function checkStart(text: string): void {
  if (!text) throw new RangeError('The event is empty.');
  if (!text.startsWith('{')) throw new RangeError("The event is not a JSON object, which begins with '{'.");
}

function encodeBytes(bytes: Uint8Array): Item {
  if (!bytes.length) throw new RangeError('The event is empty.');
  if (!JSON_STARTS.has(bytes[0])) return { data: bytes, isJson: false, count: 1, size: bytes.length };
  const isOneLine = !bytes.includes(NEWLINE) && !bytes.includes(RETURN);
  const one = isOneLine ? bytes : bytes.map((byte) => (byte === NEWLINE || byte === RETURN ? BLANK : byte));
  if (one[0] !== BRACE) {
    const start = one.findIndex((byte) => byte !== BLANK && byte !== TAB);
    checkStart(start < 0 ? '' : String.fromCharCode(one[start] ?? 0));
  }
  return line(one);
}

function describe(value: unknown): string {
  if (typeof value !== 'object' || value === null) return value === null ? 'null' : typeof value;
  if ('$typeName' in value) return `a message ${String(value.$typeName)}; encode it with toBinary`;
  return Array.isArray(value) ? 'an array' : value.constructor.name;
}
