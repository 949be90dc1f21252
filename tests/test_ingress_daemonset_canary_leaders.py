"""A canary and a rollback survive their leader, and a former leader with an old cache does not undo them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from api.ingress_daemonset.types import resource, time_of
from controllers.ingress_daemonset.children import Kind
from controllers.ingress_daemonset.object_cache import DECODERS, RESOURCES
from controllers.ingress_daemonset.revisions import Revision, plan_revisions
from kube.errors import KubeError
from kube.informer import Identity, Informer, ListWatch
from tests.ingress_daemonset_leader import DETACHING, KEY, Api, Leader, with_nodes

Raw = dict[str, Any]
PAUSE = 600
NODES = ("n1", "n2", "n3")
TIMED = {"nodes": 1, "pause": {"durationSeconds": PAUSE}}


def paused(canary: Raw = TIMED) -> Leader:
    """With one node on the template that the others wait for."""
    here = Leader(with_nodes(*NODES, rolling={**DETACHING, "canary": canary}))
    here.settle()
    here.retemplate("proxy:2")
    here.settle(until=lambda: "completeSince" in stored(here).get("canary", {}))
    return here


def stored(here: Leader) -> Raw:
    status: Raw = here.api.objects["IngressDaemonSet", KEY].get("status", {})
    return status


def on(here: Leader, image: str) -> int:
    """How many nodes have it."""
    held = [raw for (kind, _), raw in here.api.objects.items() if kind == "Deployment"]
    return sum(raw["spec"]["template"]["spec"]["containers"][0]["image"] == image for raw in held)


def with_cache_of_now(here: Leader) -> Leader:
    """Another leader, which never learns of what changes from now on."""
    live = here.api.informers
    here.api.informers = frozen(here.api)
    former = Leader(here.api, before=here)
    here.api.informers = live
    return former


def frozen(api: Api) -> dict[Kind, Informer[Any]]:
    informers = {kind: Informer(ListWatch(api, served), DECODERS[kind]) for kind, served in RESOURCES.items()}
    for kind, served in RESOURCES.items():
        for each in api.fake.changes(0):
            if each.key[0] == served and each.new:
                _, namespace, name = each.key
                identity = Identity(name, namespace, str(each.version))
                informers[kind].apply("MODIFIED", identity, each.new.encoded)  # type: ignore[arg-type]
    return informers


def looks(leader: Leader, number: int = 5) -> None:
    """Whatever comes of it."""
    for _ in range(number):
        try:
            leader.look()
        except KubeError:
            continue


def test_another_leader_counts_the_pause_from_where_it_began() -> None:
    here = paused()
    began = time_of(stored(here)["canary"]["completeSince"])
    here.clock.advance(PAUSE - 10)
    other = Leader(here.api, before=here)
    other.settle(until=lambda: "promotedAt" in stored(here)["canary"])
    promoted = time_of(stored(here)["canary"]["promotedAt"])
    assert began
    assert promoted
    assert timedelta(0) <= promoted - began - timedelta(seconds=PAUSE) <= timedelta(seconds=5)
    assert on(here, "proxy:2") == 1

    other.settle()
    assert on(here, "proxy:2") == 3


def failing() -> tuple[Leader, list[Revision]]:
    """With one node whose pods did not come in time, and the templates that are kept."""
    here = Leader(with_nodes(*NODES, rolling={**DETACHING, "autoRollback": True}, progressDeadlineSeconds=60))
    here.settle()
    kept = [recorded(here)]
    here.retemplate("proxy:2")
    kept.append(recorded(here))
    for _ in range(4):
        here.look()
        here.api.deliver()
        here.clock.advance(10)
    stuck = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    status = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 0, "conditions": [stuck]}
    [name] = [key for (kind, key), raw in here.api.objects.items() if kind == "Deployment" and has_bad(raw)]
    here.api.change("Deployment", name, {"status": status})
    here.clock.advance(60)
    return here, kept


def has_bad(raw: Raw) -> bool:
    return bool(raw["spec"]["template"]["spec"]["containers"][0]["image"] == "proxy:2")


def recorded(here: Leader) -> Revision:
    body = plan_revisions(resource(here.api.objects["IngressDaemonSet", KEY]), ()).create
    assert body
    return msgspec.convert(body, Revision)


def test_no_node_returns_before_the_rollback_is_stored_and_the_next_leader_completes_it() -> None:
    here, kept = failing()
    here.cache.revisions = lambda _: kept
    with here.fault(lambda verb, kind, name: "timed out" if verb == "status" else ""):
        looks(here)
        assert on(here, "proxy:2") == 1
    assert "rollback" not in stored(here)

    other = Leader(here.api, before=here)
    other.cache.revisions = lambda _: kept
    other.settle(until=lambda: "rollback" in stored(here))
    third = Leader(here.api, before=here)
    third.cache.revisions = lambda _: kept
    third.settle()
    assert (on(here, "proxy:1"), here.off()) == (3, set())
    conditions = {each["type"]: each["reason"] for each in stored(here)["conditions"]}
    assert conditions["Progressing"] == "RolledBack"


def test_the_spec_that_is_applied_again_after_a_rollback_costs_no_write() -> None:
    here, kept = failing()
    here.cache.revisions = lambda _: kept
    here.settle()
    assert on(here, "proxy:1") == 3
    before = list(here.api.writes)
    for _ in range(3):
        here.retemplate("proxy:2")
        here.clock.advance(600)
        here.settle()

    written = [each for each in here.api.writes[len(before) :] if "Deployment" in each or "Node" in each]
    assert written == []
