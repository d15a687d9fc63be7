"""The committed generated code agrees with the schemas and stays inside the project's own packages."""

from __future__ import annotations

import ast
import base64
import email
import email.message
import json
import pathlib
import re
import subprocess
import sys
import tomllib
import zipfile
from typing import TYPE_CHECKING

import pytest
from bronze_client._generated.bronze.sidecar.internal.v1 import typed_pb2
from bronze_client._generated.bronze.sidecar.v1 import sidecar_pb2
from bronze_client._generated.lakehouse.bronze.v1 import normalized_event_pb2
from google.protobuf import descriptor_pb2

if TYPE_CHECKING:
    import types

ROOT = pathlib.Path(__file__).resolve().parents[3]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
BUF = pathlib.Path(sys.executable).parent / "buf"
PYTHON_CODE = ROOT / "client" / "python" / "bronze_client" / "_generated"
TYPESCRIPT_CODE = ROOT / "client" / "node" / "src" / "generated"
SCHEMAS = [
    pytest.param("lakehouse/bronze/v1/normalized_event", normalized_event_pb2, id="bronze"),
    pytest.param("bronze/sidecar/v1/sidecar", sidecar_pb2, id="sidecar"),
    pytest.param("bronze/sidecar/internal/v1/typed", typed_pb2, id="typed"),
]
PYTHON_FILES = [
    "bronze/sidecar/internal/v1/typed_pb2.py",
    "bronze/sidecar/internal/v1/typed_pb2.pyi",
    "bronze/sidecar/v1/sidecar_pb2.py",
    "bronze/sidecar/v1/sidecar_pb2.pyi",
    "lakehouse/bronze/v1/normalized_event_pb2.py",
    "lakehouse/bronze/v1/normalized_event_pb2.pyi",
]
TYPESCRIPT_FILES = [
    "bronze/sidecar/internal/v1/typed_pb.ts",
    "bronze/sidecar/v1/sidecar_pb.ts",
    "lakehouse/bronze/v1/normalized_event_pb.ts",
]


# Python


def test_the_generated_python_files_are_exactly_these():
    assert files_below(PYTHON_CODE, ".py", ".pyi") == PYTHON_FILES


@pytest.mark.parametrize("name", PYTHON_FILES)
def test_generated_python_imports_only_protobuf_the_standard_library_and_its_own_package(name):
    tree = ast.parse((PYTHON_CODE / name).read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module or "")
    roots = {module.partition(".")[0] for module in imported} - set(sys.stdlib_module_names)
    assert "google" in roots
    assert roots <= {"google", "bronze_client"}
    assert all(module.startswith("google.protobuf") for module in imported if module.startswith("google"))


def test_importing_the_schema_loads_nothing_but_protobuf_and_grpc():
    program = (
        "import json, sys\n"
        "before = set(sys.modules)\n"
        "import bronze_client.schema\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=pathlib.Path(sys.executable).parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    loaded = set(json.loads(done.stdout))
    assert "bronze_client._generated.lakehouse.bronze.v1.normalized_event_pb2" in loaded
    roots = {module.partition(".")[0] for module in loaded} - set(sys.stdlib_module_names)
    assert roots & {"yaml", "msgspec", "bronze_sidecar", "bronze_pipeline", "lakehouse", "bronze"} == set()
    assert roots <= {"bronze_client", "google", "grpc", "typing_extensions"}


@pytest.mark.parametrize(("path", "module"), SCHEMAS)
def test_generated_python_describes_the_schema_as_it_is(tmp_path, path, module):
    image = tmp_path / "image.binpb"
    subprocess.run(
        [BUF, "build", "--exclude-source-info", "--output", image], cwd=ROOT / "proto", check=True, timeout=60
    )
    files = descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes())
    (source,) = (file for file in files.file if file.name == f"{path}.proto")
    assert plain(source) == plain(descriptor_of(module))


# TypeScript


def test_the_generated_typescript_files_are_exactly_these():
    assert files_below(TYPESCRIPT_CODE, ".ts") == TYPESCRIPT_FILES


