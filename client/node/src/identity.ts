/** Stream ids: the same for the same replay, unique for everything else. */
import { createHash, randomUUID } from 'node:crypto';
import { isWellFormed } from './unicode.js';

/** Returns a unique id. */
export function uniqueId(): string {
  return randomUUID().replaceAll('-', '');
}

/**
 * Returns the stream id of a replay: 32 hexadecimal digits, the same for the same request.
 *
 * It is the beginning of the BLAKE2b-512 digest of the request as canonical JSON: entries that are null or
 * undefined are left out, keys are sorted by their UTF-8 bytes, lists keep their order, and there is no
 * whitespace. The Python client returns the same id for the same request.
 *
 * Values are strings, safe integers, booleans, null, arrays and plain objects. Anything else, such as a fraction
 * or a date, throws a TypeError, because languages format them differently: pass them as strings, always in the
 * same format.
 */
export function streamIdFor(request: object): string {
  if (!isPlainObject(request)) {
    throw new TypeError(`A request must be a plain object, not ${typeName(request)}.`);
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
  throw new TypeError(`A request cannot contain a ${typeName(value)}; pass it as a string.`);
}

function text(value: string): string {
  if (!isWellFormed(value)) throw new RangeError('A request cannot contain an unpaired surrogate.');
  return JSON.stringify(value);
}

/** Whether a value is an object without a class of its own. */
export function isPlainObject(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

export function typeName(value: unknown): string {
  if (value === null) return 'null';
  return typeof value === 'object' ? (value.constructor?.name ?? 'object') : typeof value;
}
