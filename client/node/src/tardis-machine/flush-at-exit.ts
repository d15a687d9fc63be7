/** Publishes what is left before the process ends, and then lets it end. */
import { constants } from 'node:os';
import { guarded, reportFailures } from './guard.js';
import type { HandOver } from './hand-over.js';
import { say } from './say.js';
import type { Warnings } from './warnings.js';

const SIGNALS: readonly NodeJS.Signals[] = ['SIGTERM', 'SIGINT', 'SIGHUP'];
/** The first process of a container, which no signal ends unless it does so itself. */
const FIRST_PROCESS = 1;

/** Flushes before the process ends, by itself or by a signal, for at most `timeoutMs`. */
export function flushAtExit(handOver: HandOver, warnings: Warnings, timeoutMs: number): void {
  const flush = guarded('end of the process', () => {
    handOver.flush(timeoutMs);
    warnings.report();
    reportFailures();
    const left = handOver.heldEvents;
    if (left) say(`exiting with unacknowledged messages: ${left}; some of them may not be published.`);
  });
  process.on('exit', flush);
  for (const signal of SIGNALS) {
    process.on(signal, function end() {
      // If the server handles the signal itself, it decides what happens; if the process ends, `exit` is emitted.
      if (process.listenerCount(signal) > 1) return;
      // Flushes as it exits, with the status that a shell gives for this signal.
      if (process.pid === FIRST_PROCESS) process.exit(128 + constants.signals[signal]);
      process.removeListener(signal, end);
      flush();
      process.kill(process.pid, signal);
    });
  }
}
