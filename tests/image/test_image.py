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


@dataclass(frozen=True)
class Step:
    """One instruction of a Dockerfile."""

    name: str
    text: str


def stages(file: str) -> list[list[Step]]:
    """Return the steps of each stage; what stands before the first belongs to all and is left out."""
    lines = [line for line in (ROOT / file).read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found: list[list[Step]] = []
    for line in filter(None, joined.splitlines()):
        name, _, text = line.partition(" ")
        if name == "FROM":
            found.append([])
        elif found:
            found[-1].append(Step(name, text.strip()))
    return found


def last(file: str, name: str) -> str:
    texts = [step.text for step in stages(file)[-1] if step.name == name]
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
    copied = [step.text for step in stages(file)[-1] if step.name == "COPY"]
    assert any(text.endswith(f" /src/sbom/ /usr/share/doc/{name}/") for text in copied)


def test_only_what_the_image_needs_is_sent_to_the_engine() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert rules[0] == "*"
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = {
        source
        for file in FILES
        for stage in stages(file)
        for step in stage
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
        return re.sub(r"(?<![\w.*/])/(?=opt\b|src\b)", f"{self.root}/", text)

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
    """Take the steps of the image's first stage, without a network."""
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
        for step in stages("Dockerfile")[0]:
            take(step, image, environment, defaults("Dockerfile"))
        yield image
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)


def defaults(file: str) -> dict[str, str]:
    """Return the arguments that stand before the first stage."""
    return dict(re.findall(r"^ARG (\w+)=(\S+)$", (ROOT / file).read_text(), re.MULTILINE))


def take(step: Step, image: Built, environment: dict[str, str], arguments: dict[str, str]) -> None:
    if step.name == "ARG":
        environment[step.text] = arguments[step.text]
    elif step.name == "ENV":
        environment |= dict(word.split("=", 1) for word in shlex.split(step.text))
    elif step.name == "WORKDIR":
        Path(image.path(step.text)).mkdir(parents=True)
    elif step.name == "COPY":
        *sources, target = step.text.split()
        for source in sources:
            copy(source, image.root / "src" / target, into=target.endswith("/"))
    elif step.name == "RUN":
        image.run(step.text, environment)
    else:
        pytest.fail(f"the test does not know the step {step.name}")


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
    listed = json.loads((built.root / "src/sbom/bronze-sidecar.cdx.json").read_text())["components"]
    assert {part["name"].replace("-", "_") for part in listed if part["type"] != "container"} == {
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
