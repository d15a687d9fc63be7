"""Values that are right one by one and would fail later are refused at once, with the remedy."""

from __future__ import annotations

import json

import pytest
from charts import CHART, HELMS, Object, template

pytestmark = pytest.mark.servers

NATS = 'config.nats={"servers": "nats:4222", "subject": "all"}'
SPILLING = 'config.nats={"servers": "nats:4222", "subject": "all", "when_full": "spill"}'
CLAIM = 'sidecar.spool={"enabled": true, "volume": {"persistentVolumeClaim": {"claimName": "disk"}}}'


def problems(helm: str, *values: str) -> list[str]:
    """Return what is said against values; nothing if they are rendered."""
    arguments = [word for value in values for word in ("--set-json", value)]
    done = template(helm, *arguments)
    if done.returncode == 0:
        return []
    assert "wrong values:" in done.stderr, done.stderr
    lines = done.stderr.partition("wrong values:\n")[2].splitlines()
    return [line.removeprefix("  - ") for line in lines if line.startswith("  - ")]


@pytest.fixture(params=HELMS)
def helm(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_back_ends_with_a_part_of_what_they_need_are_named_with_what_is_missing(helm: str) -> None:
    found = problems(
        helm,
        'config.nats={"stream": "BRONZE"}',
        'config.kafka={"brokers": "kafka:9092", "topic": ""}',
        'config.redis={"stream": "bronze"}',
        'sidecar.env=[{"name": "SIDECAR_SQS_REGION", "value": "eu-central-1"}]',
        "config.kinesis={}",
    )
    assert found == [
        "config.kafka is half configured: it has no topic. Add config.kafka.topic.",
        "config.nats is half configured: it has no servers. Add config.nats.servers.",
        "config.nats is half configured: it has no subject. Add config.nats.subject.",
        (
            "config.redis is half configured: it has no host. Add config.redis.host, or SIDECAR_REDIS_URL in"
            " the Secret that existingSecret.environment names, or config.redis.sentinels."
        ),
        "config.sqs is half configured: it has no queue_url. Add config.sqs.queue_url.",
    ]


@pytest.mark.parametrize(
    "values",
    [
        ('config.redis={"stream": "s", "sentinels": "sentinel:26379", "sentinel_name": "m"}',),
        ('config.redis={"stream": "s", "url_file": "/etc/bronze-sidecar/secrets/url"}',),
        ('config.redis={"stream": "s"}', 'existingSecret.environment="bus"'),
        ('config.nats={"subject": "s"}', 'existingSecret.environment="bus"'),
        (
            'config.nats={"subject": "s"}',
            'sidecar.env=[{"name": "SIDECAR_NATS_SERVERS", "valueFrom": {"configMapKeyRef": {}}}]',
        ),
    ],
    ids=["sentinels", "file", "secret", "secret-address", "variable"],
)
def test_what_a_back_end_needs_may_come_from_elsewhere(helm: str, values: tuple[str, ...]) -> None:
    assert problems(helm, *values) == []


@pytest.mark.parametrize(
    "servers", ["nats://t0ken@nats:4222", "t0ken@nats:4222", ["nats-0:4222", "tls://t0ken@nats-1:4222"]]
)
def test_a_token_before_the_host_is_refused_and_not_repeated(helm: str, servers: object) -> None:
    done = template(helm, "--set-json", f'config.nats={{"servers": {json.dumps(servers)}, "subject": "s"}}')
    assert done.returncode != 0
    assert "password or token" in done.stderr
    assert "give it by existingSecret" in done.stderr
    assert "t0ken" not in done.stderr


@pytest.mark.parametrize(
    "folder",
    ["", "/tmp", "/etc", "/usr/lib", "/opt/bronze-sidecar", "/var/run", "/run/../tmp"],  # noqa: S108
)
def test_a_socket_that_would_hide_a_folder_of_the_image_is_refused(helm: str, folder: str) -> None:
    found = problems(helm, NATS, f'config.listen="unix://{folder}/bronze.sock"')
    assert any("would hide what is there" in each for each in found), found
    assert any("such as unix:///run/bronze-sidecar/sidecar.sock" in each for each in found)


def test_sockets_are_where_something_is_mounted(helm: str) -> None:
    listen = ["unix:///run/bronze/a.sock", "unix:///run/bronze/b.sock", "unix:///other/c.sock", "unix:d.sock"]
    long = f"unix:///run/bronze/{'x' * 100}.sock"
    assert problems(helm, NATS, f"config.listen={json.dumps([*listen, long])}") == [
        (
            "config.listen: nothing is mounted at /other, and the root file system is read-only: put the"
            " socket beside the first, into /run/bronze."
        ),
        "config.listen: unix:d.sock is no socket: write unix:///run/bronze-sidecar/sidecar.sock.",
        (
            f"config.listen: the path of the socket {long.removeprefix('unix://')} is longer than 107 bytes:"
            " choose a shorter one."
        ),
    ]
    mount = 'sidecar.volumeMounts=[{"name": "tmp", "mountPath": "/other"}]'
    assert problems(helm, NATS, f"config.listen={json.dumps(listen[:3])}", mount) == []


def test_no_two_volumes_are_mounted_at_one_place(helm: str) -> None:
    mounts = [{"name": "tmp", "mountPath": "/run/bronze-sidecar/"}, {"name": "x", "mountPath": "/"}]
    found = problems(
        helm,
        NATS,
        'volumes=[{"name": "tmp", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]',
        f"server.volumeMounts={json.dumps(mounts)}",
        'sidecar.volumeMounts=[{"name": "tmp", "mountPath": "/etc/bronze-sidecar/config"}]',
        'pipeline.volumeMounts=[{"name": "lake", "mountPath": "/tmp"}]',
    )
    assert found == [
        "volumes has tmp twice, or it is one of the chart's own: choose another name.",
        "server.volumeMounts mounts a second volume at /run/bronze-sidecar: choose another folder.",
        "server.volumeMounts mounts x over the root of the image: mount it into a folder.",
        "server.volumeMounts mounts x, which is not among the volumes: add it.",
        "sidecar.volumeMounts mounts a second volume at /etc/bronze-sidecar/config: choose another folder.",
        "pipeline.volumeMounts mounts a second volume at /tmp: choose another folder.",
        "pipeline.volumeMounts mounts lake, which is not among the volumes: add it.",
    ]


def test_files_of_the_sidecar_are_on_volumes(helm: str) -> None:
    found = problems(
        helm, SPILLING, 'config.spool_dir="/spool"', 'config.dead_letter_file="/dead/letters.jsonl"'
    )
    assert [each.partition(",")[0] for each in found] == [
        "config.dead_letter_file is /dead/letters.jsonl",
        "config.spool_dir is /spool",
    ]
    assert "set sidecar.deadLetters.enabled, or mount a volume" in found[0]
    mounts = '[{"name": "tmp", "mountPath": "/spool"}, {"name": "cache", "mountPath": "/dead"}]'
    assert not problems(
        helm,
        SPILLING,
        'config.spool_dir="/spool"',
        'config.dead_letter_file="/dead/letters.jsonl"',
        f"sidecar.volumeMounts={mounts}",
    )


def test_a_queue_on_disk_has_a_disk_of_its_own(helm: str) -> None:
    assert problems(helm, SPILLING) == [
        "config.nats.when_full is spill, and there is no disk for it: set sidecar.spool.enabled."
    ]
    [unused] = problems(helm, NATS, "sidecar.spool.enabled=true")
    assert "set config.<back end>.when_full to spill" in unused
    recreate = 'strategy={"type": "Recreate"}'
    for values in ((), (recreate, "replicas=2"), (recreate, "replicas=null")):
        [shared] = problems(helm, SPILLING, CLAIM, *values)
        assert shared.startswith("sidecar.spool.volume is one claim for all pods")
    assert problems(helm, SPILLING, CLAIM, recreate) == []


def test_a_queue_on_disk_fits_before_its_pod_is_evicted(helm: str) -> None:
    for place in (
        'sidecar.resources={"limits": {"ephemeral-storage": "2047Mi"}}',
        'sidecar.spool.volume={"emptyDir": {"sizeLimit": "2047Mi"}}',
    ):
        spool = (SPILLING, "sidecar.spool.enabled=true", place)
        [found] = problems(helm, *spool)
        assert "is 2047Mi, and queues on disk may take 2048 MiB: Kubernetes would evict the pod" in found
        assert not problems(helm, *spool, 'config.spool_max_bytes="512Mi"')
        # One that is needed for nothing.
        assert not problems(helm, NATS, place)
    fits = 'sidecar.resources={"limits": {"ephemeral-storage": "2Gi"}}'
    assert not problems(helm, SPILLING, "sidecar.spool.enabled=true", fits)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("config.max_queue_bytes=402653185",), "let about 384 MiB wait for one back end"),
        (("config.max_queue_events=700000",), "let about 447 MiB wait for one back end"),
        (("config.max_queue_bytes=268435456", 'config.memory_limit="256Mi"'), "it may use 256 MiB"),
        (
            ("config.max_queue_bytes=268435456", 'sidecar.resources={"limits": {"memory": 268435456}}'),
            "256 MiB",
        ),
        (
            ('config.memory_limit="1Gi"',),
            "config.memory_limit is above sidecar.resources.limits.memory, 512Mi",
        ),
        (('sidecar.resources={"limits": {"memory": "128Mi"}}',), "the sidecar needs 192Mi: raise it"),
    ],
)
def test_queues_fit_into_the_memory(helm: str, values: tuple[str, ...], said: str) -> None:
    [found] = problems(helm, NATS, *values)
    assert said in found


