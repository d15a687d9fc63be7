"""Where options are given: flags and variables. Each reader says what was given, and where."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bronze_cli.options import VARIABLE_PREFIX, Option, Raw
from bronze_cli.problems import Fault, Problem, nearest, shorten
from bronze_cli.values import ListOf, Switch, file_fault

# Kubernetes sets these for Services whose names begin with 'sidecar'.
_SERVICE_VARIABLE = re.compile(
    r"SIDECAR_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
# More is a wrong file, or a device without an end.
SECRET_SIZE_LIMIT = 1 << 16


@dataclass
class Given:
    """The options that one source gives, and what is wrong with the way it gives them."""

    values: dict[str, tuple[str, Raw | None]] = field(default_factory=dict, repr=False)
    """Option path to the place and the value; None where the value is refused already."""
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, option: Option[Any], where: str, what: str, remedy: str = "") -> None:
        """Note that an option is given in a way that cannot be read."""
        self.problems.append(Problem(where, what, remedy))
        self.values.setdefault(option.path, (where, None))


class Names:
    """Every spelling of every option, to look one up by."""

    def __init__(self, options: Sequence[Option[Any]]) -> None:
        self.by_path = {option.path: option for option in options}
        self.flags: dict[str, tuple[Option[Any], bool]] = {}
        self.variables: dict[str, tuple[Option[Any], bool]] = {}
        self.keys: dict[str, dict[str, tuple[Option[Any], bool]]] = {"": {}}
        for option in options:
            self._add(option, is_file=False)
            if option.secret:
                self._add(option, is_file=True)

    def _add(self, option: Option[Any], *, is_file: bool) -> None:
        suffix = "file" if is_file else ""
        self.flags["-".join(filter(None, (option.flag, suffix)))] = (option, is_file)
        self.variables["_".join(filter(None, (option.variable, suffix.upper())))] = (option, is_file)
        if option.in_file:
            key = "_".join(filter(None, (option.name, suffix)))
            self.keys.setdefault(option.group, {})[key] = (option, is_file)


def from_flags(arguments: Sequence[str], names: Names) -> Given:
    """Read `--name value`, `--name=value` and, for switches, `--name` alone."""
    given = Given()
    pending = list(reversed(arguments))
    previous = "the command"
    while pending:
        argument = pending.pop()
        if not argument.startswith("--"):
            # Not shown: it may be a piece of a secret.
            given.problems.append(Problem("command line", f"unexpected argument after {previous}."))
            continue
        flag, equals, value = argument.partition("=")
        previous = name_alone(flag)
        if flag not in names.flags:
            problem, meant = _unknown_flag(flag, names)
            given.problems.append(problem)
            if not equals and previous == flag:
                _value_of(meant, pending, names)
            continue
        option, is_file = names.flags[flag]
        if not equals:
            taken = _value_of(option, pending, names)
            if taken is None:
                given.refuse(option, flag, "needs a value.", f"Write {flag}={option.value_type.metavar}.")
                continue
            value = taken
        give(given, option, flag, value, is_file=is_file)
    return given


def _value_of(option: Option[Any] | None, pending: list[str], names: Names) -> str | None:
    """Take the value that follows a flag, if one does."""
    following = pending[-1] if pending else None
    if option and option.is_switch:
        is_value = following is not None and not isinstance(Switch().read(following), list)
        return pending.pop() if is_value else "true"
    if following is None or following.partition("=")[0] in names.flags:
        return None
    # A secret may begin with dashes; anything else that does is a mistyped flag.
    if following.startswith("--") and not (option and option.secret):
        return None
    return pending.pop()


def _unknown_flag(flag: str, names: Names) -> tuple[Problem, Option[Any] | None]:
    """Return what to say of a flag that does not exist, and the option that was probably meant."""
    close = nearest(flag, names.flags)
    remedy = f"Did you mean {close}?" if close else "`bronze-sidecar --help` lists all."
    meant = names.flags[close][0] if close else None
    return Problem(name_alone(flag), "no such option.", remedy), meant


def from_environment(environ: Mapping[str, str], names: Names) -> Given:
    """Read `SIDECAR_*`; an empty variable counts as not set."""
    given = Given()
    for variable, value in sorted(environ.items()):
        if not variable.startswith(VARIABLE_PREFIX) or not value:
            continue
        if variable in names.variables:
            option, is_file = names.variables[variable]
            give(given, option, variable, value, is_file=is_file)
        elif not _SERVICE_VARIABLE.fullmatch(variable):
            close = nearest(variable, names.variables)
            remedy = f"Did you mean {close}?" if close else "`bronze-sidecar --help` lists all."
            given.problems.append(Problem(shorten(variable), "no such option.", remedy))
    return given


def give(given: Given, option: Option[Any], where: str, raw: Raw, *, is_file: bool) -> None:
    """Note a value; a list option given again adds to it, any other must be given once."""
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
    if isinstance(option.value_type, ListOf) and isinstance(earlier, str) and isinstance(raw, str):
        given.values[option.path] = (first, f"{earlier},{raw}")
    else:
        what = "is given twice." if first == where else f"is given twice, also by {first}."
        given.problems.append(Problem(where, what, "Give it once."))


def _is_unicode(raw: Raw) -> bool:
    """Whether the text can be encoded: bytes that are not UTF-8 come in as lone surrogates."""
    try:
        "".join((*raw, *raw.values()) if isinstance(raw, dict) else raw).encode()
    except UnicodeEncodeError:
        return False
    return True


def _secret_from(path: Raw) -> str | Fault:
    """Read a secret's file; an editor's newline at the end is not part of it."""
    if not isinstance(path, str):
        return Fault("must be the path of a file.")
    # The path is not shown, for the secret itself may stand there by mistake.
    fault = file_fault(path, shown=False)
    if fault:
        return Fault(fault.what, "Give the path of a file that holds the secret.")
    try:
        content = start_of(Path(path), SECRET_SIZE_LIMIT + 1)
        secret = content.decode().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError):
        return Fault("the file cannot be read as UTF-8 text.")
    if len(content) > SECRET_SIZE_LIMIT:
        return Fault(f"the file has more than {SECRET_SIZE_LIMIT} bytes.")
    return secret or Fault("the file is empty.")


def start_of(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def name_alone(text: str) -> str:
    """Show a name that is no option's without what cannot be part of one: it may be a secret's value."""
    name = re.match(r"[\w.-]*", text)[0]  # type: ignore[index] # it matches anything
    return shorten(name if name == text else f"{name}…")
