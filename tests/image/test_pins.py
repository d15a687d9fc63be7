"""What is downloaded is what was pinned: bases, jars and Node packages."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import images
import pin_images
import pytest
from doc_pages import PAGES

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = sorted(ROOT.glob("Dockerfile*"))
MANIFEST = '{"schemaVersion": 2, "manifests": []}\n'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST.encode()).hexdigest()}"
OTHER = f"sha256:{'0' * 64}"

# How each program answers; `$*` is the question.
ANSWERS = {
    "docker": f"""
        [ "$1 $2" = "buildx version" ] && exit
        [ "$1 $2 $3 $4 $5" = "buildx imagetools inspect --format {{{{json .Manifest}}}}" ] || exit 64
        echo '{{"mediaType": "application/vnd.oci.image.index.v1+json", "digest": "{DIGEST}", "size": 1}}'
    """,
    "skopeo": f"""
        [ "$1" = --version ] && exit
        [ "$1 $2" = "inspect --raw" ] || exit 64
        case "$3" in docker://*:*) ;; *) exit 65 ;; esac
        printf '%s\\n' '{MANIFEST.strip()}'
    """,
    "crane": f"""
        [ "$1" = version ] && exit
        [ "$1" = digest ] || exit 64
        echo {DIGEST}
    """,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the Dockerfiles and of the list."""
    root = tmp_path / "project"
    (root / "requirements").mkdir(parents=True)
    for file in (*DOCKERFILES, ROOT / images.LIST):
        # As they are without digests.
        text = re.sub(r"@sha256:[0-9a-f]{64}", "", file.read_text())
        (root / file.relative_to(ROOT)).write_text(text)
    return root


def put(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def pin(root: Path, programs: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/pin_images.py"), "--root", str(root)]
    return subprocess.run(command, env={"PATH": str(programs)}, capture_output=True, text=True, check=False)


def content(root: Path) -> dict[str, str]:
    files = [*root.glob("Dockerfile*"), root / images.LIST]
    return {file.name: file.read_text() for file in files}


def test_the_dockerfiles_have_the_bases_of_the_list() -> None:
    written = pin_images.rewritten(ROOT, list(images.read(ROOT)))
    assert {path.name for path in written} == {path.name for path in DOCKERFILES} | {images.LIST.name}
    for path, text in written.items():
        assert path.read_text() == text, f"{path.name} has other bases than {images.LIST}"


@pytest.mark.parametrize("tool", ANSWERS)
def test_every_base_is_pinned_by_what_the_registry_answers(tool: str, project: Path, tmp_path: Path) -> None:
    before = content(project)
    put(tmp_path / "bin", tool, ANSWERS[tool])
    for _ in range(2):
        done = pin(project, tmp_path / "bin")
        assert done.returncode == 0, done.stderr
        listed = list(images.read(project))
        assert {image.digest for image in listed} == {DIGEST}
        for name, text in content(project).items():
            assert text.replace(f"@{DIGEST}", "") == before[name], "something else has changed"
        for file in DOCKERFILES:
            text = (project / file.name).read_text()
            bases = re.findall(r"^ARG (?:BASE\w*|NODE)=(\S+)$", text, re.MULTILINE)
            assert bases
            assert all(base in map(str, listed) for base in bases)
    assert "python:3.11" in done.stdout
    assert "(as before)" in done.stdout


def test_a_new_version_in_the_list_is_asked_for_and_gets_into_the_dockerfiles(
    project: Path, tmp_path: Path
) -> None:
    listed = project / images.LIST
    listed.write_text(
        re.sub(r"^python:.*$", f"python:3.11.99-slim@{OTHER}", listed.read_text(), flags=re.MULTILINE)
    )
    put(tmp_path / "bin", "crane", f'echo "$*" >>{tmp_path}/asked\n{ANSWERS["crane"]}')
    assert pin(project, tmp_path / "bin").returncode == 0
    assert "digest python:3.11.99-slim\n" in (tmp_path / "asked").read_text()
    assert f"ARG BASE=python:3.11.99-slim@{DIGEST}\n" in (project / "Dockerfile").read_text()
    assert OTHER not in listed.read_text()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "none of these programs is here"),
        (
            '[ "$1" = version ] && exit\necho "no such host" >&2\nexit 1',
            "is the registry reachable? It said: no such host",
        ),
        ('[ "$1" = version ] && exit\necho latest', "crane gave no digest for"),
        ("exit 1", "none of these programs is here"),
        (
            f'[ "$1" = version ] && exit\ncase $2 in tardisdev*) exit 3 ;; esac\necho {DIGEST}',
            "crane cannot find tardisdev/tardis-machine:18.2.0; is the registry reachable? It said: exit",
        ),
    ],
)
def test_without_an_answer_for_all_nothing_changes(
    script: str | None, message: str, project: Path, tmp_path: Path
) -> None:
    before = content(project)
    (tmp_path / "bin").mkdir()
    if script:
        put(tmp_path / "bin", "crane", script)
    done = pin(project, tmp_path / "bin")
    assert done.returncode == 1
    assert message in done.stderr
    assert "nothing was changed" in done.stderr
    assert "Traceback" not in done.stderr
    assert content(project) == before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("python:3.12.0", "line 10: python is listed twice"),
        ("alpine:3.20.1", "has alpine, which no Dockerfile uses"),
        ("alpine", "line 10: 'alpine' is not an image with a tag"),
        ("alpine:3.20.1@sha256:abc", "is not an image with a tag"),
    ],
)
def test_a_wrong_list_is_refused(line: str, message: str, project: Path, tmp_path: Path) -> None:
    with (project / images.LIST).open("a") as file:
        file.write(f"\n{line}\n")
    done = pin(project, tmp_path)
    assert done.returncode == 1
    assert message in done.stderr


