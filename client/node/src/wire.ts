/** Encodes the requests that carry batches, by hand so that events are copied only once. */
import type { Batch } from './buffer.js';
import type { Item } from './encoding.js';
import type { Frame } from './frames.js';

// Field tags in bronze/sidecar/v1/sidecar.proto.
const REQUEST_BATCH = 0x12;
const BATCH_SEQUENCE = 0x08;
const BATCH_FIRST_POSITION = 0x10;
const BATCH_ENVELOPES = 0x1a;
const BATCH_JSON = 0x22;
const BATCH_MIXED = 0x2a;
const BATCH_END = 0x32;
const END_DROPPED = 0x08;

const NEWLINE = 10;
const BLANK = 32;

/** The frame of the batch's only item: its request can be completed where it is. */
export function lentFrame({ items: [first, ...more] }: Batch): Frame | undefined {
  return more.length ? undefined : first?.frame;
}

/** Encodes a PublishRequest that contains the batch. */
export function encodeBatch(sequence: number, batch: Batch): Buffer {
  const head = 2 + varintLength(sequence) + varintLength(batch.firstPosition);
  const length = head + (batch.isJson ? field(batch.size - 1) : sum(batch.items, (item) => field(item.size)));
  const frame = lentFrame(batch);
  const writer = new Writer(
    frame ? frame.withHead(field(length) - frame.data.length) : Buffer.allocUnsafe(field(length)),
  );
  writer.tag(REQUEST_BATCH, length);
  writer.tag(BATCH_SEQUENCE, sequence);
  writer.tag(BATCH_FIRST_POSITION, batch.firstPosition);
  if (batch.isJson) {
    writer.tag(BATCH_JSON, batch.size - 1);
    if (frame) return writer.bytes;
    batch.items.forEach((item, index) => {
      if (index) writer.byte(NEWLINE);
      writer.data(item.data);
    });
  } else {
    const isMixed = batch.isJson === undefined;
    for (const item of batch.items) {
      writer.tag(isMixed ? BATCH_MIXED : BATCH_ENVELOPES, item.size);
      // Marks JSON among envelopes; in the item's size it is the newline.
      if (item.isJson) writer.byte(BLANK);
      writer.data(item.data);
    }
  }
  return writer.bytes;
}

/** Encodes a PublishRequest that ends the stream. */
export function encodeEnd(sequence: number, position: number, dropped: number): Buffer {
  const end = 1 + varintLength(dropped);
  const length = 2 + varintLength(sequence) + varintLength(position) + field(end);
  const writer = new Writer(Buffer.allocUnsafe(field(length)));
  writer.tag(REQUEST_BATCH, length);
  writer.tag(BATCH_SEQUENCE, sequence);
  writer.tag(BATCH_FIRST_POSITION, position);
  writer.tag(BATCH_END, end);
  writer.tag(END_DROPPED, dropped);
  return writer.bytes;
}

/** Returns the events of an encoded request; JSON lines as the one block that they travelled in. */
export function decodeItems(
  request: Buffer,
  isJson: boolean | undefined,
  count: number,
  size: number,
): Item[] {
  if (isJson) return [{ data: request.subarray(request.length - size + 1), isJson, count, size }];
  const reader = new Reader(request);
  // The request's length, the sequence number and the first position.
  for (let head = 0; head < 3; head += 1) reader.tag();
  const items: Item[] = [];
  while (!reader.isAtEnd) {
    const length = reader.tag();
    const data = reader.data(length);
    const isMarked = isJson === undefined && data[0] === BLANK;
    items.push({ data: isMarked ? data.subarray(1) : data, isJson: isMarked, count: 1, size: length });
  }
  return items;
}

class Reader {
  private offset = 0;

  constructor(private readonly bytes: Buffer) {}

  get isAtEnd(): boolean {
    return this.offset >= this.bytes.length;
  }

  /** Skips a tag of one byte; returns the number that follows. */
  tag(): number {
    let [value, scale, byte] = [0, 1, 0x80];
    this.offset += 1;
    for (; byte > 0x7f; scale *= 0x80) {
      byte = this.bytes[this.offset] ?? 0;
      this.offset += 1;
      value += (byte & 0x7f) * scale;
    }
    return value;
  }

  data(length: number): Buffer {
    this.offset += length;
    return this.bytes.subarray(this.offset - length, this.offset);
  }
}

class Writer {
  private offset = 0;

  constructor(readonly bytes: Buffer) {}

  byte(value: number): void {
    this.bytes[this.offset] = value;
    this.offset += 1;
  }

  tag(tag: number, value: number): void {
    this.byte(tag);
    let rest = value;
    // By division, because bitwise operators work on 32 bits.
    for (; rest > 0x7f; rest = Math.floor(rest / 0x80)) this.byte((rest % 0x80) | 0x80);
    this.byte(rest);
  }

  data(data: string | Uint8Array): void {
    if (typeof data === 'string') {
      this.offset += this.bytes.write(data, this.offset);
    } else {
      this.bytes.set(data, this.offset);
      this.offset += data.length;
    }
  }
}

/** Size of a field with content of this length. */
function field(length: number): number {
  return 1 + varintLength(length) + length;
}

function varintLength(value: number): number {
  let length = 1;
  for (let rest = value; rest > 0x7f; rest = Math.floor(rest / 0x80)) length += 1;
  return length;
}

function sum(items: readonly Item[], size: (item: Item) => number): number {
  return items.reduce((total, item) => total + size(item), 0);
}
