/** Publishes what is left before the process ends, and lets it end as it would without the client. */
import { guarded, reportFailures } from './guard.js';
import type { HandOver } from './hand-over.js';
import { say } from './say.js';
import type { Warnings } from './warnings.js';

const SIGNALS: readonly NodeJS.Signals[] = ['SIGTERM', 'SIGINT', 'SIGHUP'];

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
      process.removeListener(signal, end);
      flush();
      process.kill(process.pid, signal);
    });
  }
}