def test_a_base_that_is_not_listed_is_refused(project: Path, tmp_path: Path) -> None:
    (project / "Dockerfile.other").write_text("ARG BASE=alpine:3.20.1\nFROM ${BASE}\n")
    done = pin(project, tmp_path)
    assert done.returncode == 1
    assert (
        "Dockerfile.other has the base alpine:3.20.1, which is not in requirements/images.txt" in done.stderr
    )


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """Return a folder with two jars, and beside it their list."""
    folder = tmp_path / "libs"
    folder.mkdir()
    lines = []
    for name in ("a-1.0.jar", "b_2.13-2.0.jar"):
        (folder / name).write_text(name)
        lines.append(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n")
    (tmp_path / "jars.sha256").write_text("".join(lines))
    return folder


def check(jars: Path) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "tools/check-jars.sh"), str(jars.parent / "jars.sha256"), str(jars)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_listed_jars_pass(jars: Path) -> None:
    done = check(jars)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_jar_that_is_not_the_listed_one_is_named(jars: Path) -> None:
    (jars / "a-1.0.jar").write_text("tampered")
    (jars / "b_2.13-2.0.jar").rename(jars / "b_2.13-2.1.jar")
    (jars / "more").mkdir()
    (jars / "more/c.jar").write_text("hidden")
    done = check(jars)
    assert done.returncode == 1
    for line in (
        "a-1.0.jar: it has another hash",
        "b_2.13-2.0.jar: it is missing",
        "b_2.13-2.1.jar: it is not in the list",
        "more/c.jar: it is not in the list",
        "run `make pin-jars`",
    ):
        assert line in done.stderr


@pytest.mark.parametrize("text", ["", "nonsense\n"])
def test_a_list_without_hashes_is_refused(text: str, jars: Path) -> None:
    with (jars.parent / "jars.sha256").open("a") as file:
        file.write(text or "0123  a-1.0.jar\n")
    done = check(jars)
    assert done.returncode == 1
    assert "improperly formatted" in done.stderr


