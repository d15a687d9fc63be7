"""The event that tells readers of a bus that a stream has ended, and how many messages it had."""

from __future__ import annotations

import time

from bronze_client.schema import NormalizedEvent

from bronze_sidecar.envelope.event import Event
from bronze_sidecar.envelope.payloads import ORIGINS
from bronze_sidecar.mapping.mapper import StreamContext

DATA_TYPE = "stream_end"
END_CASE = "disconnect"
REASON = "stream_ended"
UNKNOWN_EXCHANGE = "unknown"

# No producer can name a stream so. At a position of the stream itself the end of a replay that was cut short
# would have the id of a message of the whole replay, and that would be dropped as a repetition.
ID_MARK = "~end"


def end_event(context: StreamContext, exchange: str, messages: int, dropped: int) -> Event:
    """Return the end of a stream that had so many messages, of which so many were dropped.

    `exchange` is that of the last one; if it is not known, empty.
    """
    meta = {
        "data_type": DATA_TYPE,
        "stream_messages": str(messages),
        "stream_dropped": str(dropped),
        **{key: value for key in ("request_id", "session_id") if (value := getattr(context, key))},
        **context.meta,
    }
    event_id = f"{context.stream_id}{ID_MARK}:{messages}"
    envelope = NormalizedEvent(
        source=context.source,
        exchange=exchange or UNKNOWN_EXCHANGE,
        origin=f"ORIGIN_{ORIGINS[context.origin].upper()}",
        meta={**meta, "event_id": event_id},
    )
    envelope.ingest_ts.FromNanoseconds(time.time_ns())
    envelope.disconnect.reason = REASON
    return Event(
        envelope.SerializeToString(),
        event_id,
        END_CASE,
        envelope.exchange,
        "",
        DATA_TYPE,
        context.source,
        ORIGINS[context.origin],
        meta,
    )
