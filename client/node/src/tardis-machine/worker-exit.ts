/** Sees to it that the server's thread does not wait for a publishing thread that broke down. */
import { workerData } from 'node:worker_threads';
import { endFlush, NOBODY_THERE } from './counters.js';
import type { PublishingTask } from './protocol.js';

const { counters } = workerData as PublishingTask;
process.on('exit', () => endFlush(counters, NOBODY_THERE));
