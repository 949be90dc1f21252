"""What the chart brings for Prometheus and Grafana, and what promtool says of it."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from controllers.ingress_daemonset.health_check_daemonsets import daemon_sets
from lab import binaries
from lab.install import merged
from settings.ingress_daemonset import HealthChecker
from tests.charts import ANYCAST_IP, CHART, NAMESPACE, Objects, helm, helm_needed, pod_spec, refusal, render
from tests.ingress_daemonset_world import resource
from tests.monitoring import CASES, DASHBOARDS, alerts

pytestmark = helm_needed

FEATURES: dict[str, Any] = {
    **ANYCAST_IP,
    "elasticity": {"enabled": True},
    "ingressDaemonSet": {"enabled": True},
}
SWITCHED_ON = {
    "monitoring": {name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "dashboards")}
}
ALL = FEATURES | SWITCHED_ON
NONE = {"ipReservation": {"enabled": False}} | SWITCHED_ON


def groups(objects: Objects) -> dict[str, list[dict[str, Any]]]:
    spec = objects["PrometheusRule", "drawbridge"]["spec"]
    return {group["name"].removeprefix("drawbridge-"): group["rules"] for group in spec["groups"]}


def rule(objects: Objects, alert: str) -> dict[str, Any]:
    [found] = [each for rules in groups(objects).values() for each in rules if each["alert"] == alert]
    return found


def dashboards(objects: Objects) -> set[str]:
    return {name for kind, name in objects if kind == "ConfigMap" and "-dashboard-" in name}


def test_nothing_is_installed_for_an_operator_that_may_not_be_there() -> None:
    objects = render(FEATURES)

    assert {"ServiceMonitor", "PodMonitor", "PrometheusRule"}.isdisjoint(kind for kind, _ in objects)
    assert dashboards(objects) == set()


@pytest.mark.parametrize(
    ("values", "sections", "shown"),
    [
        pytest.param(NONE, {"platform", "leader"}, {"platform"}, id="no feature"),
        pytest.param(
            SWITCHED_ON,
            {"platform", "leader", "ip-reservation"},
            {"platform", "ip-reservation"},
            id="ip reservation",
        ),
        pytest.param(
            NONE | ANYCAST_IP,
            {"platform", "leader", "anycast-ip", "cloud"},
            {"platform", "anycast-ip"},
            id="anycast ip",
        ),
        pytest.param(
            NONE | {"elasticity": {"enabled": True}},
            {"platform", "leader", "elasticity"},
            {"platform", "elasticity"},
            id="elasticity",
        ),
        pytest.param(
            NONE | {"ingressDaemonSet": {"enabled": True}},
            {"platform", "leader", "ingress-daemonset"},
            {"platform", "ingress-daemonset"},
            id="ingress daemonset",
        ),
        pytest.param(
            NONE | {"config": {"leaderElectionEnable": False}, "controllers": {"replicaCount": 1}},
            {"platform"},
            {"platform"},
            id="nobody is elected",
        ),
    ],
)
def test_there_are_alerts_and_dashboards_of_what_is_enabled(
    values: dict[str, Any], sections: set[str], shown: set[str]
) -> None:
    objects = render(values)

    assert groups(objects).keys() == sections
    assert dashboards(objects) == {f"drawbridge-dashboard-{name}" for name in shown}


def test_all_programs_are_scraped_through_the_service_of_metrics() -> None:
    values = merged(
        SWITCHED_ON, {"monitoring": {"serviceMonitor": {"interval": "15s", "labels": {"a": "b"}}}}
    )
    objects = render(values)
    monitor = objects["ServiceMonitor", "drawbridge"]
    service = objects["Service", "drawbridge-metrics"]

    assert monitor["metadata"]["labels"]["a"] == "b"
    assert monitor["spec"] == {
        "selector": {
            "matchLabels": {
                "app.kubernetes.io/name": "drawbridge",
                "app.kubernetes.io/instance": "drawbridge",
                "app.kubernetes.io/component": "metrics",
            }
        },
        "namespaceSelector": {"matchNames": [NAMESPACE]},
        "endpoints": [{"port": "metrics", "path": "/metrics", "interval": "15s", "honorLabels": True}],
    }
    selected = monitor["spec"]["selector"]["matchLabels"].items()
    assert [
        name
        for (kind, name), each in objects.items()
        if kind == "Service" and selected <= each["metadata"]["labels"].items()
    ] == ["drawbridge-metrics"]
    assert [port["name"] for port in service["spec"]["ports"]] == ["metrics"]


def test_the_health_checkers_that_the_controllers_make_are_scraped_wherever_they_are() -> None:
    spec = render(ALL)["PodMonitor", "drawbridge-health-checkers"]["spec"]
    [made] = daemon_sets(resource(healthCheckNodePorts=[9080]), HealthChecker(image="drawbridge:1"))
    [selector] = spec["selector"]["matchExpressions"]
    [endpoint] = spec["podMetricsEndpoints"]

    assert (selector["key"], selector["operator"]) == (next(iter(pod_labels(made))), "Exists")
    assert spec["namespaceSelector"] == {"any": True}
    assert endpoint["port"] in [port["name"] for port in container(made)["ports"]]
    assert ("PodMonitor", "drawbridge-health-checkers") not in render(SWITCHED_ON)


def pod_labels(daemon_set: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = daemon_set["spec"]["template"]["metadata"]["labels"]
    return labels


def container(daemon_set: dict[str, Any]) -> dict[str, Any]:
    [found] = daemon_set["spec"]["template"]["spec"]["containers"]
    return found


@pytest.mark.parametrize("program", ["webhook", "controllers"])
def test_the_alerts_know_the_programs_by_their_containers(program: str) -> None:
    objects = render(SWITCHED_ON)
    alert = {"webhook": "DrawbridgeWebhookServersMissing", "controllers": "DrawbridgeControllersMissing"}

    [running] = pod_spec(objects, f"drawbridge-{program}")["containers"]
    assert f'container="{running["name"]}"' in rule(objects, alert[program])["expr"]


def test_the_values_reach_the_alerts() -> None:
    given = {"reservedShare": 0.5, "certificateDays": 14, "quotaLeft": 30, "alertLabels": {"team": "edge"}}
    values = {"fullnameOverride": "gate", "replicaCount": 5, "controllers": {"replicaCount": 4}}
    objects = render(
        merged(
            FEATURES | values,
            {"monitoring": {"prometheusRule": given | {"enabled": True, "labels": {"a": "b"}}}},
        )
    )
    installed = objects["PrometheusRule", "gate"]
    found = {rule["alert"]: rule for group in installed["spec"]["groups"] for rule in group["rules"]}

    assert installed["metadata"]["labels"]["a"] == "b"
    assert found["DrawbridgeReservedIPsHigh"]["expr"].endswith("> 0.5 * max(ip_reserve_count_max)")
    assert found["DrawbridgeCertificateNearExpiry"]["expr"].endswith("- time() < 14 * 86400")
    assert found["DrawbridgeCloudQuotaLow"]["expr"].endswith("< 30")
    assert found["DrawbridgeWebhookServersMissing"]["expr"].endswith("< 5")
    assert found["DrawbridgeControllersMissing"]["expr"].endswith("< 4")
    assert 'job="gate-metrics", namespace="gate-system"' in found["DrawbridgeWebhookDown"]["expr"]
    assert found["DrawbridgeNoLeader"]["labels"] == {"severity": "critical", "team": "edge"}
    assert "@" not in yaml.safe_dump(installed["spec"])


@pytest.mark.parametrize(
    ("base", "url"),
    [
        pytest.param("", "docs/how-to/runbooks/DrawbridgeNoLeader.md", id="a page of the repository"),
        pytest.param(
            "https://docs.example/ops/", "https://docs.example/ops/DrawbridgeNoLeader.md", id="yours"
        ),
    ],
)
def test_an_alert_links_to_its_runbook(base: str, url: str) -> None:
    objects = render(merged(SWITCHED_ON, {"monitoring": {"prometheusRule": {"runbookBaseURL": base}}}))

    assert rule(objects, "DrawbridgeNoLeader")["annotations"]["runbook_url"] == url


@pytest.mark.parametrize(
    ("block", "value"),
    [
        pytest.param("serviceMonitor", {"interval": "often"}, id="interval"),
        pytest.param("serviceMonitor", {"labels": {"release": 1}}, id="label"),
        pytest.param("prometheusRule", {"reservedShare": 80}, id="share as a percentage"),
        pytest.param("prometheusRule", {"certificateDays": 0.5}, id="half a day"),
        pytest.param("prometheusRule", {"quotaLeft": -1}, id="less than nothing"),
        pytest.param("prometheusRule", {"runbookBaseURL": "docs"}, id="no URL"),
        pytest.param("dashboards", {"folder": "x"}, id="unknown"),
    ],
)
def test_values_that_make_no_sense_are_refused(block: str, value: dict[str, Any]) -> None:
    assert f"monitoring/{block}" in refusal({"monitoring": {block: value}})


@pytest.mark.parametrize("name", [path.stem for path in DASHBOARDS])
def test_a_dashboard_arrives_as_it_is_where_the_sidecar_looks_for_it(name: str) -> None:
    values = merged(ALL, {"monitoring": {"dashboards": {"annotations": {"folder": "Gates"}}}})
    installed = render(values)["ConfigMap", f"drawbridge-dashboard-{name}"]

    assert installed["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert installed["metadata"]["annotations"] == {"folder": "Gates"}
    [path] = [path for path in DASHBOARDS if path.stem == name]
    assert installed["data"] == {f"drawbridge-{name}.json": path.read_text().strip()}
    assert len(json.dumps(installed)) < 1_000_000  # what an object may have


@pytest.mark.parametrize("values", [pytest.param(ALL, id="all"), pytest.param(NONE, id="no feature")])
def test_what_is_for_monitoring_lints_and_is_always_the_same(values: dict[str, Any]) -> None:
    result = helm("lint", "--strict", str(CHART), values=values)

    assert result.returncode == 0, result.stdout + result.stderr
    first, second = (helm("template", "drawbridge", str(CHART), values=values).stdout for _ in range(2))
    assert first == second != ""


# What promtool says


@functools.cache
def promtool() -> Path:
    return binaries.ensure("promtool")["promtool"]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """All rules, as the chart renders them, in a file for promtool."""
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(render(ALL)["PrometheusRule", "drawbridge"]["spec"]))
    return path


def ran(*arguments: str | Path) -> str:
    done = subprocess.run([promtool(), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_finds_nothing_wrong_with_the_rules(rules: Path) -> None:
    assert f"SUCCESS: {len(alerts())} rules found" in ran(
        "check", "rules", "--lint=all", "--lint-fatal", rules
    )


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_each_alert_fires_when_it_should_and_not_before(rules: Path, case: Path) -> None:
    shutil.copy(case, rules.parent)

    assert "SUCCESS" in ran("test", "rules", rules.parent / case.name)
