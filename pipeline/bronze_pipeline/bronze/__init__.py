"""From a bus to the bronze tables."""
