"""Silver: typed tables of the bronze events, and what is made from them.

    bronze -> records.py -> trades        -> bars.py -> bars_1m, …
                            book_changes  -> book_stream.py -> book_top
                            …

`follow.py` reads a table as a stream of its files, as listed by `logs.py`; `storing.py` and `upserts.py`
write tables, each micro-batch once. `job.py` puts these together; every arrow above is a streaming query
with its own checkpoint.
"""
