"""What the sidecar shows of itself: one snapshot of facts, as JSON, as a page, and in a terminal."""
