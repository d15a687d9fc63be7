"""Redis Streams."""
