"""From producers' streams to events: the gRPC service, sessions, and the intake of batches."""
