/** Unpaired surrogates, which Unicode text cannot contain. Node.js 18 has no functions for them. */

const UNPAIRED = /\p{Surrogate}/u;
const ALL_UNPAIRED = /\p{Surrogate}/gu;

const native = (String.prototype as { isWellFormed?: (this: string) => boolean }).isWellFormed;

/** Whether a text contains no unpaired surrogate. */
export const isWellFormed: (text: string) => boolean = native
  ? (text) => native.call(text)
  : (text) => !UNPAIRED.test(text);

/** Replaces unpaired surrogates. */
export function toWellFormed(text: string): string {
  return text.replace(ALL_UNPAIRED, '\ufffd');
}
