"""Where each pod of an owner and revision belongs, and what is written to it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from controllers.elasticity.annotations import Wish
from controllers.elasticity.patches import TOLERATION, burst, to_local_nodes, to_super_node
from controllers.elasticity.planner import Case, Objections, Place, Siblings, Standing, plan, standing
from controllers.elasticity.pods import Pod, decode, facets, oldest_first
from controllers.elasticity.quota import Room
from settings.elasticity import MaxSuperPods
from tests.elasticity_world import AWAY, HOME, STUCK, raw_of, raw_pod
from webhook.elasticity import COST, GATE, OUR_COST, PLACEMENT

UNLIMITED = MaxSuperPods()
SUPER_ONLY = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["eklet"]}
NOT_SUPER = {**SUPER_ONLY, "operator": "NotIn"}
NONE = Objections()
LET = [{"key": "eks.tke.cloud.tencent.com/eklet", "operator": "Exists"}]


def pod(name: str = "web-1", **parts: Any) -> Pod:
    return decode(raw_of(raw_pod(name, **parts)))


def case(number: int = 1, replicas: int | None = 2, allowed: bool = True, barred: str = "") -> Case:
    return Case(pod(f"web-{number}"), Wish(allowed, "global=true local=unset", replicas), barred)


class Sky:
    """Super nodes that answer each pod the same, as far as there is *room*."""

    def __init__(self, found: Objections | None = NONE, room: Room | None = None) -> None:
        self._found, self._room = found, room or Room(UNLIMITED, {})

    def objections(self, pod: Pod, *, bound: bool) -> Objections | None:
        return self._found

    def take(self, pod: Pod, *, bound: bool) -> str:
        return self._room.take(pod)


def places(*cases: Case, local: int = 0, sky: Sky | None = None) -> list[Place]:
    return [each.place for each in plan(cases, Siblings(local), sky or Sky())]


def test_the_first_n_stay_and_the_others_go() -> None:
    assert places(*map(case, range(4))) == [Place.LOCAL, Place.LOCAL, Place.SUPER, Place.SUPER]
    assert places(*map(case, range(2)), local=1) == [Place.LOCAL, Place.SUPER]
    assert places(case(replicas=0)) == [Place.SUPER]


@pytest.mark.parametrize(
    ("beyond", "found", "place", "why"),
    [
        pytest.param(
            case(allowed=False),
            NONE,
            Place.STAY,
            "global=true local=unset LOCAL_REPLICAS=2, 2 local: must stay local",
            id="the switches keep it",
        ),
        pytest.param(
            case(),
            Objections(("one", "two")),
            Place.STAY,
            "global=true local=unset LOCAL_REPLICAS=2, 2 local: stays local, it cannot run on super nodes: one; two",
            id="the rules keep it",
        ),
        pytest.param(
            case(),
            Objections(misfit="no super node has gpu=true"),
            Place.STAY,
            "global=true local=unset LOCAL_REPLICAS=2, 2 local: stays local, no super node has gpu=true",
            id="no super node takes it",
        ),
        pytest.param(
            case(barred="no super node is ready"),
            NONE,
            Place.STAY,
            "global=true local=unset LOCAL_REPLICAS=2, 2 local, no super node is ready: stays local",
            id="super nodes would not take it",
        ),
        pytest.param(
            case(),
            None,
            Place.LOOK,
            "global=true local=unset LOCAL_REPLICAS=2, 2 local: its volumes are looked at",
            id="its volumes are not known yet",
        ),
        pytest.param(
            case(),
            NONE,
            Place.SUPER,
            "global=true local=unset LOCAL_REPLICAS=2, 2 local: to super node",
            id="nothing keeps it",
        ),
        pytest.param(
            case(replicas=None),
            NONE,
            Place.STAY,
            "global=true local=unset LOCAL_REPLICAS=unset: stays local",
            id="it has no number",
        ),
    ],
)
def test_a_pod_beyond_n_is_told_why(beyond: Case, found: Objections | None, place: Place, why: str) -> None:
    (verdict,) = plan([beyond], Siblings(2), Sky(found))

    assert (verdict.place, verdict.why) == (place, why)


@pytest.mark.parametrize(
    ("limits", "there", "full"),
    [
        pytest.param(
            {"total": 2}, ["a", "b"], "maxSuperPods.total is 2 and 2 pods are on super nodes", id="all"
        ),
        pytest.param(
            {"per_namespace": 1},
            ["shop", "b"],
            "maxSuperPods.perNamespace is 1 and 1 pods of shop are there",
            id="of a namespace",
        ),
        pytest.param({"total": 3, "per_namespace": 2}, ["shop", "b"], "", id="there is room"),
    ],
)
def test_a_limit_that_is_reached_is_named(limits: dict[str, int], there: list[str], full: str) -> None:
    assert Room(MaxSuperPods(**limits), Counter(there)).take(pod()) == full


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        pytest.param({}, Standing.GATED, id="gated"),
        pytest.param({"gated": False}, Standing.LOCAL, id="placed by nobody"),
        pytest.param({"gated": False, "annotations": {PLACEMENT: "local"}}, Standing.LOCAL, id="kept"),
        pytest.param({"gated": False, "annotations": {PLACEMENT: "super"}}, Standing.SUPER, id="sent"),
        pytest.param({"gated": False, "spec": {"nodeName": HOME}}, Standing.LOCAL, id="at home"),
        pytest.param({"gated": False, "spec": {"nodeName": AWAY}}, Standing.SUPER, id="on a super node"),
        pytest.param(
            {"gated": False, "annotations": {PLACEMENT: "super"}, "spec": {"nodeName": "eklet-unknown"}},
            Standing.SUPER,
            id="sent to a super node that is not known",
        ),
    ],
)
def test_a_pod_counts_as_what_it_is_or_will_be(parts: dict[str, Any], what: Standing) -> None:
    assert standing(pod(**parts), frozenset({AWAY})) is what


@pytest.mark.parametrize(
    "over",
    [
        pytest.param({"status": {"phase": "Succeeded"}}, id="succeeded"),
        pytest.param({"status": {"phase": "Failed"}}, id="failed"),
        pytest.param({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}, id="terminating"),
    ],
)
def test_a_pod_that_is_over_counts_nowhere(over: dict[str, dict[str, Any]]) -> None:
    raw = raw_pod("web-1")
    ended = decode(raw_of({part: each | over.get(part, {}) for part, each in raw.items()}))

    assert standing(ended, frozenset()) is Standing.OVER
    assert list(facets(ended)) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param({}, {}, True, id="of one owner"),
        pytest.param({}, {"key": "api"}, False, id="of two owners"),
        pytest.param({"owned": False}, {"owned": False}, False, id="of nobody"),
    ],
)
def test_pods_count_together_that_are_replicas_of_each_other(
    one: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
    assert (pod("web-1", **one).key == pod("web-2", **other).key) is same


def test_the_oldest_come_first_and_of_one_second_the_lower_ordinals() -> None:
    pods = [pod("web-10"), pod("web-9"), pod("api-1", at=5.0)]

    assert [each.metadata.name for each in oldest_first(pods)] == ["web-9", "web-10", "api-1"]


def test_a_bound_pod_is_kept_without_its_spec() -> None:
    raw = raw_pod("web-1", gated=False, annotations={"other": "x"}, spec={"nodeName": HOME})
    kept = decode(raw_of(raw))

    assert kept.unbound is None
    assert kept.metadata.annotations == {"LOCAL_REPLICAS": "2"}


def test_going_home_takes_the_gate_away_and_nothing_else() -> None:
    other = {"name": "somebody.else/gate"}
    patch = to_local_nodes(pod(spec={"schedulingGates": [other, {"name": GATE}]}), "why")

    assert patch["spec"] == {"schedulingGates": [other]}
    assert patch["metadata"]["annotations"] == {PLACEMENT: "local", "drawbridge.io/placement-reason": "why"}


def test_a_pod_that_tolerates_super_nodes_is_kept_off_them_at_home() -> None:
    spec = to_local_nodes(pod(spec={"tolerations": LET}), "why")["spec"]

    assert terms(spec) == [{"matchExpressions": [NOT_SUPER]}]
    assert "tolerations" not in spec


def test_going_to_a_super_node_is_one_patch_for_that_version() -> None:
    term = {"matchExpressions": [{"key": "arch", "operator": "Exists"}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, {}]}}
    }
    held = raw_pod("web-1", spec={"tolerations": [{"key": "mine"}], "affinity": affinity})
    held["metadata"]["resourceVersion"] = "7"
    patch = to_super_node(decode(raw_of(held)), "why", with_cost=True)

    assert (patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]) == ("uid-web-1", "7")
    assert patch["metadata"]["annotations"] == {
        PLACEMENT: "super",
        "drawbridge.io/placement-reason": "why",
        COST: "-100",
        OUR_COST: "-100",
    }
    assert patch["spec"]["schedulingGates"] == []
    assert patch["spec"]["tolerations"] == [{"key": "mine"}, TOLERATION]
    assert terms(patch["spec"]) == [{"matchExpressions": [*term["matchExpressions"], SUPER_ONLY]}, {}]


@pytest.mark.parametrize(
    ("annotations", "with_cost"),
    [
        pytest.param({COST: "5"}, True, id="it has one of the user's"),
        pytest.param({}, False, id="the order is left to chance"),
    ],
)
def test_no_cost_is_given_where_none_is_wanted(annotations: dict[str, str], with_cost: bool) -> None:
    patch = to_super_node(pod(annotations=annotations), "why", with_cost=with_cost)

    assert COST not in patch["metadata"]["annotations"]


def test_a_burst_is_a_toleration_and_no_more() -> None:
    patch = burst(pod(gated=False, spec={"tolerations": [{"key": "mine"}]}), "why", with_cost=False)

    assert patch["spec"] == {"tolerations": [{"key": "mine"}, TOLERATION]}


@pytest.mark.parametrize(
    ("status", "stuck"),
    [
        pytest.param({"conditions": [STUCK]}, True, id="no room"),
        pytest.param({"conditions": [{**STUCK, "reason": "SchedulingGated"}]}, False, id="gated"),
        pytest.param({"conditions": [STUCK], "nominatedNodeName": HOME}, False, id="room is being made"),
        pytest.param({"phase": "Pending"}, False, id="not looked at yet"),
    ],
)
def test_a_pod_is_stuck_when_the_scheduler_says_so(status: dict[str, Any], stuck: bool) -> None:
    raw = raw_pod("web-1", gated=False) | {"status": status}

    assert (decode(raw_of(raw)).stuck_since is not None) is stuck


def terms(spec: dict[str, Any]) -> list[dict[str, Any]]:
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found: list[dict[str, Any]] = required["nodeSelectorTerms"]
    return found