@pytest.mark.parametrize(("path", "module"), SCHEMAS)
def test_generated_typescript_declares_every_message_enum_and_service(path, module):
    file = descriptor_of(module)
    code = (TYPESCRIPT_CODE / f"{path}_pb.ts").read_text(encoding="utf-8")
    declared = dict(re.findall(r'^export type (\w+) = Message<"([\w.]+)"> & \{$', code, re.MULTILINE))
    assert declared == {name.replace(".", "_"): f"{file.package}.{name}" for name in message_names(file)}
    assert set(re.findall(r"^export enum (\w+) \{$", code, re.MULTILINE)) == {
        enum.name for enum in file.enum_type
    }
    assert set(re.findall(r"^export const (\w+): GenService<", code, re.MULTILINE)) == {
        service.name for service in file.service
    }


@pytest.mark.parametrize(("path", "module"), SCHEMAS)
def test_generated_typescript_describes_the_same_schema_as_generated_python(path, module):
    code = (TYPESCRIPT_CODE / f"{path}_pb.ts").read_text(encoding="utf-8")
    (encoded,) = re.findall(r'fileDesc\("([\w+/]+)"', code)
    described = descriptor_pb2.FileDescriptorProto.FromString(
        base64.b64decode(encoded + "=" * (-len(encoded) % 4))
    )
    expected = descriptor_of(module)
    expected.ClearField("dependency")  # TypeScript names imports in its own way
    assert plain(described) == plain(expected)


# The wheel


def test_the_wheel_has_exactly_our_packages_at_its_top(wheel):
    assert {name.partition("/")[0] for name in wheel.namelist()} == {
        "bronze_buses",
        "bronze_cli",
        "bronze_client",
        "bronze_pipeline",
        "bronze_sidecar",
        f"bronze_sidecar-{VERSION}.dist-info",
    }


def test_the_wheel_has_the_client_with_its_types_and_generated_modules(wheel):
    assert set(wheel.namelist()) >= {
        "bronze_client/__init__.py",
        "bronze_client/py.typed",
        "bronze_client/schema.py",
        "bronze_client/_generated/bronze/sidecar/v1/sidecar_pb2.py",
        "bronze_client/_generated/bronze/sidecar/v1/sidecar_pb2.pyi",
        "bronze_client/_generated/lakehouse/bronze/v1/normalized_event_pb2.py",
        "bronze_client/_generated/lakehouse/bronze/v1/normalized_event_pb2.pyi",
        "bronze_sidecar/__init__.py",
        "bronze_pipeline/__init__.py",
    }


def test_the_wheel_has_no_compiled_files(wheel):
    assert [name for name in wheel.namelist() if name.endswith(".pyc")] == []


def test_the_wheel_alone_needs_only_grpc_and_protobuf(metadata):
    requirements = metadata.get_all("Requires-Dist")
    assert {project(text) for text in requirements if ";" not in text} == {"grpcio", "protobuf"}
    assert [text for text in requirements if ";" in text and "extra ==" not in text] == []


def test_the_wheel_says_where_it_comes_from(metadata):
    assert metadata.get_all("Project-URL") == [
        "Homepage, https://github.com/bronze-sidecar/bronze-sidecar",
        "Issues, https://github.com/bronze-sidecar/bronze-sidecar/issues",
        "Changelog, https://github.com/bronze-sidecar/bronze-sidecar/blob/main/CHANGELOG.md",
    ]


def test_the_wheel_has_its_extras(metadata):
    assert sorted(metadata.get_all("Provides-Extra")) == ["chart", "dev", "fast", "msk", "server", "spark"]


# Helpers


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=100,
    )
    (path,) = folder.iterdir()
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> email.message.Message:
    return email.message_from_bytes(wheel.read(f"bronze_sidecar-{VERSION}.dist-info/METADATA"))


def files_below(folder: pathlib.Path, *suffixes: str) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in suffixes
    )


def descriptor_of(module: types.ModuleType) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def plain(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """Without the JSON names that some compilers write out, and without what a compiler adds of its own."""
    copy = descriptor_pb2.FileDescriptorProto()
    copy.CopyFrom(file)
    copy.DiscardUnknownFields()
    messages = list(copy.message_type)
    while messages:
        message = messages.pop()
        messages.extend(message.nested_type)
        for field in message.field:
            field.ClearField("json_name")
    return copy


def message_names(file: descriptor_pb2.FileDescriptorProto) -> list[str]:
    names = []
    waiting = [(message.name, message) for message in file.message_type]
    while waiting:
        name, message = waiting.pop()
        if not message.options.map_entry:
            names.append(name)
            waiting.extend((f"{name}.{nested.name}", nested) for nested in message.nested_type)
    return names


def project(requirement: str) -> str:
    name = re.match(r"[\w.-]+", requirement)
    assert name
    return name.group()
