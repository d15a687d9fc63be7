"""What a server's error answers mean for the entries that were sent."""

from __future__ import annotations

from enum import Enum, auto

from bronze_buses.redis import error_text
from redis.exceptions import ResponseError

from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient


class Meaning(Enum):
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
    "WRONGTYPE": Meaning.KEY_REFUSED,
    "NOPERM": Meaning.KEY_REFUSED,
    "LOADING": Meaning.SERVER_LOST,
    "MASTERDOWN": Meaning.SERVER_LOST,
    "NOAUTH": Meaning.SERVER_LOST,
    "READONLY": Meaning.SERVER_LOST,
    "ASK": Meaning.NOT_NOW,
    "BUSY": Meaning.NOT_NOW,  # another client's script runs
    "CLUSTERDOWN": Meaning.NOT_NOW,
    "CROSSSLOT": Meaning.NOT_NOW,  # about a call for several keys, which then get one each
    "MISCONF": Meaning.NOT_NOW,  # the server cannot write to its disk
    "MOVED": Meaning.NOT_NOW,
    "NOREPLICAS": Meaning.NOT_NOW,
    "NOSCRIPT": Meaning.NOT_NOW,
    "OOM": Meaning.NOT_NOW,
    "TRYAGAIN": Meaning.NOT_NOW,
}
"""Answers by the code with which they begin; an unknown one may pass."""

TEXTS = {
    # So that it is opened again for a user who may not run scripts.
    "to run the 'eval": Meaning.SERVER_LOST,
    # Its last id is the largest that there is, so it can grow no more; older servers say the second.
    "exhausted the last possible ID": Meaning.KEY_REFUSED,
    "equal or smaller than the target stream top item": Meaning.KEY_REFUSED,
    "Elements are too large to be stored": Meaning.ENTRY_REFUSED,
    # The server closes the connection after it.
    "Protocol error": Meaning.SERVER_LOST,
}
"""Answers by what they contain; these come first, because most of them have no code but `ERR`."""

VALUE_TOO_LARGE = "Protocol error: invalid bulk length"


class KeyRefused(Permanent):
    """The same holds for every other entry of the key."""


ERRORS: dict[Meaning, type[DeliveryError]] = {
    Meaning.KEY_REFUSED: KeyRefused,
    Meaning.ENTRY_REFUSED: Permanent,
    Meaning.SERVER_LOST: Disconnected,
    Meaning.NOT_NOW: Transient,
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
    meaning = next((meaning for part, meaning in TEXTS.items() if part in text), None)
    if meaning is None:
        meaning = CODES.get(text.partition(" ")[0], Meaning.NOT_NOW)
    return ERRORS[meaning](text)
