"""Wrong values never install, and the message says what to do."""

from __future__ import annotations

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
        "'/sidecar/readiness': value must be one of 'none', 'grpc', 'http'",
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
    )
    for part in (
        "sidecar.native needs Kubernetes 1.29, and this is v1.28.5: set it to false.",
        "config.admin_listen is 127.0.0.1:9464, where probes and Prometheus do not reach it",
        "sidecar.readiness is grpc",
        "config.listen has no unix socket",
        "monitoring.alerts needs monitoring.podMonitor.enabled",
        "pipeline.args is empty",
    ):
        assert part in message


def test_a_kubernetes_that_is_too_old_is_refused() -> None:
    message = refusal("helm4", "--values", str(CASES["plain-container"]), "--kube-version", "1.24.0")
    assert "chart requires kubeVersion: >=1.25.0-0" in message
