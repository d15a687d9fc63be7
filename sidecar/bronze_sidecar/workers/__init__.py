"""Several processes that share the addresses, and one that watches over them: `supervisor.py`."""
