"""The YAML file as a source of options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml
from bronze_cli.given import Given, Names, give, name_alone, start_of
from bronze_cli.options import Raw
from bronze_cli.problems import Problem, did_you_mean

# Anything larger is the wrong file, or an endless device.
FILE_SIZE_LIMIT = 1 << 20


def from_file(path: Path, names: Names) -> Given:
    """Read the YAML file. Scalars stay text, so that every source is read by the same rules."""
    reader = _FileReader(path, names)
    root = reader.compose()
    if root is not None and not _is_null(root):
        reader.read(root)
    return reader.given


class _NotText(Exception):  # noqa: N818 - private to this module
    """A node that should have been a single value."""


class _FileReader:
    def __init__(self, path: Path, names: Names) -> None:
        self.path = path
        self.names = names
        self.given = Given()
        self.groups: list[tuple[str, int]] = []
        """The back ends named so far, each with its line."""

    def report(self, where: str, what: str, remedy: str = "") -> None:
        self.given.problems.append(Problem(where, what, remedy))

    def compose(self) -> yaml.Node | None:
        """Parse the file into nodes, which know their lines."""
        path = str(self.path)
        try:
            content = start_of(self.path, FILE_SIZE_LIMIT + 1)
            if len(content) <= FILE_SIZE_LIMIT:
                root: yaml.Node | None = yaml.compose(content.decode(), Loader=yaml.SafeLoader)
                return root
            self.report(path, f"has more than {FILE_SIZE_LIMIT} bytes.")
        except UnicodeDecodeError as error:
            before = content[: error.start].decode()
            self.report(f"{path}:{_line_and_column(before)}", "invalid YAML: it is not UTF-8.")
        except yaml.reader.ReaderError as error:
            before = content.decode()[: error.position]
            self.report(
                f"{path}:{_line_and_column(before)}",
                f"invalid YAML: the character U+{error.character:04X} is not allowed.",
            )
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else path
            self.report(place, f"invalid YAML: {_without_content(error.problem or 'syntax error')}.")
        except RecursionError:
            self.report(path, "invalid YAML: it is nested too deeply.")
        except OSError as error:
            self.report(path, f"cannot be read: {error.strerror}.")
        return None

    def read(self, root: yaml.Node) -> None:
        for key, line, node in self.entries(root, "the file", _folded):
            group = _folded(key)
            if not group or group not in self.names.keys:
                self.note("", key, line, node)
                continue
            self.groups.append((group, line))
            if not _is_null(node):
                for name, its_line, value in self.entries(node, f"'{group}'", _folded):
                    self.note(group, name, its_line, value)

    def entries(
        self, node: yaml.Node, noun: str, fold: Callable[[str], str] = str
    ) -> Iterator[tuple[str, int, yaml.Node]]:
        """Yield key, line and value of a mapping; report anything that is not a mapping, and repeated keys.

        Keys that `fold` makes equal count as the same.
        """
        if not isinstance(node, yaml.MappingNode):
            self.report(f"{self.path}:{node.start_mark.line + 1}", f"{noun} must be a mapping of options.")
            return
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.report(f"{self.path}:{line}", "a key must be text.")
                continue
            same = fold(key_node.value)
            if same in seen:
                what = f"'{name_alone(key_node.value)}' is given twice, first on line {seen[same]}."
                self.report(f"{self.path}:{line}", what)
            else:
                seen[same] = line
                yield key_node.value, line, value_node

    def note(self, group: str, key: str, line: int, node: yaml.Node) -> None:
        known = self.names.keys[group]
        where = f"{self.path}:{line}: {name_alone(f'{group}.{key}' if group else key)}"
        if _folded(key) not in known:
            choices = [*known, *(filter(None, self.names.keys) if not group else ())]
            remedy = self.indentation(_folded(key), line) if not group else ""
            self.report(where, "no such option.", remedy or did_you_mean(_folded(key), choices))
            return
        option, is_file = known[_folded(key)]
        if option.secret and not isinstance(node, yaml.ScalarNode):
            # Not inspected: a problem inside could not be described without showing it.
            self.given.refuse(option, where, "must be one value, not a list or mapping.")
            return
        try:
            raw = self.raw(node)
        except _NotText as error:
            self.given.refuse(option, where, str(error))
            return
        if raw is not None:
            give(self.given, option, where, raw, is_file=is_file)

    def indentation(self, key: str, line: int) -> str:
        """Return where an unindented key belongs if it is an option of a back end."""
        above = [group for group, its_line in self.groups if its_line < line]
        if above and key in self.names.keys[above[-1]]:
            return f"If it belongs to '{above[-1]}:' above it, indent it by two spaces."
        owners = [group for group, keys in self.names.keys.items() if group and key in keys]
        return f"Write it below '{owners[0]}:', indented by two spaces." if len(owners) == 1 else ""

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
    return "" if _is_null(node) else str(node.value)


def _without_content(problem: str) -> str:
    """Leave out what the YAML reader quotes from the file, because it may be a secret.

    Single characters and names of tokens, such as '<stream end>', stay.
    """
    return re.sub(r"""('\\?.'|'<[a-z ]+>')|'[^']*'|"[^"]*\"""", lambda quoted: quoted[1] or "…", problem)


def _line_and_column(before: str) -> str:
    """Return the place right after some text of a file."""
    lines = before.split("\n")
    return f"{len(lines)}:{len(lines[-1]) + 1}"
