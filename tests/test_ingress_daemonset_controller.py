"""Which change leads to a look at which IngressDaemonSets, and that nothing begins without the kind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY

from api.health_checks import SCHEDULED
from api.ingress_daemonset import DETACHED_BY, KIND, NODE_LABEL
from api.ingress_daemonset.status import RolloutStatus, Status
from controllers.ingress_daemonset import weights
from controllers.ingress_daemonset.children import Target
from controllers.ingress_daemonset.controller import (
    NotServed,
    enqueue_all,
    enqueue_changes,
    require_served,
)
from controllers.ingress_daemonset.object_cache import ObjectCache
from controllers.ingress_daemonset.planner import Plan
from controllers.ingress_daemonset.reporter import Reporter, news
from controllers.ingress_daemonset.status import Unconfirmed
from controllers.workqueue import WorkQueue
from dev.fake_api import FakeAPI, refusal
from dev.fake_api.kinds import BUILT_IN
from kube.errors import ServerError
from kube.types import Condition
from tests.factories import BEYOND_ALL_TIMES, NOW
from tests.fakes import FakeClock, FakeRecorder
from tests.ingress_daemonset_leader import Api, with_nodes
from tests.ingress_daemonset_world import UID, World, raw_resource, resource
from tests.tables import table

MARK = '{"at":"2026-01-02T03:04:05Z"}'


class Listening:
    def __init__(self, api: Api) -> None:
        self.api, self.clock = api, FakeClock()
        self.queue = WorkQueue("test", clock=self.clock)
        enqueue_changes(ObjectCache(api, api.informers), self.queue, lambda key: 0.5)
        self.keys()

    def keys(self) -> set[str]:
        """Those that are to be looked at by now."""
        self.api.deliver()
        self.clock.advance(0.5)
        found = set()
        while key := self.queue.get(wait=False):
            found.add(key)
            self.queue.done(key)
        return found


def owned(name: str = "web-n1", **owner: Any) -> dict[str, Any]:
    reference = {"kind": KIND, "name": "web", "uid": UID, "controller": True} | owner
    metadata = {"name": name, "namespace": "edge", "labels": {NODE_LABEL: "n1"}}
    return {"metadata": {**metadata, "ownerReferences": [reference]}}


def test_all_are_looked_at_when_a_node_changes_in_what_matters() -> None:
    here = Listening(with_nodes("n1"))
    for change in (
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
        {"spec": {"unschedulable": True}},
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}},
    ):
        here.api.edit("Node", "n1", change)
        assert here.keys() == {"edge/web"}

    here.api.remove("Node", "n1")
    assert here.keys() == {"edge/web"}


@table(
    "spec, change, concerned",
    {
        "of others": ({}, {"metadata": {"annotations": {"a": "b"}}}, False),
        "that comes to match": ({}, {"metadata": {"labels": {"pool": "edge"}}}, True),
        "that is marked": ({}, {"metadata": {"annotations": {DETACHED_BY: f'{{"{UID}": {MARK}}}'}}}, True),
        "that others have marked": ({}, {"metadata": {"annotations": {DETACHED_BY: f'{{"x": {MARK}}}'}}}, False),
        "where it has pods": ({"deployed": True}, {"metadata": {"annotations": {"a": "b"}}}, True),
        "while the former template is wanted": ({"returns": True}, {"metadata": {"annotations": {"a": "b"}}}, True),
    },
)  # fmt: skip
@pytest.mark.parametrize("selector", ["spec", "template"])
def test_a_node_leads_to_those_whose_pods_may_run_there(
    selector: str, spec: dict[str, bool], change: dict[str, Any], concerned: bool
) -> None:
    pool: dict[str, Any] = {"nodeSelector": {"pool": "edge"}}
    api = with_nodes("n1", **pool) if selector == "spec" else with_nodes("n1", pod=pool)
    if spec.get("deployed"):
        api.put("Deployment", owned())
    if spec.get("returns"):
        api.edit(
            "IngressDaemonSet", "edge/web", {"status": {"rollback": {"revision": "2", "toRevision": "1"}}}
        )
    api.deliver()
    here = Listening(api)
    api.edit("Node", "n1", change)
    assert here.keys() == ({"edge/web"} if concerned else set())

    api.edit(
        "Node", "n1", {"metadata": {"labels": {"pool": None}, "annotations": {DETACHED_BY: None, "a": None}}}
    )
    assert here.keys() == ({"edge/web"} if concerned else set())


def test_what_is_known_at_the_start_is_queued_once_and_not_for_each_node() -> None:
    api, queued = with_nodes(*(f"n{number}" for number in range(50))), list[str]()

    def pace(key: str) -> float:
        queued.append(key)
        return 0.5

    enqueue_changes(ObjectCache(api, api.informers), WorkQueue("test", clock=FakeClock()), pace)
    assert queued == ["edge/web"]


def test_a_resync_queues_one_after_the_other() -> None:
    api, clock = with_nodes("n1"), FakeClock()
    for number in range(9):
        raw: Any = api.objects["IngressDaemonSet", "edge/web"]
        api.put("IngressDaemonSet", {**raw, "metadata": {**raw["metadata"], "name": f"web-{number}"}})
    api.deliver()
    queue = WorkQueue("test", clock=clock)
    enqueue_all(ObjectCache(api, api.informers), queue, 100)

    due = [len([*iter(lambda: queue.get(wait=False), None)])]
    for _ in range(9):
        clock.advance(10)
        due.append(len([*iter(lambda: queue.get(wait=False), None)]))
    assert due == [1] * 10


def test_what_kubelets_report_all_the_time_leads_to_nothing() -> None:
    here = Listening(with_nodes("n1"))
    beat = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-02T03:04:05Z"}]}
    here.api.edit("Node", "n1", {"status": beat})
    assert here.keys() == set()


def test_a_workload_leads_to_its_own_owner() -> None:
    here = Listening(with_nodes("n1"))
    here.api.put("Deployment", owned())
    assert here.keys() == {"edge/web"}
    here.api.remove("Deployment", "edge/web-n1")
    assert here.keys() == {"edge/web"}
    here.api.put("Deployment", owned(kind="Rollout"))
    here.api.put("Deployment", owned("x", controller=False))
    assert here.keys() == set()


def test_a_mark_of_our_own_queues_its_load_balancers_though_no_watch_brings_it() -> None:
    api = with_nodes("n1", rolling={"setWeightToDetach": {"loadBalancers": ["lb-1"]}})
    api.put("Deployment", owned())
    api.deliver()
    cache, queued = ObjectCache(api, api.informers), list[str]()
    weights.enqueue_changes(cache, queued.append)
    queued.clear()
    marked = Target("Deployment", "edge", "web-n1")
    mark = {SCHEDULED: '{"at":"2026-01-02T03:04:05Z"}'}
    held = api.objects["Deployment", marked.key]
    api.put("Deployment", held | {"metadata": held["metadata"] | {"annotations": mark}})

    cache.read(marked)  # as when the answer to our write was lost
    assert queued == ["lb-1"]

    api.remove("Deployment", marked.key)
    cache.read(marked)
    assert queued == ["lb-1", "lb-1"]


def test_a_node_with_times_beyond_all_years_is_known_from_the_answer_to_a_write() -> None:
    """Else the outcome of the write would be unknown for good, and the node count as detached."""
    api, node = with_nodes("n1"), Target("Node", "", "n1")
    api.put("Node", api.objects["Node", "n1"] | {"status": {"conditions": BEYOND_ALL_TIMES}})
    cache = ObjectCache(api, api.informers)

    cache.read(node)
    assert len(cache.get(node).status.conditions) == 3  # type: ignore[union-attr]


def test_it_waits_for_its_kind() -> None:
    with pytest.raises(NotServed):
        require_served(FakeAPI(*BUILT_IN).client())
    api = FakeAPI()
    assert require_served(api.client())
    api.fault = lambda _: refusal(503, "ServiceUnavailable", "down")
    with pytest.raises(ServerError):
        require_served(api.client())


WEB = {"namespace": "edge", "name": "web"}
UPDATES = {"rollout": RolloutStatus()}


def status(progressing: str, degraded: str = "AsDesired", **parts: Any) -> Status:
    said = {"Progressing": progressing, "Degraded": degraded}
    conditions = [Condition(kind, "", reason, f"it is {reason}") for kind, reason in said.items()]
    return msgspec.structs.replace(Status(conditions=tuple(conditions)), **parts)


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        (Status(), status("RollingOut", **UPDATES), [("RolloutStarted", "Normal")]),
        (Status(), status("Complete"), []),
        (status("Complete"), status("RollingOut", **UPDATES), [("RolloutStarted", "Normal")]),
        (status("Complete"), status("RollingOut"), []),
        (status("RollingOut"), status("RollingOut", **UPDATES), [("RolloutStarted", "Normal")]),
        (status("RollingOut", **UPDATES), status("RollingOut"), [("RolloutComplete", "Normal")]),
        (status("RollingOut"), status("WaitingForDetachment"), []),
        (status("WaitingForDetachment"), status("RollingOut"), []),
        (status("RollingOut", **UPDATES), status("Complete"), [("RolloutComplete", "Normal")]),
        (status("RollingOut"), status("Complete"), []),
        (status("Halted"), status("Complete"), [("RolloutComplete", "Normal")]),
        (status("RollingOut"), status("Paused"), [("RolloutPaused", "Normal")]),
        (status("Paused"), status("RollingOut", **UPDATES), [("RolloutStarted", "Normal")]),
        (status("RollingOut"), status("Halted"), [("RolloutHalted", "Warning")]),
        (status("Halted"), status("Halted"), []),
        (status("Complete"), status("Complete", "PodsUnavailable"), [("PodsUnavailable", "Warning")]),
        (status("Halted"), status("Halted", "RolloutStuck"), []),
        (status("Complete", "PodsUnavailable"), status("Complete"), []),
    ],
)
def test_the_turns_of_a_rollout_are_reported(
    old: Status, new: Status, reported: list[tuple[str, str]]
) -> None:
    assert [(reason, type_) for reason, _, type_ in news(old, new)] == reported


def test_its_counts_are_shown_until_it_is_gone() -> None:
    reporter = Reporter(FakeRecorder())  # type: ignore[arg-type]
    said = status("Halted", desired_nodes=3, updated_nodes=2, ready_nodes=1, detached_nodes=1)
    waiting = (Unconfirmed("n1", NOW, "it waits"),)
    reporter.measure(resource(), Plan(status=said, unconfirmed=waiting))

    def shown(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(f"drawbridge_ingress_daemonset_{name}", WEB | labels)

    states = ("desired", "updated", "ready", "detached", "degraded")
    assert [shown("nodes", state=state) for state in states] == [3, 2, 1, 1, 0]
    assert (shown("halted"), shown("unconfirmed")) == (1, 1)

    reporter.measure(resource(), Plan(status=status("RollingOut")))
    assert (shown("halted"), shown("unconfirmed")) == (0, 0)

    reporter.forget("edge/web")
    reporter.forget("edge/web")
    assert (shown("halted"), shown("nodes", state="ready")) == (None, None)


def test_an_unconfirmed_detachment_has_one_event_and_another_one_has_its_own() -> None:
    recorder = FakeRecorder()
    reporter = Reporter(recorder)  # type: ignore[arg-type]
    first = Unconfirmed("n1", NOW, "it is not confirmed")
    later = Unconfirmed("n1", NOW + timedelta(hours=1), "it is not confirmed")

    assert reporter.remind(resource().metadata, (first,), 600, NOW) == 600
    assert reporter.remind(resource().metadata, (first,), 600, NOW + timedelta(seconds=600)) is None
    assert reporter.remind(resource().metadata, (first,), 600, NOW + timedelta(seconds=900)) is None
    assert recorder.reasons == ["DetachmentUnconfirmed"]

    assert reporter.remind(resource().metadata, (later,), 600, later.since + timedelta(seconds=590)) == 10
    reporter.remind(resource().metadata, (later,), 600, later.since + timedelta(seconds=600))
    assert recorder.reasons == ["DetachmentUnconfirmed"] * 2


def test_what_was_said_of_a_node_is_forgotten_when_it_has_left() -> None:
    """Autoscalers make new names all the time."""
    recorder, owner = FakeRecorder(), resource()
    reporter, first = Reporter(recorder), Unconfirmed("n1", NOW, "because")  # type: ignore[arg-type]
    nodes = World(raw_resource(), "n1").plan().rollouts

    def events(planned: Plan) -> int:
        """After one more reminder."""
        reporter.measure(owner, planned)
        reporter.remind(owner.metadata, (first,), 600, NOW + timedelta(seconds=600))
        return len(recorder.reasons)

    assert events(Plan(rollouts=nodes)) == 1
    assert events(Plan(rollouts=nodes)) == 1
    assert events(Plan(unconfirmed=(first,))) == 1, "it leaves"
    assert events(Plan()) == 2
