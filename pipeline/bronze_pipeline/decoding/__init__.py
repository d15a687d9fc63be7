"""Envelopes to Arrow columns."""
