"""Where options come from: flags and variables. Each reader reports what was given, and where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from bronze_cli.options import Option, Raw
from bronze_cli.problems import Fault, Problem, nearest, shorten
from bronze_cli.values import Switch, file_fault

# Anything larger is the wrong file, or an endless device.
SECRET_SIZE_LIMIT = 1 << 16


GivenValues: TypeAlias = Mapping[str, tuple[str, Raw | None]]
"""Option path to place and value; the value is None if it was already refused."""


@dataclass
class Given:
    """The options from one source, and what is wrong with how they are given."""

    values: dict[str, tuple[str, Raw | None]] = field(default_factory=dict, repr=False)
    problems: list[Problem] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    """Arguments that are not options, for a command that takes some."""

    def refuse(self, option: Option[Any], where: str, what: str, remedy: str = "") -> None:
        """Record that an option is given in a form that cannot be read."""
        self.problems.append(Problem(where, what, remedy))
        self.values.setdefault(option.path, (where, None))


class Names:
    """Every spelling of every option, for lookup."""

    def __init__(
        self, options: Sequence[Option[Any]], *, listed_by: str, takes_operands: bool = False
    ) -> None:
        self.options = options
        self.by_path = {option.path: option for option in options}
        self.flags: dict[str, tuple[Option[Any], bool]] = {}
        self.variables: dict[str, tuple[Option[Any], bool]] = {}
        self.keys: dict[str, dict[str, tuple[Option[Any], bool]]] = {"": {}}
        self.listed_by = listed_by
        """The command that lists the options."""
        self.takes_operands = takes_operands
        for option in options:
            self._add(option, is_file=False)
            if option.secret:
                self._add(option, is_file=True)

    def _add(self, option: Option[Any], *, is_file: bool) -> None:
        suffix = "file" if is_file else ""
        self.flags["-".join(filter(None, (option.flag, suffix)))] = (option, is_file)
        if option.variable:
            self.variables["_".join(filter(None, (option.variable, suffix.upper())))] = (option, is_file)
        if option.in_file:
            key = "_".join(filter(None, (option.name, suffix)))
            self.keys.setdefault(option.group, {})[key] = (option, is_file)

    def switched_off_by(self, flag: str) -> Option[Any] | None:
        """Return the switch that `--no-<its name>` means."""
        option, _ = self.flags.get(flag.replace("--no-", "--", 1), (None, False))
        return option if option and option.is_switch and flag.startswith("--no-") else None

    def unknown(self, name: str, among: Mapping[str, Any]) -> Problem:
        """Report a name that no option has, and the option probably meant."""
        close = nearest(name, among)
        remedy = f"Did you mean {close}?" if close else f"`{self.listed_by}` lists them all."
        return Problem(name_alone(name), "no such option.", remedy)


# -- the command line


class Argument(NamedTuple):
    """A piece of the command line: a flag with its value, or an operand."""

    words: list[str]
    """As typed."""
    flag: str = ""
    """Empty for an operand."""
    option: Option[Any] | None = None
    """None if there is no such flag."""
    is_file: bool = False
    """Whether the value is the path of a file that holds the secret."""
    value: str | None = None
    """None if a flag needs a value and has none."""


def read_arguments(arguments: Sequence[str], names: Names) -> Iterator[Argument]:
    """Split a command line: `--name value`, `--name=value` and, for switches, just `--name`."""
    pending = list(reversed(arguments))
    while pending:
        word = pending.pop()
        if not word.startswith("--"):
            yield Argument([word], value=word)
            continue
        flag, equals, value = word.partition("=")
        option, is_file = names.flags.get(flag, (None, False))
        switched_off = names.switched_off_by(word)
        if switched_off:
            yield Argument([word], word, switched_off, value="false")
            continue
        if equals:
            yield Argument([word], flag, option, is_file, value)
            continue
        # Whatever follows a mistyped flag is its value.
        meant = option or _meant(flag, names)
        has_value = (meant or not names.takes_operands) and _is_value(meant, pending, names)
        words = [word, pending.pop()] if has_value else [word]
        alone = "true" if option and option.is_switch else None
        yield Argument(words, flag, option, is_file, words[1] if has_value else alone)


def _meant(flag: str, names: Names) -> Option[Any] | None:
    close = nearest(flag, names.flags)
    return names.flags[close][0] if close else None


def _is_value(option: Option[Any] | None, pending: Sequence[str], names: Names) -> bool:
    """Return whether the next argument is the flag's value."""
    following = pending[-1] if pending else None
    if following is None or following.partition("=")[0] in names.flags or names.switched_off_by(following):
        return False
    if option and option.is_switch:
        return not isinstance(Switch().read(following), list)
    # A secret may begin with dashes; anything else that does is a mistyped flag.
    return not following.startswith("--") or bool(option and option.secret)


