"""`drawbridge simulate scale`: which ReplicaSet is the newest; with fewer replicas, which pods go, in which order."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from api.elasticity import COST
from cli.elasticity.scale import REVISION, StoredWorkload, revision_of
from cli.ip_reservation.removal import in_order
from cli.pods import StoredPod, stored
from kube.types import ObjectMeta
from tests.factories import NOW


def pod(name: str, *, node: str = "", ready: float | None = 60, cost: str = "", **parts: Any) -> StoredPod:
    """Ready for so many seconds, on a node of its name unless another is given."""
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": ago(ready)}] if ready else []
    annotations = {COST: cost} if cost else {}
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "annotations": annotations}
    created = ago(parts.pop("created", 3600))
    status = {"phase": "Running", "conditions": conditions, **parts.pop("status", {})}
    spec = {} if parts.pop("unscheduled", False) else {"nodeName": node or f"node-{name}"}
    metadata |= {"creationTimestamp": created} | parts
    return stored({"metadata": metadata, "spec": spec, "status": status})


def ago(seconds: float) -> str:
    moment: datetime = NOW - timedelta(seconds=seconds)
    return moment.isoformat()


RESTARTED = {"containerStatuses": [{"restartCount": 1}, {"restartCount": 3}]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            pod("b", unscheduled=True, cost="9"), pod("a", cost="1"), id="one that is not scheduled"
        ),
        pytest.param(
            pod("b", status={"phase": "Pending"}, cost="9"), pod("a", cost="1"), id="one that is Pending"
        ),
        pytest.param(pod("b", ready=None, cost="9"), pod("a", cost="1"), id="one that is not ready"),
        pytest.param(pod("b", cost="-5"), pod("a", ready=1), id="the cheaper one"),
        pytest.param(pod("b", ready=5), pod("a", ready=500), id="the one that was ready later"),
        pytest.param(pod("b", cost="x"), pod("a", cost="1"), id="a cost that is no number counts as 0"),
        pytest.param(pod("b", status=RESTARTED), pod("a"), id="the one that was restarted more often"),
        pytest.param(pod("b", created=100), pod("a", created=4000), id="the one that was created later"),
        pytest.param(pod("a", ready=60), pod("b", ready=61), id="of about the same age the lower uid"),
        pytest.param(pod("a", ready=61), pod("b", ready=60), id="of about the same age, the other way round"),
    ],
)
def test_the_first_to_go_is(first: StoredPod, second: StoredPod) -> None:
    assert in_order([second, first], NOW) == in_order([first, second], NOW) == [first, second]


def test_a_pod_that_shares_its_node_with_another_goes_before_one_that_is_alone() -> None:
    crowded = [pod("y", node="n1", ready=9000), pod("z", node="n1", ready=9000)]
    alone = pod("a", ready=1)

    assert in_order([alone, *crowded], NOW) == [*crowded, alone]


@pytest.mark.parametrize("revision", ["", "nine", "-9", "9.5"])
def test_a_replica_set_whose_revision_is_no_number_is_not_the_newest(revision: str) -> None:
    odd, newest = (
        StoredWorkload(metadata=ObjectMeta(name=name, annotations={REVISION: text}))
        for name, text in (("odd", revision), ("newest", "2"))
    )

    assert max((odd, newest), key=revision_of) is newest
