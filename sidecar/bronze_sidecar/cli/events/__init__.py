"""What becomes of single events: `explain` before they are sent, `tap` as they pass."""