def from_flags(arguments: Sequence[str], names: Names) -> Given:
    """Read the command line."""
    given = Given()
    previous = "the command"
    for argument in read_arguments(arguments, names):
        flag, option, value = argument.flag, argument.option, argument.value
        if flag:
            previous = name_alone(flag)
        if not flag and names.takes_operands:
            given.operands.append(argument.words[0])
        elif not flag:
            # Not shown: it may be a piece of a secret.
            given.problems.append(Problem("command line", f"unexpected argument after {previous}."))
        elif option is None:
            given.problems.append(names.unknown(flag, names.flags))
        elif value is None:
            given.refuse(option, flag, "needs a value.", f"Write {flag}={option.value_type.metavar}.")
        else:
            give(given, option, flag, value, is_file=argument.is_file)
    return given


def without_secrets(arguments: Sequence[str], names: Names) -> tuple[list[str], dict[str, str]]:
    """Return a valid command line without its secrets, and the secrets by variable."""
    kept: list[str] = []
    secrets: dict[str, str] = {}
    for argument in read_arguments(arguments, names):
        option = argument.option
        if option and option.secret and not argument.is_file and argument.value is not None:
            secrets[option.variable] = argument.value
        else:
            kept += argument.words
    return kept, secrets


# -- the environment


def from_environment(environ: Mapping[str, str], names: Names, prefix: str) -> Given:
    """Read the variables that begin with the prefix; an empty one counts as not set."""
    given = Given()
    for variable, value in sorted(environ.items()):
        if not variable.startswith(prefix) or not value:
            continue
        if variable in names.variables:
            option, is_file = names.variables[variable]
            give(given, option, variable, value, is_file=is_file)
        else:
            given.problems.append(names.unknown(variable, names.variables))
    return given


# -- values


def give(given: Given, option: Option[Any], where: str, raw: Raw, *, is_file: bool) -> None:
    """Record a value; most options may be given only once."""
    if not _is_unicode(raw):
        given.refuse(option, where, "is not valid UTF-8.")
        return
    if is_file:
        content = _secret_from(raw)
        if isinstance(content, Fault):
            given.refuse(option, where, content.what, content.remedy)
            return
        raw = content
    if option.path not in given.values:
        given.values[option.path] = (where, raw)
        return
    first, earlier = given.values[option.path]
    both = None if earlier is None else option.value_type.combined(earlier, raw)
    if both is not None:
        given.values[option.path] = (first, both)
    else:
        what = "is given twice." if first == where else f"is given twice; {first} also sets it."
        given.problems.append(Problem(where, what, "Give it once."))


def parsed(values: GivenValues, names: Names, problems: list[Problem]) -> dict[str, Any]:
    """Return the value of each valid option, by path; add the problems of the others."""
    found = {}
    for path, (where, raw) in values.items():
        if raw is None:
            continue
        value_type = names.by_path[path].value_type
        value = value_type.parse(raw)
        if not isinstance(value, list):
            found[path] = value
        elif _may_hold_credentials(raw, value_type.before_credentials):
            what = "is invalid; it is not shown because it may hold credentials."
            problems += [Problem(where, what, fault.remedy) for fault in value]
        else:
            problems += [Problem(where, fault.what, fault.remedy) for fault in value]
    return found


def _may_hold_credentials(raw: Raw, sign: str) -> bool:
    """Whether '@' appears after the sign, even if a comma in the password splits the text."""
    texts = [raw] if isinstance(raw, str) else raw.values() if isinstance(raw, dict) else raw
    return any("@" in text.partition(sign)[2] for text in texts)


def missing(values: Mapping[str, object], options: Sequence[Option[Any]]) -> list[Problem]:
    """Report the required options that are not given."""
    return [
        Problem(each.flag, "is missing.", f"Write {each.flag}={each.value_type.metavar}.")
        for each in options
        if each.required and each.path not in values
    ]


def _is_unicode(raw: Raw) -> bool:
    """Whether the text can be encoded: bytes that are not UTF-8 come in as lone surrogates."""
    try:
        "".join((*raw, *raw.values()) if isinstance(raw, dict) else raw).encode()
    except UnicodeEncodeError:
        return False
    return True


def _secret_from(path: Raw) -> str | Fault:
    """Read a secret from its file, without the newline that editors add at the end."""
    if not isinstance(path, str):
        return Fault("must be the path of a file.")
    # The path is not shown: it may be the secret itself, given by mistake.
    fault = file_fault(path, shown=False)
    if fault:
        return Fault(fault.what, "Give the path of a file that holds the secret.")
    try:
        content = start_of(Path(path), SECRET_SIZE_LIMIT + 1)
        secret = content.decode().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError):
        return Fault("the file is not readable UTF-8 text.")
    if len(content) > SECRET_SIZE_LIMIT:
        return Fault(f"the file has more than {SECRET_SIZE_LIMIT} bytes.")
    return secret or Fault("the file is empty.")


def start_of(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def name_alone(text: str) -> str:
    """Show an unknown name up to the first character that no name contains: the rest may be a secret."""
    name = re.match(r"[\w.-]*", text)[0]  # type: ignore[index] # it matches anything
    return shorten(name if name == text else f"{name}…")