@pytest.mark.parametrize(
    ("script", "pom"), [("install-kafka.sh", "kafka"), ("install-spark-jars.sh", "spark")]
)
@pytest.mark.parametrize("change", ["tampered", "extra", "missing"])
def test_wrong_jars_are_not_installed(script: str, pom: str, change: str, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    (tools / pom).mkdir(parents=True)
    for name in (script, "check-jars.sh", f"{pom}/pom.xml"):
        shutil.copy(ROOT / "tools" / name, tools / name)
    listed = {"one-1.jar": "one", "two-1.jar": "two"}
    (tools / pom / "jars.sha256").write_text(
        "".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in listed.items())
    )
    served = {
        "tampered": listed | {"two-1.jar": "2"},
        "extra": listed | {"three-1.jar": "three"},
        "missing": {"one-1.jar": "one"},
    }[change]
    # A Maven that serves these, and demands that checksums are compared.
    writes = "\n".join(f'printf %s "{text}" >"$out/{name}"' for name, text in served.items())
    put(
        tmp_path / "bin",
        "mvn",
        f"""case " $* " in *" --strict-checksums "*) ;; *) exit 64 ;; esac
        for word; do case $word in -DoutputDirectory=*) out=${{word#*=}} ;; esac; done
        mkdir -p "$out"
        {writes}""",
    )
    put(tmp_path / "bin", "java", "echo '  java.specification.version = 17' >&2")
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    done = subprocess.run(
        [f"tools/{script}"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert {
        "tampered": "two-1.jar: it has another hash",
        "extra": "three-1.jar: it is not in the list",
        "missing": "two-1.jar: it is missing",
    }[change] in done.stderr
    assert "not installed" in done.stderr
    assert not list((tmp_path / ".cache").iterdir()), "what is wrong stays"


@pytest.mark.servers
@pytest.mark.parametrize(("pom", "folder"), [("kafka", "kafka"), ("spark", "spark-jars")])
def test_the_jars_of_the_tests_are_the_listed_ones(pom: str, folder: str) -> None:
    libs = ROOT / ".cache" / folder / "libs"
    if not libs.is_dir():
        pytest.skip("they are not installed")
    command = [ROOT / "tools/check-jars.sh", ROOT / "tools" / pom / "jars.sha256", libs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_pipelines_image_compares_its_jars() -> None:
    text = (ROOT / "Dockerfile.pipeline").read_text()
    assert re.search(r"mvn .*--strict-checksums (?s:.*?)&& \./check-jars\.sh jars\.sha256 /jars\n", text)
    assert not re.search(r"mvn (?!.*--strict-checksums)", text)


def offenders(text: str) -> list[str]:
    """Return the commands that install Node packages and let them run scripts."""
    joined = re.sub(r"\\\n\s*", "", text)
    commands = re.findall(r"\bnpm\b(?:[ \t]+[^\s;&|`]+)*", joined)
    names = {"ci", "install", "i", "add", "prune", "update", "rebuild", "clean-install"}
    return [
        command
        for command in commands
        if names & set(command.split()[1:]) and "--ignore-scripts" not in command.split()
    ]


def test_offenders_are_found() -> None:
    assert offenders("RUN npm ci --no-audit \\\n && node x") == ["npm ci --no-audit"]
    assert offenders("npm --prefix a/b ci || fail") == ["npm --prefix a/b ci"]
    assert offenders("`npm install x`") == ["npm install x"]
    assert offenders("npm ci --prefix x --ignore-scripts && npm pack ./x") == []
    assert offenders("the registry that npm is configured for") == []


def test_node_packages_are_installed_without_their_scripts() -> None:
    files = [
        *(ROOT / name for name in ("Makefile", ".ci/run")),
        *PAGES,
        *DOCKERFILES,
        *(path for folder in ("tools", "helm") for path in (ROOT / folder).rglob("*") if path.is_file()),
    ]
    found = {
        str(path.relative_to(ROOT)): offenders(path.read_text())
        for path in files
        if "__pycache__" not in path.parts and ".venv" not in path.parts
    }
    assert {name: commands for name, commands in found.items() if commands} == {}
    assert "Dockerfile.tardis-machine" in found
    assert "tools/install-node-packages.sh" in found


def test_what_the_scripts_would_build_is_built_by_name() -> None:
    scripts = json.loads((ROOT / "client/node/package.json").read_text())["scripts"]
    assert scripts["prepare"].startswith("node build.mjs")
    assert "\t@node client/node/build.mjs\n" in (ROOT / "Makefile").read_text()
    assert re.search(
        r"npm ci --ignore-scripts(?s:.*)^RUN node build\.mjs",
        (ROOT / "Dockerfile.tardis-machine").read_text(),
        re.MULTILINE,
    )
