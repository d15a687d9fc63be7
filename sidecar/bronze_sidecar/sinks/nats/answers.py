"""What JetStream's answers mean for a record."""

from __future__ import annotations

import json

from bronze_sidecar.errors import DeliveryError, Permanent, Transient
from bronze_sidecar.sinks.nats.confirmations import FORBIDDEN

# nats-server/server/errors.json. Of all codes that a publisher can get, only these are about the message
# itself; others are about headers that begin with `Nats-`, which no option lets through. What is about the
# stream, the account or the cluster may change: a full stream is emptied, a sealed one is replaced.
PERMANENT_CODES = {
    10054: "the message is larger than the stream allows",
    10097: "the headers are larger than the server allows",
}
BATCHES_DISABLED, UNKNOWN_BATCH = 10205, 10208
NO_STREAM = b"NATS/1.0 503"


def is_no_stream(answer: bytes) -> bool:
    """Tell whether nobody takes the subject: there is no such stream, or nobody leads it now."""
    return answer.startswith(NO_STREAM)


def error_code(answer: bytes) -> int:
    """Return the code of a refusal; 0 if it has none."""
    return _error(answer)[0]


def refusal(answer: bytes) -> DeliveryError:
    """Classify an answer that is not a confirmation."""
    if answer == FORBIDDEN.encode():
        return Permanent(FORBIDDEN)
    if is_no_stream(answer):
        return Transient("no JetStream stream accepts the subject, or its leader is unavailable")
    code, text = _error(answer)
    if code in PERMANENT_CODES:
        return Permanent(f"{PERMANENT_CODES[code]}: {text}")
    return Transient(f"{text} ({code})" if text else f"unknown answer: {answer[:100]!r}")


def _error(answer: bytes) -> tuple[int, str]:
    try:
        error = json.loads(answer)["error"]
        return int(error.get("err_code", 0)), str(error.get("description", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0, ""
