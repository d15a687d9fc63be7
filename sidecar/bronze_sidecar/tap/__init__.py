"""Events as they pass, for those who look: a bounded sample, decoded by whoever asked for it."""
