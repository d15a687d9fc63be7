"""Options of a source, declared once for the command line and for Spark.

On the command line they are flags. Spark passes them on as text, with names in camelCase: `tls_ca_file` is
`--nats-tls-ca-file` on the command line and `tlsCaFile` in Spark. They appear in Spark's plans, so they name
files with secrets and never hold a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bronze_cli.given import Names, parsed
from bronze_cli.options import Raw, option, options_of
from bronze_cli.problems import Fault, Problem, shorten
from bronze_cli.values import Choice, Integer, Scalar, Text

EARLIEST, LATEST = "earliest", "latest"


class OptionError(ValueError):
    """An option of a source cannot be used."""


@dataclass(frozen=True)
class StreamOptions:
    """What every source takes."""

    start: str = option(
        Text(), "Where a new checkpoint begins: earliest, latest or a position.", default=EARLIEST
    )
    max_records_per_batch: int = option(
        Integer(1, 10**9), "Maximum records in a micro-batch.", default=500_000
    )
    partitions: int = option(Integer(1, 10_000), "Tasks per micro-batch.", default=2)
    on_data_loss: str = option(
        Choice("fail", "continue"),
        "What to do if the bus has lost unread records: stop, or record the loss in quarantine and continue.",
        default="fail",
    )

    @property
    def goes_on_after_loss(self) -> bool:
        return self.on_data_loss == "continue"

    def faults(self) -> Iterator[tuple[str, Fault]]:
        """Yield conflicts between options, and faults that types cannot see, each with its option."""
        yield from ()


Made = TypeVar("Made", bound=StreamOptions)


class Start(Scalar):
    """A place to start."""

    metavar = "POSITION"

    def read(self, text: str) -> str | list[Fault]:
        if text in {EARLIEST, LATEST} or self.is_position(text):
            return text
        return [Fault(f"'{shorten(text)}' is not a valid start.", f"Use {self.choices()}.")]

    def is_position(self, text: str) -> bool:
        raise NotImplementedError

    def choices(self) -> str:
        raise NotImplementedError


def made(
    cls: type[Made], given: Mapping[str, tuple[str, Raw | None]], problems: list[Problem]
) -> Made | None:
    """Make a source's options from texts, each with its origin; add everything that is wrong."""
    names = Names(options_of(cls), listed_by="")
    found: list[Problem] = []
    values = parsed(given, names, found)
    found += [
        Problem(option_name(each.name), "is missing.")
        for each in names.options
        if each.required and each.path not in given
    ]
    options = None
    if not found:
        options = cls(**{names.by_path[path].attribute: value for path, value in values.items()})
        for name, fault in options.faults():
            where = given[name][0] if name in given else option_name(name)
            found.append(Problem(where, fault.what, fault.remedy))
    problems += found
    return None if found else options


def read_options(cls: type[Made], source: str, given: Mapping[str, str]) -> Made:
    """Make a source's options from what Spark passes on; raise OptionError with everything that is wrong."""
    names = {option_name(each.name).lower(): each.name for each in options_of(cls)}
    texts: dict[str, tuple[str, Raw | None]] = {
        names[name.lower()]: (option_name(names[name.lower()]), text)
        for name, text in given.items()
        if name.lower() in names and text
    }
    problems: list[Problem] = []
    options = made(cls, texts, problems)
    if options is None:
        raise OptionError("; ".join(f"{source}: {problem}" for problem in problems))
    return options


def option_name(name: str) -> str:
    """Return an option's name in Spark."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def both_or_neither(
    options: StreamOptions, flags: str, *pairs: tuple[str, str]
) -> Iterator[tuple[str, Fault]]:
    """Yield options that mean nothing without each other; `flags` is the start of their flags."""
    for first, second in pairs:
        for given, absent in ((first, second), (second, first)):
            if getattr(options, given) is not None and getattr(options, absent) is None:
                flag = f"{flags}-{absent.replace('_', '-')}"
                yield given, Fault("has no effect on its own.", f"Add {flag}.")


def read_secret(flag: str, path: Path | None) -> str | None:
    """Return a file's content, without the newline at the end."""
    if path is None:
        return None
    try:
        return path.read_text().rstrip("\r\n")
    except OSError as error:
        raise OptionError(f"{flag}: {path} cannot be read: {error.strerror}.") from error


def with_port(host: str, port: int) -> str:
    """Return a host with this port, unless it has one."""
    return host if ":" in host.rpartition("]")[2] else f"{host}:{port}"


def hosts(netloc: str, port: int) -> Sequence[str]:
    """Return the hosts of a URL, each with a port."""
    return [with_port(host, port) for host in netloc.split(",") if host]
