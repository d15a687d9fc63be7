"""Connecting to a bus: shared by the sidecar, which writes, and the pipeline, which reads."""
