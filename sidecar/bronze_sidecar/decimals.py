"""JSON number text: whether it is zero, and the integer nearest to it from below."""

from __future__ import annotations

import re

_PARTS = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?)0*(\d+))?", re.ASCII)

_NINE = ord("9")

_MOST_DIGITS = 20
"""Of any 64-bit integer."""


def is_zero(text: bytes) -> bool:
    """Tell whether a JSON number is zero, however it is spelled."""
    rest = text.lstrip(b"-0.")
    return not rest or rest[0] > _NINE  # an exponent, or another digit


def floor(text: str, lowest: int, highest: int) -> tuple[int, bool]:
    """Return the floor of a JSON number, held within the limits, and whether that is the number itself.

    The cost grows with the text's length only, never with its exponent.
    """
    if len(text) < _MOST_DIGITS and text.isdigit():
        whole, exact = int(text), True
    else:
        whole, exact = _floor(text)
    held = min(max(whole, lowest), highest)
    return held, exact and held == whole


def _floor(text: str) -> tuple[int, bool]:
    """Return the floor and whether it is exact; beyond 64 bits any integer beyond them will do."""
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise ValueError(text)
    sign, integer, fraction, exponent_sign, exponent = parts.groups("")
    digits = (integer + fraction).lstrip("0")
    if not digits:
        return 0, True
    # The number is 0.<digits> times ten to the power of `point`.
    point = len(digits) - len(fraction) + _power(exponent_sign, exponent, len(text))
    if point > _MOST_DIGITS:
        return (-(10**_MOST_DIGITS) if sign else 10**_MOST_DIGITS), False
    whole = int(digits[:point].ljust(point, "0")) if point > 0 else 0
    exact = not digits[max(point, 0) :].strip("0")
    if not sign:
        return whole, exact
    return (-whole if exact else -whole - 1), exact


def _power(sign: str, exponent: str, length: int) -> int:
    # No number of this many characters has more digits than that to make up for.
    most = length + _MOST_DIGITS
    power = min(int(exponent or "0"), most) if len(exponent) < _MOST_DIGITS else most
    return -power if sign == "-" else power
