"""Spark's session, and streams that run in the foreground until they end, fail or are stopped."""
