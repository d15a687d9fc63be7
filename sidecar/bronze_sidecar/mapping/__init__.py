"""Normalized JSON messages to envelopes, without any I/O."""
