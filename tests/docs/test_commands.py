"""Command lines and configurations of the documentation, as the programs themselves read them."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from bronze_client.options import Options
from doc_pages import DOCS, README, ROOT, Block, blocks, commands
from pipeline_jobs import PROGRAM as PIPELINE
from sidecar_process import PROGRAM as SIDECAR

ALL_COMMANDS = list(commands("bronze-sidecar"))
LOOKING = [(block, words) for block, words in ALL_COMMANDS if words[0] in {"tap", "top"}]
"""At a sidecar that must be there."""
SIDECAR_COMMANDS = [each for each in ALL_COMMANDS if each not in LOOKING and "send" not in each[1][:2]]
PIPELINE_COMMANDS = list(commands("bronze-pipeline"))
OWN_PAGES = [README, *DOCS]


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files that the command lines name."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "sidecar.yaml").write_text((ROOT / "examples/nats.yaml").read_text())
    for name in ("letters.jsonl", "letters.jsonl.1"):
        (tmp_path / name).touch()
    return tmp_path


def test_there_are_command_lines() -> None:
    assert len(SIDECAR_COMMANDS) > 5
    assert {words[0] for _, words in PIPELINE_COMMANDS} == {
        "bronze",
        "silver",
        "verify",
        "report",
        "maintain",
        "chart",
    }


@pytest.mark.parametrize(("block", "words"), SIDECAR_COMMANDS, ids=str)
def test_the_sidecar_takes_every_command_line(block: Block, words: list[str], folder: Path) -> None:
    command, *options = words
    done = run(SIDECAR, "check" if command == "run" else command, *options, folder=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("block", "words"), LOOKING, ids=str)
def test_commands_that_look_at_a_sidecar_only_miss_that(block: Block, words: list[str], folder: Path) -> None:
    done = run(SIDECAR, *words, "--to", "127.0.0.1:1", folder=folder)
    assert done.returncode == 1
    assert "no sidecar answers at 127.0.0.1:1" in done.stderr


@cache
def flags_of(command: str) -> set[str]:
    done = run(PIPELINE, command, "--help", folder=ROOT)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"--[a-z][a-z-]*", done.stdout))


@pytest.mark.parametrize(("block", "words"), PIPELINE_COMMANDS, ids=str)
def test_the_pipeline_has_every_flag(block: Block, words: list[str]) -> None:
    command, *options = words
    given = {word.partition("=")[0] for word in options if word.startswith("--")}
    assert given
    assert given <= flags_of(command)


# -- configurations


def configurations() -> list[Block]:
    """Return the YAML that is a configuration; a Kubernetes object or a Compose file is none."""
    return [
        block
        for block in blocks("yaml", *OWN_PAGES)
        if not {"apiVersion", "services"} & set(yaml.safe_load(block.text))
    ]


def test_there_are_configurations() -> None:
    assert len(configurations()) > 2


@pytest.mark.parametrize("block", configurations(), ids=str)
def test_every_configuration_is_valid(block: Block, tmp_path: Path) -> None:
    (tmp_path / "sidecar.yaml").write_text(block.text)
    done = run(SIDECAR, "check", "--config", "sidecar.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "publishing is off" not in done.stdout


def test_the_chart_passes_a_valid_configuration_on(tmp_path: Path) -> None:
    (values,) = blocks("yaml", ROOT / "helm/bronze-sidecar/README.md")
    (tmp_path / "sidecar.yaml").write_text(yaml.safe_dump(yaml.safe_load(values.text)["config"]))
    done = run(SIDECAR, "check", "--config=sidecar.yaml", "--nats-pass=x", folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_images_are_built_by_the_names_that_the_chart_asks_for() -> None:
    values = yaml.safe_load((ROOT / "helm/bronze-sidecar/values.yaml").read_text())
    version = yaml.safe_load((ROOT / "helm/bronze-sidecar/Chart.yaml").read_text())["appVersion"]
    text = (ROOT / "docs/kubernetes.md").read_text()
    for part in ("sidecar", "server"):
        image = f"registry.example.com/{values[part]['image']['repository']}:{version}"
        assert f"--tag {image} ." in text
        assert f"docker push {image}\n" in text


def test_the_readme_shows_the_example() -> None:
    (shown,) = blocks("yaml", README)
    assert yaml.safe_load(shown.text) == yaml.safe_load((ROOT / "examples/nats.yaml").read_text())


# -- the Python client's options


def test_every_option_of_the_python_client_is_documented_with_its_default() -> None:
    text = (ROOT / "docs/clients.md").read_text()
    documented = dict(re.findall(r"^\| `(\w+)` \| *(?:`([^`]*)`)? *\|", text, re.MULTILINE))

    def shown(default: Any) -> str:
        return "" if default is dataclasses.MISSING else repr(default).replace("'", '"')

    options = [each for each in dataclasses.fields(Options) if each.init]
    assert documented == {each.name: shown(each.default) for each in options}
