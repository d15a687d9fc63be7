"""The configuration in force, without its secrets, and where each value came from."""

from __future__ import annotations

import re
from typing import Any

from bronze_cli.options import Option

from bronze_sidecar.configuration.bounds import Bounds
from bronze_sidecar.configuration.config import OPTIONS, Config

HIDDEN = "***"
DEFAULT = "default"
_CREDENTIALS = re.compile(r"(://)[^/\s]*@")
_FILE_PLACE = re.compile(r"(.*:\d+): \S+")
_FROM_MEMORY = {
    **dict.fromkeys(Bounds._fields, "from --memory-limit"),
    "memory_limit": "from the container, or the default",
}


def masked(text: str) -> str:
    """Leave out the user and password of any URL in a text."""
    return _CREDENTIALS.sub(rf"\1{HIDDEN}@", text)


def settings(config: Config) -> list[dict[str, str]]:
    """Return each option that counts: its name, its value, and where that came from."""
    holders: dict[str, Any] = {"": config, **{backend.name: backend for backend in config.backends}}
    return [
        {
            "option": option.flag,
            "value": _shown(option, getattr(holders[option.group], option.attribute)),
            "from": _place(config, option),
        }
        for option in OPTIONS
        if option.group in holders
    ]


def _shown(option: Option[Any], value: Any) -> str:
    if value is None:
        return ""
    if option.secret:
        return HIDDEN
    return masked(option.value_type.show(value))


def _place(config: Config, option: Option[Any]) -> str:
    where = config.places.get(option.path)
    if where is None:
        return _FROM_MEMORY.get(option.path, DEFAULT)
    in_file = _FILE_PLACE.fullmatch(where)
    return in_file[1] if in_file else where
