/** Lets the process end as it would without us, after what was taken is published. */
import type { HandOver } from './hand-over.js';
import { say, type Warnings } from './warnings.js';

const SIGNALS: readonly NodeJS.Signals[] = ['SIGTERM', 'SIGINT', 'SIGHUP'];

/** Publishes what is held before the process ends by a signal or by itself, for as long as allowed. */
export function flushAtExit(handOver: HandOver, warnings: Warnings, timeoutMs: number): void {
  const flush = (): void => {
    handOver.flush(timeoutMs);
    warnings.report();
    const left = handOver.heldEvents;
    if (left) say(`the process ends before ${left} messages are acknowledged; some may not be published.`);
  };
  process.on('exit', flush);
  for (const signal of SIGNALS) {
    process.on(signal, function end() {
      // A handler of the server's own decides what the signal means; if the process ends, `exit` comes.
      if (process.listenerCount(signal) > 1) return;
      process.removeListener(signal, end);
      flush();
      process.kill(process.pid, signal);
    });
  }
}
