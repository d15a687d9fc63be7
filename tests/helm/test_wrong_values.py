"""Wrong values never install, and the message says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chart
import pytest
from charts import CASES, HELMS, template

pytestmark = pytest.mark.servers


def refusal(helm: str, *arguments: str) -> str:
    done = template(helm, *arguments)
    assert done.returncode != 0, "it was rendered"
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize("helm", HELMS)
def test_unknown_names_and_wrong_types_are_refused_by_the_schema(helm: str) -> None:
    message = refusal(
        helm,
        *("--set", "replcas=2", "--set", "sidecar.nativ=true", "--set", "config.nats.sujbect=x"),
        *("--set-json", 'config.grace_seconds="soon"', "--set", "sidecar.readiness=tcp"),
        *("--set", "sidecar.image.digest=latest", "--set", "replicas=-1"),
    )
    for part in (
        "additional properties 'replcas' not allowed",
        "'/sidecar': additional properties 'nativ' not allowed",
        "'/config/nats': additional properties 'sujbect' not allowed",
        "'/config/grace_seconds': got string, want number",
        "'/sidecar/readiness': value must be one of 'none', 'reached', 'grpc', 'http'",
        "'/sidecar/image/digest'",
        "'/replicas': minimum: got -1, want 0",
    ):
        assert part in message


@pytest.mark.parametrize("helm", HELMS)
def test_a_secret_in_the_configuration_is_refused_and_not_repeated(helm: str) -> None:
    message = refusal(
        helm,
        *("--set", "config.nats.pass=hunter2", "--set", "config.kafka.sasl_password=hunter2"),
        *("--set", "config.redis.url=redis://:hunter2@redis:6379"),
        *("--set", r"config.nats.servers=nats://bronze:hunter2@nats:4222"),
    )
    assert "config.nats.pass is a secret" in message
    assert "SIDECAR_NATS_PASS" in message
    assert "existingSecret.environment" in message
    assert "config.kafka.sasl_password is a secret" in message
    assert "pass_file with existingSecret.files" in message
    assert "config.redis.url is a secret" in message
    assert "config holds a URL with a password" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("helm", HELMS)
def test_values_that_do_not_go_together_are_refused_all_at_once(helm: str) -> None:
    message = refusal(
        helm,
        *("--kube-version", "1.28.5", "--set", "config.admin_listen=127.0.0.1:9464"),
        *("--set", "sidecar.readiness=grpc", "--set-json", 'config.listen="127.0.0.1:50051"'),
        *("--set", "monitoring.alerts.enabled=true", "--set", "pipeline.enabled=true"),
        *("--set", "pipeline.maintenance.enabled=true"),
    )
    for part in (
        "sidecar.native needs Kubernetes 1.29, and this is v1.28.5: set it to false.",
        "config.admin_listen is 127.0.0.1:9464, where probes and Prometheus do not reach it",
        "sidecar.readiness is grpc",
        "config.listen has no unix socket",
        "monitoring.alerts needs monitoring.podMonitor.enabled",
        "pipeline.args is empty",
        "pipeline.maintenance.tables is empty",
    ):
        assert part in message


def with_values(folder: Path, values: dict[str, Any]) -> tuple[str, str]:
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    return "--values", str(file)


def plain(*variables: tuple[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables]


def from_secret(name: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": "credentials", "key": name}}}


@pytest.mark.parametrize("helm", HELMS)
def test_secrets_in_plain_variables_are_refused_and_not_repeated(helm: str, tmp_path: Path) -> None:
    names = [
        f"SIDECAR_{backend}_{name}".upper()
        for backend, options in chart.secret_options().items()
        for name in options
    ]
    by_name = [*names, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "db_password"]
    holding = {
        "SIDECAR_NATS_SERVERS": "nats://hunter2@nats:4222",
        "SIDECAR_KAFKA_BROKERS": "bronze:hunter2@kafka:9092",
        "BRONZE_SIDECAR_META": "source:https://user:hunter2@feed",
    }
    message = refusal(
        helm,
        *with_values(
            tmp_path,
            {
                "sidecar": {"env": plain(*((name, "hunter2") for name in by_name), *holding.items())},
                "server": {"env": plain(("TM_API_KEY", "hunter2"))},
                "pipeline": {"env": plain(("AWS_SECRET_ACCESS_KEY", "hunter2"))},
            },
        ),
    )
    for name in by_name:
        assert f"sidecar.env: {name} is a secret, which must not be in plain text" in message
    for name in holding:
        assert f"sidecar.env: {name} holds a password or token in plain text" in message
    assert "valueFrom.secretKeyRef instead of value" in message
    assert "into the Secret that existingSecret.environment names" in message
    assert "server.env: TM_API_KEY is a secret" in message
    assert "into the Secret that server.existingSecret names" in message
    assert "pipeline.env: AWS_SECRET_ACCESS_KEY is a secret" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("helm", HELMS)
def test_secrets_in_arguments_and_annotations_are_refused_and_not_repeated(helm: str, tmp_path: Path) -> None:
    flags = [
        f"--{backend}-{name}".replace("_", "-")
        for backend, options in chart.secret_options().items()
        for name in options
    ]
    others = [
        "--api-key=hunter2",
        "--api-key=-hunter2",
        "--db.password='hunter2'",
        "spark.hadoop.fs.s3a.secret.key=hunter2",
        "spark.kubernetes.authenticate.oauthToken=hunter2",
        "redis://:hunter2@redis:6379",
        "run --nats-pass hunter2",
        "run --token hunter2",
        "SIDECAR_REDIS_URL=hunter2 run",
    ]
    separate = [word for flag in (*flags, "--api-key", "-password") for word in (flag, "hunter2")]
    message = refusal(
        helm,
        *with_values(
            tmp_path,
            {
                "server": {
                    "command": ["sh", "-ec", "export TM_API_KEY=hunter2\nexec server"],
                    "args": [f"{flag}=hunter2" for flag in flags],
                    "livenessProbe": {"exec": {"command": ["check", "--token=hunter2"]}},
                    "lifecycle": {"preStop": {"exec": {"command": ["stop", "http://me:hunter2@x"]}}},
                },
                "pipeline": {"command": others, "args": separate},
                "podAnnotations": {"example.com/feed": "https://me:hunter2@feed"},
                "service": {"annotations": {"example.com/run": "--nats-pass=hunter2"}},
                "serviceAccount": {"annotations": {"example.com/run": "TOKEN=hunter2"}},
            },
        ),
    )
    for place in (
        "server.command[2]",
        *(f"server.args[{index}]" for index in range(len(flags))),
        "server.livenessProbe.exec.command[1]",
        "server.lifecycle.preStop.exec.command[1]",
        *(f"pipeline.command[{index}]" for index in range(len(others))),
        *(f"pipeline.args[{index}]" for index in range(1, len(separate), 2)),
    ):
        assert f"{place} holds a secret in plain text" in message
    assert "such as the one that server.existingSecret names, and write $(NAME)" in message
    for place in ("podAnnotations: example.com/feed", "service.annotations: example.com/run"):
        assert f"{place} holds a secret in plain text" in message
    assert "serviceAccount.annotations: example.com/run holds a secret" in message
    assert "pipeline.args[0] " not in message, "the name itself is none"
    assert "hunter2" not in message


@pytest.mark.parametrize("helm", HELMS)
def test_line_breaks_and_control_characters_are_refused_where_none_can_be_meant(
    helm: str, tmp_path: Path
) -> None:
    message = refusal(
        helm,
        *with_values(
            tmp_path,
            {
                "config": {
                    "tls_cert_file": "/cert.pem\n",
                    "nats": {"servers": ["nats:4222", "other:4222\r"], "subject": "a\u2028b"},
                    "kafka": {"topic_routing": {"trade": "a\\\tb"}, "brokers": "b:1", "topic": "a\\nb"},
                },
                "sidecar": {"env": plain(("SIDECAR_NATS_SUBJECT", "a\n"), ("SIDECAR_X\n", "x"))},
                "server": {"env": plain(("LEVEL", "a\x07")), "args": ["--port", "8000\n"]},
                "pipeline": {"command": ["sh", "-c", "a\x00\n"], "args": ["-c", "a\tb"]},
                "podAnnotations": {"example.com/a": "a\x1b[0m"},
            },
        ),
    )
    control = "has a line break or another control character"
    for part in (
        f"config.tls_cert_file {control}",
        f"config.nats.servers {control}",
        f"config.nats.subject {control}",
        f"config.kafka.topic_routing {control}",
        f"sidecar.env: SIDECAR_NATS_SUBJECT {control} in its value",
        "sidecar.env[1] has a control character in its name",
        f"server.env: LEVEL {control} in its value",
        f"server.args[1] {control}",
        f"pipeline.command[2] {control}",
        "podAnnotations has a control character in example.com/a",
    ):
        assert part in message
    assert "config.kafka.topic has" not in message, "a backslash before an n is none"
    assert "pipeline.args" not in message, "a script may have tabs"


@pytest.mark.parametrize("helm", HELMS)
def test_what_only_looks_like_a_secret_is_rendered(helm: str, tmp_path: Path) -> None:
    variables = [
        from_secret("SIDECAR_NATS_PASS"),
        *plain(
            ("SIDECAR_NATS_PASS_FILE", "/etc/bronze-sidecar/secrets/pass"),
            ("SIDECAR_NATS_TOKEN", "$(BUS_TOKEN)"),
            ("SIDECAR_REDIS_PASSWORD", ""),
            ("SIDECAR_NATS_SERVERS", "nats://nats-0:4222,nats://nats-1:4222"),
            ("SIDECAR_REDIS_HOST", "redis"),
            ("SIDECAR_REDIS_STREAM", "bronze:{{exchange}}@{{symbol}}"),
            ("REQUIRE_TOKEN", "true"),
            ("COMPASS", "north"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"),
        ),
    ]
    values: dict[str, Any] = {
        "config": {"nats": {"servers": ["nats-0:4222", "nats-1:4222"], "subject": "a", "user": "u"}},
        "sidecar": {"env": variables},
        "server": {
            "command": ["sh", "-ec", 'PASSWORD="$(cat /run/pass)"\nTOKEN=$OTHER exec server --token ${T}'],
            "args": ["--api-key=$(TM_API_KEY)", "--api-key", "$(TM_API_KEY)", "--token-file", "/x"],
            "livenessProbe": {"httpGet": {"path": "/", "port": 8000}},
        },
        "pipeline": {
            "enabled": True,
            "args": [
                *("--from", "redis://:$(REDIS_PASSWORD)@redis:6379/0", "--nats-password-file", "/x"),
                *("--conf", "spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY=lake:key"),
                *("--require-token=false", "--token", "--verbose", "https://user@host:80/a:b@c"),
            ],
        },
        "podAnnotations": {
            "vault.hashicorp.com/agent-inject-secret-password": "secret/data/bus",
            "vault.hashicorp.com/agent-inject-template-password": "{{ with }}\n\tx\n{{ end }}",
        },
    }
    done = template(helm, *with_values(tmp_path, values))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("helm", HELMS)
def test_variables_arguments_and_annotations_have_the_shape_that_kubernetes_wants(helm: str) -> None:
    message = refusal(
        helm,
        *("--set-json", 'sidecar.env=[{"name": "A", "value": 1}, {"value": "x"}, {"name": "B", "val": "x"}]'),
        *("--set-json", "server.args=[8000]", "--set-json", 'podAnnotations={"a": true}'),
    )
    for part in (
        "'/sidecar/env/0/value': got number, want string",
        "'/sidecar/env/1': missing property 'name'",
        "'/sidecar/env/2': additional properties 'val' not allowed",
        "'/server/args/0': got number, want string",
        "'/podAnnotations/a': got boolean, want string",
    ):
        assert part in message


def test_a_kubernetes_that_is_too_old_is_refused() -> None:
    message = refusal("helm4", "--values", str(CASES["plain-container"]), "--kube-version", "1.24.0")
    assert "chart requires kubeVersion: >=1.25.0-0" in message
