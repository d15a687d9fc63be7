"""NATS, with or without JetStream."""
