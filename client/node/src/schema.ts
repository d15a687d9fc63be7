/** The Bronze envelope and the sidecar's gRPC messages, generated from `proto/`. */
export * from './generated/bronze/sidecar/v1/sidecar_pb.js';
export * from './generated/lakehouse/bronze/v1/normalized_event_pb.js';
