"""The example of Spark on Kubernetes: Kubernetes and the pipeline know its fields, and its commands run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import bronze_pipeline
import pyspark
import pytest
import yaml
from bronze_client.schema import NormalizedEvent
from bronze_pipeline.commands import bronze
from charts import NEWEST, OLDEST, ROOT, Object, restricted_faults, schema_faults
from deltalake.exceptions import TableNotFoundError
from pipeline_jobs import publish, rows
from servers import NatsServer

pytestmark = pytest.mark.servers

FILE = ROOT / "examples/spark-on-kubernetes/bronze.yaml"
SITE_PACKAGES = "/opt/bronze-pipeline/lib/python3.11/site-packages"


def objects() -> dict[tuple[str, str], Object]:
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(FILE.read_text())}


def driver() -> Object:
    pod = objects()["Deployment", "bronze-driver"]["spec"]["template"]["spec"]
    container: Object = pod["containers"][0]
    return container


def executor() -> Object:
    pod: Object = yaml.safe_load(objects()["ConfigMap", "bronze-executor"]["data"]["pod.yaml"])
    return pod


@pytest.mark.parametrize("kubernetes", [OLDEST, NEWEST])
def test_kubernetes_knows_every_field(kubernetes: str) -> None:
    faults = {each["kind"]: schema_faults(each, kubernetes) for each in (*objects().values(), executor())}
    assert {kind: found for kind, found in faults.items() if found} == {}
    assert len(faults) == 8


def test_its_pods_satisfy_the_restricted_pod_security_standard() -> None:
    assert restricted_faults(objects()["Deployment", "bronze-driver"]["spec"]["template"]["spec"]) == []
    assert restricted_faults(executor()["spec"]) == []


def test_the_job_takes_the_flags() -> None:
    command = driver()["command"]
    program = next(place for place, part in enumerate(command) if part.endswith("__main__.py"))
    name, *flags = command[program + 1 :]
    assert name == "bronze"
    plan = bronze.plan(flags)
    assert plan.bus.name == "nats"
    assert plan.lake.url == "file:///lake"


def test_the_driver_names_what_is_there() -> None:
    settings = dict(
        part.removeprefix("--conf=").split("=", 1)
        for part in driver()["command"]
        if part.startswith("--conf=")
    )
    mounts = {each["name"]: each["mountPath"] for each in driver()["volumeMounts"]}
    template = Path(settings["spark.kubernetes.executor.podTemplateFile"])
    assert str(template.parent) == mounts["executor"]
    assert template.name in objects()["ConfigMap", "bronze-executor"]["data"]
    (container,) = executor()["spec"]["containers"]
    assert container["name"] == settings["spark.kubernetes.executor.podTemplateContainerName"]
    ports = [str(each["port"]) for each in objects()["Service", "bronze-driver"]["spec"]["ports"]]
    assert ports == [settings["spark.driver.port"], settings["spark.driver.blockManager.port"]]
    # Files that executors write, the driver commits.
    assert {"name": "lake", "mountPath": "/lake"} in container["volumeMounts"]
    assert mounts["lake"] == "/lake"


# -- its commands, run here


def local_command(nats_url: str, lake: Path) -> list[str]:
    """Return the driver's command for Spark in one process, with this machine's places."""
    elsewhere = ("--master=", "--conf=spark.kubernetes.", "--conf=spark.driver.")
    words = [word for word in driver()["command"] if not word.startswith(elsewhere)]
    assert len(words) == len(driver()["command"]) - 10
    words[1:1] = ["--master=local[2]", "--conf=spark.driver.host=127.0.0.1", "--conf=spark.ui.enabled=false"]
    places = {
        f"{SITE_PACKAGES}/bronze_pipeline": str(Path(bronze_pipeline.__file__).parent),
        "/opt/bronze-pipeline/bin/python": sys.executable,
        "nats://nats:4222": nats_url,
        "--to=/lake": f"--to={lake}",
    }
    for there, here in places.items():
        assert any(there in word for word in words), there
        words = [word.replace(there, here) for word in words]
    return words


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command as a container's first process is: told to stop, and then killed with all its own."""
    programs = sysconfig.get_path("scripts")
    with log.open("ab") as stream:
        process = subprocess.Popen(
            command,
            env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"},
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        yield process
        process.terminate()
        process.wait(60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def stored(lake: Path, count: int, process: subprocess.Popen[bytes], log: Path) -> list[str]:
    """Wait for as many rows; return their events' ids, in the order of the bus."""
    deadline = time.monotonic() + 120
    while True:
        with contextlib.suppress(TableNotFoundError):
            found = [str(row["event_id"]) for row in rows(lake)]
            if len(found) >= count:
                return found
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


@pytest.mark.timeout(400)
def test_the_command_runs_and_goes_on_where_it_was_stopped(
    start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    server = start_nats()
    envelopes = [
        NormalizedEvent(source="s", exchange="x", symbol=str(number), disconnect={"reason": "r"})
        for number in range(5)
    ]
    values = [each.SerializeToString() for each in envelopes]
    log, lake = tmp_path / "log", tmp_path / "lake"
    command = local_command(server.url, lake)
    asyncio.run(publish(server.url, "BRONZE", *values[:3]))
    with running(command, log) as process:
        stored(lake, 3, process, log)
    asyncio.run(publish(server.url, "BRONZE", *values[3:]))
    with running(command, log) as process:
        stored(lake, 5, process, log)
    assert [row["symbol"] for row in rows(lake)] == ["0", "1", "2", "3", "4"]


@pytest.mark.timeout(120)
def test_an_executor_starts_with_what_spark_puts_into_its_environment(tmp_path: Path) -> None:
    (container,) = executor()["spec"]["containers"]
    bash, flags, script = container["command"]
    assert SITE_PACKAGES in script
    jars = Path(pyspark.__file__).parent.parent
    variables = {
        "SPARK_JAVA_OPT_0": "-Dspark.driver.port=1",
        "SPARK_JAVA_OPT_1": "-XX:+UseSerialGC",
        # Spark's own, and a value with a space: each is one argument.
        "SPARK_JAVA_OPT_10": "-Dlast=a b",
        "SPARK_EXECUTOR_MEMORY": "200m",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "executor-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
    }
    done = subprocess.run(
        [bash, flags, script.replace(SITE_PACKAGES, str(jars))],
        env=variables | {"PATH": os.environ["PATH"]},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    # It understood its arguments, and looked for the driver.
    assert "127.0.0.1:1" in said
    assert "Connection refused" in said
    assert "Unrecognized" not in said
