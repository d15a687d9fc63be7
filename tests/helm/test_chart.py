"""Every supported way to install, as Kubernetes gets it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from bronze_cli.problems import ConfigError
from bronze_pipeline.commands import maintain
from bronze_sidecar.configuration.config import load
from charts import (
    CASES,
    HELMS,
    NEWEST,
    OLDEST,
    OLDEST_NATIVE,
    ROOT,
    Object,
    containers,
    render,
    restricted_faults,
    run,
    schema_faults,
    tool,
)

pytestmark = pytest.mark.servers

NAME = "replay-bronze-sidecar"
OF_OTHERS = {"PodMonitor", "PrometheusRule"}
TEST = {("Service", f"{NAME}-test"), ("Pod", f"{NAME}-test")}


def pod_of(objects: dict[tuple[str, str], Object]) -> Object:
    pod: Object = objects["Deployment", NAME]["spec"]["template"]["spec"]
    return pod


def pods(objects: dict[tuple[str, str], Object]) -> list[Object]:
    found = []
    for (kind, _), item in objects.items():
        if kind == "CronJob":
            found.append(item["spec"]["jobTemplate"]["spec"]["template"]["spec"])
        elif kind in {"Deployment", "StatefulSet"}:
            found.append(item["spec"]["template"]["spec"])
        elif kind == "Pod":
            found.append(item["spec"])
    return found


@pytest.mark.parametrize("helm", HELMS)
def test_the_linter_finds_nothing(helm: str) -> None:
    done = run(tool(helm), "lint", "--strict", str(ROOT / "helm/bronze-sidecar"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("case", CASES)
def test_every_case_is_right_for_the_oldest_and_the_newest_kubernetes_and_for_both_helms(case: str) -> None:
    oldest = OLDEST if case == "plain-container" else OLDEST_NATIVE
    rendered = [
        render(CASES[case], helm=helm, kubernetes=version) for helm in HELMS for version in (oldest, NEWEST)
    ]
    assert all(objects == rendered[0] for objects in rendered)
    checked = [item for (kind, _), item in rendered[0].items() if kind not in OF_OTHERS]
    assert [fault for item in checked for fault in schema_faults(item, NEWEST)] == []
    assert [fault for item in checked for fault in schema_faults(item, OLDEST_NATIVE)] == []
    if case == "plain-container":
        assert [fault for item in checked for fault in schema_faults(item, OLDEST)] == []


def test_the_schemas_would_find_a_mistake() -> None:
    objects = render(CASES["nats"])
    containers(pod_of(objects))["bronze-sidecar"]["restartPolice"] = "Always"
    assert any("restartPolice" in fault for fault in schema_faults(objects["Deployment", NAME], NEWEST))


@pytest.mark.parametrize("case", CASES)
def test_every_pod_satisfies_the_restricted_pod_security_standard(case: str) -> None:
    found = pods(render(CASES[case]))
    assert found
    for pod in found:
        assert restricted_faults(pod) == []


@pytest.mark.parametrize("case", CASES)
def test_every_volume_is_of_one_kind(case: str) -> None:
    """Kubernetes refuses two, which its schema allows."""
    for pod in pods(render(CASES[case])):
        assert [volume for volume in pod.get("volumes", ()) if len(volume.keys() - {"name"}) != 1] == []


@pytest.mark.parametrize("case", CASES)
def test_every_probe_asks_in_one_way(case: str) -> None:
    for pod in pods(render(CASES[case])):
        for container in containers(pod).values():
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                ways = container.get(kind, {}).keys() & {"exec", "grpc", "httpGet", "tcpSocket"}
                assert len(ways) == (kind in container), f"{container['name']}: {kind}: {ways}"


@pytest.mark.parametrize("case", CASES)
def test_the_sidecar_accepts_the_configuration_of_every_case(case: str, tmp_path: Path) -> None:
    text = render(CASES[case])["ConfigMap", NAME]["data"]["config.yaml"]
    given = yaml.safe_load(CASES[case].read_text())["config"]
    assert given.items() <= yaml.safe_load(text).items(), "what is given goes through unchanged"
    for name in ("ca.pem", "password", "nats.creds"):
        (tmp_path / name).write_text("content")
    file = tmp_path / "config.yaml"
    file.write_text(text.replace("/etc/bronze-sidecar/secrets", str(tmp_path)))
    secrets = {"SIDECAR_NATS_PASS": "s3cret"} if case == "nats" else {}
    disk = {"SIDECAR_SPOOL_DIR": str(tmp_path)} if case == "everything" else {}
    config = load(["--config", str(file)], secrets | disk)
    assert {backend.name for backend in config.backends} == given.keys() & {
        "kafka",
        "kinesis",
        "nats",
        "redis",
        "sqs",
    }


def test_the_native_sidecar_starts_before_the_server_and_shares_only_the_socket_with_it() -> None:
    objects = render(CASES["nats"])
    pod = pod_of(objects)
    [sidecar], [server] = pod["initContainers"], pod["containers"]
    assert (sidecar["name"], sidecar["image"], sidecar["args"]) == (
        "bronze-sidecar",
        "bronze-sidecar:0.1.0",
        ["run"],
    )
    assert sidecar["restartPolicy"] == "Always"
    assert "lifecycle" not in sidecar
    assert sidecar["env"] == [{"name": "SIDECAR_CONFIG", "value": "/etc/bronze-sidecar/config/config.yaml"}]
    assert sidecar["envFrom"] == [{"secretRef": {"name": "bus-credentials"}}]
    assert sidecar["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "admin"}
    assert sidecar["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "admin"}
    assert sidecar["readinessProbe"] == {
        "httpGet": {"path": "/reached", "port": "admin"},
        "timeoutSeconds": 5,
    }
    assert sidecar["ports"] == [{"name": "admin", "containerPort": 9464}]
    assert server["env"] == [
        {"name": "BRONZE_SIDECAR_ADDRESS", "value": "unix:///run/bronze-sidecar/sidecar.sock"},
        {"name": "NODE_OPTIONS", "value": "--require bronze-sidecar-client/tardis-machine"},
        {"name": "BRONZE_SIDECAR_FLUSH_MS", "value": "30000"},
        {"name": "TM_CACHE_DIR", "value": "/cache"},
    ]
    assert server["readinessProbe"] == {"httpGet": {"path": "/health-check", "port": "http"}}
    shared = {"name": "bronze-sidecar-socket", "mountPath": "/run/bronze-sidecar"}
    assert sidecar["volumeMounts"] == [
        {"name": "bronze-sidecar-config", "mountPath": "/etc/bronze-sidecar/config", "readOnly": True},
        shared,
    ]
    assert server["volumeMounts"] == [
        shared,
        {"name": "cache", "mountPath": "/cache"},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
    ]
    assert pod["volumes"][:2] == [
        {"name": "bronze-sidecar-config", "configMap": {"name": NAME}},
        {"name": "bronze-sidecar-socket", "emptyDir": {"sizeLimit": "1Mi"}},
    ]
    assert pod["enableServiceLinks"] is False
    # 30 for the server, 25 for the sidecar, 5 to spare.
    assert pod["terminationGracePeriodSeconds"] == 60
    assert ("NetworkPolicy", NAME) not in objects
    assert ("PodMonitor", NAME) not in objects


def test_a_plain_container_waits_for_the_server_before_it_stops() -> None:
    pod = pod_of(render(CASES["plain-container"], kubernetes=OLDEST))
    assert "initContainers" not in pod
    assert [container["name"] for container in pod["containers"]] == ["server", "bronze-sidecar"]
    sidecar = pod["containers"][1]
    assert "restartPolicy" not in sidecar
    assert sidecar["lifecycle"] == {"preStop": {"exec": {"command": ["sleep", "20"]}}}
    assert pod["terminationGracePeriodSeconds"] == 50


def test_secrets_as_files_are_for_the_sidecar_alone_and_its_grace_counts() -> None:
    pod = pod_of(render(CASES["kafka-tls"]))
    mounts = {mount["name"]: mount for mount in pod["initContainers"][0]["volumeMounts"]}
    assert mounts["bronze-sidecar-secrets"] == {
        "name": "bronze-sidecar-secrets",
        "mountPath": "/etc/bronze-sidecar/secrets",
        "readOnly": True,
    }
    assert "envFrom" not in pod["initContainers"][0]
    assert "bronze-sidecar-secrets" not in {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert {
        "name": "bronze-sidecar-secrets",
        "secret": {"secretName": "kafka-credentials", "defaultMode": 0o440},
    } in pod["volumes"]
    # 30 for the server, 40.5 made whole for the sidecar, 5 to spare.
    assert pod["terminationGracePeriodSeconds"] == 76


def test_the_service_account_carries_the_role() -> None:
    objects = render(CASES["aws"])
    assert objects["ServiceAccount", NAME]["metadata"]["annotations"] == {
        "eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/bronze"
    }
    assert pod_of(objects)["serviceAccountName"] == NAME


def test_grpc_readiness_asks_the_port_that_others_can_reach() -> None:
    sidecar = pod_of(render(CASES["grpc-readiness"]))["initContainers"][0]
    assert sidecar["readinessProbe"] == {"grpc": {"port": 50051}, "timeoutSeconds": 5}
    assert {"name": "grpc", "containerPort": 50051} in sidecar["ports"]


def test_another_server_gets_the_address_and_keeps_its_own_user() -> None:
    objects = render(CASES["other-server"])
    [server] = pod_of(objects)["containers"]
    assert server["image"] == "registry.example.com/feed-handler:7.2"
    assert (server["command"], server["args"]) == (["feed-handler"], ["--port", "9000"])
    assert server["env"] == [
        {"name": "BRONZE_SIDECAR_ADDRESS", "value": "unix:///run/bronze-sidecar/sidecar.sock"}
    ]
    assert server["securityContext"]["runAsUser"] == 20002
    assert pod_of(objects)["serviceAccountName"] == "feeds"
    assert objects.keys() == {("ConfigMap", NAME), ("Deployment", NAME), *TEST}


def test_production_has_everything_around_it() -> None:
    objects = render(CASES["production"])
    pod = pod_of(objects)
    sidecar, server = pod["initContainers"][0], pod["containers"][0]
    mine = {"bronze-sidecar": NAME}
    metadata = objects["Deployment", NAME]["spec"]["template"]["metadata"]
    assert mine.items() | {("team", "market-data")} <= metadata["labels"].items()
    assert metadata["annotations"]["example.com/owner"] == "market-data"
    assert objects["Deployment", NAME]["spec"]["replicas"] == 3
    assert sidecar["image"] == f"bronze-sidecar@sha256:{'0123456789abcdef' * 4}"
    assert sidecar["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "admin"}
    assert sidecar["env"][1] == {"name": "SIDECAR_NATS_STATIC_HEADERS", "value": "env:production"}
    assert server["envFrom"] == [{"secretRef": {"name": "tardis-api-key"}}]
    assert server["lifecycle"] == {"preStop": {"exec": {"command": ["sleep", "5"]}}}
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["priorityClassName"] == "replay"
    assert pod["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert pod["tolerations"] == [{"key": "replay", "operator": "Exists"}]
    assert pod["topologySpreadConstraints"] == [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": mine},
        }
    ]
    assert objects["PodDisruptionBudget", NAME]["spec"] == {
        "maxUnavailable": 1,
        "selector": {"matchLabels": mine},
    }
    test_pod = {
        "app.kubernetes.io/name": "bronze-sidecar",
        "app.kubernetes.io/instance": "replay",
        "app.kubernetes.io/component": "test",
    }
    assert test_pod.items() <= objects["Pod", f"{NAME}-test"]["metadata"]["labels"].items()
    assert objects["NetworkPolicy", NAME]["spec"] == {
        "podSelector": {"matchLabels": mine},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "ports": [{"port": "http"}, {"port": "websocket"}],
                "from": [{"podSelector": {"matchLabels": {"role": "research"}}}],
            },
            {"ports": [{"port": 9464}], "from": [in_namespace("monitoring")]},
            {
                "ports": [{"port": "http"}, {"port": "websocket"}, {"port": 9464}],
                "from": [{"podSelector": {"matchLabels": test_pod}}],
            },
        ],
        "egress": [
            {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
            {"to": [in_namespace("bus")]},
        ],
    }
    monitor = objects["PodMonitor", NAME]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"] == {
        "selector": {"matchLabels": mine},
        "podMetricsEndpoints": [{"port": "admin", "interval": "30s"}],
    }
    assert objects["PrometheusRule", NAME]["metadata"]["labels"]["release"] == "prometheus"
    assert objects["ConfigMap", f"{NAME}-dashboard"]["metadata"]["labels"]["grafana_dashboard"] == "1"


def in_namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def test_the_pipeline_runs_now_and_then_and_never_twice_at_once() -> None:
    job = render(CASES["pipeline"])["CronJob", f"{NAME}-pipeline"]["spec"]
    assert (job["schedule"], job["concurrencyPolicy"]) == ("*/15 * * * *", "Forbid")
    pod = job["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["image"] == "bronze-sidecar-pipeline:0.1.0"
    assert container["args"] == yaml.safe_load(CASES["pipeline"].read_text())["pipeline"]["args"]
    assert container["envFrom"] == [{"secretRef": {"name": "lake-credentials"}}]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp", "/lake"]  # noqa: S108
    assert pod["restartPolicy"] == "Never"


def test_tables_are_maintained_once_a_day() -> None:
    job = render(CASES["pipeline"])["CronJob", f"{NAME}-maintenance"]["spec"]
    assert (job["schedule"], job["concurrencyPolicy"]) == ("30 2 * * *", "Forbid")
    template = job["jobTemplate"]["spec"]["template"]
    assert template["metadata"]["labels"]["app.kubernetes.io/component"] == "maintenance"
    containers = template["spec"]["containers"]
    assert [(each["name"], each["args"]) for each in containers] == [
        ("maintain-0", ["maintain", "--table", "/lake/bronze", "--open-days"]),
        ("maintain-1", ["maintain", "--table", "/lake/silver/trades", "--open-days"]),
    ]
    for each in containers:
        assert each["image"] == "bronze-sidecar-pipeline:0.1.0"
        assert each["envFrom"] == [{"secretRef": {"name": "lake-credentials"}}]
        assert [mount["mountPath"] for mount in each["volumeMounts"]] == ["/tmp", "/lake"]  # noqa: S108
        assert "command" not in each
    flags = [each["args"][1:] for each in containers]
    # The tables are not here, and nothing else is wrong.
    for words in flags:
        with pytest.raises(ConfigError) as caught:
            maintain.run(words)
        assert [problem.what for problem in caught.value.problems] == [f"there is no table at {words[1]}."]


def test_maintenance_needs_no_pipeline() -> None:
    objects = render(CASES["pipeline"], "pipeline.enabled=false")
    assert [name for kind, name in objects if kind == "CronJob"] == [f"{NAME}-maintenance"]


def test_the_pipeline_may_be_submitted_to_a_cluster() -> None:
    command = ["spark-submit", "--master", "k8s://https://kubernetes.default", "main.py"]
    values = f"pipeline.command={json.dumps(command)}"
    job = render(CASES["pipeline"], values)["CronJob", f"{NAME}-pipeline"]["spec"]
    [container] = job["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == command


def test_pods_start_anew_when_the_configuration_changes_and_only_then() -> None:
    def checksum(*values: str | Path) -> str:
        metadata = render(CASES["nats"], *values)["Deployment", NAME]["spec"]["template"]["metadata"]
        text: str = metadata["annotations"]["checksum/bronze-sidecar-config"]
        return text

    before = checksum()
    assert checksum("replicas=2") == before
    assert checksum('config.nats.stream="OTHER"') != before


@pytest.mark.parametrize("helm", HELMS)
def test_another_chart_includes_the_sidecar_in_its_own_pods(helm: str, tmp_path: Path) -> None:
    chart = tmp_path / "helm/examples/own-server"
    shutil.copytree(ROOT / "helm", tmp_path / "helm")
    done = run(tool(helm), "dependency", "update", "--skip-refresh", str(chart))
    assert done.returncode == 0, done.stdout + done.stderr
    objects = render(helm=helm, chart=chart)
    assert objects.keys() == {
        *(("StatefulSet", "replay"), ("ConfigMap", NAME), ("ServiceAccount", NAME)),
        *TEST,
    }
    template = objects["StatefulSet", "replay"]["spec"]["template"]
    assert schema_faults(objects["StatefulSet", "replay"], NEWEST) == []
    assert restricted_faults(template["spec"]) == []
    [sidecar], [server] = template["spec"]["initContainers"], template["spec"]["containers"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("bronze-sidecar", "Always")
    assert server["env"] == [
        {"name": "BRONZE_SIDECAR_ADDRESS", "value": "unix:///run/bronze-sidecar/sidecar.sock"}
    ]
    assert template["metadata"]["labels"]["bronze-sidecar"] == NAME
    assert template["spec"]["terminationGracePeriodSeconds"] == 45
    # The server runs as whoever its image says; the group is what lets it use the socket.
    security = template["spec"]["securityContext"]
    assert security.keys() == {"fsGroup", "fsGroupChangePolicy", "seccompProfile"}
    assert not server["securityContext"].keys() & {"runAsUser", "runAsGroup"}
    assert (sidecar["securityContext"]["runAsUser"], sidecar["securityContext"]["runAsGroup"]) == (
        10001,
        10001,
    )