@pytest.mark.parametrize(
    "values",
    [
        ("config.max_queue_bytes=402653184",),
        ("config.max_queue_bytes=1000000000", 'sidecar.resources={"limits": {"memory": "1.5Gi"}}'),
        ("config.max_queue_bytes=1000000000", 'sidecar.resources={"limits": {"memory": "2G"}}'),
        ('config.memory_limit="300m"',),
        ("sidecar.resources={}",),
    ],
)
def test_queues_that_fit_pass(helm: str, values: tuple[str, ...]) -> None:
    assert problems(helm, NATS, *values) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("config.workers=4",), "config.workers is 4, which needs 832 MiB, and the sidecar may use 512 MiB"),
        (("config.workers=2", "config.max_queue_bytes=134217728"), "it may use 224 MiB"),
    ],
)
def test_workers_share_the_memory(helm: str, values: tuple[str, ...], said: str) -> None:
    [found] = problems(helm, NATS, *values)
    assert said in found
    assert problems(helm, NATS, *values, 'sidecar.resources={"limits": {"memory": "1Gi"}}') == []


def test_a_memory_limit_that_is_a_variable_is_the_sidecars_affair(helm: str) -> None:
    variable = 'sidecar.env=[{"name": "SIDECAR_MEMORY_LIMIT", "value": "4Gi"}]'
    values = ("sidecar.resources={}", "config.max_queue_bytes=1073741824")
    assert problems(helm, NATS, *values) != []
    assert problems(helm, NATS, *values, variable) == []


