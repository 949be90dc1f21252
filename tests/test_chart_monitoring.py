"""What the chart installs for Prometheus and Grafana, and what promtool finds in it."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from controllers.ingress_daemonset.health_checks import FOR, SERVING
from dev.lab import binaries, chart
from tests.charts import ANYCAST_IP, SETS, helm_needed, of_kinds, render
from tests.monitoring import CASES, alerts, expressions

pytestmark = helm_needed

MONITORED = {
    "monitoring": {name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "dashboards")}
}
NONE = {"ipReservation": {"enabled": False}} | MONITORED


SECTIONS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "no feature": (NONE, {"leader"}),
    "ip_reservation": (MONITORED, {"leader", "ip-reservation"}),
    "anycast_ip": (NONE | ANYCAST_IP, {"leader", "anycast-ip", "cloud"}),
    "elasticity": (NONE | {"elasticity": {"enabled": True}}, {"leader", "elasticity"}),
    "ingress_daemonset": (NONE | {"ingressDaemonSet": {"enabled": True}}, {"leader", "ingress-daemonset"}),
    "without leader election": (
        NONE | {"config": {"leaderElectionEnable": False}, "controllers": {"replicaCount": 1}},
        set(),
    ),
}


def test_alerts_and_dashboards_are_those_of_enabled_features(subtests: pytest.Subtests) -> None:
    for case, (values, sections) in SECTIONS.items():
        objects = render(values)

        groups = {group["name"] for group in objects["PrometheusRule", "drawbridge"]["spec"]["groups"]}
        dashboards = {name for kind, name in objects if kind == "ConfigMap" and "-dashboard-" in name}
        expected = sections - {"leader", "cloud"} | {"platform"}
        with subtests.test(case):
            assert groups == {f"drawbridge-{name}" for name in sections | {"platform"}}
            assert dashboards == {f"drawbridge-dashboard-{name}" for name in expected}


def test_an_alert_links_to_its_runbook() -> None:
    monitored = {"prometheusRule": {"enabled": True, "runbookBaseURL": "https://docs.example/ops/"}}
    groups = render({"monitoring": monitored})["PrometheusRule", "drawbridge"]["spec"]["groups"]
    urls = [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]]
    assert "https://docs.example/ops/platform.md#drawbridgenoleader" in urls
    assert "https://docs.example/ops/ip-reservation.md#drawbridgepoollow" in urls


@functools.cache
def promtool() -> Path:
    return binaries.ensure("promtool")["promtool"]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """All rules, as the chart renders them, in a file for promtool."""
    values = {
        key: value for key, value in SETS["all-monitoring-of-all-features"].items() if key != "monitoring"
    }
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(render(values | MONITORED)["PrometheusRule", "drawbridge"]["spec"]))
    return path


def ran(*arguments: str | Path) -> str:
    done = subprocess.run([promtool(), *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_finds_no_fault_in_the_rules(rules: Path) -> None:
    assert f"SUCCESS: {len(alerts())} rules found" in ran(
        "check", "rules", "--lint=all", "--lint-fatal", rules
    )


def test_promtool_finds_no_fault_in_the_queries_of_dashboards(tmp_path: Path) -> None:
    """As recording rules: with everything selected, and a window, as Grafana sends them."""
    queries = [
        re.sub(r"\$__rate_interval", "1m", text).replace("$namespace", ".*").replace("$name", ".*")
        for name, text in expressions().items()
        if name not in alerts() and not text.startswith("label_values")
    ]
    rules = [{"record": f"of:panel:{number}", "expr": text} for number, text in enumerate(queries)]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    assert f"SUCCESS: {len(queries)} rules found" in ran("check", "rules", path)


def test_each_alert_fires_when_it_should_and_not_before(rules: Path) -> None:
    for case in CASES:
        shutil.copy(case, rules.parent)

    assert "FAILED" not in ran("test", "rules", *(rules.parent / case.name for case in CASES))


def test_the_monitors_select_a_port_of_every_program() -> None:
    """The pods behind each Service that is selected; those of health checkers by a label that all of them have."""
    objects = render(SETS["all-monitoring-of-all-features"])
    of_services = objects["ServiceMonitor", "drawbridge"]["spec"]
    [endpoint] = of_services["endpoints"]
    selected = [
        each["spec"]
        for each in of_kinds(objects, "Service").values()
        if of_services["selector"]["matchLabels"].items() <= each["metadata"]["labels"].items()
    ]
    targets = {
        port["targetPort"] for each in selected for port in each["ports"] if port["name"] == endpoint["port"]
    }
    templates = [each["spec"]["template"] for each in of_kinds(objects, "Deployment").values()]
    scraped = [
        each["metadata"]["labels"]["app.kubernetes.io/component"]
        for each in templates
        if any(service["selector"].items() <= each["metadata"]["labels"].items() for service in selected)
        and targets <= {port["name"] for port in each["spec"]["containers"][0]["ports"]}
    ]
    assert sorted(scraped) == ["controllers", "webhook"]

    of_pods = objects["PodMonitor", "drawbridge-health-checkers"]["spec"]
    assert of_pods["selector"]["matchExpressions"] == [{"key": FOR, "operator": "Exists"}]
    assert [each["port"] for each in of_pods["podMetricsEndpoints"]] == [SERVING["port"]]


BOTH = ("ServiceMonitor", "PrometheusRule")


def test_monitoring_is_on_where_its_kinds_are(subtests: pytest.Subtests) -> None:
    for enabled, served, found in (
        ("auto", (), ()),
        ("auto", BOTH[:1], BOTH[:1]),
        ("auto", BOTH, BOTH),
        (False, BOTH, ()),
        (True, (), BOTH),
    ):
        values = {"monitoring": {name: {"enabled": enabled} for name in ("serviceMonitor", "prometheusRule")}}
        kinds = [f"--api-versions=monitoring.coreos.com/v1/{kind}" for kind in served]

        text = chart.manifests(yaml.safe_dump(values), *kinds)
        rendered = {each["kind"] for each in yaml.safe_load_all(text) if each}
        with subtests.test(f"{enabled=}, {served=}"):
            assert rendered & {*BOTH} == {*found}
