"""The example of Spark on Kubernetes: what Kubernetes' schemas and the pipeline say about it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from bronze_pipeline.commands import bronze
from charts import NEWEST, OLDEST, ROOT, Object, schema_faults

pytestmark = pytest.mark.servers

FILE = ROOT / "examples/spark-on-kubernetes/bronze.yaml"


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
