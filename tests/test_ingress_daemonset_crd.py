"""The schema, the status and the defaults of IngressDaemonSets: what the product reads and writes, as values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from api import health_checks
from api.ingress_daemonset import DRAIN_REQUESTS, EVICTABLE_NODES, GROUP, KIND, PLURAL, VERSION, types
from api.ingress_daemonset.status import CanaryStatus, NodeFailure, Status, raw_of, status_of
from api.ingress_daemonset.types import (
    OTHER_SPELLINGS,
    RollingUpdate,
    amount,
    defaulted,
    is_some,
    overridden,
    resource,
    rolling_update,
)
from kube.selectors import REQUIRED
from settings.windows import DAYS, LONGEST, START
from tests.charts import CHART
from tests.ingress_daemonset import Raw, example, raw

CRD = yaml.safe_load((CHART / "files" / "ingressdaemonsets.yaml").read_text())
[SERVED] = CRD["spec"]["versions"]
SCHEMA = SERVED["schema"]["openAPIV3Schema"]
ROLLING = "spec.updateStrategy.rollingUpdate"
OPEN = "x-kubernetes-preserve-unknown-fields"


def fields(schema: Raw, path: str = "") -> Iterator[tuple[str, Raw]]:
    """Each field of *schema* by its path."""
    for name, each in schema.get("properties", {}).items():
        where = f"{path}.{name}".lstrip(".")
        yield where, each
        yield from fields(each.get("items", each), where)


def unknown(value: Any, schema: Raw, path: str = "") -> Iterator[str]:
    """What of *value* an API server would refuse, or drop, as unknown."""
    if isinstance(value, list):
        for each in value:
            yield from unknown(each, schema.get("items", {}), f"{path}[]")
    elif isinstance(value, dict) and "additionalProperties" not in schema:
        known = schema.get("properties", {})
        for name, each in value.items():
            if name in known:
                yield from unknown(each, known[name], f"{path}.{name}")
            elif OPEN not in schema:
                yield f"{path}.{name}"


FIELDS = dict(fields(SCHEMA))


def test_it_is_the_kind_that_the_product_speaks_of() -> None:
    names = CRD["spec"]["names"]

    assert CRD["metadata"]["name"] == f"{PLURAL}.{GROUP}"
    assert (CRD["spec"]["group"], names["kind"], names["plural"], SERVED["name"]) == (
        GROUP,
        KIND,
        PLURAL,
        VERSION,
    )
    assert names["shortNames"] == ["ids"]
    assert SERVED["subresources"] == {"status": {}}


def test_the_example_of_the_original_has_no_field_that_is_unknown() -> None:
    known = SCHEMA | {"properties": SCHEMA["properties"] | {"metadata": {OPEN: True}}}

    assert [*unknown(example(), known)] == []
    assert [*unknown(raw({"podsPerNodes": 2}), known)] == [".spec.podsPerNodes"]


@pytest.mark.parametrize("part", [DRAIN_REQUESTS, EVICTABLE_NODES])
def test_what_drains_are_handed_over_by_is_a_map_of_times(part: str) -> None:
    """What a schema does not have, the API server drops without a word."""
    assert FIELDS[f"status.{part}"]["additionalProperties"] == {"type": "string", "format": "date-time"}


def test_the_schema_has_the_fields_that_are_read_and_explains_each() -> None:
    read = encoded_fields(msgspec.inspect.type_info(types.Spec))
    read["updateStrategy"]["rollingUpdate"] |= dict.fromkeys(OTHER_SPELLINGS)

    assert read == fields_of(SCHEMA["properties"]["spec"]) | {"template": None}
    explained = {path for path, field in FIELDS.items() if field.get("description", "").endswith(".")}
    assert FIELDS.keys() - explained == {"metadata"}


def test_its_bounds_are_those_of_the_health_checker() -> None:
    """And not of the webhook, which the API server asks only about what has passed the schema."""
    outage = FIELDS["spec.healthChecker.outageToleranceSeconds"]

    assert (outage["minimum"], outage["maximum"]) == (
        health_checks.SHORTEST_BOUND,
        health_checks.LONGEST_BOUND,
    )
    assert FIELDS["spec.healthChecker.onApiServerOutage"]["enum"] == [health_checks.KEEP, health_checks.FAIL]


def test_every_column_shows_a_field_of_the_schema() -> None:
    paths = [each["jsonPath"].lstrip(".").partition("[")[0] for each in SERVED["additionalPrinterColumns"]]

    assert {*paths} <= {*FIELDS, "metadata.creationTimestamp"}


def test_the_definition_outlives_its_release() -> None:
    assert CRD["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_lists_that_are_compared_with_each_other_or_with_nodes_are_short() -> None:
    pod = "spec.template.spec"
    most = {
        "spec.healthCheckNodePorts": {"maxItems": 64},
        "spec.nodeSelector": {"maxProperties": 64},
        f"{ROLLING}.canary.nodeSelector": {"maxProperties": 64},
        f"{pod}.nodeSelector": {"maxProperties": 64},
        f"{pod}.containers": {"maxItems": 256},
        f"{pod}.initContainers": {"maxItems": 256},
        f"{pod}.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms": {"maxItems": 100},
    }
    assert [path for path, limit in most.items() if not limit.items() <= FIELDS[path].items()] == []


def test_what_is_written_to_nodes_leaves_room_for_others() -> None:
    """All annotations of an object together have 256 KiB: kubelets and CNI plugins write there, too."""
    assert FIELDS[f"{ROLLING}.annotateNodeToDetach.value"]["maxLength"] <= 1024


def test_its_windows_are_those_that_the_controllers_can_read() -> None:
    window = FIELDS[f"{ROLLING}.window"]["properties"]

    assert window["start"]["pattern"] == f"^{START.pattern}$"
    assert window["days"]["items"]["enum"] == [*DAYS]
    assert 0 < window["durationSeconds"]["minimum"] < window["durationSeconds"]["maximum"]
    assert window["durationSeconds"]["maximum"] == LONGEST.total_seconds()


def fields_of(schema: dict[str, Any]) -> Any:
    """The names of the fields that *schema* has, nested as they are."""
    match schema:
        case {"properties": parts}:
            return {name: fields_of(part) for name, part in parts.items()}
        case {"additionalProperties": dict() as part} | {"items": dict() as part}:
            return fields_of(part)
    return None


def encoded_fields(kind: Any) -> Any:
    match kind:
        case msgspec.inspect.StructType(fields=fields):
            return {each.encode_name: encoded_fields(each.type) for each in fields}
        case msgspec.inspect.UnionType(types=types):
            return next((found for each in types if (found := encoded_fields(each))), None)
        case msgspec.inspect.DictType(value_type=part) | msgspec.inspect.VarTupleType(item_type=part):
            return encoded_fields(part)
    return None


def test_its_fields_are_those_of_the_crd() -> None:
    assert encoded_fields(msgspec.inspect.type_info(Status)) == fields_of(SCHEMA["properties"]["status"])


def test_a_part_that_cannot_be_read_is_as_if_it_were_not_there() -> None:
    status = status_of({"rollout": {"startedAt": "today"}, "canary": [], "readyNodes": 3, "other": {}})

    assert status == Status(ready_nodes=3)


def test_zero_is_stored_where_users_count() -> None:
    assert raw_of(CanaryStatus("a-1")) == {"id": "a-1", "nodes": 0, "nodesComplete": 0}
    assert raw_of(NodeFailure("it has lost pods")) == {"reason": "it has lost pods", "seconds": 0}


DEFAULT = "ingressdaemonsets.mumoshu.github.com/to-be-updated"
SHARES = st.sampled_from([0, 1, 3, "0%", "25%", "100%"])
GIVEN = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        (
            "maxUnavailableNodes",
            "maxDegradedNodes",
            "maxUnavailablePodsPerNode",
            "maxUnavaiablePodsPerNode",
            "maxUnavailablePodsPerNodes",
            "maxSurgedPodsPerNode",
        ),
        SHARES,
    ),
)


def rolling(**fields: Any) -> RollingUpdate:
    return resource(raw({"updateStrategy": {"rollingUpdate": fields}})).spec.update_strategy.rolling_update


@given(new=GIVEN, old=GIVEN)
def test_defaulting_again_changes_nothing_more_and_detachment_brings_its_own(new: Raw, old: Raw) -> None:
    before = defaulted(raw({"updateStrategy": {"rollingUpdate": old}}))
    stored = defaulted(raw({"updateStrategy": {"rollingUpdate": new}}), before)

    assert defaulted(stored, stored) == stored
    assert defaulted(stored) == stored
    assert [*overridden(stored)] == []
    if is_some(new.get("maxUnavailableNodes", 0)):
        found = rolling_update(stored)
        assert (found["maxDegradedNodes"], found["maxUnavailablePodsPerNode"]) == (0, "100%")


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"maxUnavailableNodes": 1}, DEFAULT),
        ({"annotateDeploymentToDetach": {}}, DEFAULT),
        ({"annotateDeploymentToDetach": {"key": "a"}}, "a"),
        ({}, None),
    ],
)
def test_the_annotation_of_a_deployment(fields: Raw, key: str | None) -> None:
    found = rolling(**fields).deployment_annotation

    assert (found and found.key) == key


def test_a_node_that_is_not_detached_is_not_written_to() -> None:
    found = rolling(annotateNodeToDetach={"key": "a"}, waitForDetachmentByAnnotatedTimestamp={"key": "b"})

    assert (found.node_annotation, found.timestamp) == (None, None)


@pytest.mark.parametrize("share", [-1, "", "%", "1", "-1%", "101%", "1.5%", "\u0661%", "0001%"])
def test_what_is_no_budget_is_refused(share: int | str) -> None:
    with pytest.raises(ValueError, match="is no budget"):
        amount(share)
    assert not is_some(share)
