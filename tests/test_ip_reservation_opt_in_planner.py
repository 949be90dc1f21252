"""Which annotations a pod gets from its workload: copies alone change, and what a pod says itself wins."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from api.ip_reservation import RESERVE, RESERVE_FROM
from controllers.ip_reservation.opt_in import Reference, followed, plan, workload_of
from kube.types import ObjectMeta
from tests.factories import pod

REDIS = Reference("Deployment", "redis")
YES, NO, NOTHING = (f"Deployment/redis={each}" for each in ("true", "false", ""))
COPY = {RESERVE: "true", RESERVE_FROM: "Deployment/redis=true"}
COPIED_NO = {RESERVE: "false", RESERVE_FROM: "Deployment/redis=false"}
REMOVED = {RESERVE: None, RESERVE_FROM: None}
CHANGED_SINCE = {RESERVE: "false", RESERVE_FROM: "Deployment/redis=true"}


@pytest.mark.parametrize(
    ("annotations", "mark", "changes"),
    [
        pytest.param({}, YES, COPY, id="a workload opts in"),
        pytest.param({}, NO, COPIED_NO, id="a workload opts out"),
        pytest.param({"a": "b"}, YES, COPY, id="other annotations stay"),
        pytest.param({}, NOTHING, {}, id="neither says anything"),
        pytest.param(COPY, YES, {}, id="it was copied before"),
        pytest.param(COPY, NO, COPIED_NO, id="the workload changes its mind"),
        pytest.param(COPY, NOTHING, REMOVED, id="the workload says nothing any more"),
        pytest.param(COPY, None, {}, id="the workload is gone, or not known"),
        pytest.param({}, None, {}, id="of no workload"),
        pytest.param({RESERVE: "false"}, YES, {}, id="its own false"),
        pytest.param({RESERVE: "true"}, NO, {}, id="its own true"),
        pytest.param({RESERVE: "true"}, NOTHING, {}, id="its own, which the workload does not have"),
        pytest.param({RESERVE: ""}, YES, {}, id="its own, though it is empty"),
        pytest.param({RESERVE: "maybe"}, YES, {}, id="its own, though it means nothing"),
        pytest.param(CHANGED_SINCE, YES, {RESERVE_FROM: None}, id="changed by hand since it was copied"),
        pytest.param({RESERVE_FROM: "Deployment/redis=true"}, YES, {RESERVE: "true"}, id="half removed"),
        pytest.param(
            {RESERVE_FROM: "Deployment/redis=true"}, NOTHING, {RESERVE_FROM: None}, id="a mark is left"
        ),
        pytest.param(
            {RESERVE: "true", RESERVE_FROM: "StatefulSet/other=true"},
            YES,
            {RESERVE_FROM: "Deployment/redis=true"},
            id="copied from another workload",
        ),
    ],
)
def test_what_changes(
    annotations: Mapping[str, str], mark: str | None, changes: Mapping[str, str | None]
) -> None:
    assert plan(annotations, mark) == changes
    after = followed(pod(metadata={"annotations": dict(annotations)}), mark).metadata.annotations
    assert after == {name: value for name, value in {**annotations, **changes}.items() if value is not None}
    assert plan(after, mark) == {}


def owned(api_version: str, kind: str, name: str, hash_: str = "", *, controller: bool = True) -> ObjectMeta:
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": controller}
    labels = {"pod-template-hash": hash_} if hash_ else {}
    return pod(metadata={"ownerReferences": [owner], "labels": labels}).metadata


@pytest.mark.parametrize(
    ("metadata", "workload"),
    [
        pytest.param(
            owned("apps/v1", "StatefulSet", "redis"), Reference("StatefulSet", "redis", "u"), id="StatefulSet"
        ),
        pytest.param(owned("apps/v1", "ReplicaSet", "redis-5d8f", "5d8f"), REDIS, id="Deployment"),
        pytest.param(
            owned("apps/v1", "ReplicaSet", "a-b-5d8f", "5d8f"),
            Reference("Deployment", "a-b"),
            id="Deployment with dashes",
        ),
        pytest.param(owned("apps/v1", "ReplicaSet", "redis"), None, id="ReplicaSet of no Deployment"),
        pytest.param(owned("apps/v1", "ReplicaSet", "redis", "5d8f"), None, id="ReplicaSet of another name"),
        pytest.param(owned("apps/v1", "DaemonSet", "redis"), None, id="DaemonSet"),
        pytest.param(owned("apps.kruise.io/v1beta1", "StatefulSet", "redis"), None, id="of another group"),
        pytest.param(owned("apps/v1", "StatefulSet", "redis", controller=False), None, id="not controlled"),
        pytest.param(pod(metadata={"ownerReferences": []}).metadata, None, id="no owner"),
    ],
)
def test_the_workload_of_a_pod(metadata: ObjectMeta, workload: Reference | None) -> None:
    assert workload_of(metadata) == workload
