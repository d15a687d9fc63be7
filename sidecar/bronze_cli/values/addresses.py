"""Where things are: hosts, ports, sockets and URLs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bronze_cli.problems import Fault, control_character, shorten
from bronze_cli.values.scalars import Scalar

UNIX = "unix://"
# The kernel's sun_path has 108 bytes, one of them for the terminating zero.
UNIX_PATH_LIMIT = 107


@dataclass(frozen=True)
class Url(Scalar):
    """A URL with a host and without credentials."""

    schemes: tuple[str, ...] = ("http", "https")
    credentials: bool = False
    """Whether it may hold a user and password; such an option is secret."""
    metavar = "URL"

    def read(self, text: str) -> str | list[Fault]:
        expected = f"It looks like {self.schemes[0]}://host:port."
        try:
            parts = urlsplit(text)
            host, _ = parts.hostname, parts.port
        except ValueError:
            return [Fault("is not a valid URL.", expected)]
        starts_right = text.startswith(tuple(f"{scheme}://" for scheme in self.schemes))
        if control_character(text) or " " in text or not starts_right or not host:
            return [Fault("is not a valid URL.", expected)]
        if "@" in parts.netloc and not self.credentials:
            return [Fault("holds credentials.", "Use the separate options for credentials.")]
        return text


@dataclass(frozen=True)
class ListenAddress(Scalar):
    """Where to listen: host:port, or a unix socket."""

    unix: bool
    metavar = "ADDRESS"

    def read(self, text: str) -> str | list[Fault]:
        if self.unix and text.startswith("unix:"):
            path = text.removeprefix(UNIX)
            if not text.startswith(UNIX + "/") or "\0" in path:
                return [Fault(f"'{shorten(text)}' is not a unix socket.", "Write unix:///absolute/path.")]
            if len(os.fsencode(path)) > UNIX_PATH_LIMIT:
                return [
                    Fault(
                        f"the socket's path has more than {UNIX_PATH_LIMIT} bytes.", "Choose a shorter one."
                    )
                ]
            return text
        if self.unix and text.startswith("/"):
            return [Fault(f"'{shorten(text)}' is a path.", f"For a unix socket write {UNIX}{shorten(text)}.")]
        fault = host_port_fault(text, least_port=0)
        return [fault] if fault else text


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach an address."""
    host = address.rpartition(":")[0].strip("[]")
    # A name may begin with 127 too.
    is_ipv4_loopback = re.fullmatch(r"127(\.[0-9]{1,3}){3}", host)
    return address.startswith(UNIX) or host in {"localhost", "::1"} or bool(is_ipv4_loopback)


def is_plain_and_remote(url: str, scheme: str) -> bool:
    """Tell whether a URL has this scheme, without TLS, and names another machine."""
    parts = urlsplit(url)
    return parts.scheme == scheme and not is_loopback(f"{parts.hostname}:0")


class SocketMode(Scalar):
    """A file mode in octal."""

    metavar = "MODE"

    def read(self, text: str) -> int | list[Fault]:
        if not re.fullmatch(r"0?[0-7]{3}", text):
            return [Fault(f"'{shorten(text)}' is not a file mode.", "Use three octal digits, such as 660.")]
        return int(text, 8)

    def show(self, value: Any) -> str:
        return f"{value:o}"

    def json_schema(self) -> dict[str, Any]:
        return {"type": ["string", "integer"]}


def host_port_fault(text: str, *, least_port: int = 1) -> Fault | None:
    """Return what is wrong with a host:port, or None."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})", text)
    if match and least_port <= int(match[2]) <= 65_535:
        return None
    # The text is not shown: it may be part of an address with credentials, split at a comma in the password.
    if "@" in text:
        return Fault("holds credentials.", "Write host:port, and use the separate options for credentials.")
    return Fault("is not an address.", "Write host:port, with a port up to 65535.")


class Host(Scalar):
    """A server's name or IP address, without a port."""

    metavar = "HOST"

    def read(self, text: str) -> str | list[Fault]:
        # An IPv6 address has more colons than the one before a port.
        if re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f.]*:[0-9A-Fa-f.:]*:[0-9A-Fa-f.]*", text):
            return text
        return [Fault("is not a host.", "Write only its name or IP address, without a port or credentials.")]


class Broker(Scalar):
    """A server as host:port."""

    metavar = "HOST:PORT"

    def read(self, text: str) -> str | list[Fault]:
        fault = host_port_fault(text)
        return [fault] if fault else text
