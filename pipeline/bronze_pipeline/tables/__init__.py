"""Tables of Parquet files: writing, committing, and leaving out what is already there."""
