"""The encoded envelope: its payload cases, its wire format, and what routing reads of it."""
