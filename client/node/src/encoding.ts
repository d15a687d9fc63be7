/** What a producer may publish, as what travels. */

/** One event, or a block of lines that travels as it is. */
export interface Item {
  readonly data: string | Uint8Array;
  readonly isJson: boolean;
  /** Events in it. */
  readonly count: number;
  /** Bytes of it; JSON counts the newline behind it. */
  readonly size: number;
}

// No field of the envelope has a tag of these values. A newline is not among them: it is the tag of `source`,
// with which most envelopes begin.
const JSON_STARTS: ReadonlySet<number | undefined> = new Set(Buffer.from('{ \t\r'));

const NEWLINE = 10;
const RETURN = 13;
const BLANK = 32;

/**
 * Makes an item of an event; JSON becomes one line.
 *
 * Throws a TypeError for what is no event, a RangeError for one that cannot be written: empty, or not Unicode.
 */
export function encode(event: object | string | Uint8Array): Item {
  if (typeof event === 'string') return encodeText(event);
  if (event instanceof Uint8Array) return encodeBytes(event);
  if (typeof event === 'object' && event !== null && !('$typeName' in event)) {
    const text: unknown = JSON.stringify(event);
    if (typeof text === 'string' && text.startsWith('{')) return line(text);
  }
  throw new TypeError(`An event is an object, JSON text, or an envelope's bytes, not ${describe(event)}.`);
}

/** Makes an item of `count` lines. */
export function encodeLines(block: string | Uint8Array, count: number): Item {
  if (!block.length) throw new RangeError('The block is empty.');
  if (typeof block === 'string' && !block.isWellFormed()) {
    throw new RangeError('The block contains half of a character.');
  }
  return line(block, count);
}

/** Cuts a block into its lines; returns nothing if there are not as many as were announced. */
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
  if (!text.isWellFormed()) throw new RangeError('The event contains half of a character.');
  // In JSON a newline can only stand between tokens, where a blank is as good.
  const one = text.includes('\n') || text.includes('\r') ? text.replace(/[\r\n]/g, ' ') : text;
  if (!one.startsWith('{') && !one.trim()) throw new RangeError('The event is empty.');
  return line(one);
}

function encodeBytes(bytes: Uint8Array): Item {
  if (!bytes.length) throw new RangeError('The event is empty.');
  if (!JSON_STARTS.has(bytes[0])) return { data: bytes, isJson: false, count: 1, size: bytes.length };
  const isOneLine = !bytes.includes(NEWLINE) && !bytes.includes(RETURN);
  const one = isOneLine ? bytes : bytes.map((byte) => (byte === NEWLINE || byte === RETURN ? BLANK : byte));
  if (one.every((byte) => byte === BLANK || byte === 9)) throw new RangeError('The event is empty.');
  return line(one);
}

function describe(value: unknown): string {
  if (typeof value !== 'object' || value === null) return value === null ? 'null' : typeof value;
  if ('$typeName' in value) return `a message ${String(value.$typeName)}; encode it with toBinary`;
  return Array.isArray(value) ? 'an array' : value.constructor.name;
}
