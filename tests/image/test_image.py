"""The image without an engine: what its file promises, and its own steps in an empty folder."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import missing
from other_user import as_user
from servers import HOST, START_SECONDS, NatsServer, Unavailable, free_port

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ROOT / ".cache/ship-tools/wheels"
FILES = ("Dockerfile", "Dockerfile.pipeline", "Dockerfile.tardis-machine")
LAST = "the image"
EPOCH = 1767225600  # 2026-01-01


@dataclass(frozen=True)
class Step:
    """One instruction of a Dockerfile."""

    name: str
    text: str


def stages(file: str) -> dict[str, list[Step]]:
    """Return the steps of each stage by its name; what stands before the first belongs to all."""
    lines = [line for line in (ROOT / file).read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found: dict[str, list[Step]] = {}
    for line in filter(None, joined.splitlines()):
        name, _, text = line.partition(" ")
        if name == "FROM":
            steps = found[text.partition(" AS ")[2] or LAST] = []
        elif found:
            steps.append(Step(name, text.strip()))
    return found


def last(file: str, name: str) -> str:
    texts = [step.text for step in stages(file)[LAST] if step.name == name]
    assert texts, f"{file} has no {name} in its last stage"
    return texts[-1]


@pytest.mark.parametrize("file", FILES)
def test_an_image_runs_as_a_numbered_user_from_a_pinned_base_that_can_be_replaced(file: str) -> None:
    content = (ROOT / file).read_text()
    bases = re.findall(r"^ARG (BASE\w*|NODE)=(\S+)$", content, re.MULTILINE)
    assert bases
    assert all(re.search(r":v?\d+\.\d+\.\d+", image) for _, image in bases), "a base without a full version"
    assert set(re.findall(r"^FROM (\S+)", content, re.MULTILINE)) == {f"${{{name}}}" for name, _ in bases}
    user, _, group = last(file, "USER").partition(":")
    assert user.isdigit()
    assert int(user) > 0
    assert group.isdigit()


@pytest.mark.parametrize("file", FILES)
def test_an_image_starts_its_program_without_a_shell(file: str) -> None:
    entry = json.loads(last(file, "ENTRYPOINT"))
    assert isinstance(entry, list)
    assert "sh" not in entry


@pytest.mark.parametrize("file", FILES)
def test_an_image_holds_the_list_of_what_is_in_it(file: str) -> None:
    [name] = re.findall(r"tools/sbom\.py --image (\S+)", (ROOT / file).read_text())
    [(stage, place)] = [
        (stage, found[1])
        for stage, steps in stages(file).items()
        for step in steps
        if (found := re.search(r"tools/sbom\.py .*--output (\S+)", step.text))
    ]
    assert place == f"/image/usr/share/doc/{name}"
    assert f"--from={stage} /image/ /" in [step.text for step in stages(file)[LAST]]


@pytest.mark.parametrize("file", FILES)
def test_everything_in_an_image_comes_from_trees_with_one_time(file: str) -> None:
    """What a step makes in the image itself has the time of the build, and no two builds are the same."""
    found = stages(file)
    assert {step.name for step in found[LAST]} <= {
        "ARG",
        "LABEL",
        "COPY",
        "ENV",
        "USER",
        "EXPOSE",
        "HEALTHCHECK",
    } | {
        "ENTRYPOINT",
        "CMD",
    }
    sources = re.findall(r"--from=(\w+) (\S+) (\S+)", "\n".join(step.text for step in found[LAST]))
    assert len(sources) == len([step for step in found[LAST] if step.name == "COPY"])
    for stage, source, target in sources:
        assert (source, target) == ("/image/", "/")
        made = [step for step in found[stage] if step.name == "RUN"][-1].text
        assert "touch --no-dereference" in made or "tools/image_tree.py" in made
        assert made.endswith(("{} +", "--tree /image"))
        assert any(step.text == f"SOURCE_DATE_EPOCH={EPOCH}" for step in found[stage] if step.name == "ARG")


@pytest.mark.parametrize("file", FILES)
def test_an_image_says_what_it_is(file: str) -> None:
    labels = dict(re.findall(r'org\.opencontainers\.image\.([\w.]+)="([^"]*)"', last(file, "LABEL")))
    assert labels.keys() == {
        *(
            "title",
            "description",
            "version",
            "revision",
            "licenses",
            "url",
            "source",
            "documentation",
            "base.name",
        )
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    node = json.loads((ROOT / "client/node/package.json").read_text())
    assert labels["version"] == (node["version"] if file.endswith("tardis-machine") else project["version"])
    assert labels["licenses"] == project["license"]
    assert labels["source"] == project["urls"]["Homepage"]
    assert (labels["revision"], labels["base.name"]) == ("${REVISION}", "${BASE}")


def test_only_what_the_image_needs_is_sent_to_the_engine() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert rules[0] == "*"
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = {
        source
        for file in FILES
        for steps in stages(file).values()
        for step in steps
        if step.name == "COPY" and not step.text.startswith("--from")
        for source in step.text.split()[:-1]
    }
    covered = {source for source in copied if any(source == a or source.startswith(f"{a}/") for a in allowed)}
    assert covered == copied


@pytest.mark.parametrize(("extra", "lock"), [("server", "server.txt"), ("spark", "pipeline.txt")])
def test_the_images_packages_are_those_that_the_tests_run_with(extra: str, lock: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"][extra]]
    names = {re.split(r"[\[<>=~; ]", requirement)[0].lower() for requirement in asked}
    shipped, tested = pins(lock), pins("dev.txt")
    assert names <= shipped.keys(), "run `make lock`"
    assert shipped.items() <= tested.items(), "run `make lock`"


def pins(lock: str) -> dict[str, set[str]]:
    """Return the versions of every pinned package; there may be several, by markers."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(
        r"^([\w.-]+)==([^ ;]+)", (ROOT / "requirements" / lock).read_text(), re.MULTILINE
    ):
        found.setdefault(name, set()).add(version)
    return found


