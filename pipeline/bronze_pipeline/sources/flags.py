"""Flags of a bus on the command line, and the options of its source that they become.

A flag has one name in three spellings: `tls_ca_file` here, `--nats-tls-ca-file`, and the option `tlsCaFile`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

from bronze_pipeline.sources.base import OptionError

TLS = {
    "tls_ca_file": ("FILE", "certificates to trust"),
    "tls_cert_file": ("FILE", "client certificate, for mutual TLS"),
    "tls_key_file": ("FILE", "key of the client certificate"),
}


def add_flags(
    parser: argparse.ArgumentParser, bus: str, title: str, flags: Mapping[str, tuple[str, str]]
) -> argparse._ArgumentGroup:
    """Add flags with a value, given as what stands for the value and a text; return their group."""
    group = parser.add_argument_group(title)
    for name, (metavar, text) in flags.items():
        group.add_argument(_flag(bus, name), metavar=metavar, help=text)
    return group


def given_options(flags: argparse.Namespace, bus: str, names: Iterable[str]) -> dict[str, str]:
    """Return the options of the flags that were given."""
    values = {option_name(name): getattr(flags, f"{bus}_{name}") for name in names}
    return {option: value for option, value in values.items() if value is not None}


def require_both_or_neither(flags: argparse.Namespace, bus: str, first: str, second: str) -> None:
    if (getattr(flags, f"{bus}_{first}") is None) != (getattr(flags, f"{bus}_{second}") is None):
        raise OptionError(f"{_flag(bus, first)} and {_flag(bus, second)}: give both, or neither.")


def option_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def with_port(host: str, port: int) -> str:
    """Return a host with this port, unless it has one."""
    return host if ":" in host.rpartition("]")[2] else f"{host}:{port}"


def _flag(bus: str, name: str) -> str:
    return f"--{bus}-{name.replace('_', '-')}"
