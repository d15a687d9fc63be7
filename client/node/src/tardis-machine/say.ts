/** Messages to the operator, on standard error. */
import { writeSync } from 'node:fs';

const STANDARD_ERROR = 2;

/** Writes one line, synchronously, because the process may be about to end. */
export function say(text: string): void {
  try {
    writeSync(STANDARD_ERROR, `bronze-sidecar: ${text.replaceAll('\n', ' ')}\n`);
  } catch {
    // Standard error is closed.
  }
}
