"""The webhook and the leader at one API server: no request is lost, and no grace is cut short by a clock."""

from __future__ import annotations

from contextlib import suppress

import pytest

from api.ingress_daemonset import DRAIN_REQUESTS, TO_BE_UPDATED
from controllers.ingress_daemonset.children import Target
from controllers.ingress_daemonset.controller import STATUS_PERIOD
from kube.errors import KubeError
from kube.resources import PODS
from kube.types import rfc3339
from settings import IngressDaemonSetSettings
from tests.ingress_daemonset import eviction_on, pod_on
from tests.ingress_daemonset_leader import Leader, with_nodes
from webhook.ingress_daemonset.cluster_lookup import ClusterLookup
from webhook.ingress_daemonset.evictions import EvictionWebhook

GRACE, HELD, LINGER, AHEAD, DEADLINE = 10, 90, 60, 300, 660
ROLLING = {
    "maxUnavailableNodes": 2,
    "annotateDeploymentToDetach": {"gracePeriodSeconds": GRACE},
    "confirm": "off",
}
NODES = ("n1", "n2", "n3")


class Cluster:
    """An API server, its leader, and a webhook server."""

    def __init__(self) -> None:
        self.api = with_nodes(*NODES, rolling=ROLLING)
        self.leader = Leader(self.api)
        self.leader.settle()
        for node in NODES:
            self.api.fake.put(PODS, pod_on(node))
        enabled = IngressDaemonSetSettings.model_validate({"enabled": True})
        lookup = ClusterLookup(self.api.fake.client("webhook"), lambda: 0.0)
        self.evictions = EvictionWebhook(lambda: enabled, lookup, lambda: self.leader.now())

    def evict(self, node: str) -> bool:
        """Whether it is allowed."""
        return self.evictions.review(eviction_on(node), 9.0).allowed

    def look(self) -> None:
        with suppress(KubeError):
            self.leader.look()


@pytest.mark.parametrize("ahead", [AHEAD, -AHEAD])
def test_a_leader_beside_another_gives_the_whole_grace_whatever_their_clocks_show(ahead: int) -> None:
    api = with_nodes("n1", rolling=ROLLING)
    former = Leader(api)
    leader = Leader(api, before=former)
    leader.began -= ahead
    former.settle()
    former.retemplate("proxy:2")
    former.settle(
        until=lambda: TO_BE_UPDATED in api.objects["Deployment", "edge/web-n1"]["metadata"]["annotations"]
    )
    leader.looks(GRACE - 1)
    assert leader.images() == {"proxy:1"}
    leader.looks(2)
    assert leader.images() == {"proxy:2"}

    crashing = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 0, "observedGeneration": 9}
    api.change("Deployment", "edge/web-n1", {"status": crashing})
    leader.looks(DEADLINE + AHEAD)
    assert leader.conditions()["Progressing"]["reason"] == "Halted"


def to_the_end_of_a_drain(here: Cluster) -> None:
    """The next look clears the request of n1."""
    here.evict("n1")
    here.api.deliver()
    here.leader.steps(4)
    here.leader.clock.advance(HELD + LINGER)


def test_a_request_that_comes_between_a_look_and_its_write_is_not_lost() -> None:
    here = Cluster()
    to_the_end_of_a_drain(here)
    webhook = here.api.fake.client("webhook")
    lookup = ClusterLookup(webhook, lambda: 0.0)
    [resource] = lookup.ingress_daemonsets("edge", "web", deadline=9)
    again, late = rfc3339(here.leader.now()), list[str]()

    def between(verb: str, kind: str, name: str) -> str:
        if verb == "status" and not late:
            late.append(again)
            lookup.request_drain(resource, "n1", again, deadline=9)
            lookup.request_drain(resource, "n2", again, deadline=9)
        return ""

    here.api.fault = between
    here.look()

    assert late
    assert here.leader.status[DRAIN_REQUESTS] == {"n1": again, "n2": again}


def test_a_request_that_the_watch_has_not_brought_yet_outlives_a_write_of_the_counts() -> None:
    here = Cluster()
    here.evict("n1")  # not delivered
    here.api.remove("Node", "n3")
    here.leader.cache.forget(Target("Node", "", "n3"), "uid-n3")
    here.leader.clock.advance(STATUS_PERIOD)
    here.look()

    assert here.leader.status["desiredNodes"] == 2
    assert here.leader.status[DRAIN_REQUESTS].keys() == {"n1"}
