"""Alerts and dashboard: right in themselves, and about metrics that the sidecar really has."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from charts import CASES, CHART, ROOT, render, run, tool
from prometheus_client.parser import text_string_to_metric_families
from servers import NatsServer
from sidecar_process import sidecar

pytestmark = pytest.mark.servers

NAME = "replay-bronze-sidecar"
BY_PROMETHEUS = {"job", "pod"}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """Return the file of rules that the operator would give to Prometheus."""
    spec = render(CASES["production"])["PrometheusRule", NAME]["spec"]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


def dashboard_queries() -> list[tuple[str, str]]:
    """Return the dashboard's queries with their legends."""
    panels = json.loads((CHART / "files/dashboard.json").read_text())["panels"]
    return [(target["expr"], target["legendFormat"]) for panel in panels for target in panel["targets"]]


def test_every_alert_fires_for_its_reason_and_else_not(rules: Path) -> None:
    shutil.copy(ROOT / "tests/helm/alerts.test.yaml", rules.parent)
    done = run(tool("promtool"), "test", "rules", str(rules.parent / "alerts.test.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_and_explained(rules: Path) -> None:
    alerts = {
        rule["alert"] for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]
    }
    tests = yaml.safe_load((ROOT / "tests/helm/alerts.test.yaml").read_text())["tests"]
    fired = {check["alertname"] for test in tests for check in test["alert_rule_test"] if check["exp_alerts"]}
    assert fired == alerts
    page = (ROOT / "docs/operations.md").read_text()
    explained = set(re.findall(r"^\| `(Bronze\w+)` \|", page, re.MULTILINE))
    assert explained == alerts


def test_prometheus_understands_every_query(rules: Path) -> None:
    queries = [
        {"record": f"query:{number}", "expr": expr.replace("$__rate_interval", "5m")}
        for number, (expr, _) in enumerate(dashboard_queries())
    ]
    assert queries
    dashboard = rules.parent / "dashboard.yaml"
    dashboard.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": queries}]}))
    for path in (rules, dashboard):
        done = run(tool("promtool"), "check", "rules", str(path))
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_running_sidecar_has_every_metric_and_label_that_is_asked_for(
    rules: Path, start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    server = start_nats()
    options = ["--nats-servers", f"127.0.0.1:{server.port}", "--nats-subject", "all", "--nats-stream", "S"]
    options += ["--nats-when-full", "spill", "--spool-dir", str(tmp_path)]
    with sidecar(*options) as process:
        families = list(text_string_to_metric_families(process.get("/metrics")[1]))
    labels: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    asked = [
        (rule["expr"], " ".join(rule["annotations"].values()).replace("$labels.", ""))
        for group in yaml.safe_load(rules.read_text())["groups"]
        for rule in group["rules"]
    ]
    wrong = [fault for expr, text in (*asked, *dashboard_queries()) for fault in faults(expr, text, labels)]
    assert wrong == []


def faults(expr: str, text: str, labels: dict[str, set[str]]) -> list[str]:
    """Return the metrics and labels of a query and of the text around it that do not exist."""
    metrics = set(re.findall(r"\b(?:bronze_\w+|up)\b", expr)) - {"up"}
    unknown = sorted(metrics - labels.keys())
    if unknown:
        return [f"{expr}: no metric {name}" for name in unknown]
    used = set(re.findall(r"(\w+)=", expr)) | set(re.findall(r"\{\{\s*(\w+)\s*\}\}", text))
    for grouping in re.findall(r"by \(([^)]*)\)", expr):
        used |= {label.strip() for label in grouping.split(",")}
    return [
        f"{expr}: {metric} has no label {label}"
        for metric in sorted(metrics)
        for label in sorted(used - BY_PROMETHEUS - labels[metric])
    ]


def test_a_metric_or_label_that_does_not_exist_would_be_found() -> None:
    labels = {"bronze_queue_events": {"backend"}}
    assert faults('sum by (backend) (bronze_queue_events{job="x"})', "{{pod}} {{backend}}", labels) == []
    assert faults("bronze_queue_size", "", labels) == ["bronze_queue_size: no metric bronze_queue_size"]
    assert faults("bronze_queue_events", "{{ sink }}", labels) == [
        "bronze_queue_events: bronze_queue_events has no label sink"
    ]


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads(
        render(CASES["production"])["ConfigMap", f"{NAME}-dashboard"]["data"]["bronze-sidecar.json"]
    )
    assert dashboard["uid"] == "bronze-sidecar"
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["datasource", "job", "pod"]
    identities = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identities)) == len(identities) == 10
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == 10
