"""Alerts and dashboard: right in themselves, and about metrics that the sidecar really has."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml
from buses import NatsBus
from charts import CASES, CHART, ROOT, render, run, tool
from prometheus_client.parser import text_string_to_metric_families
from servers import HOST, NativeServer, NatsServer
from sidecar_process import SidecarProcess, sidecar
from steady import steady

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


USERS = """
authorization {users = [{user: a, password: b, permissions: {publish: {deny: "bronze.bitmex.ETHUSD"}}}]}
"""


@contextmanager
def troubled(server: NatsServer, folder: Path) -> Iterator[SidecarProcess]:
    """Run a sidecar that spills, has a subject that is forbidden and a producer that sends rubbish."""
    spool = folder / "spool"
    spool.mkdir()
    options = [*NatsBus(server).options(), "--nats-user=a", "--nats-pass=b"]
    with sidecar(*options, "--nats-when-full=spill", "--spool-dir", str(spool)) as process:
        process.wait_until_ready()
        with steady(process.address), steady(process.address, message=lambda _: b"{}", name="broken"):
            while {each.get("what") for each in failures(process)} != {"rejected", "failed"}:
                time.sleep(0.05)
            yield process


def failures(process: SidecarProcess) -> list[dict[str, str]]:
    families = text_string_to_metric_families(process.get("/metrics")[1])
    return [
        dict(sample.labels)
        for family in families
        if family.name == "bronze_failures"
        for sample in family.samples
    ]


def test_failures_are_counted_by_kind_back_end_and_class_of_reason(
    start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    with troubled(start_nats(config=USERS), tmp_path) as process:
        found = failures(process)
    assert sorted(found, key=lambda each: each["what"]) == [
        {"what": "failed", "backend": "nats", "payload_case": "trade", "reason": "forbidden"},
        {"what": "rejected", "backend": "", "payload_case": "unknown", "reason": "unknown_type"},
    ]


class Prometheus(NativeServer):
    """A Prometheus that reads a sidecar's metrics every second."""

    scheme = "http"

    def __init__(self, directory: Path, target: str) -> None:
        super().__init__(directory)
        job = {
            "job_name": "sidecar",
            "static_configs": [{"targets": [target], "labels": {"pod": "pod-0"}}],
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
        }
        directory.mkdir(parents=True, exist_ok=True)
        self._config = directory / "prometheus.yaml"
        self._config.write_text(yaml.safe_dump({"scrape_configs": [job]}))
        self._data = directory / "data"

    def command(self) -> list[str]:
        return [
            tool("prometheus"),
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self._data}",
            f"--web.listen-address={HOST}:{self.port}",
        ]

    def answers(self) -> bool:
        try:
            return self._get("/-/ready")[0] == HTTPStatus.OK
        except OSError:
            return False

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Return the series that a query gives."""
        found: dict[str, Any] = json.loads(self._get(f"/api/v1/query?{urlencode({'query': query})}")[1])
        assert found["status"] == "success", found
        return list(found["data"]["result"])


def test_every_panel_shows_something_of_a_real_prometheus(
    start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    panels = json.loads((CHART / "files/dashboard.json").read_text())["panels"]
    queries = [
        expr.replace("$__rate_interval", "30s").replace("$job", ".*").replace("$pod", ".*")
        for expr, _ in dashboard_queries()
    ]
    assert len(queries) >= len(panels)
    with troubled(start_nats(config=USERS), tmp_path) as process:
        prometheus = Prometheus(tmp_path / "prometheus", f"{HOST}:{process.port}")
        try:
            prometheus.start()
            deadline = time.monotonic() + 60
            empty = queries
            while empty:
                assert time.monotonic() < deadline, f"nothing comes of {empty}"
                time.sleep(0.5)
                empty = [query for query in empty if not prometheus.ask(query)]
            by_reason = prometheus.ask(queries[-2])
            assert {series["metric"]["reason"] for series in by_reason} == {"forbidden", "unknown_type"}
            by_source = {series["metric"]["source"] for series in prometheus.ask(queries[-1])}
            assert by_source == {"exchange/1", "broken/1"}
        finally:
            prometheus.stop()


def test_a_running_sidecar_has_every_metric_and_label_that_is_asked_for(
    rules: Path, start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    with troubled(start_nats(config=USERS), tmp_path) as process:
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
    assert len(set(identities)) == len(identities) == 12
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == 12
    # Each says what it shows, in a sentence.
    assert all(panel["description"].endswith(".") for panel in dashboard["panels"])
