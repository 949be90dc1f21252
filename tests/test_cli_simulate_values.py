"""`drawbridge simulate values`: the settings that the chart would make of them, and what these select."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from calico.segment import Record, body
from cli.simulate.value_names import MAPS, NO_SETTINGS, OTHER_NAMES, SETTINGS
from cli.simulate.values_settings import outcome
from dev.fake_api import FakeAPI
from lab import values_schema
from lab.install import merged
from tests import cli
from tests.charts import CHART, NAMESPACE, SETS, Objects, helm_needed, render
from tests.factories import NOW, raw_pod
from tests.ingress_daemonset_world import raw_resource
from webhook.elasticity import LOCAL_REPLICAS

Raw = dict[str, Any]
PODS, NODES, NAMESPACES = cli.resource("Pod"), cli.resource("Node"), cli.resource("Namespace")
RESERVATIONS, IDS = cli.resource("IPReservation"), cli.resource("IngressDaemonSet")
NEED = {"tke.cloud.tencent.com/need-aia-ip": "true"}
CHANGES: dict[str, Raw] = {
    "numbers and times": {"config": {"ipReserveMaxCount": 12, "ipReserveTime": "5m"}},
    "a list is replaced": {"config": {"labelSelector": {"matchExpressions": []}}},
    "a map is merged": {"config": {"labelSelector": {"matchLabels": {"app": "redis"}}}},
    "labels of nodes": {"anycastIP": {"nodeLabels": {"edge": "true"}, "tags": {"team": "a"}}},
    "a name of an original's chart": {
        "config": {"node": {"labels": {"edge": "true"}}, "aia": {"bandwidth": 5}}
    },
    "namespaces": {"elasticity": {"excludedNamespaces": ["a"], "maxSuperPods": {"total": 5}}},
    "features off": {"elasticity": {"enabled": False}, "ingressDaemonSet": {"enabled": False}},
    "a null": {"elasticity": {"localReplicas": None}},
    "an empty image": {"ingressDaemonSet": {"healthChecker": {"image": ""}}},
    "the cloud": {"cloud": {"region": "ap-guangzhou", "rateShare": 0.5, "subnets": []}},
    "what is no setting": {"replicaCount": 5, "webhook": {"threads": 100, "nodeSelector": {"a": "b"}}},
}


def configuration(objects: Objects) -> str:
    files = [raw["data"] for (kind, _), raw in objects.items() if kind == "ConfigMap"]
    return next(each["config.yaml"] for each in files if "config.yaml" in each)


@helm_needed
@pytest.mark.parametrize("base", ["all-features", "defaults"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_settings_are_those_that_the_chart_makes(base: str, change: Raw) -> None:
    before = SETS.get(base, {}) or {}
    found = outcome(configuration(render(before)), change, NAMESPACE)
    made = outcome(configuration(render(merged(before, change))), {}, NAMESPACE)

    assert found.refused == ()
    assert found.then == made.now


def test_each_value_that_becomes_a_setting_is_known_by_its_name() -> None:
    assert SETTINGS == values_schema.SETTINGS | {"anycastIP.nodeLabels": "anycastIP.nodeLabels"}
    assert set(OTHER_NAMES.values()) | set(MAPS) <= SETTINGS.keys()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert all(_is_in(values, each) for each in OTHER_NAMES)


def test_each_other_value_of_the_chart_is_known_by_its_name() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    of_settings = (*SETTINGS, *OTHER_NAMES)
    found = {re.sub(r"(\.resources)\.\w+$", r"\1", each) for each in _leaves(schema, schema)}

    assert {each for each in found if not each.startswith(of_settings)} <= NO_SETTINGS <= found
    assert NO_SETTINGS.isdisjoint(of_settings)


def _leaves(schema: Raw, root: Raw, path: str = "") -> Iterator[str]:
    """Names of the values that *schema*, a part of *root*, has fields for."""
    while reference := schema.get("$ref"):
        schema = reduce(lambda part, name: part[name], reference[2:].split("/"), root)
    for name, part in schema.get("properties", {}).items():
        yield from _leaves(part, root, f"{path}.{name}".lstrip("."))
    if not schema.get("properties"):
        yield path


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        pytest.param(
            {"config": {"ipReserveTimee": "5m"}},
            {"config.ipReserveTimee": "config.ipReserveTime"},
            id="a slip",
        ),
        pytest.param(
            {"ipReservation": {"ipReserveTime": "5m"}},
            {"ipReservation.ipReserveTime": "config.ipReserveTime"},
            id="in another map",
        ),
        pytest.param(
            {"Elasticity": {"enabled": True}}, {"Elasticity.enabled": "elasticity.enabled"}, id="a capital"
        ),
        pytest.param({"webhook": {"nodeSelector": {"any": "x"}, "threads": 8}}, {}, id="any label"),
        pytest.param({"global": {"any": {"x": 1}}, "config": None}, {}, id="what Helm takes"),
    ],
)
def test_a_value_that_the_chart_does_not_have_is_refused_with_the_one_that_was_meant(
    api: FakeAPI, tmp_path: Path, values: Raw, refused: dict[str, str]
) -> None:
    found = simulated(api, tmp_path, values)

    assert {each["value"]: each["why"] for each in found["refused"]} == {
        name: f"the chart has no such value: did you mean {meant}?" for name, meant in refused.items()
    }
    ended = cli.run(api, "simulate", "values", str(tmp_path / "values.yaml"))
    assert ended.exit_code == bool(refused)


def test_a_value_like_no_other_is_refused_with_where_all_are(api: FakeAPI, tmp_path: Path) -> None:
    [refused] = simulated(api, tmp_path, {"entirely": {"else": 1}})["refused"]

    assert refused["why"] == "the chart has no such value: charts/drawbridge/README.md has all"


def _is_in(values: Raw, path: str) -> bool:
    for part in path.split("."):
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return True


@pytest.fixture
def api() -> FakeAPI:
    api = cli.installed("anycastIP", "elasticity", "ingressDaemonSet")
    labels = {"kubernetes.io/metadata.name": "redis", "ip-reserve": "enabled"}
    api.put(NAMESPACES, {"metadata": {"name": "redis", "labels": labels}})
    return api


def put_pod(api: FakeAPI, name: str, namespace: str = "redis", **metadata: Any) -> None:
    raw = copy.deepcopy(raw_pod(name, namespace=namespace))
    raw["metadata"] |= metadata
    api.put(PODS, raw)


def simulated(api: FakeAPI, tmp_path: Path, values: Raw) -> Raw:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    found: Raw = cli.shown(api, "simulate", "values", str(file))
    return found


def effects(found: Raw) -> dict[str, bool]:
    return {f"{each['feature']} {each['name']}": each["begins"] for each in found["effects"]}


def test_pods_that_are_newly_reserved_and_those_that_no_longer_are_are_named(
    api: FakeAPI, tmp_path: Path
) -> None:
    put_pod(api, "redis-0", labels={"statefulset.kubernetes.io/pod-name": "redis-0"})
    put_pod(api, "cache-a", labels={"app": "cache"})
    put_pod(api, "cache-b", "default", labels={"app": "cache"})
    selector = {"matchLabels": {"app": "cache"}, "matchExpressions": []}
    before = len(api.calls)
    found = simulated(api, tmp_path, {"config": {"labelSelector": selector}})

    assert effects(found) == {"ipReservation redis/cache-a": True, "ipReservation redis/redis-0": False}
    assert {each.method for each in api.calls[before:]} == {"GET"}


def test_nodes_that_newly_need_an_address_are_named(api: FakeAPI, tmp_path: Path) -> None:
    api.put(NODES, {"metadata": {"name": "a", "labels": NEED | {"edge": "true"}}})
    api.put(NODES, {"metadata": {"name": "b", "labels": NEED}})
    found = simulated(api, tmp_path, {"anycastIP": {"nodeLabels": {"edge": "true"}}})
    assert effects(found) == {"anycastIP b": False}

    found = simulated(
        api,
        tmp_path,
        {"anycastIP": {"nodeLabels": {"tke.cloud.tencent.com/need-aia-ip": None, "edge": "true"}}},
    )
    assert effects(found) == {"anycastIP b": False}
    api.put(NODES, {"metadata": {"name": "c", "labels": {"edge": "true"}}})
    found = simulated(
        api,
        tmp_path,
        {"anycastIP": {"nodeLabels": {"tke.cloud.tencent.com/need-aia-ip": None, "edge": "true"}}},
    )
    assert effects(found) == {"anycastIP b": False, "anycastIP c": True}
    assert "is tainted, and an address is ordered" in found["effects"][1]["what"]


def test_pods_of_newly_excluded_namespaces_are_named_and_ingress_daemonsets_of_a_feature_that_goes_off(
    api: FakeAPI, tmp_path: Path
) -> None:
    put_pod(api, "web-1", "default", annotations={LOCAL_REPLICAS: "2"})
    api.ensure_namespace("edge")
    api.put(IDS, raw_resource())
    change = {"elasticity": {"excludedNamespaces": ["default"]}, "ingressDaemonSet": {"enabled": False}}
    found = simulated(api, tmp_path, change)

    assert effects(found) == {"elasticity default/web-1": False, "ingressDaemonSet edge/web": False}


def test_reservations_that_end_early_are_released(api: FakeAPI, tmp_path: Path) -> None:
    now = NOW
    records = [
        Record(
            cidr=f"10.0.0.{number}/32",
            at=now - timedelta(minutes=number),
            ended=now - timedelta(minutes=number) if number < 5 else None,
            namespace="redis",
            pod=f"redis-{number}",
            uid=f"uid-{number}",
            reason="deleted",
        )
        for number in (1, 2, 3, 9)
    ]
    made = body(records)
    made["metadata"] |= {"name": "drawbridge-a", "labels": {"app.kubernetes.io/managed-by": "drawbridge"}}
    api.put(RESERVATIONS, made)

    by_age = simulated(api, tmp_path, {"config": {"ipReserveTime": "150s"}})["released"]
    assert [(each["ip"], each["why"]) for each in by_age] == [("10.0.0.3", "older than ipReserveTime")]
    by_count = simulated(api, tmp_path, {"config": {"ipReserveMaxCount": 1}})["released"]
    assert {each["ip"] for each in by_count} == {"10.0.0.2", "10.0.0.3"}
    assert simulated(api, tmp_path, {"config": {"ipReserveTime": "60m"}})["released"] == []


def test_a_refused_setting_is_named_as_the_value_with_what_to_write(api: FakeAPI, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("config: {ipReserveTime: 5 minutes}\nleaderElection: {retryPeriod: 1h}\n")
    result = cli.run(api, "simulate", "values", str(file))
    found = simulated(api, tmp_path, yaml.safe_load(file.read_text()))

    assert result.exit_code == 1
    assert {each["value"] for each in found["refused"]} == {"config.ipReserveTime", "leaderElection"}
    assert "write for example" in result.output
    assert found["effects"] == []


@pytest.mark.parametrize("text", ["- a", "a: [", "a: 2001-99-99"], ids=["list", "no YAML", "no date"])
def test_a_file_without_values_is_refused(api: FakeAPI, tmp_path: Path, text: str) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(text)
    result = cli.run(api, "simulate", "values", str(file))

    assert (result.exit_code, "the file cannot be used" in result.output) == (1, True)


def test_values_that_are_no_settings_are_said_to_be_left_to_helm(api: FakeAPI, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("replicaCount: 5\nlogging: {level: debug}\n")
    printed = cli.run(api, "simulate", "values", str(file)).output

    assert "1 settings changed, 0 objects concerned, 0 IPs released" in printed
    assert "no settings of the programs: replicaCount" in printed


@pytest.mark.parametrize(
    ("values", "needed"),
    [
        pytest.param({"elasticity": {"localReplicas": 2}}, True, id="elasticity"),
        pytest.param({"config": {"labelSelector": {"matchLabels": {"a": "b"}}}}, True, id="reservation"),
        pytest.param({"anycastIP": {"nodeLabels": {"a": "b"}}}, False, id="anycast"),
        pytest.param({"config": {"ipReserveMaxCount": -1}}, False, id="refused"),
    ],
)
def test_pods_are_read_only_for_a_change_that_may_concern_them(
    api: FakeAPI, tmp_path: Path, values: Raw, needed: bool
) -> None:
    """All pods of a large cluster are hundreds of megabytes."""
    read: list[str] = []
    api.fault = lambda call: read.append(call.path)  # type: ignore[func-returns-value]
    simulated(api, tmp_path, values)

    assert any(path.endswith("/pods") for path in read) == needed
