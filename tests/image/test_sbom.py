"""The list of what is in each image: complete, valid, and the same for the same locks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
import referencing.jsonschema
import sbom
from charts import TOOLS
from conftest import missing
from servers import Unavailable

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = TOOLS / "packages/cyclonedx/schema/_res"
SHA256 = "a" * 64


def components(name: str) -> dict[str, dict[str, Any]]:
    found = {part["purl"]: part for part in sbom.document(name, ROOT)["components"]}
    assert len(found) == len(sbom.document(name, ROOT)["components"])
    return found


@pytest.mark.servers
@pytest.mark.parametrize("name", sbom.IMAGES)
def test_it_is_valid(name: str) -> None:
    if not SCHEMAS.is_dir():
        missing(Unavailable("CycloneDX's schemas are not there: `make test` installs them"))
    registry: referencing.Registry[Any] = referencing.jsonschema.EMPTY_REGISTRY
    for file in SCHEMAS.glob("*.SNAPSHOT.schema.json"):
        resource = referencing.jsonschema.DRAFT7.create_resource(json.loads(file.read_text()))
        # They refer to each other by the names of the files.
        registry = registry.with_resource(f"http://cyclonedx.org/schema/{file.name}", resource)
    schema = json.loads((SCHEMAS / "bom-1.6.SNAPSHOT.schema.json").read_text())
    validator = jsonschema.Draft7Validator(schema, registry=registry)
    content = json.loads(sbom.written(name, ROOT))
    assert [error.message for error in validator.iter_errors(content)] == []
    content["components"][0]["type"] = "nonsense"
    assert not validator.is_valid(content), "the schema finds nothing"


@pytest.mark.parametrize("name", sbom.IMAGES)
def test_it_is_the_same_each_time_and_refers_only_to_what_it_lists(name: str) -> None:
    assert sbom.written(name, ROOT) == sbom.written(name, ROOT)
    content = json.loads(sbom.written(name, ROOT))
    references = [part["bom-ref"] for part in content["components"]]
    assert len(set(references)) == len(references)
    assert content["dependencies"] == [{"ref": name, "dependsOn": references}]
    assert set(content["compositions"][0]["assemblies"]) <= set(references)
    assert content["serialNumber"] != json.loads(sbom.written(name, ROOT, ["python:3.11.0"]))["serialNumber"]


@pytest.mark.parametrize(
    ("name", "lock", "left_out"),
    [
        ("bronze-sidecar", "server.txt", set()),
        # For other versions of Python than the image's.
        (
            "bronze-sidecar-pipeline",
            "pipeline.txt",
            {"pkg:pypi/async-timeout", "pkg:pypi/deprecated", "pkg:pypi/numpy"},
        ),
    ],
)
def test_every_line_of_a_lock_is_in_it_with_its_hashes(name: str, lock: str, left_out: set[str]) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    found = components(name)
    absent = set()
    starts = list(re.finditer(r"^([\w.-]+)==([^ ;]+)", text, re.MULTILINE))
    assert len(starts) > 10
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        purl = f"pkg:pypi/{start[1]}@{start[2].replace('+', '%2B')}"
        block = text[start.start() : following.start() if following else None]
        if purl in found:
            wanted = re.findall("sha256:([0-9a-f]{64})", block)
            assert wanted
            assert found[purl]["hashes"] == [{"alg": "SHA-256", "content": each} for each in wanted]
        else:
            assert ";" in block.splitlines()[0], f"{purl} is missing"
            absent.add(purl.partition("@")[0])
    assert absent == left_out
    versions = [purl for purl in found if purl.startswith(("pkg:pypi/numpy@", "pkg:pypi/deprecated@"))]
    assert len(versions) == len(left_out & {"pkg:pypi/numpy", "pkg:pypi/deprecated"}), "one of two"


def test_every_node_package_that_is_shipped_is_in_it_and_no_compiler() -> None:
    lock = json.loads((ROOT / "client/node/package-lock.json").read_text())["packages"]
    shipped = {
        path.rpartition("node_modules/")[2]: package
        for path, package in lock.items()
        if path and not package.get("dev")
    }
    found = components("bronze-sidecar-tardis-machine")
    assert {"pkg:npm/%40grpc/grpc-js", "pkg:npm/%40bufbuild/protobuf"} <= {
        purl.rpartition("@")[0] for purl in found
    }
    for name, package in shipped.items():
        part = found[f"pkg:npm/{name.replace('@', '%40')}@{package['version']}"]
        assert "/".join(filter(None, (part.get("group"), part["name"]))) == name
        assert part["hashes"][0]["alg"] == "SHA-512"
        assert len(part["hashes"][0]["content"]) == 128
    assert not any("typescript" in purl or "biome" in purl for purl in found)


def test_every_jar_that_is_shipped_is_in_it() -> None:
    found = components("bronze-sidecar-pipeline")
    jars = {
        f"{part['name']}-{part['version']}.jar": part["hashes"][0]["content"]
        for purl, part in found.items()
        if purl.startswith("pkg:maven/")
    }
    lines = (ROOT / "tools/spark/jars.sha256").read_text().splitlines()
    assert jars == {name: digest for digest, name in (line.split() for line in lines)}


def test_a_jar_that_only_one_of_the_two_lists_names_is_an_error(tmp_path: Path) -> None:
    for name in ("pom.xml", "jars.sha256"):
        (tmp_path / name).write_text((ROOT / "tools/spark" / name).read_text())
    with (tmp_path / "jars.sha256").open("a") as file:
        file.write(f"{SHA256}  extra-1.jar\n")
    with pytest.raises(ValueError, match=r"lists extra-1\.jar, which pom\.xml does not name"):
        list(sbom.jars(tmp_path))
    (tmp_path / "jars.sha256").write_text("")
    with pytest.raises(ValueError, match="run `make pin-jars`"):
        list(sbom.jars(tmp_path))


def test_a_package_without_a_hash_is_an_error(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("example==1.0\n")
    with pytest.raises(ValueError, match=r"lock\.txt: 'example==1\.0' is not pinned with a hash"):
        list(sbom.python_packages(lock, "3.11.14"))
    lock = tmp_path / "package-lock.json"
    lock.write_text('{"packages": {"node_modules/example": {"version": "1.0.0"}}}')
    with pytest.raises(ValueError, match="'node_modules/example' has no hash"):
        list(sbom.node_packages(lock))


@pytest.mark.parametrize(
    ("name", "purl", "version"),
    [
        ("python:3.11.14-slim", "pkg:docker/python@3.11.14-slim", "3.11.14-slim"),
        (f"python:3.11.14@sha256:{SHA256}", f"pkg:docker/python@sha256:{SHA256}", "3.11.14"),
        ("tardisdev/tardis-machine:18.2.0", "pkg:docker/tardisdev/tardis-machine@18.2.0", "18.2.0"),
        (
            "registry.example.com:5000/own/python",
            "pkg:docker/own/python@latest?repository_url=registry.example.com:5000",
            "latest",
        ),
    ],
)
def test_a_base_is_listed_by_what_is_known_of_it(name: str, purl: str, version: str) -> None:
    part = sbom.base_image(name)
    assert (part["purl"], part["version"], part["type"]) == (purl, version, "container")
    assert part.get("hashes", []) == ([{"alg": "SHA-256", "content": SHA256}] if SHA256 in name else [])


def test_the_program_writes_one_file_for_each_image(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "tools/sbom.py"), "--output", str(tmp_path)]
    subprocess.run(program, check=True, capture_output=True)
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.cdx.json" for name in sbom.IMAGES}
    base = ["--image", "bronze-sidecar", "--base", "python:3.12.1"]
    subprocess.run([*program, *base], check=True, capture_output=True)
    assert "pkg:docker/python@3.12.1" in (tmp_path / "bronze-sidecar.cdx.json").read_text()
