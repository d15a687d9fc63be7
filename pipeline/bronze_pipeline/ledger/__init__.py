"""The ledger: which ids a bronze table has, kept beside it as a handful of runs for each stream."""
