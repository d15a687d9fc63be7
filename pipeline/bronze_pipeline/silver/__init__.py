"""Silver: typed tables of the bronze events, and what is made of them.

    bronze -> records.py -> trades        -> bars.py -> bars_1m, …
                            book_changes  -> book_stream.py -> book_top
                            …

`follow.py` reads a table as a stream of its files, as `logs.py` lists them; `storing.py` and `upserts.py`
write tables, each micro-batch once. `job.py` puts these together, and every arrow above is a streaming
query with a checkpoint of its own.
"""
