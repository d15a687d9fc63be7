"""Spark's session, and streams in the foreground until they end, fail or are stopped."""
