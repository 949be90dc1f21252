"""The chart of the provider's virtual kubelet takes the values of TKE Resilience's chart."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml

from dev.lab import chart
from dev.lab.errors import LabError
from tests.charts import NAMESPACE, SETS, Objects, helm, helm_needed, of_kinds
from tests.permissions import granted, seen_from, table
from tests.test_chart import described, leaves
from tests.values_fuzz import put

ORIGINAL = SETS["the-values-of-TKE-Resilience"]
OWN: dict[str, Any] = {
    "cloud": {
        **{"appID": 1250000000, "ownerUIN": 100000000001, "vpcID": "vpc-12345678", "regionShort": "gz"},
        **{"region": "ap-guangzhou", "rootDomain": "internal.tencentcloudapi.com", "existingSecret": "keys"},
    },
    "eklet": {
        "image": {"registry": "registry.example", "repository": "eklet", "tag": "v2.17.15"},
        "PodUsedApiserver": "https://10.0.0.1:6443",
    },
}
"""With the names of charts/drawbridge, and the spelling of the original's page."""


def with_value(path: str, value: Any, base: dict[str, Any] = OWN) -> dict[str, Any]:
    result = copy.deepcopy(base)
    put(result, path.split("."), value)
    return result


def render(values: dict[str, Any]) -> Objects:
    text = chart.manifests(json.dumps(values), "--namespace", NAMESPACE, of=chart.EKLET)
    found = [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def arguments(objects: Objects) -> set[str]:
    [deployment] = of_kinds(objects, "Deployment").values()
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return {*container["args"], container["image"], str(container["env"])}


def test_the_schema_has_the_values() -> None:
    schema = json.loads((chart.EKLET / "values.schema.json").read_text())
    values = yaml.safe_load((chart.EKLET / "values.yaml").read_text())
    schema["properties"]["cloud"]["additionalProperties"] = False  # others are of charts/drawbridge

    assert described(schema) == {name for name, _ in leaves(values)} | {"eklet.PodUsedApiserver"}


@helm_needed
def test_the_originals_values_start_it_as_its_chart_does() -> None:
    objects = render(with_value("cloud.keysInValues", value=True, base=ORIGINAL))
    given = arguments(objects)

    assert {
        "--cluster-id=idc-1",
        "--app-id=1250000000",
        "--owner-uin=100000000001",
        "--region-short=cq",
        "--region-long=ap-chongqing",
        "--vpc-id=vpc-12345678",
        "--wait-sandbox-running-timeout=12h",
        "--pod-used-apiserver=https://10.0.0.1:6443",
        "registry.example/eklet:v2.17.15",
    } <= given
    assert objects["Secret", "eks-secret"]["stringData"] == {"secretID": "an-id", "secretKey": "a-key"}
    assert objects["Service", "eks-eklet"]["spec"]["type"] == "ClusterIP"


@helm_needed
def test_the_names_of_our_chart_work_too() -> None:
    objects = render(OWN)
    given = arguments(objects)

    assert {"--region-long=ap-guangzhou", "--app-id=1250000000", "--cluster-id=vpc-12345678"} <= given
    assert {"--pod-used-apiserver=https://10.0.0.1:6443", "registry.example/eklet:v2.17.15"} <= given
    assert "internal.tencentcloudapi.com" in str(given)
    assert ("Secret", "eks-secret") not in objects


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no keys": (with_value("cloud.existingSecret", ""), "eklet needs keys"),
    "keys without a second word": (ORIGINAL, "or set cloud.keysInValues to true"),
    "keys in two places": (with_value("cloud.secretID", "x"), "are both set: keep the keys in that Secret"),
    "no account": (
        with_value("cloud.appID", ""),
        "cloud.appID is empty: give it as TKE Resilience's chart had it",
    ),
    "no image": (with_value("eklet.image", {}), "eklet.image.repository is empty"),
    "two images": (
        with_value("eklet.image.ref", "x"),
        "eklet.image.ref and eklet.image.repository are both set",
    ),
    "two regions": (
        with_value("cloud.regionLong", "ap-tokyo"),
        "cloud.regionLong and cloud.region are both set, and differ",
    ),
    "another word": (with_value("eklet.replicas", 1), "additional properties 'replicas' not allowed"),
}


@helm_needed
@pytest.mark.parametrize(("values", "why"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(LabError) as refused:
        render(values)

    assert why in str(refused.value)
    assert "a-key" not in str(refused.value)


@helm_needed
def test_it_may_do_what_the_table_has() -> None:
    [(account, found)] = granted(render(OWN).values()).items()

    assert account == f"{NAMESPACE}/drawbridge-eklet"
    assert seen_from(NAMESPACE, found) == {
        each for entry in table() if entry.account == "eklet" for each in entry.permissions
    }


@helm_needed
def test_it_lints_strictly() -> None:
    helm("lint", "--strict", str(chart.EKLET), values=OWN)