@dataclass(frozen=True)
class Built:
    """The files of an image in a folder of their own."""

    root: Path

    def path(self, text: str) -> str:
        """Move the absolute paths of a step into the folder."""
        return re.sub(r"(?<![\w.*/])/(?=opt\b|src\b|image\b)", f"{self.root}/", text)

    def run(self, command: str, environment: dict[str, str]) -> None:
        done = subprocess.run(
            ["sh", "-ec", self.path(command)],
            cwd=self.root / "src",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.fixture
def built() -> Iterator[Built]:
    """Take the steps that make the image's tree, without a network."""
    if not WHEELS.is_dir():
        missing(Unavailable("the image's packages are not there: `make test` installs them"))
    with tempfile.TemporaryDirectory(prefix="bs-image-") as folder:
        image = Built(Path(folder).resolve())
        image.root.chmod(0o755)
        tools = image.root / "tools"
        tools.mkdir()
        (tools / "python").symlink_to(Path(sys.base_prefix, "bin", "python3"))
        environment = {
            "PATH": f"{tools}:/usr/bin:/bin",
            "HOME": str(image.root),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(WHEELS),
        }
        for step in stages("Dockerfile")["build"]:
            take(step, image, environment, defaults("Dockerfile"))
        # As the last stage copies the tree to the root.
        shutil.move(str(image.root / f"image{image.root}/opt/bronze-sidecar"), image.root / "opt")
        yield image
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)


def defaults(file: str) -> dict[str, str]:
    """Return the arguments that stand before the first stage."""
    return dict(re.findall(r"^ARG (\w+)=(\S+)$", (ROOT / file).read_text(), re.MULTILINE))


