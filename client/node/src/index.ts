/** The client of the sidecar: `connect` and what it gives. The messages themselves are in `./schema`. */
export { type Failure, PublishError, type Undelivered } from './errors.js';
export { streamIdFor } from './identity.js';
export type { OnFull, Options, Origin } from './options.js';
export type { Stats } from './outcomes.js';
export { connect, type Publisher } from './publisher.js';
export type { PublisherEvents } from './session.js';
