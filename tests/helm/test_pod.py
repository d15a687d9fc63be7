"""The rendered pod as processes: its commands, environments, files, users, probes and order of stopping."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nats
import pytest
from charts import ROOT, Object, containers, render
from helm.replay_server import STOPPING
from nats.js.api import AckPolicy, ConsumerConfig
from other_user import as_user, can_switch
from servers import HOST, START_SECONDS, NatsServer, free_port
from sidecar_process import PROGRAM
from spooling import until

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]

NAME = "replay-bronze-sidecar"
SERVER_USER = 20002
PASSWORD = "s3cret"  # noqa: S105 - of a server that lives as long as the test
SECRETS = {"bus-credentials": {"SIDECAR_NATS_PASS": base64.b64encode(PASSWORD.encode()).decode()}}


class Pod:
    """Containers as processes; volumes are folders below one that stands for the root."""

    def __init__(self, objects: dict[tuple[str, str], Object], root: Path) -> None:
        self.objects = objects
        self._root = root
        self.spec: Object = objects["Deployment", NAME]["spec"]["template"]["spec"]
        self.containers = containers(self.spec)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for mount in self.containers["bronze-sidecar"]["volumeMounts"]:
            [volume] = [each for each in self.spec["volumes"] if each["name"] == mount["name"]]
            self._make_volume(volume, self._inside(mount["mountPath"]))

    def _inside(self, text: str) -> str:
        """Move the chart's fixed places below the root; the socket's comes from the test's own values."""
        return text.replace("/etc/bronze-sidecar", f"{self._root}/etc")

    def _make_volume(self, volume: Object, path: str) -> None:
        folder = Path(path)
        folder.mkdir(parents=True)
        if "configMap" in volume:
            for name, text in self.objects["ConfigMap", volume["configMap"]["name"]]["data"].items():
                (folder / name).write_text(text)
                (folder / name).chmod(0o444)
            folder.chmod(0o555)
        elif can_switch():
            # As Kubernetes makes them for a pod with fsGroup.
            os.chown(folder, 0, self.spec["securityContext"]["fsGroup"])
            folder.chmod(0o2777)

    def start(self, name: str) -> None:
        """Start a container with nothing but its own environment."""
        container = self.containers[name]
        environment = {each["name"]: self._inside(each["value"]) for each in container["env"]}
        for source in container.get("envFrom", ()):
            for key, value in SECRETS[source["secretRef"]["name"]].items():
                environment[key] = base64.b64decode(value).decode()
        security = self.spec["securityContext"] | container["securityContext"]
        command = [*container.get("command", [PROGRAM]), *container.get("args", ())]
        with (self._root / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                as_user(*command, user=security["runAsUser"], group=security["fsGroup"]),
                env=environment,
                cwd="/",
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def log(self, name: str) -> str:
        return (self._root / f"{name}.log").read_text()

    def probe(self, name: str, kind: str) -> bool:
        """Ask what the kubelet would ask."""
        container = self.containers[name]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        question = container[kind]["httpGet"]
        connection = http.client.HTTPConnection(HOST, ports[question["port"]], timeout=60)
        try:
            connection.request("GET", question["path"])
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()

    def wait_for(self, name: str, kind: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self.probe(name, kind):
            assert self.processes[name].poll() is None, self.log(name)
            assert time.monotonic() < deadline, self.log(name)
            time.sleep(0.02)

    def stop(self, name: str) -> int:
        """Tell a container to stop, as the kubelet does; return its exit status."""
        self.tell(name)
        return self.processes[name].wait(60)

    def tell(self, name: str) -> None:
        hook = self.containers[name].get("lifecycle", {}).get("preStop")
        if hook:
            subprocess.run(hook["exec"]["command"], check=True)
        self.processes[name].send_signal(signal.SIGTERM)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def bus(start_nats: Callable[..., NatsServer]) -> NatsServer:
    return start_nats(config=f'authorization {{ user: bronze, password: "{PASSWORD}" }}')


@pytest.fixture
def folder() -> Iterator[Path]:
    # Short, for a socket's path must be.
    with tempfile.TemporaryDirectory(prefix="bs-pod-") as path:
        Path(path).chmod(0o755)
        yield Path(path).resolve()


def render_pod(bus: NatsServer, folder: Path, **values: Any) -> Pod:
    chosen = {
        "config.listen": [f"unix://{folder}/run/sidecar.sock"],
        "config.admin_listen": f"0.0.0.0:{free_port()}",
        "config.nats": {
            "servers": f"{HOST}:{bus.port}",
            "user": "bronze",
            "stream": "BRONZE",
            "subject": "bronze.{{exchange}}.{{symbol}}",
        },
        "existingSecret.environment": "bus-credentials",
        "sidecar.readiness": "http",
        "server.command": [sys.executable, str(ROOT / "tests/helm/replay_server.py")],
        "server.securityContext.runAsUser": SERVER_USER,
        **values,
    }
    return Pod(render(*(f"{key}={json.dumps(value)}" for key, value in chosen.items())), folder)


async def stored(bus: NatsServer, count: int) -> list[str]:
    """Return the ids of the first events on the bus, in its order."""
    client = await nats.connect(bus.url, user="bronze", password=PASSWORD)
    try:
        jetstream = client.jetstream()
        unconfirmed = ConsumerConfig(ack_policy=AckPolicy.NONE)
        consumer = await jetstream.pull_subscribe("bronze.>", stream="BRONZE", config=unconfirmed)
        found: list[str] = []
        while len(found) < count:
            messages = await consumer.fetch(min(1000, count - len(found)), timeout=60)
            found += [message.headers["Nats-Msg-Id"] for message in messages if message.headers]
        return found
    finally:
        await client.close()


async def total(bus: NatsServer) -> int:
    client = await nats.connect(bus.url, user="bronze", password=PASSWORD)
    try:
        return (await client.jetstream().stream_info("BRONZE")).state.messages
    finally:
        await client.close()


@pytest.mark.parametrize("native", [True, False])
async def test_a_pod_that_is_stopped_while_the_bus_hangs_loses_nothing(
    bus: NatsServer, folder: Path, native: bool
) -> None:
    pod = render_pod(bus, folder, **{"sidecar.native": native, "server.graceSeconds": 5})
    with ExitStack() as stack:
        stack.callback(pod.end)
        pod.start("bronze-sidecar")
        if native:
            pod.wait_for("bronze-sidecar", "startupProbe")
        pod.start("server")
        pod.wait_for("bronze-sidecar", "readinessProbe")
        await stored(bus, 1000)

        bus.freeze()
        stack.callback(bus.thaw)
        pod.processes["server"].send_signal(signal.SIGTERM)
        await until(lambda: STOPPING in pod.log("server"))
        bus.thaw()
        if native:
            # The sidecar is left alone until the server has gone.
            assert pod.processes["server"].wait(60) == 0, pod.log("server")
            assert pod.stop("bronze-sidecar") == 0, pod.log("bronze-sidecar")
        else:
            # Both are told at once.
            assert pod.stop("bronze-sidecar") == 0, pod.log("bronze-sidecar")
            assert pod.processes["server"].wait(60) == 0, pod.log("server")

    report = json.loads(pod.log("server").splitlines()[-1])
    assert report["waiting"] > 0, "the test stopped a server that had nothing on its way"
    assert report["dropped"] == 0
    expected = [f"replay:{position}" for position in range(report["published"])]
    assert await total(bus) == len(expected)
    assert await stored(bus, len(expected)) == expected
    assert PASSWORD not in pod.log("bronze-sidecar") + pod.log("server")


async def test_a_wrong_secret_ends_the_sidecar_before_the_server_starts(
    bus: NatsServer, folder: Path
) -> None:
    pod = render_pod(bus, folder, **{"config.nats.user": "somebody"})
    try:
        pod.start("bronze-sidecar")
        assert pod.processes["bronze-sidecar"].wait(60) == 1
        last = json.loads(pod.log("bronze-sidecar").splitlines()[-1])
        assert (last["event"], last["backend"]) == ("cannot publish", "nats")
    finally:
        pod.end()


async def test_what_a_pod_says_when_it_ends_is_the_list_of_problems(bus: NatsServer, folder: Path) -> None:
    wrong = {"servers": f"{HOST}:{bus.port}", "subject": "bronze.{{exchnge}}", "user": "bronze"}
    pod = render_pod(bus, folder, **{"config.nats": wrong, "config.retry_backoff_ms": 5000})
    try:
        pod.start("bronze-sidecar")
        assert pod.processes["bronze-sidecar"].wait(60) == 2
        assert pod.containers["bronze-sidecar"]["terminationMessagePolicy"] == "FallbackToLogsOnError"
        # As much of the log as Kubernetes keeps.
        message = "\n".join(pod.log("bronze-sidecar")[-2048:].splitlines()[-80:])
        assert message.startswith("bronze-sidecar: 2 problems in the configuration\n")
        assert "config.yaml:7: nats.subject: " in message
        assert "exchnge" in message
        assert "is greater than --retry-backoff-max-ms" in message
    finally:
        pod.end()


# -- helm test


def helm_test(pod: Pod, servers: str = "", seconds: int = 60) -> subprocess.CompletedProcess[str]:
    """Run what the pod of `helm test` runs, beside the sidecar instead of behind a service."""
    [container] = pod.objects["Pod", f"{NAME}-test"]["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    service, _, port = variables["SIDECARS"].partition(":")
    # A pod finds its own name in its file of hosts, before any service of that name.
    assert service != pod.objects["Pod", f"{NAME}-test"]["spec"].get("hostname", f"{NAME}-test")
    assert pod.objects["Service", service]["spec"]["ports"] == [{"name": "admin", "port": int(port)}]
    variables |= {"SIDECARS": f"{HOST}:{port}", "SERVERS": servers, "DEADLINE_SECONDS": str(seconds)}
    program, *arguments = container["command"]
    assert program == "python"
    return subprocess.run(
        [sys.executable, *arguments], env=variables, capture_output=True, text=True, check=False, timeout=100
    )


async def test_the_release_is_right_once_its_back_ends_were_reached_and_its_server_listens(
    bus: NatsServer, folder: Path
) -> None:
    pod = render_pod(bus, folder)
    try:
        pod.start("bronze-sidecar")
        done = helm_test(pod, f"{HOST}:{bus.port}")
        assert (done.returncode, done.stdout) == (0, "all sidecars have reached their back ends\n")
        deaf = f"{HOST}:{free_port()}"
        done = helm_test(pod, f"{HOST}:{bus.port} {deaf}", seconds=0)
        assert done.returncode == 1
        assert done.stdout.startswith(f"the server does not take connections at {deaf}: ")
        assert done.stdout.count("\n") == 1
    finally:
        pod.end()


async def test_a_release_that_cannot_publish_is_told_with_the_reason(bus: NatsServer, folder: Path) -> None:
    pod = render_pod(bus, folder, **{"config.nats.servers": f"{HOST}:{free_port()}"})
    try:
        done = helm_test(pod, seconds=0)
        assert done.stdout.startswith(f"{HOST}: the sidecar does not answer: ")
        pod.start("bronze-sidecar")
        pod.wait_for("bronze-sidecar", "startupProbe")
        # It serves, and neither the test nor the rollout passes.
        deadline = time.monotonic() + START_SECONDS
        while not (done := helm_test(pod, seconds=0)).stdout.startswith(f"{HOST}: nats is "):
            assert time.monotonic() < deadline, done.stdout
        assert done.returncode == 1
        assert not pod.probe("bronze-sidecar", "readinessProbe")
    finally:
        pod.end()


NO_NAMES = """
import socket
def getaddrinfo(*arguments, **named):
    raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
socket.getaddrinfo = getaddrinfo
"""


def test_a_cluster_without_dns_is_told_from_a_release_that_is_wrong() -> None:
    script = (ROOT / "helm/bronze-sidecar/files/helm_test.py").read_text()
    variables = {"SIDECARS": "r-test:9464", "SERVERS": "r:8000", "DEADLINE_SECONDS": "0"}
    command = [sys.executable, "-c", NO_NAMES + script]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=30)
    missing = "the cluster's DNS does not answer, without which services are not found\n"
    said = f"no pod is found as r-test: {missing}the server does not take connections at r:8000: {missing}"
    assert (done.returncode, done.stdout) == (1, said)


async def test_a_pod_is_ready_once_its_bus_was_reached_and_stays_so(bus: NatsServer, folder: Path) -> None:
    pod = render_pod(bus, folder, **{"sidecar.readiness": "reached"})
    try:
        pod.start("bronze-sidecar")
        pod.wait_for("bronze-sidecar", "readinessProbe")
        bus.kill()
        assert pod.probe("bronze-sidecar", "readinessProbe")
    finally:
        pod.end()
