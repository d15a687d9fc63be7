/** Ensures that the server's thread does not wait for a publishing thread that has ended. */
import { workerData } from 'node:worker_threads';
import { endFlush, THREAD_ENDED } from './shared-counters.js';
import type { PublishingTask } from './thread-messages.js';

const { counters } = workerData as PublishingTask;
process.on('exit', () => endFlush(counters, THREAD_ENDED));
