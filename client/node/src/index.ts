/** The sidecar's client: `connect` and the types it uses. The Protobuf messages are in `./schema`. */
export { type Failure, PublishError, type Undelivered } from './errors.js';
export { streamIdFor } from './identity.js';
export type { OnFull, Options, Origin } from './options.js';
export type { Stats } from './outcomes.js';
export { connect, type Publisher } from './publisher.js';
export type { PublisherEvents } from './session.js';
