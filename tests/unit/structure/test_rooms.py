"""The sidecar's rooms: imports point one way along the flow, and no room is crowded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SIDECAR = ROOT / "sidecar"
PACKAGE = SIDECAR / "bronze_sidecar"
# From the command line down to the envelope; what stands in one line may not know each other.
ORDER = [
    {"cli"},
    {"workers"},
    {"app"},
    {"status", "tap"},
    {"ingest"},
    {"delivery", "mapping"},
    {"configuration"},
    {"sinks"},
    {"routing"},
    {"sockets"},
    {"telemetry", "envelope", "errors"},
]
LEVELS = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
BACK_ENDS = {"kafka", "nats", "kinesis", "redis", "sqs"}
MOST_MODULES = 10


def modules(folder: Path) -> Iterator[Path]:
    yield from (path for path in sorted(folder.rglob("*.py")) if "__pycache__" not in path.parts)


def imports(path: Path) -> Iterator[list[str]]:
    """Yield the modules that a file imports, wherever in it, as the parts of their names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports name the whole path"
            yield [*(node.module or "").split("."), *(alias.name for alias in node.names[:1])]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", list(modules(PACKAGE)), ids=lambda path: str(path.relative_to(SIDECAR)))
def test_imports_point_down_the_flow(path: Path) -> None:
    own = room_of(path)
    if own.startswith("__"):
        return
    rooms = {name[1] for name in imports(path) if name[0] == "bronze_sidecar" and len(name) > 1}
    above = {
        room
        for room in rooms - {own}
        if LEVELS[room] < LEVELS[own] or (LEVELS[room] == LEVELS[own] and own != "errors")
    }
    assert not above, f"{own} must not know {above}"


def test_every_room_has_its_place() -> None:
    assert {room_of(path) for path in modules(PACKAGE)} - {"__init__", "__main__"} == set(LEVELS)


@pytest.mark.parametrize("back_end", sorted(BACK_ENDS))
def test_a_back_end_does_not_know_the_others(back_end: str) -> None:
    for path in modules(PACKAGE / "sinks" / back_end):
        known = {
            name[2] for name in imports(path) if name[:2] == ["bronze_sidecar", "sinks"] and len(name) > 2
        }
        assert not known & (BACK_ENDS - {back_end}), path


def test_only_the_list_of_sinks_knows_back_ends_by_name() -> None:
    knowing = {
        str(path.relative_to(PACKAGE))
        for path in modules(PACKAGE)
        for name in imports(path)
        if name[:2] == ["bronze_sidecar", "sinks"] and len(name) > 2 and name[2] in BACK_ENDS
        if path.relative_to(PACKAGE).parts[:2] != ("sinks", name[2])
    }
    assert knowing == {"sinks/__init__.py"}


@pytest.mark.parametrize(
    ("package", "allowed"),
    [("bronze_cli", set()), ("bronze_buses", {"bronze_cli"})],
)
def test_shared_packages_know_neither_program(package: str, allowed: set[str]) -> None:
    ours = {
        name[0]
        for path in modules(SIDECAR / package)
        for name in imports(path)
        if name[0].startswith("bronze_") and name[0] != package
    }
    assert ours <= allowed


def test_the_pipeline_takes_nothing_from_the_sidecar() -> None:
    known = {name[0] for path in modules(ROOT / "pipeline/bronze_pipeline") for name in imports(path)}
    assert "bronze_sidecar" not in known


def test_no_room_is_crowded() -> None:
    folders = [path for path in SIDECAR.rglob("*") if path.is_dir() and path.name != "__pycache__"]
    counts = {
        str(folder.relative_to(SIDECAR)): len(
            [path for path in folder.glob("*.py") if path.stem != "__init__"]
        )
        for folder in folders
    }
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_no_two_classes_have_one_name() -> None:
    """Except where one is private to its module."""
    roots = [SIDECAR, ROOT / "client/python/bronze_client", ROOT / "pipeline/bronze_pipeline"]
    places: dict[str, list[str]] = {}
    for root in roots:
        for path in modules(root):
            if "_generated" in path.parts:
                continue
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_tree_in_the_architecture_is_the_tree() -> None:
    """Below `sidecar/`: each folder of modules with its modules, in their order, and nothing else."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    tree = text.partition("```tree\n")[2].partition("```")[0]
    named = dict(re.findall(r"^(\S+)/ +(.+?)(?:  .*)?$", tree, re.MULTILINE))
    there = {
        str(folder.relative_to(SIDECAR)): ", ".join(
            sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("__"))
        )
        for folder in [path.parent for path in SIDECAR.rglob("__init__.py")]
    }
    assert named == {folder: names for folder, names in there.items() if names}