def take(step: Step, image: Built, environment: dict[str, str], arguments: dict[str, str]) -> None:
    if step.name == "ARG":
        name, _, default = step.text.partition("=")
        environment[name] = default or arguments[name]
    elif step.name == "ENV":
        environment |= dict(word.split("=", 1) for word in shlex.split(step.text))
    elif step.name == "WORKDIR":
        Path(image.path(step.text)).mkdir(parents=True)
    elif step.name == "COPY" and step.text.startswith("--from=native "):
        copy_native(Path(image.path(step.text.split()[-1])))
    elif step.name == "COPY":
        *sources, target = step.text.split()
        for source in sources:
            copy(source, image.root / "src" / target, into=target.endswith("/"))
    elif step.name == "RUN":
        image.run(step.text, environment)
    else:
        pytest.fail(f"the test does not know the step {step.name}")


def copy_native(target: Path) -> None:
    """Copy the compiled part that set-up made, where there is a compiler."""
    for wheel in (ROOT / ".cache/native").glob("*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            target.write_bytes(packed.read("bronze_sidecar_native/bronze_sidecar_native.abi3.so"))


def copy(source: str, target: Path, *, into: bool) -> None:
    """Copy as COPY does: a folder's content, or a file."""
    if (ROOT / source).is_dir():
        shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        destination = target / Path(source).name if into else target
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, destination)


@pytest.mark.servers
@pytest.mark.timeout(300)
def test_its_steps_make_a_tree_that_serves_read_only_and_as_another_user(
    built: Built, start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    home = built.root / "opt/bronze-sidecar"
    packages = {path.name.partition("-")[0] for path in home.glob("lib/python*/site-packages/*.dist-info")}
    assert {"bronze_sidecar", "grpcio", "nats_py"} <= packages
    assert not packages & {"pip", "hatchling", "pyspark", "pytest"}
    file = built.root / "image/usr/share/doc/bronze-sidecar/bronze-sidecar.cdx.json"
    listed = json.loads(file.read_text())["components"]
    assert {part["name"].replace("-", "_") for part in listed if part["purl"].startswith("pkg:pypi/")} == {
        name.lower() for name in packages
    }, "the list of what is in the image has something else"
    assert [str(part["version"]) for part in listed if part["type"] == "container"] == [
        defaults("Dockerfile")["BASE"].partition(":")[2].partition("@")[0]
    ]
    subprocess.run(["chmod", "-R", "a-w,a+rX", str(home)], check=True)

    nats = start_nats()
    admin = free_port()
    environment = {
        "PATH": f"{home}/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SIDECAR_NATS_SERVERS": f"{HOST}:{nats.port}",
        "SIDECAR_NATS_SUBJECT": "image.all",
        "SIDECAR_NATS_STREAM": "IMAGE",
        "SIDECAR_LISTEN": f"{HOST}:{free_port()}",
        "SIDECAR_ADMIN_LISTEN": f"{HOST}:{admin}",
    }
    entry = [*json.loads(last("Dockerfile", "ENTRYPOINT")), *json.loads(last("Dockerfile", "CMD"))]
    check = json.loads(last("Dockerfile", "HEALTHCHECK").partition("CMD ")[2])
    program = str(home / "bin" / entry[0])

    def health() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            as_user(program, *check[1:]),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    before = health()
    assert before.returncode == 1
    assert f"nothing answers at {HOST}:{admin}" in before.stderr
    with (tmp_path / "log").open("wb") as log:
        sidecar = subprocess.Popen(
            as_user(program, *entry[1:]), env=environment, cwd="/", stdout=log, stderr=log
        )
    try:
        wait_until_ready(admin, sidecar, tmp_path / "log")
        assert health().returncode == 0
        sidecar.send_signal(signal.SIGTERM)
        assert sidecar.wait(30) == 0, (tmp_path / "log").read_text()
    finally:
        sidecar.kill()
        sidecar.wait()


def wait_until_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.05)
    pytest.fail(f"the sidecar is not ready:\n{log.read_text()}")
