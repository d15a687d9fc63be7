"""The kustomize component, as `kubectl kustomize` applies it to deployments of all kinds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from bronze_sidecar.configuration.config import load
from charts import CASES, NEWEST, OLDEST_NATIVE, ROOT, Object, containers, render, run, schema_faults, tool

pytestmark = pytest.mark.servers

COMPONENT = ROOT / "helm/kustomize"
EXAMPLE = ROOT / "helm/examples/plain-yaml"
SOCKET = "unix:///run/bronze-sidecar/sidecar.sock"
ADDRESS = {"name": "BRONZE_SIDECAR_ADDRESS", "value": SOCKET}
MOUNT = {"name": "bronze-sidecar-socket", "mountPath": "/run/bronze-sidecar"}


def kustomize(folder: Path) -> dict[tuple[str, str], Object]:
    done = run(tool("kubectl"), "kustomize", str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout)}


def pod_of(deployment: Object) -> Object:
    pod: Object = deployment["spec"]["template"]["spec"]
    return pod


def deployment(name: str, pod: Object, labels: dict[str, str]) -> Object:
    selected = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "selector": {"matchLabels": selected},
            "template": {"metadata": {"labels": selected}, "spec": pod},
        },
    }


@pytest.fixture
def patched(tmp_path: Path) -> dict[tuple[str, str], Object]:
    """Return what becomes of a bare deployment, a full one, and one without the label."""
    bare: Object = {"containers": [{"name": "anything", "image": "a:1"}]}
    full: Object = {
        "securityContext": {"runAsUser": 20002, "fsGroup": 20002},
        "initContainers": [{"name": "migrate", "image": "m:1"}],
        "containers": [
            {
                "name": "feed",
                "image": "f:1",
                "env": [{"name": "LEVEL", "value": "2"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            },
            {"name": "beside", "image": "b:1"},
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    labels = {"bronze-sidecar": "add"}
    objects = [
        deployment("bare", bare, labels),
        deployment("full", full, labels),
        deployment("other", bare, {"bronze-sidecar": "none"}),
    ]
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    (tmp_path / "config.yaml").write_text("nats: {servers: 'nats:4222', subject: all}\n")
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "resources": ["objects.yaml"],
                "components": [os.path.relpath(COMPONENT, tmp_path)],
                "configMapGenerator": [{"name": "bronze-sidecar", "files": ["config.yaml"]}],
                "secretGenerator": [{"name": "bronze-sidecar", "literals": ["SIDECAR_NATS_PASS=x"]}],
            }
        )
    )
    return kustomize(tmp_path)


def test_the_first_container_of_any_deployment_becomes_the_server(
    patched: dict[tuple[str, str], Object],
) -> None:
    [bare] = pod_of(patched["Deployment", "bare"])["containers"]
    assert bare == {"name": "anything", "image": "a:1", "env": [ADDRESS], "volumeMounts": [MOUNT]}
    server, beside = pod_of(patched["Deployment", "full"])["containers"]
    assert server["env"] == [{"name": "LEVEL", "value": "2"}, ADDRESS]
    assert server["volumeMounts"] == [{"name": "data", "mountPath": "/data"}, MOUNT]
    assert beside == {"name": "beside", "image": "b:1"}


def test_the_sidecar_starts_first_and_the_server_keeps_its_user_and_its_volumes(
    patched: dict[tuple[str, str], Object],
) -> None:
    pod = pod_of(patched["Deployment", "full"])
    assert [each["name"] for each in pod["initContainers"]] == ["bronze-sidecar", "migrate"]
    assert pod["securityContext"] == {"runAsUser": 20002, "fsGroup": 20002}
    assert "securityContext" not in pod_of(patched["Deployment", "bare"])
    assert {"name": "data", "emptyDir": {}} in pod["volumes"]
    assert pod["terminationGracePeriodSeconds"] == 60


def test_a_deployment_without_the_label_stays_as_it_is(patched: dict[tuple[str, str], Object]) -> None:
    assert pod_of(patched["Deployment", "other"]) == {"containers": [{"name": "anything", "image": "a:1"}]}


def test_nothing_else_is_applied_and_a_new_configuration_has_a_new_name(
    patched: dict[tuple[str, str], Object],
) -> None:
    kinds = sorted(kind for kind, _ in patched)
    assert kinds == ["ConfigMap", "Deployment", "Deployment", "Deployment", "Secret"]
    [config] = [name for kind, name in patched if kind == "ConfigMap"]
    [secret] = [name for kind, name in patched if kind == "Secret"]
    assert config.startswith("bronze-sidecar-")
    pod = pod_of(patched["Deployment", "bare"])
    assert {"name": "bronze-sidecar-config", "configMap": {"name": config}} in pod["volumes"]
    assert containers(pod)["bronze-sidecar"]["envFrom"] == [{"secretRef": {"name": secret, "optional": True}}]


@pytest.mark.parametrize("kubernetes", [OLDEST_NATIVE, NEWEST])
def test_kubernetes_knows_every_field(patched: dict[tuple[str, str], Object], kubernetes: str) -> None:
    objects = [*patched.values(), *kustomize(EXAMPLE).values()]
    assert [fault for each in objects for fault in schema_faults(each, kubernetes)] == []


def test_the_container_is_that_of_the_chart() -> None:
    ours: dict[str, Any] = containers(pod_of(kustomize(EXAMPLE)["Deployment", "feed-handler"]))[
        "bronze-sidecar"
    ]
    value = 'existingSecret.files="bronze-sidecar-files"'
    [chart] = [
        containers(pod_of(each))["bronze-sidecar"]
        for (kind, _), each in render(CASES["nats"], value).items()
        if kind == "Deployment"
    ]
    # The chart says in its file and for the whole pod what the component says here.
    for name in ("args", "restartPolicy", "ports", "resources", "terminationMessagePolicy", "volumeMounts"):
        assert ours[name] == chart[name], name
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert ours[probe] == chart[probe]
    assert ours["securityContext"] == chart["securityContext"] | {"runAsUser": 10001, "runAsGroup": 10001}
    assert ours.keys() == chart.keys() - {"imagePullPolicy"}
    variables = {each["name"]: each["value"] for each in ours["env"]}
    config = yaml.safe_load((ROOT / "helm/bronze-sidecar/values.yaml").read_text())["config"]
    assert variables == {
        "SIDECAR_CONFIG": "/etc/bronze-sidecar/config/config.yaml",
        "SIDECAR_LISTEN": config["listen"][0],
        "SIDECAR_SOCKET_MODE": "666",
        "SIDECAR_ADMIN_LISTEN": config["admin_listen"],
        "SIDECAR_LOG_FORMAT": config["log_format"],
    }


def test_the_sidecar_accepts_the_example() -> None:
    objects = kustomize(EXAMPLE)
    container = containers(pod_of(objects["Deployment", "feed-handler"]))["bronze-sidecar"]
    assert container["image"] == "registry.example.com/bronze-sidecar:0.1.0"
    variables = {each["name"]: each["value"] for each in container["env"]}
    variables |= {"SIDECAR_CONFIG": str(EXAMPLE / "config.yaml"), "SIDECAR_NATS_PASS": "x"}
    config = load([], variables)
    assert [backend.name for backend in config.backends] == ["nats"]
    assert (config.listen, config.socket_mode) == ((SOCKET,), 0o666)
