"""JSON number text: whether it is zero, and the integer nearest to it from below."""

from __future__ import annotations

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
    mantissa, _, exponent = text.lower().partition("e")
    integer, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (integer + fraction).lstrip("0")
    if not digits:
        return 0, True
    negative = text[0] == "-"
    # The number is 0.<digits> times ten to the power of `point`.
    point = len(digits) - len(fraction) + _power(exponent, len(text))
    if point > _MOST_DIGITS:
        return (-(10**_MOST_DIGITS) if negative else 10**_MOST_DIGITS), False
    whole = int(digits[:point].ljust(point, "0")) if point > 0 else 0
    exact = not digits[max(point, 0) :].strip("0")
    if negative:
        whole = -whole if exact else -whole - 1
    return whole, exact


def _power(exponent: str, length: int) -> int:
    # A number of this length has too few digits to make up for more.
    most = length + _MOST_DIGITS
    digits = exponent.lstrip("+-0") or "0"
    power = min(int(digits), most) if len(digits) < _MOST_DIGITS else most
    return -power if exponent.startswith("-") else power
