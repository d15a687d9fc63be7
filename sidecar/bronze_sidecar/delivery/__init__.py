"""From records to confirmations: what waits for a back end, and what is tried again."""
