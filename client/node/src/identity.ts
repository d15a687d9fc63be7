/** Names of streams: the same for the same replay, unique for everything else. */
import { createHash, randomUUID } from 'node:crypto';

/** Returns an id that nothing else has. */
export function uniqueId(): string {
  return randomUUID().replaceAll('-', '');
}

/**
 * Returns the stream id of a replay: 32 hexadecimal digits, the same for the same request.
 *
 * It is the beginning of the BLAKE2b-512 digest of the request as canonical JSON: entries that are null or
 * undefined are left out, keys are sorted by their UTF-8 bytes, lists keep their order, and there is no
 * white space. The Python client gives the same id for the same request.
 *
 * Values are strings, safe integers, booleans, null, arrays and plain objects. Anything else, such as numbers
 * with a fraction and dates, throws a TypeError, because languages write them differently: give them as text,
 * always the same.
 */
export function streamIdFor(request: object): string {
  if (!isPlainObject(request)) {
    throw new TypeError(`A request is a plain object, not ${typeName(request)}.`);
  }
  return createHash('blake2b512').update(canonical(request)).digest('hex').slice(0, 32);
}

function canonical(value: unknown): string {
  if (value === null || value === undefined) return 'null';
  if (typeof value === 'boolean' || Number.isSafeInteger(value)) return String(value);
  if (typeof value === 'string') return text(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (isPlainObject(value)) {
    const entries = Object.entries(value).filter(([, entry]) => entry !== null && entry !== undefined);
    entries.sort(([one], [other]) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
    return `{${entries.map(([key, entry]) => `${text(key)}:${canonical(entry)}`).join(',')}}`;
  }
  throw new TypeError(`A request cannot contain a ${typeName(value)}; give it as text.`);
}

function text(value: string): string {
  if (!value.isWellFormed()) throw new RangeError('A request cannot contain half of a character.');
  return JSON.stringify(value);
}

function isPlainObject(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

function typeName(value: unknown): string {
  return typeof value === 'object' && value !== null ? value.constructor.name : typeof value;
}
