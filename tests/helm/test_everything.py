"""The case `everything`: values that few need, each where Kubernetes looks for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from charts import CASES, CHART, HELMS, NEWEST, Object, containers, render, run, schema_faults, tool

pytestmark = pytest.mark.servers

NAME = "replay-bronze-sidecar"
LONGEST_CRON_JOB = 52


@pytest.fixture(params=HELMS)
def objects(request: pytest.FixtureRequest) -> dict[tuple[str, str], Object]:
    return render(CASES["everything"], helm=request.param)


def pod(objects: dict[tuple[str, str], Object]) -> Object:
    spec: Object = objects["Deployment", NAME]["spec"]["template"]["spec"]
    return spec


def test_the_number_of_pods_is_left_to_the_autoscaler(objects: dict[tuple[str, str], Object]) -> None:
    spec = objects["Deployment", NAME]["spec"]
    assert "replicas" not in spec
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2},
    }
    assert (spec["minReadySeconds"], spec["revisionHistoryLimit"]) == (30, 3)
    scaler = objects["HorizontalPodAutoscaler", NAME]["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}
    assert objects["ConfigMap", "replay-notes"]["data"] == {"release": "replay"}


@pytest.mark.parametrize("helm", HELMS)
def test_no_pods_is_a_number_and_null_is_none(helm: str) -> None:
    def spec(value: str) -> Object:
        found: Object = render(CASES["nats"], value, helm=helm)["Deployment", NAME]["spec"]
        return found

    assert spec("replicas=0")["replicas"] == 0
    assert "replicas" not in spec("replicas=null")


def test_one_registry_is_before_all_images_and_one_of_its_own_only_without_that(
    objects: dict[tuple[str, str], Object],
) -> None:
    images = {name: each["image"] for name, each in containers(pod(objects)).items()}
    assert images == {
        "fill-cache": "registry.example.com/fill-cache:1",
        "bronze-sidecar": "registry.example.com/market/bronze-sidecar:1.2.3",
        "server": "registry.example.com/market/bronze-sidecar-tardis-machine:0.1.0",
        "proxy": "registry.example.com/proxy:1",
    }
    job = objects["CronJob", f"{NAME}-pipeline"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert job["containers"][0]["image"] == "registry.example.com/market/bronze-sidecar-pipeline:0.1.0"
    test = objects["Pod", f"{NAME}-test"]["spec"]
    assert test["containers"][0]["image"] == "registry.example.com/market/bronze-sidecar:1.2.3"
    for each in (pod(objects), job, test):
        assert each["imagePullSecrets"] == [{"name": "mirror"}]
    alone = render(CASES["everything"], 'global.imageRegistry=""')
    assert containers(pod(alone))["bronze-sidecar"]["image"] == "ghcr.example.com/bronze-sidecar:1.2.3"
    assert containers(pod(alone))["server"]["image"] == "bronze-sidecar-tardis-machine:0.1.0"


def test_init_containers_end_before_the_sidecar_starts(objects: dict[tuple[str, str], Object]) -> None:
    assert [each["name"] for each in pod(objects)["initContainers"]] == ["fill-cache", "bronze-sidecar"]
    assert [each["name"] for each in pod(objects)["containers"]] == ["server", "proxy"]
    plain = pod(render(CASES["everything"], "sidecar.native=false"))
    assert [each["name"] for each in plain["initContainers"]] == ["fill-cache"]
    assert [each["name"] for each in plain["containers"]] == ["server", "bronze-sidecar", "proxy"]


def test_common_labels_are_on_all_objects_and_pods_and_in_no_selector(
    objects: dict[tuple[str, str], Object],
) -> None:
    own = {
        key: each for key, each in objects.items() if key[1].startswith(NAME) and "labels" in each["metadata"]
    }
    assert len(own) == len(objects) - 2, "all but the two of the values"
    for each in own.values():
        assert each["metadata"]["labels"]["team"] == "market-data"
    template = objects["Deployment", NAME]["spec"]["template"]
    # What is said of the pods beats what is said of all.
    assert (template["metadata"]["labels"]["team"], template["metadata"]["labels"]["tier"]) == (
        "market-data",
        "replay",
    )
    job = objects["CronJob", f"{NAME}-pipeline"]["spec"]["jobTemplate"]["spec"]["template"]
    assert job["metadata"]["labels"]["tier"] == "bronze"
    assert "team" not in objects["Deployment", NAME]["spec"]["selector"]["matchLabels"]
    assert "team" not in objects["Service", NAME]["spec"]["selector"]


def test_labels_of_users_do_not_replace_those_that_select() -> None:
    values = ('commonLabels={"app.kubernetes.io/name": "other"}', 'podLabels={"bronze-sidecar": "other"}')
    deployment = render(CASES["nats"], *values)["Deployment", NAME]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels["bronze-sidecar"] == NAME


def test_annotations_of_users_do_not_double_ours() -> None:
    values = {"kubectl.kubernetes.io/default-container": "proxy", "checksum/bronze-sidecar-config": "0"}
    plain = render(CASES["nats"])["Deployment", NAME]["spec"]["template"]["metadata"]["annotations"]
    done = run(
        *(tool("helm4"), "template", "replay", str(CHART), "--values", str(CASES["nats"])),
        *("--set-json", f"podAnnotations={json.dumps(values)}", "--show-only", "templates/deployment.yaml"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("default-container:") == done.stdout.count("checksum/") == 1
    annotations = yaml.safe_load(done.stdout)["spec"]["template"]["metadata"]["annotations"]
    assert annotations == plain | {"kubectl.kubernetes.io/default-container": "proxy"}


@pytest.mark.parametrize("release", ["replay", "r" * 53])
def test_names_of_jobs_are_as_long_as_kubernetes_allows(release: str) -> None:
    done = run(tool("helm4"), "template", release, str(CHART), "--values", str(CASES["everything"]))
    assert done.returncode == 0, done.stderr
    names = [
        each["metadata"]["name"] for each in yaml.safe_load_all(done.stdout) if each["kind"] == "CronJob"
    ]
    assert [name.rpartition("-")[2] for name in names] == ["pipeline", "maintenance"]
    assert all(len(name) <= LONGEST_CRON_JOB for name in names)


def test_the_policy_lets_each_port_through_in_its_protocol() -> None:
    ports = [
        {"name": "http", "containerPort": 8000},
        {"name": "feed", "containerPort": 9000, "protocol": "UDP"},
    ]
    values = ("networkPolicy.enabled=true", f"server.ports={json.dumps(ports)}")
    clients, test = render(CASES["nats"], *values)["NetworkPolicy", NAME]["spec"]["ingress"]
    assert clients["ports"] == [{"port": "http"}, {"port": "feed", "protocol": "UDP"}]
    assert test["ports"] == [*clients["ports"], {"port": 9464}]


@pytest.mark.parametrize(("address", "port"), [('""', 80), ('"None"', 8000)], ids=["service", "headless"])
def test_the_test_calls_the_ports_that_answer(address: str, port: int) -> None:
    values = (f"service.clusterIP={address}", 'service.ports={"http": {"port": 80}}')
    [container] = render(CASES["nats"], *values)["Pod", f"{NAME}-test"]["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert variables["SERVERS"] == f"{NAME}:{port} {NAME}:8001"


def test_a_release_whose_name_is_a_number_has_labels_of_text() -> None:
    done = run(tool("helm4"), "template", "2024", str(CHART))
    assert done.returncode == 0, done.stderr
    [deployment] = [each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "Deployment"]
    assert deployment["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == "2024"
    assert schema_faults(deployment, NEWEST) == []


def test_the_service_has_what_load_balancers_want(objects: dict[tuple[str, str], Object]) -> None:
    service = objects["Service", NAME]
    assert service["metadata"]["labels"]["exposed"] == "yes"
    assert service["metadata"]["annotations"] == {"example.com/load-balancer": "internal"}
    spec: dict[str, Any] = service["spec"]
    assert spec.pop("selector")
    assert spec == {
        "type": "LoadBalancer",
        "ipFamilyPolicy": "PreferDualStack",
        "sessionAffinity": "ClientIP",
        "externalTrafficPolicy": "Local",
        "internalTrafficPolicy": "Local",
        "loadBalancerClass": "example.com/internal",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "ports": [
            {"name": "http", "port": 80, "targetPort": "http", "nodePort": 30080, "appProtocol": "http"},
            {"name": "websocket", "port": 8001, "targetPort": "websocket", "protocol": "TCP"},
        ],
    }


def test_names_are_resolved_as_it_says(objects: dict[tuple[str, str], Object]) -> None:
    assert pod(objects)["hostAliases"] == [{"ip": "10.0.0.7", "hostnames": ["nats.bus"]}]
    assert pod(objects)["dnsPolicy"] == "None"
    assert pod(objects)["dnsConfig"]["nameservers"] == ["10.0.0.10"]


def test_disks_are_mounted_and_named_to_the_sidecar(objects: dict[tuple[str, str], Object]) -> None:
    sidecar = containers(pod(objects))["bronze-sidecar"]
    mounts = {each["name"]: each["mountPath"] for each in sidecar["volumeMounts"]}
    variables = {each["name"]: each for each in sidecar["env"]}
    assert variables["SIDECAR_SPOOL_DIR"]["value"] == mounts["bronze-sidecar-spool"]
    # Pods that share a volume have a file each.
    assert variables["POD_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    file = variables["SIDECAR_DEAD_LETTER_FILE"]["value"]
    assert file == f"{mounts['bronze-sidecar-dead-letters']}/$(POD_NAME).jsonl"
    names = [each["name"] for each in sidecar["env"]]
    assert names.index("POD_NAME") < names.index("SIDECAR_DEAD_LETTER_FILE"), "it is known by then"
    volumes = {each["name"]: each for each in pod(objects)["volumes"]}
    assert "ephemeral" in volumes["bronze-sidecar-spool"]
    assert volumes["bronze-sidecar-dead-letters"]["persistentVolumeClaim"] == {"claimName": "dead-letters"}


def test_metrics_are_relabelled(objects: dict[tuple[str, str], Object]) -> None:
    assert objects["PodMonitor", NAME]["spec"]["podMetricsEndpoints"] == [
        {
            "port": "admin",
            "interval": "30s",
            "scrapeTimeout": "5s",
            "relabelings": [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}],
            "metricRelabelings": [{"action": "drop", "sourceLabels": ["__name__"], "regex": "python_gc_.*"}],
        }
    ]


def test_jobs_have_deadlines_and_are_removed_and_run_on_their_nodes(
    objects: dict[tuple[str, str], Object],
) -> None:
    cron = objects["CronJob", f"{NAME}-pipeline"]["spec"]
    assert {name: cron[name] for name in cron if name not in {"schedule", "jobTemplate"}} == {
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "suspend": False,
        "startingDeadlineSeconds": 300,
        "successfulJobsHistoryLimit": 0,
        "failedJobsHistoryLimit": 5,
    }
    job = cron["jobTemplate"]["spec"]
    assert {name: job[name] for name in job if name != "template"} == {
        "activeDeadlineSeconds": 7200,
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": 2_592_000,
    }
    maintenance = objects["CronJob", f"{NAME}-maintenance"]["spec"]
    assert maintenance["suspend"] is True
    assert "startingDeadlineSeconds" not in maintenance
    assert maintenance["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 3600
    for each in (job, maintenance["jobTemplate"]["spec"]):
        spec = each["template"]["spec"]
        assert spec["nodeSelector"] == {"pool": "batch"}
        assert spec["tolerations"] == [{"key": "batch", "operator": "Exists"}]
        assert "nodeAffinity" in spec["affinity"]
        assert spec["priorityClassName"] == "batch"
        assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["fsGroup"]) == (20003, 10001)


@pytest.mark.parametrize("case", CASES)
def test_what_a_container_said_last_is_kept(case: str) -> None:
    for (kind, _), item in render(CASES[case]).items():
        template = {
            "Deployment": lambda spec: spec["template"]["spec"],
            "CronJob": lambda spec: spec["jobTemplate"]["spec"]["template"]["spec"],
            "Pod": lambda spec: spec,
        }.get(kind)
        if template:
            for name, container in containers(template(item["spec"])).items():
                own = name not in {"fill-cache", "proxy"}
                assert (container.get("terminationMessagePolicy") == "FallbackToLogsOnError") == own