def test_several_workers_have_no_queue_on_disk(helm: str) -> None:
    [found] = problems(helm, SPILLING, "sidecar.spool.enabled=true", "config.workers=2")
    assert "leave config.workers out" in found


@pytest.mark.parametrize("address", ["null", '"unix:///run/admin.sock"', '"localhost:9464"'])
def test_an_admin_address_that_probes_cannot_ask_is_named(helm: str, address: str) -> None:
    [found] = problems(helm, NATS, f"config.admin_listen={address}")
    assert found.startswith("config.admin_listen is ")
    assert found.endswith(": use 0.0.0.0:9464.")


def test_the_sidecars_two_ports_differ(helm: str) -> None:
    listen = ["unix:///run/bronze-sidecar/sidecar.sock", "0.0.0.0:9464"]
    [found] = problems(helm, NATS, f"config.listen={json.dumps(listen)}")
    assert "have the same port, 9464" in found


def test_pods_that_are_replaced_at_once_have_no_pace(helm: str) -> None:
    [found] = problems(helm, NATS, 'strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}')
    assert found.startswith("strategy.rollingUpdate does not go with")


def test_one_number_may_serve_two_protocols(helm: str) -> None:
    ports = [
        {"name": "http", "containerPort": 9464, "protocol": "UDP"},
        {"name": "web", "containerPort": 8000},
        {"name": "quic", "containerPort": 8000, "protocol": "UDP"},
    ]
    assert problems(helm, NATS, f"server.ports={json.dumps(ports)}") == []


