"""Looking at a running sidecar from a terminal."""
