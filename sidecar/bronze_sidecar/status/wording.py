"""Numbers, sizes and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_KILO = 1024
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_FEW = 10


def count(number: float) -> str:
    """Write a number with separators."""
    return f"{number:,.0f}"


def plural(number: int, noun: str) -> str:
    """Write a number of things."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def rate(per_second: float) -> str:
    """Write a rate; slow ones with a digit behind the point."""
    text = f"{per_second:.1f}" if 0 < per_second < _FEW else count(per_second)
    return f"{text}/s"


def size(number: float) -> str:
    """Write a number of bytes."""
    unit = 0
    while number >= _KILO and unit < len(_UNITS) - 1:
        number /= _KILO
        unit += 1
    return f"{number:.1f} {_UNITS[unit]}" if unit and number < _FEW else f"{number:.0f} {_UNITS[unit]}"


def percent(part: float, whole: float) -> str:
    """Write a share; never 0 % of something, nor 100 % of less than all."""
    share = 100 * part / whole if whole else 0.0
    if part and share < 1:
        return "under 1 %"
    if part < whole and round(share) == 100:
        return "99 %"
    return f"{share:.0f} %"


def duration(seconds: float) -> str:
    """Write a duration by its two largest units."""
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def iso(seconds: float) -> str:
    """Write a time for programs."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def clock(time: str, now: str) -> str:
    """Write a time for people: without the day if that is today."""
    then = datetime.fromisoformat(time)
    form = "%H:%M:%S UTC" if then.date() == datetime.fromisoformat(now).date() else "%Y-%m-%d %H:%M UTC"
    return f"{then:{form}}"


def since(time: str, now: str) -> str:
    """Write since when, and for how long."""
    age = (datetime.fromisoformat(now) - datetime.fromisoformat(time)).total_seconds()
    return f"since {clock(time, now)} ({duration(max(0.0, age))})"
