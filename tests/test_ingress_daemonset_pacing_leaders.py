"""A measured canary, a wave and a window survive their leader, and a former leader with an old cache undoes none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from api.ingress_daemonset.types import time_of
from tests.ingress_daemonset_leader import DETACHING, KEY, Leader, with_nodes
from tests.test_ingress_daemonset_canary_leaders import looks, on, stored, with_cache_of_now

Raw = dict[str, Any]
NODES = ("n1", "n2", "n3")
ZONE = "topology.kubernetes.io/zone"
METRIC = {"query": "errors", "max": 0.1, "forSeconds": 120, "intervalSeconds": 30, "failureLimit": 3}
MEASURED = {"canary": {"nodes": 1, "metric": METRIC}}
IN_WAVES = {"waves": {"byLabel": ZONE, "pause": {"durationSeconds": 600}}}
TIMED = {"canary": {"nodes": 1, "pause": {"durationSeconds": 600}}}
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
    found: Raw = stored(here).get("canary", {}).get("metric", {})
    return found


def measured() -> Leader:
    here = rolling(MEASURED)
    here.ask = lambda _: 0.05
    here.settle(until=lambda: "passingSince" in metric(here))
    return here


def paused(by: str) -> Leader:
    here = rolling(TIMED if by == "canary" else IN_WAVES)
    here.settle(until=lambda: PAUSES[by] in stored(here).get(by, {}))
    return here


def taken_over(here: Leader) -> Leader:
    other = Leader(here.api, before=here)
    other.ask = here.ask
    return other


def test_another_leader_counts_on_from_the_measurements_that_are_stored() -> None:
    here = measured()
    since = time_of(metric(here)["passingSince"])
    here.clock.advance(30)
    other = taken_over(here)
    other.settle(until=lambda: "promotedAt" in stored(here)["canary"])
    promoted = time_of(stored(here)["canary"]["promotedAt"])
    assert since
    assert promoted
    assert timedelta(seconds=120) <= promoted - since <= timedelta(seconds=160)

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
    here.api.edit("IngressDaemonSet", KEY, {"spec": failing_late()})
    here.api.deliver()
    before = len(here.api.writes)
    looked = here.looks(600)

    assert 19 <= len(asked) <= 21
    assert len(here.api.writes) - before <= len(asked) + 1
    assert looked <= 5 * len(asked)


def failing_late() -> Raw:
    metric = {**METRIC, "failureLimit": 999}
    return {"updateStrategy": {"rollingUpdate": {"canary": {"nodes": 1, "metric": metric}}}}


def test_a_time_without_a_leader_is_not_taken_for_good() -> None:
    here = measured()
    since = metric(here)["passingSince"]
    here.clock.advance(3600)
    other = taken_over(here)
    other.settle(until=lambda: metric(here)["passingSince"] != since)
    assert "promotedAt" not in stored(here)["canary"]

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
    here = paused(by)
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
    here = paused(by)
    done, former = on(here, "proxy:2"), with_cache_of_now(here)
    here.retemplate("proxy:3")
    here.settle(until=lambda: on(here, "proxy:3") == done and PAUSES[by] in stored(here)[by])
    before = stored(here)[by]
    here.clock.advance(590)
    looks(former, 20)
    here.api.deliver()
    assert (stored(here)[by], on(here, "proxy:3")) == (before, done)

    here.settle()
    assert on(here, "proxy:3") == 3
