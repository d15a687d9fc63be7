"""Why a bus cannot be used. The class says whether trying again can help."""

from __future__ import annotations


class BusError(Exception):
    """A bus cannot be used; the text says why, and how to fix it if that is known."""


class Unreachable(BusError):  # noqa: N818 - named for what it says
    """It cannot be used now, but may be later."""


class Refused(BusError):  # noqa: N818 - named for what it says
    """It does not let us in, and will not until someone changes something; the text says what."""
