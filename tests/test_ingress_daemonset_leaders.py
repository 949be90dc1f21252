"""What a rollout waits for survives its leader, and a former leader with an old cache undoes none of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from controllers.ingress_daemonset.children import Kind
from controllers.ingress_daemonset.object_cache import RESOURCES
from kube.errors import KubeError
from kube.informer import Identity, Informer
from tests.ingress_daemonset_leader import DETACHING, KEY, Api, Leader, outdated, with_nodes
from tests.ingress_daemonset_rolling import at

Raw = dict[str, Any]
PAUSE = 600
NODES = ("n1", "n2", "n3")


def on(here: Leader, image: str) -> int:
    """How many nodes have it."""
    return [*here.image_by_node().values()].count(image)


def with_cache_of_now(here: Leader) -> Leader:
    """Another leader, which never learns of what changes from now on."""
    live = here.api.informers
    here.api.informers = frozen(here.api)
    former = Leader(here.api, before=here)
    here.api.informers = live
    return former


def frozen(api: Api) -> dict[Kind, Informer[Any]]:
    informers = api.empty_informers()
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


def failing() -> Leader:
    """With one node whose pods did not come in time."""
    here = outdated(*NODES, rolling={**DETACHING, "autoRollback": True}, progressDeadlineSeconds=60)
    for _ in range(4):
        here.look()
        here.api.deliver()
        here.clock.advance(10)
    stuck = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    status = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 0, "conditions": [stuck]}
    [name] = [node for node, image in here.image_by_node().items() if image == "proxy:2"]
    here.api.change("Deployment", f"edge/web-{name}", {"status": status})
    here.clock.advance(60)
    return here


def test_no_node_returns_before_the_rollback_is_stored_and_the_next_leader_completes_it() -> None:
    here = failing()
    with here.fault(lambda verb, kind, name: "timed out" if verb == "status" else ""):
        looks(here)
        assert on(here, "proxy:2") == 1
    assert "rollback" not in here.status

    other = Leader(here.api, before=here)
    other.settle(until=lambda: "rollback" in here.status)
    Leader(here.api, before=here).settle()
    assert (on(here, "proxy:1"), here.off()) == (3, set())
    assert here.conditions()["Progressing"]["reason"] == "RolledBack"


def test_the_spec_that_is_applied_again_after_a_rollback_costs_no_write() -> None:
    here = failing()
    here.settle()
    assert on(here, "proxy:1") == 3
    before = list(here.api.writes)
    for _ in range(3):
        here.retemplate("proxy:2")
        here.clock.advance(600)
        here.settle()

    written = [each for each in here.api.writes[len(before) :] if "Deployment" in each or "Node" in each]
    assert written == []


ZONE = "topology.kubernetes.io/zone"
METRIC = {"query": "errors", "max": 0.1, "forSeconds": 120, "intervalSeconds": 30, "failureLimit": 3}
MEASURED = {"canary": {"nodes": 1, "metric": METRIC}}
IN_WAVES = {"waves": {"byLabel": ZONE, "pause": {"durationSeconds": PAUSE}}}
BY_TIME = {"canary": {"nodes": 1, "pause": {"durationSeconds": PAUSE}}}
PAUSES = {"canary": "completeSince", "waves": "completedAt"}
"""What of them is stored in a pause."""


def rolling(parts: Raw) -> Leader:
    """With a template that is on no node yet; n1 and n2 are of zone a, n3 is of b."""
    here = Leader(with_nodes(*NODES, rolling={**DETACHING, **parts}))
    for name, zone in zip(NODES, "aab", strict=True):
        here.api.change("Node", name, {"metadata": {"labels": {ZONE: zone}}})
    here.settle()
    here.retemplate("proxy:2")
    return here


def metric(here: Leader) -> Raw:
    found: Raw = here.status.get("canary", {}).get("metric", {})
    return found


def measured() -> Leader:
    here = rolling(MEASURED)
    here.ask = lambda _: 0.05
    here.settle(until=lambda: "passingSince" in metric(here))
    return here


def in_pause(by: str) -> Leader:
    here = rolling(BY_TIME if by == "canary" else IN_WAVES)
    here.settle(until=lambda: PAUSES[by] in here.status.get(by, {}))
    return here


def taken_over(here: Leader) -> Leader:
    other = Leader(here.api, before=here)
    other.ask = here.ask
    return other


@pytest.mark.parametrize(
    ("by", "passed", "least", "most"), [("pause", PAUSE - 10, PAUSE, PAUSE + 5), ("metric", 30, 120, 160)]
)
def test_another_leader_counts_on_from_what_is_stored(by: str, passed: int, least: int, most: int) -> None:
    """From where the pause began, and from the measurements."""
    here = in_pause("canary") if by == "pause" else measured()
    since = at(here.status["canary"]["completeSince"] if by == "pause" else metric(here)["passingSince"])
    here.clock.advance(passed)
    other = taken_over(here)
    other.settle(until=lambda: "promotedAt" in here.status["canary"])
    promoted = at(here.status["canary"]["promotedAt"])
    assert timedelta(seconds=least) <= promoted - since <= timedelta(seconds=most)
    assert on(here, "proxy:2") == 1

    other.settle()
    assert on(here, "proxy:2") == 3


@pytest.mark.parametrize(
    ("parts", "seconds"),
    [
        pytest.param({"canary": {"nodes": 1, "pause": {"durationSeconds": 100}}}, 110, id="a pause"),
        pytest.param(MEASURED, 160, id="a metric"),
        pytest.param({"waves": {"byLabel": ZONE, "pause": {"durationSeconds": 100}}}, 110, id="waves"),
        pytest.param({"waves": {"byLabel": ZONE}}, 10, id="waves without a pause"),
    ],
)
def test_what_was_waited_for_is_followed_at_once_though_nothing_changes_beside(
    parts: Raw, seconds: float
) -> None:
    """The work queue brings a key back when it is due, and not after our own writes."""
    here = rolling(parts)
    here.ask = lambda _: 0.05
    done = 2 if "waves" in parts else 1
    here.settle(until=lambda: on(here, "proxy:2") == done and not here.off())
    here.look()
    here.api.deliver()
    here.looks(seconds)

    assert here.off()


def test_a_measured_canary_costs_one_query_and_one_write_per_interval() -> None:
    here, asked = measured(), list[str]()
    here.ask = lambda query: asked.append(query) or 1.0  # type: ignore[func-returns-value]
    canary = {"nodes": 1, "metric": {**METRIC, "failureLimit": 999}}
    strategy = {"rollingUpdate": {"canary": canary}}
    here.api.change("IngressDaemonSet", KEY, {"spec": {"updateStrategy": strategy}})
    before = len(here.api.writes)
    looked = here.looks(600)

    assert 19 <= len(asked) <= 21
    assert len(here.api.writes) - before <= len(asked) + 1
    assert looked <= 5 * len(asked)


def test_a_time_without_a_leader_is_not_taken_for_good() -> None:
    here = measured()
    since = metric(here)["passingSince"]
    here.clock.advance(3600)
    other = taken_over(here)
    other.settle(until=lambda: metric(here)["passingSince"] != since)
    assert "promotedAt" not in here.status["canary"]

    other.settle()
    assert on(here, "proxy:2") == 3


def test_failures_are_counted_over_leaders_and_each_once() -> None:
    here = rolling(MEASURED)
    here.ask = lambda _: 1.0
    here.settle(until=lambda: metric(here).get("failures") == 1)
    looks(here, 20)
    assert metric(here)["failures"] == 1

    here.clock.advance(30)
    other = taken_over(here)
    other.settle(until=lambda: "failedAt" in metric(here))
    other.ask = lambda _: 0.0
    looks(other, 20)
    assert (metric(here)["failures"], on(here, "proxy:2")) == (3, 1)


@pytest.mark.parametrize("fault", ["lost", "timed out"])
@pytest.mark.parametrize("by", PAUSES)
def test_no_node_follows_before_it_is_stored_that_it_may(by: str, fault: str) -> None:
    here = in_pause(by)
    done = on(here, "proxy:2")
    here.clock.advance(600)
    with here.fault(lambda verb, kind, name: "timed out" if verb == "status" else ""):
        looks(here, 20)
        assert (on(here, "proxy:2"), here.off()) == (done, set())
    with here.fault(lambda verb, kind, name: fault if verb == "status" else ""):
        looks(here, 1)

    taken_over(here).settle()
    assert on(here, "proxy:2") == 3


@pytest.mark.parametrize("by", PAUSES)
def test_a_former_leader_lets_no_node_follow_neither_with_its_template_nor_with_the_new_one(by: str) -> None:
    """For its template, the pause is over soon; for the new one, it has just begun."""
    here = in_pause(by)
    done, former = on(here, "proxy:2"), with_cache_of_now(here)
    here.retemplate("proxy:3")
    here.settle(until=lambda: on(here, "proxy:3") == done and PAUSES[by] in here.status[by])
    before = here.status[by]
    here.clock.advance(590)
    looks(former, 20)
    here.api.deliver()
    assert (here.status[by], on(here, "proxy:3")) == (before, done)

    here.settle()
    assert on(here, "proxy:3") == 3
