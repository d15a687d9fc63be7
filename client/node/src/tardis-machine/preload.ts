/**
 * What `node --require bronze-sidecar-client/tardis-machine` loads. It also runs in every other program and thread
 * that inherits NODE_OPTIONS, so it loads nothing else unless the client is switched on.
 */
export {};

if (process.env.BRONZE_SIDECAR_ADDRESS) {
  try {
    const { isMainThread } = require('node:worker_threads') as typeof import('node:worker_threads');
    if (isMainThread) (require('./start.js') as typeof import('./start.js')).start();
  } catch (error) {
    // A part of the client cannot be loaded, perhaps the one that guards the others.
    process.emitWarning(`bronze-sidecar: the client cannot be loaded: ${String(error)}`);
  }
}
