"""What those who collect charts ask for: as chart-testing lints, and what Artifact Hub shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml
from charts import CASES, CHART, HELMS, ROOT, TOOLS, run, tool
from conftest import missing
from servers import Unavailable

pytestmark = pytest.mark.servers

YAML_RULES = {
    "extends": "default",
    "rules": {
        "document-start": "disable",
        "line-length": "disable",
        "truthy": {"level": "error", "check-keys": False},
        "indentation": {"spaces": 2, "indent-sequences": True, "check-multi-line-strings": False},
        "comments": {"require-starting-space": True, "min-spaces-from-content": 2},
    },
}
REPOSITORY = "https://github.com/bronze-sidecar/bronze-sidecar"


@pytest.fixture
def metadata() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
    return found


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("case", CASES)
def test_the_linter_finds_nothing_with_the_values_of_each_case(helm: str, case: str) -> None:
    done = run(tool(helm), "lint", "--strict", "--quiet", "--values", str(CASES[case]), str(CHART))
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stdout + done.stderr


def yaml_faults(*files: Path) -> str:
    packages = TOOLS / "packages"
    if not (packages / "yamllint").is_dir():
        missing(Unavailable("yamllint is not there: `make test` installs it"))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "yamllint", "--strict", "--format", "parsable"),
            *("--config-data", json.dumps(YAML_RULES), *map(str, files)),
        ],
        env={"PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


def test_every_file_of_values_is_tidy() -> None:
    component = [*(ROOT / "helm/kustomize").glob("*.yaml"), *(ROOT / "helm/examples/plain-yaml").glob("*")]
    assert yaml_faults(CHART / "Chart.yaml", CHART / "values.yaml", *CASES.values(), *component) == ""


def test_an_untidy_file_would_be_found(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("a: 1\na: 2 \nb:\n      c: yes\n")
    found = yaml_faults(file)
    for rule in ("key-duplicates", "trailing-spaces", "indentation", "truthy"):
        assert f"({rule})" in found


def test_the_chart_says_who_makes_it_and_where_it_is_from(metadata: dict[str, Any]) -> None:
    number = r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[\w.-]+)?"
    assert re.fullmatch(number, metadata["version"])
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{metadata["appVersion"]}"' in project
    assert metadata["home"] == REPOSITORY
    assert metadata["sources"] == [REPOSITORY]
    assert all(each.keys() == {"name", "url"} for each in metadata["maintainers"])
    assert metadata["keywords"] == sorted(metadata["keywords"])
    declared = json.loads((ROOT / "client/node/package.json").read_text())["repository"]["url"]
    assert REPOSITORY in declared


def test_the_icon_is_a_picture_of_our_own(metadata: dict[str, Any]) -> None:
    branch, _, path = metadata["icon"].partition("/main/")
    assert branch == REPOSITORY.replace("github.com", "raw.githubusercontent.com")
    assert ET.parse(ROOT / path).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - our own


def test_the_annotations_are_what_artifact_hub_reads(metadata: dict[str, Any]) -> None:
    annotations = metadata["annotations"]
    assert annotations["artifacthub.io/category"] == "streaming-messaging"
    assert annotations["artifacthub.io/license"] == "Apache-2.0"
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    images = yaml.safe_load(annotations["artifacthub.io/images"])
    assert [(each["name"], each["image"]) for each in images] == [
        (name, f"{name}:{metadata['appVersion']}")
        for part in ("sidecar", "pipeline", "server")
        for name in [values[part]["image"]["repository"]]
    ]
    for link in yaml.safe_load(annotations["artifacthub.io/links"]):
        assert (ROOT / link["url"].removeprefix(f"{REPOSITORY}/blob/main/")).is_file()


def notes(*values: str) -> str:
    """Return what is told after an installation; Helm 3 needs a cluster for that."""
    arguments = [word for value in values for word in ("--set-json", value)]
    command = (tool("helm4"), "install", "replay", str(CHART), "--dry-run=client", "--namespace", "market")
    done = run(*command, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


def test_the_notes_name_the_images_that_no_node_can_pull() -> None:
    text = notes(
        'pipeline.maintenance={"enabled": true, "tables": ["/lake"]}', 'sidecar.image.registry="r.io"'
    )
    told = text.partition("cannot pull them:\n")[2].partition("\nBuild")[0]
    assert told.split() == ["bronze-sidecar-tardis-machine:0.1.0", "bronze-sidecar-pipeline:0.1.0"]
    same = notes('server.image={"repository": "bronze-sidecar"}')
    assert same.split().count("bronze-sidecar:0.1.0") == 1
    assert "global.imageRegistry" in text
    assert "helm test replay --namespace market" in text
    assert "cannot pull" not in notes('global.imageRegistry="registry.example.com"')
