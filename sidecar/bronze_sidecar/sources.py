"""Where options are given: flags, variables and the YAML file. Each reader says what was given and where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bronze_sidecar.kinds import ListOf, Switch, file_fault
from bronze_sidecar.options import VARIABLE_PREFIX, Option, Raw
from bronze_sidecar.problems import Problem, did_you_mean, nearest, shorten

# Kubernetes sets these for Services whose names begin with 'sidecar'.
_SERVICE_VARIABLE = re.compile(
    r"SIDECAR_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
FILE_SIZE_LIMIT = 1 << 20


@dataclass
class Given:
    """The options that one source gives, and what is wrong with the way it gives them."""

    values: dict[str, tuple[str, Raw]] = field(default_factory=dict)
    """Option path to the place and the value."""
    problems: list[Problem] = field(default_factory=list)


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
        previous = flag
        if flag not in names.flags:
            given.problems.append(_unknown_flag(flag, names))
            if not equals and pending and not pending[-1].startswith("--"):
                pending.pop()
            continue
        option, is_file = names.flags[flag]
        if not equals:
            taken = _value_of(option, pending, names)
            if taken is None:
                given.problems.append(Problem(flag, "needs a value.", f"Write {flag}={option.kind.metavar}."))
                continue
            value = taken
        _give(given, option, flag, value, is_file=is_file)
    return given


def _value_of(option: Option[Any], pending: list[str], names: Names) -> str | None:
    """Take the value that follows a flag, if one does."""
    following = pending[-1] if pending else None
    if option.is_switch:
        is_value = following is not None and not isinstance(Switch().read(following), list)
        return pending.pop() if is_value else "true"
    if following is None or following.partition("=")[0] in names.flags:
        return None
    # A secret may begin with dashes; anything else that does is a mistyped flag.
    if following.startswith("--") and not option.secret:
        return None
    return pending.pop()


def _unknown_flag(flag: str, names: Names) -> Problem:
    close = nearest(flag, names.flags)
    return Problem(
        shorten(flag),
        "no such option.",
        f"Did you mean {close}?" if close else "`bronze-sidecar --help` lists all.",
    )


def from_environment(environ: Mapping[str, str], names: Names) -> Given:
    """Read `SIDECAR_*`; an empty variable counts as not set."""
    given = Given()
    for variable, value in sorted(environ.items()):
        if not variable.startswith(VARIABLE_PREFIX) or not value:
            continue
        if variable in names.variables:
            option, is_file = names.variables[variable]
            _give(given, option, variable, value, is_file=is_file)
        elif not _SERVICE_VARIABLE.fullmatch(variable):
            close = nearest(variable, names.variables)
            remedy = f"Did you mean {close}?" if close else "`bronze-sidecar --help` lists all."
            given.problems.append(Problem(shorten(variable), "no such option.", remedy))
    return given


def from_file(path: Path, names: Names) -> Given:
    """Read the YAML file. Scalars stay text, so that every source is read by the same rules."""
    reader = _FileReader(path, names)
    root = reader.compose()
    if root is not None:
        reader.read(root)
    return reader.given


class _NotText(Exception):  # noqa: N818 - private to this module
    """A node that should have been one value."""


class _FileReader:
    def __init__(self, path: Path, names: Names) -> None:
        self.path = path
        self.names = names
        self.given = Given()

    def report(self, where: str, what: str, remedy: str = "") -> None:
        self.given.problems.append(Problem(where, what, remedy))

    def compose(self) -> yaml.Node | None:
        """Parse the file to nodes, which know their lines."""
        path = str(self.path)
        try:
            content = self.path.read_bytes()
            if len(content) <= FILE_SIZE_LIMIT:
                root: yaml.Node | None = yaml.compose(content, Loader=yaml.SafeLoader)
                return root
            self.report(path, f"has more than {FILE_SIZE_LIMIT} bytes.")
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else path
            self.report(place, f"invalid YAML: {_without_quotes(error.problem or 'syntax error')}.")
        except (yaml.YAMLError, UnicodeError):
            self.report(path, "invalid YAML: it holds a character that is not allowed.")
        except RecursionError:
            self.report(path, "invalid YAML: it is nested too deeply.")
        except OSError as error:
            self.report(path, f"cannot be read: {error.strerror}.")
        return None

    def read(self, root: yaml.Node) -> None:
        for key, line, node in self.entries(root, "the file"):
            group = _folded(key)
            if not group or group not in self.names.keys:
                self.give("", key, line, node)
            elif not _is_null(node):
                for name, its_line, value in self.entries(node, f"'{group}'"):
                    self.give(group, name, its_line, value)

    def entries(self, node: yaml.Node, noun: str) -> Iterator[tuple[str, int, yaml.Node]]:
        """Yield key, line and value of a mapping; report what is no mapping, and keys given twice."""
        if not isinstance(node, yaml.MappingNode):
            self.report(f"{self.path}:{node.start_mark.line + 1}", f"{noun} must be a mapping of options.")
            return
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.report(f"{self.path}:{line}", "a key must be text.")
                continue
            folded = _folded(key_node.value)
            if folded in seen:
                what = f"'{shorten(key_node.value)}' is given twice, first in line {seen[folded]}."
                self.report(f"{self.path}:{line}", what)
            else:
                seen[folded] = line
                yield key_node.value, line, value_node

    def give(self, group: str, key: str, line: int, node: yaml.Node) -> None:
        known = self.names.keys[group]
        where = f"{self.path}:{line}: {shorten(f'{group}.{key}' if group else key)}"
        if _folded(key) not in known:
            choices = [*known, *(filter(None, self.names.keys) if not group else ())]
            self.report(where, "no such option.", did_you_mean(_folded(key), choices))
            return
        option, is_file = known[_folded(key)]
        try:
            raw = self.raw(node)
        except _NotText as error:
            self.report(where, str(error))
            return
        if raw is not None:
            _give(self.given, option, where, raw, is_file=is_file)

    def raw(self, node: yaml.Node) -> Raw | None:
        if isinstance(node, yaml.SequenceNode):
            return [_scalar(item) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            return {key: _scalar(value) for key, _, value in self.entries(node, "it")}
        return None if _is_null(node) else _scalar(node)


def _folded(key: str) -> str:
    return key.lower().replace("-", "_")


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _scalar(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _NotText("an entry must be one value, not a list or mapping.")
    if not node.tag.startswith("tag:yaml.org,2002:"):
        raise _NotText("has a YAML tag; put a value that begins with '!' in quotes.")
    return str(node.value)


def _without_quotes(problem: str) -> str:
    """Leave out what the YAML reader quotes from the file: it may be a secret."""
    return re.sub(r"""(['"]).{2,}\1""", "…", problem)


def _give(given: Given, option: Option[Any], where: str, raw: Raw, *, is_file: bool) -> None:
    """Note a value; a list option given again adds to it, any other must be given once."""
    if is_file:
        content = _secret_from(raw, where, given)
        if content is None:
            return
        raw = content
    if option.path not in given.values:
        given.values[option.path] = (where, raw)
        return
    first, earlier = given.values[option.path]
    if isinstance(option.kind, ListOf) and isinstance(earlier, str) and isinstance(raw, str):
        given.values[option.path] = (first, f"{earlier},{raw}")
    else:
        what = "is given twice." if first == where else f"is given twice, also by {first}."
        given.problems.append(Problem(where, what, "Give it once."))


def _secret_from(raw: Raw, where: str, given: Given) -> str | None:
    """Read a secret's file; an editor's newline at the end is not part of it."""
    if not isinstance(raw, str):
        given.problems.append(Problem(where, "must be the path of a file."))
        return None
    fault = file_fault(raw)
    if fault:
        given.problems.append(Problem(where, fault.what, fault.remedy))
        return None
    try:
        secret = Path(raw).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError):
        given.problems.append(Problem(where, f"the file '{shorten(raw)}' cannot be read as UTF-8 text."))
        return None
    if not secret:
        given.problems.append(Problem(where, f"the file '{shorten(raw)}' is empty."))
        return None
    return secret
