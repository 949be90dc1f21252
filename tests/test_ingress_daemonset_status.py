"""The status of an IngressDaemonSet as a value."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from api.ingress_daemonset.status import CanaryStatus, Condition, NodeFailure, Status, raw_of, status_of

CRD = Path(__file__).parent.parent / "charts" / "drawbridge" / "files" / "ingressdaemonsets.yaml"
STARTED = "2026-01-01T10:00:00Z"


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
    crd = yaml.safe_load(CRD.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert encoded_fields(msgspec.inspect.type_info(Status)) == fields_of(schema["properties"]["status"])


def test_a_status_is_read_with_its_times() -> None:
    status = status_of({"rollout": {"startedAt": STARTED, "nodes": 3, "atATime": 2}, "readyNodes": 3})

    assert status.ready_nodes == 3
    assert status.rollout is not None
    assert status.rollout.started_at == datetime(2026, 1, 1, 10, tzinfo=UTC)
    assert (status.rollout.at_a_time, status.rollout.estimated_end) == (2, None)


def test_a_part_that_cannot_be_read_is_as_if_it_were_not_there() -> None:
    status = status_of({"rollout": {"startedAt": "today"}, "canary": [], "readyNodes": 3, "other": {}})

    assert status == Status(ready_nodes=3)


def test_zero_is_stored_where_users_count() -> None:
    assert raw_of(CanaryStatus("a-1")) == {"id": "a-1", "nodes": 0, "nodesComplete": 0}
    assert raw_of(NodeFailure("it has lost pods")) == {"reason": "it has lost pods", "seconds": 0}


def test_a_condition_that_is_not_reported_yet_is_empty() -> None:
    status = status_of({"conditions": [{"type": "Degraded", "status": "True", "reason": "RolloutStuck"}]})

    assert status.condition("Degraded").reason == "RolloutStuck"
    assert status.condition("Progressing") == Condition("Progressing")
