"""NATS, through JetStream or without it."""
