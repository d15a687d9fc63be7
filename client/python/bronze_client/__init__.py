"""The client of the sidecar: `connect`, `connect_sync` and what they give.

Importing it, and using it without an address, imports neither gRPC nor Protobuf. The messages
themselves are in `bronze_client.schema`.
"""

from bronze_client.errors import Failure, PublishError
from bronze_client.identity import stream_id_for
from bronze_client.outcomes import Stats
from bronze_client.publisher import Publisher, connect
from bronze_client.sync import SyncPublisher, connect_sync

__all__ = [
    "Failure",
    "PublishError",
    "Publisher",
    "Stats",
    "SyncPublisher",
    "connect",
    "connect_sync",
    "stream_id_for",
]
