"""DaemonSets that tolerate super nodes are kept off them by their templates, at admission and by the leader."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from controllers.elasticity.daemon_sets import (
    DAEMON_SETS,
    KEPT_OFF,
    LONGEST_ROLLOUT,
    PAUSES,
    DaemonSetCorrector,
)
from controllers.elasticity.pods import Pod, PodIndex, decode, facets
from controllers.elasticity.sources import Sources
from dev.fake_api import FakeAPI, refusal
from kube.errors import KubeError
from kube.leader_election import LeadershipLost
from kube.selectors import REQUIRED
from settings import ElasticitySettings
from tests import admission
from tests.elasticity_world import AWAY, HOME, fleet, raw_of, raw_pod
from tests.fakes import FakeClock, FakeRecorder
from tests.managed import context_of
from tests.tables import table
from webhook.admission import ReviewError
from webhook.elasticity.daemon_sets import DaemonSetWebhook

ALL = [{"operator": "Exists"}]
KEEPS_OFF = {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": ["eklet"]}
LINUX = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


OFF = required({"matchExpressions": [KEEPS_OFF]})


def daemon_set(name: str = "agent", uid: str = "", **spec: Any) -> dict[str, Any]:
    """One whose pods tolerate everything, unless *spec* says something else."""
    containers = [{"name": "agent", "image": "agent"}]
    pods = {"containers": containers, "tolerations": ALL, **spec}
    template = {"metadata": {"labels": {"app": name}}, "spec": pods}
    metadata = {"name": name, "namespace": "shop", "uid": uid or f"owner-{name}", "generation": 1}
    status = {"observedGeneration": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3}
    whole = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {"metadata": metadata, "spec": whole, "status": status}


def affinity_of(raw: dict[str, Any]) -> dict[str, Any] | None:
    found: dict[str, Any] | None = raw["spec"]["template"]["spec"].get("affinity")
    return found


# Admission


def admitted(new: dict[str, Any], old: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    """*new* as the API server has it after the answer, which is the same for what it has made."""
    parsed = ElasticitySettings.model_validate({"enabled": True, **settings})
    question = admission.asked(new, old)
    decision = DaemonSetWebhook(lambda: parsed).review(question, 0)
    assert decision.allowed
    return admission.admitted(new, question, decision)


@table(
    "spec, expected",
    {
        "tolerates everything": ({}, OFF),
        "no affinity, in words": ({"affinity": None}, OFF),
        "tolerates nothing": ({"tolerations": []}, None),
        "another taint": ({"tolerations": [{"key": "other", "operator": "Exists"}]}, None),
        "keeps off by itself": ({"affinity": OFF}, OFF),
        "beside its own affinity": (
            {"affinity": {"podAntiAffinity": {"x": 1}, **required({"matchExpressions": [LINUX]})}},
            {"podAntiAffinity": {"x": 1}, **required({"matchExpressions": [LINUX, KEEPS_OFF]})},
        ),
    },
)
def test_a_new_daemon_set(spec: dict[str, Any], expected: dict[str, Any] | None) -> None:
    once = admitted(daemon_set(**spec))

    assert affinity_of(once) == expected
    assert admitted(once) == once


def test_a_template_is_completed_when_it_changes_because_that_replaces_all_pods() -> None:
    labelled = daemon_set() | {"metadata": {"name": "agent", "labels": {"x": "1"}}}
    assert admitted(labelled, daemon_set()) == labelled
    assert affinity_of(admitted(daemon_set(priority=1), daemon_set())) == OFF

    stored = admitted(daemon_set())
    assert admitted(daemon_set(), stored) == stored, "who applies the manifest again changes nothing"


def test_switched_off_it_leaves_them_alone() -> None:
    assert affinity_of(admitted(daemon_set(), enabled=False)) is None


INJECTED = {"eks.tke.cloud.tencent.com/ds-injection": "true"}


def injected(where: str) -> dict[str, Any]:
    """As the provider documents it, in the annotations of the template; some have it among the labels."""
    raw = daemon_set()
    raw["spec"]["template"]["metadata"].setdefault(where, {}).update(INJECTED)
    return raw


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_one_that_the_provider_injects_beside_pods_of_super_nodes_keeps_its_template(where: str) -> None:
    assert admitted(injected(where)) == injected(where)
    # The control: without the mark it is kept off.
    assert affinity_of(admitted(daemon_set())) == OFF


def test_it_fails_open_and_names_what_it_cannot_read() -> None:
    assert DaemonSetWebhook(ElasticitySettings).fails_open()
    with pytest.raises(ReviewError, match="tolerations"):
        admitted(daemon_set(tolerations="all"))


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"affinity": required(*[{}] * 101)}, id="terms"),
        pytest.param({"volumes": [{}] * 25_000}, id="parts"),
    ],
)
def test_one_that_takes_too_long_to_change_is_left(spec: dict[str, Any]) -> None:
    assert admitted(daemon_set(**spec)) == daemon_set(**spec)


# The leader


class World:
    """DaemonSets of these *names* have a pod on a super node."""

    def __init__(self, *names: str) -> None:
        self.api, self.clock, self.recorder = FakeAPI(), FakeClock(0.0), FakeRecorder()
        self.pods: list[Pod] = []
        self.may_lead = True
        cache: Any = PodIndex(lambda facet: [pod for pod in self.pods if facet in facets(pod)])
        sources = Sources(cache, fleet, ElasticitySettings, lambda: None, lambda _: None)
        context = context_of(self.api.client(), self.recorder, self._check)
        self.corrector = DaemonSetCorrector(context, sources, self.clock)
        for name in names:
            self.have(daemon_set(name), AWAY)

    def _check(self) -> None:
        if not self.may_lead:
            raise LeadershipLost("another one leads")

    def have(self, raw: dict[str, Any], *nodes: str) -> None:
        """A DaemonSet that has pods on *nodes*, pending for those whose names begin with a question mark."""
        self.api.put(DAEMON_SETS, raw)
        for node in nodes:
            name = raw["metadata"]["name"]
            spec: dict[str, Any] = {"nodeName": node}
            if node.startswith("?"):
                fields = [{"key": "metadata.name", "operator": "In", "values": [node[1:]]}]
                spec = {"affinity": required({"matchFields": fields})}
            pod = raw_pod(f"{name}-{node}", name, n=None, gated=False, kind="DaemonSet", spec=spec)
            pod["metadata"]["resourceVersion"] = "1"
            self.pods.append(decode(raw_of(pod)))

    def turn(self, seconds: float = 5.0) -> None:
        self.corrector.reconcile()
        self.clock.advance(seconds)

    def sets(self) -> dict[str, dict[str, Any]]:
        return {each["metadata"]["name"]: each for each in self.api.list(DAEMON_SETS)}

    def corrected(self) -> set[str]:
        return {name for name, raw in self.sets().items() if affinity_of(raw) == OFF}

    def roll_out(self, name: str, updated: int) -> None:
        held = self.sets()[name]
        seen = {"observedGeneration": held["metadata"]["generation"], "updatedNumberScheduled": updated}
        self.api.put(DAEMON_SETS, held | {"status": held["status"] | seen})


@pytest.mark.parametrize("node", [AWAY, f"?{AWAY}"])
def test_one_with_a_pod_on_a_super_node_or_pending_for_one_is_corrected(node: str) -> None:
    world = World()
    world.have(daemon_set(), HOME, node)
    world.turn()
    world.roll_out("agent", 3)
    first = world.sets()
    world.turn(PAUSES.base)
    world.turn()

    assert world.corrected() == {"agent"}
    assert world.sets() == first
    assert first["agent"]["metadata"]["annotations"][KEPT_OFF] == "true"
    assert world.recorder.reasons == ["KeptOffSuperNodes"]


def test_a_pod_that_names_the_uid_of_one_elsewhere_keeps_it_from_no_correction() -> None:
    world = World("agent")
    raw = raw_pod(
        "copy", "agent", n=None, gated=False, kind="DaemonSet", namespace="bank", spec={"nodeName": AWAY}
    )
    world.pods.append(decode(raw_of(raw)))
    world.turn()
    world.turn()

    assert world.corrected() == {"agent"}


@pytest.mark.parametrize("nodes", [(HOME,), (f"?{HOME}",), ()])
def test_one_without_pods_there_costs_no_request(nodes: tuple[str, ...]) -> None:
    world = World()
    world.have(daemon_set(), *nodes)
    world.turn()

    assert world.corrected() == set()


@pytest.mark.parametrize(
    ("updated", "after"),
    [(3, 5.0), (1, LONGEST_ROLLOUT)],
    ids=["when the one before is rolled out", "or never is"],
)
def test_one_after_the_other_is_rolled_out(updated: int, after: float) -> None:
    world = World("a", "b")
    world.turn()
    world.roll_out("a", 1)
    world.turn(after)
    assert world.corrected() == {"a"}
    world.roll_out("a", updated)
    world.turn()

    assert world.corrected() == {"a", "b"}


def test_a_rollout_that_cannot_be_read_for_a_moment_has_not_ended() -> None:
    world = World("a", "b")
    world.turn()
    world.roll_out("a", 1)
    world.api.fault = lambda asked: refusal(503, "ServiceUnavailable")
    with contextlib.suppress(KubeError):
        world.turn()
    world.api.fault = lambda asked: None
    world.clock.advance(PAUSES.base)
    world.turn()

    assert world.corrected() == {"a"}


def test_a_correction_that_is_taken_back_is_not_repeated() -> None:
    world = World("agent")
    world.turn()
    held = world.sets()["agent"]
    world.api.put(DAEMON_SETS, held | {"spec": daemon_set()["spec"]})
    world.roll_out("agent", 3)
    for _ in range(5):
        world.turn(PAUSES.cap)

    assert world.corrected() == set()
    assert world.recorder.reasons == ["KeptOffSuperNodes", "DaemonSetOnSuperNodes"]


def test_a_refusal_is_said_and_holds_up_no_other() -> None:
    world = World("a", "b")
    world.api.fault = lambda asked: (
        refusal(403, "Forbidden", "a policy")
        if asked.method == "PATCH" and asked.path.endswith("/a")
        else None
    )
    world.turn()
    for _ in range(100):
        world.turn()

    assert world.corrected() == {"b"}
    assert sum(asked.method == "PATCH" and asked.path.endswith("/a") for asked in world.api.calls) <= 4
    assert world.recorder.reasons == ["DaemonSetOnSuperNodes", "KeptOffSuperNodes"]


def test_a_daemon_set_of_the_same_name_that_is_another_one_is_left_alone() -> None:
    world = World("agent")
    world.api.remove(DAEMON_SETS, "agent", "shop")
    world.api.put(DAEMON_SETS, daemon_set(uid="another"))
    world.turn()

    assert world.corrected() == set()


def test_nothing_is_written_without_the_lead() -> None:
    world = World("agent")
    world.may_lead = False
    with pytest.raises(LeadershipLost):
        world.turn()

    assert world.corrected() == set()