def test_ports_are_there_and_are_not_taken(helm: str) -> None:
    ports = '[{"name": "web", "containerPort": 9464}, {"name": "web", "containerPort": 8000}]'
    taken = "is there twice, or is one of the sidecar's (config.admin_listen, config.listen): choose another."
    assert problems(
        helm,
        NATS,
        f"server.ports={ports}",
        'service.ports={"ftp": {"port": 21}, "web": {"nodePort": 30000}}',
        'service.externalTrafficPolicy="Local"',
        'service.loadBalancerClass="x"',
    ) == [
        f"server.ports: the port web, 9464, {taken}",
        f"server.ports: the port web, 8000, {taken}",
        (
            "server.ports has no port http, which tardis-machine is asked at: name it so, or set"
            " server.readinessProbe."
        ),
        "service.ports.ftp is not among server.ports: those are web, web.",
        "service.ports.web.nodePort needs service.type NodePort or LoadBalancer.",
        "service.externalTrafficPolicy needs service.type NodePort or LoadBalancer.",
        "service.loadBalancerClass needs service.type LoadBalancer.",
    ]
    [empty] = problems(helm, NATS, "server.ports=[]", "server.hook=false")
    assert empty.startswith("service.enabled is on, and server.ports is empty")


def test_shapes_that_kubernetes_would_refuse_are_refused_by_the_schema(helm: str) -> None:
    done = template(
        helm,
        *("--set-json", 'strategy={"type": "Rolling"}', "--set-json", "minReadySeconds=600"),
        *("--set-json", 'pipeline.args=["--partitions", 4]'),
        *("--set-json", "pipeline.maintenance.args=[7]", "--set-json", "server.command=[1.5]"),
        *("--set-json", 'nodeSelector={"zone": 1}', "--set-json", "pipeline.startingDeadlineSeconds=5"),
        *(
            "--set-json",
            'server.ports=[{"containerPort": 80}]',
            "--set-json",
            'extraContainers=[{"image": "x"}]',
        ),
        *("--set-json", 'extraInitContainers=[{"name": "x", "image": "x", "args": [1]}]'),
        *("--set-json", 'service.internalTrafficPolicy="Near"', "--set-json", 'volumes=[{"emptyDir": {}}]'),
    )
    assert done.returncode != 0
    for part in (
        "'/strategy/type': value must be one of 'RollingUpdate', 'Recreate'",
        "'/minReadySeconds': maximum: got 600, want 599",
        "'/pipeline/args/1': got number, want string",
        "'/pipeline/maintenance/args/0': got number, want string",
        "'/server/command/0': got number, want string",
        "'/nodeSelector/zone': got number, want string",
        "'/pipeline/startingDeadlineSeconds': minimum: got 5, want 10",
        "'/server/ports/0': missing property 'name'",
        "'/extraContainers/0': missing property 'name'",
        "'/extraInitContainers/0/args/0': got number, want string",
        "'/service/internalTrafficPolicy': value must be one of",
        "'/volumes/0': missing property 'name'",
    ):
        assert part in done.stderr


def test_containers_have_names_of_their_own(helm: str) -> None:
    first = [{"name": "server", "image": "x"}, {"name": "fill", "image": "x"}]
    second = [{"name": "bronze-sidecar", "image": "x"}, {"name": "fill", "image": "x"}]
    taken = "is there twice, or is one of the chart's own: choose another."
    assert problems(
        helm, f"extraInitContainers={json.dumps(first)}", f"extraContainers={json.dumps(second)}"
    ) == [
        f"extraInitContainers: the name server {taken}",
        f"extraContainers: the name bronze-sidecar {taken}",
        f"extraContainers: the name fill {taken}",
    ]


def test_extra_containers_have_no_secrets_in_plain_text_either(helm: str) -> None:
    container = {"name": "x", "image": "x", "args": ["--token=hunter2"]}
    variables = [{"name": "DB_PASSWORD", "value": "hunter2"}]
    found = problems(
        helm,
        f"extraContainers={json.dumps([container])}",
        f"extraInitContainers={json.dumps([{'name': 'y', 'image': 'x', 'env': variables}])}",
    )
    assert [each.partition(" ")[0] for each in found] == [
        "extraInitContainers[0].env:",
        "extraContainers[0].args[0]",
    ]
    assert "the Secret that extraInitContainers[0].envFrom names" in found[0]
    assert "hunter2" not in "".join(found)


def test_a_server_of_another_chart_brings_its_own_volumes_and_ports(helm: str) -> None:
    mount = 'sidecar.volumeMounts=[{"name": "of-the-other-chart", "mountPath": "/data"}]'
    assert problems(helm, NATS, "server.enabled=false", "server.ports=[]", mount) == []


def test_the_checks_know_what_the_sidecar_asks_for() -> None:
    required: Object = json.loads((CHART / "files/required-options.json").read_text())
    assert required["redis"] == [["host", "url", "sentinels"], ["stream"]]
    assert required.keys() == {"kafka", "nats", "kinesis", "redis", "sqs"}
