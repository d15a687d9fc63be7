"""What a server's error answers mean for the entries that were sent."""

from __future__ import annotations

from enum import Enum, auto

from bronze_buses.redis import error_text
from redis.exceptions import ResponseError

from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient


class Verdict(Enum):
    """What an answer means, which decides what to do next."""

    KEY_REFUSED = auto()
    """Every entry of the key would get this answer."""
    ENTRY_REFUSED = auto()
    """This entry will always get it; others of its key may not."""
    SERVER_LOST = auto()
    """The server takes no writes on this connection; after reconnecting, another may have taken its place."""
    NOT_NOW = auto()
    """It passes, or can be put right without changing the entry."""


CODES = {
    "WRONGTYPE": Verdict.KEY_REFUSED,
    "NOPERM": Verdict.KEY_REFUSED,
    "LOADING": Verdict.SERVER_LOST,
    "MASTERDOWN": Verdict.SERVER_LOST,
    "NOAUTH": Verdict.SERVER_LOST,
    "READONLY": Verdict.SERVER_LOST,
    "ASK": Verdict.NOT_NOW,
    "BUSY": Verdict.NOT_NOW,  # another client's script runs
    "CLUSTERDOWN": Verdict.NOT_NOW,
    "CROSSSLOT": Verdict.NOT_NOW,  # about a call for several keys, which then get one each
    "MISCONF": Verdict.NOT_NOW,  # the server cannot write to its disk
    "MOVED": Verdict.NOT_NOW,
    "NOREPLICAS": Verdict.NOT_NOW,
    "NOSCRIPT": Verdict.NOT_NOW,
    "OOM": Verdict.NOT_NOW,
    "TRYAGAIN": Verdict.NOT_NOW,
}
"""Answers by the code with which they begin; an unknown one may pass."""

TEXTS = {
    # So that it is opened again for a user who may not run scripts.
    "to run the 'eval": Verdict.SERVER_LOST,
    # Its last id is the largest that there is, so it can grow no more; older servers say the second.
    "exhausted the last possible ID": Verdict.KEY_REFUSED,
    "equal or smaller than the target stream top item": Verdict.KEY_REFUSED,
    "Elements are too large to be stored": Verdict.ENTRY_REFUSED,
    # The server closes the connection after it.
    "Protocol error": Verdict.SERVER_LOST,
}
"""Answers by what they contain; these come first, because most of them have no code but `ERR`."""

VALUE_TOO_LARGE = "Protocol error: invalid bulk length"


class KeyRefused(Permanent):
    """The same holds for every other entry of the key."""


ERRORS: dict[Verdict, type[DeliveryError]] = {
    Verdict.KEY_REFUSED: KeyRefused,
    Verdict.ENTRY_REFUSED: Permanent,
    Verdict.SERVER_LOST: Disconnected,
    Verdict.NOT_NOW: Transient,
}


def classify(error: Exception) -> DeliveryError:
    """Return what an error answer, or no answer, means for what was sent."""
    if isinstance(error, DeliveryError):
        return error
    if not isinstance(error, ResponseError):
        return Disconnected(error_text(error))
    return classify_text(error_text(error))


def classify_text(text: str) -> DeliveryError:
    """Return what an error from the server means."""
    verdict = next((verdict for part, verdict in TEXTS.items() if part in text), None)
    if verdict is None:
        verdict = CODES.get(text.partition(" ")[0], Verdict.NOT_NOW)
    return ERRORS[verdict](text)
