"""A program with commands: help, version, shell completion, and how errors become exit statuses.

Exit status: 0 done · 1 the work failed · 2 the command line or the configuration cannot be used. A command
may define more.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from bronze_cli.completion import SHELLS, script
from bronze_cli.given import Names
from bronze_cli.help import described, wrapped
from bronze_cli.options import Option
from bronze_cli.problems import ConfigError, did_you_mean, shorten

EXIT_FAILED, EXIT_USAGE = 1, 2
DISTRIBUTION = "bronze-sidecar"


class CommandFailed(Exception):  # noqa: N818 - named for what it says
    """The work failed; the text says why."""


class Implementation(Protocol):
    """The module of a command."""

    DESCRIPTION: str
    """What the command does, for its help."""
    OPTIONS: Sequence[Option[Any]]
    """The options that its help describes."""
    NAMES: Names
    """All options that it takes."""

    def run(self, arguments: Sequence[str], /) -> int:
        """Run the command; return the exit status.

        Raise ConfigError for unusable input, CommandFailed if the work fails.
        """


@dataclass(frozen=True)
class Command:
    """A command of a program; its module is imported when it is needed."""

    name: str
    arguments: str
    """What follows the name in its usage."""
    summary: str
    module: str

    def load(self) -> Implementation:
        return cast("Implementation", importlib.import_module(self.module))


@dataclass(frozen=True)
class Program:
    """What `main` of a program needs to know."""

    name: str
    description: str
    commands: Sequence[Command]
    more_help: str = ""
    """Shown below the list of commands."""
    topics: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    """Further pages of `help`, by name."""
    build: Callable[[], str] = str
    """Returns what to print behind the version, if anything."""

    def main(self, arguments: Sequence[str]) -> int:
        """Run one command; return the exit status."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A terminal that cannot show a character shows its number instead.
                stream.reconfigure(errors="backslashreplace")
        try:
            status = self._run(*(arguments or ["--help"]))
            if sys.stdout:
                sys.stdout.flush()
        except ConfigError as error:
            return self._refuse(str(error))
        except CommandFailed as error:
            print(f"{self.name}: {error}", file=sys.stderr)
            return EXIT_FAILED
        except BrokenPipeError:
            # The reader, such as `head`, has seen enough; nothing more may be written at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return status

    def _run(self, word: str, *rest: str) -> int:
        commands = {command.name: command for command in self.commands}
        if word in {"-h", "--help", "help"}:
            return self._help(commands, rest)
        if word in {"-V", "--version"}:
            print(f"{self.name} {version()}{self.build()}")
            return 0
        if word == "completion":
            return self._completion(rest)
        if word.startswith("-"):
            # Not shown: it may hold a secret.
            remedy = f"`{self.name} --help` lists the commands."
            return self._refuse(f"the command must come before the options. {remedy}")
        if word not in commands:
            return self._unknown("command", word, (*commands, "completion", "help"))
        if not {"-h", "--help"}.isdisjoint(rest):
            print(self._help_of(commands[word]))
            return 0
        return commands[word].load().run(rest)

    def _refuse(self, message: str) -> int:
        print(f"{self.name}: {message}", file=sys.stderr)
        return EXIT_USAGE

    def _unknown(self, noun: str, word: str, known: Sequence[str]) -> int:
        return self._refuse(f"there is no {noun} '{shorten(word)}'. {did_you_mean(word, known)}")

    # -- help

    def _help(self, commands: Mapping[str, Command], rest: Sequence[str]) -> int:
        if not rest:
            print(self._overview())
        elif rest[0] in commands:
            print(self._help_of(commands[rest[0]]))
        elif rest[0] in self.topics:
            print(self.topics[rest[0]]())
        else:
            return self._unknown("help on", rest[0], (*commands, *self.topics))
        return 0

    def _overview(self) -> str:
        more = Command("completion", "|".join(SHELLS), "print a completion script for a shell", "")
        rows = [(f"{each.name} {each.arguments}".strip(), each.summary) for each in (*self.commands, more)]
        width = max(len(usage) for usage, _ in rows)
        lines = [
            f"usage: {self.name} COMMAND [OPTIONS]",
            "",
            *wrapped(self.description),
            "",
            "commands:",
            *(f"  {usage:<{width}}  {summary}" for usage, summary in rows),
            "",
            f"`{self.name} COMMAND --help` describes a command, `{self.name} --version` prints the version.",
        ]
        return "\n".join(lines) + (f"\n{self.more_help}" if self.more_help else "")

    def _help_of(self, command: Command) -> str:
        module = command.load()
        lines = [
            f"usage: {self.name} {command.name} {command.arguments}".rstrip(),
            "",
            *wrapped(module.DESCRIPTION),
        ]
        if module.OPTIONS:
            lines += ["", "options:", *described(module.OPTIONS)]
        return "\n".join(lines)

    def _completion(self, rest: Sequence[str]) -> int:
        if len(rest) != 1 or rest[0] not in SHELLS:
            return self._refuse(f"completion takes the name of a shell: {', '.join(SHELLS)}.")
        flags = {command.name: command.load().NAMES.flags for command in self.commands}
        flags |= {"completion": {}, "help": {}}
        print(script(rest[0], self.name, flags), end="")
        return 0


def version() -> str:
    """Return the version of the installed distribution."""
    from importlib import metadata  # noqa: PLC0415 - slow to load, and rarely needed

    return metadata.version(DISTRIBUTION)
