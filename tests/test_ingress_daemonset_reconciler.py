"""What is written for an IngressDaemonSet, whatever the API server answers, and however late."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from api.health_checks import SCHEDULED
from api.ingress_daemonset import NODE_LABEL, REVISION_OF, TEMPLATE_HASH
from api.ingress_daemonset.status import NodeFailure
from api.ingress_daemonset.template import EXCLUDED
from controllers.ingress_daemonset.children import Kind
from controllers.ingress_daemonset.controller import STATUS_PERIOD
from controllers.ingress_daemonset.health_checks import FOR
from controllers.ingress_daemonset.object_cache import UNLABELLED_PERIOD
from controllers.ingress_daemonset.pacing import MOST_FAILURES
from controllers.ingress_daemonset.writer import LONGEST_REFUSAL
from kube.errors import KubeError
from kube.leader_election import LeadershipLost
from kube.types import INSTANCE_TYPE, SUPER_NODE
from settings.ingress_daemonset import HealthChecker
from tests.factories import NOW
from tests.ingress_daemonset_leader import DETACHING, KEY, Api, Leader, outdated, settled, with_nodes
from tests.ingress_daemonset_world import DETACHED, raw_node


def deployments(api: Api) -> set[str]:
    return {key for kind, key in api.objects if kind == "Deployment"}


def add_dns(api: Api) -> None:
    """Another IngressDaemonSet on the same nodes."""
    other: Any = {**api.objects["IngressDaemonSet", KEY]}
    other["metadata"] = {**other["metadata"], "name": "dns", "uid": "uid-dns"}
    api.put("IngressDaemonSet", other)
    api.deliver()


def test_a_grace_counts_from_when_the_annotation_surely_stood_there() -> None:
    here = outdated("n1", rolling=DETACHING)
    here.api.fault = lambda verb, kind, name: "timed out" if kind == "Node" else ""
    here.look()
    here.clock.advance(60)
    here.api.fault = lambda verb, kind, name: ""
    heard = here.clock()
    here.settle(until=lambda: here.images() == {"proxy:2"})

    assert here.clock() - heard >= 10


def test_a_node_whose_template_is_refused_is_attached_at_the_deadline_and_the_object_says_so() -> None:
    here = outdated("n1", "n2", rolling=DETACHING, progressDeadlineSeconds=60)
    here.api.refused = "proxy:2"
    here.looks(1)
    here.run_pods()
    here.api.deliver()
    here.looks(68)
    assert here.off() == {"n1"}
    here.looks(3)
    assert here.off() == set()
    here.looks(600)
    assert here.off() == set()

    found = {kind: (each["status"], each["reason"]) for kind, each in here.conditions().items()}
    assert (found["Progressing"], found["Degraded"]) == (("False", "Halted"), ("True", "RolloutStuck"))
    said = "proxy:2 is not allowed (403 Forbidden), for progressDeadlineSeconds"
    assert said in here.conditions()["Progressing"]["message"]
    assert {"FailedUpdate", "RolloutHalted"} <= {*here.recorder.reasons}

    here.api.refused = None
    for paused in (True, False):
        here.api.change("IngressDaemonSet", KEY, {"spec": {"paused": paused}})
        here.settle()
    assert here.images() == {"proxy:2"}


def test_a_refused_finalizer_begins_nothing_and_the_status_says_so() -> None:
    here = outdated("n1", rolling=DETACHING)
    here.api.change("IngressDaemonSet", KEY, {"metadata": {"finalizers": []}})
    here.api.refused = "finalizers"
    here.looks(10)

    progressing = here.conditions()["Progressing"]
    assert (here.off(), progressing["reason"]) == (set(), "WaitingForNodes")
    assert "refuses to change IngressDaemonSet web: finalizers is not allowed" in progressing["message"]


def test_a_write_that_waited_for_others_is_late() -> None:
    here = outdated("n1", rolling=DETACHING)

    def slow(verb: str, kind: str, name: str) -> str:
        here.clock.advance(3)
        return ""

    here.api.fault = slow
    here.look()
    here.api.fault = lambda verb, kind, name: ""
    annotated = here.clock()
    here.settle(until=lambda: here.images() == {"proxy:2"})

    assert here.clock() - annotated >= 7


def test_the_step_of_a_node_ends_where_its_first_write_fails() -> None:
    here = outdated("n1", rolling=DETACHING)
    here.api.fault = lambda verb, kind, name: "forbidden" if kind == "Deployment" else ""
    here.look()

    assert here.off() == set()
    assert "change Deployment web-n1" in dict(here.recorder.events)["FailedUpdate"]


def test_a_refused_write_is_retried_with_back_off_and_blocks_no_other() -> None:
    here = Leader(with_nodes("n1", "n2"))
    tries: list[float] = []

    def refuse(verb: str, kind: str, name: str) -> str:
        if (verb, name) == ("create", "web-n1"):
            tries.append(here.clock())
            return "forbidden"
        return ""

    here.api.fault = refuse
    for _ in range(100):
        here.look()
        here.clock.advance(0.5)

    assert deployments(here.api) == {"edge/web-n2"}
    assert 4 <= len(tries) <= 12
    assert "FailedCreate" in here.recorder.reasons


def test_writes_that_hang_hold_up_no_other_ingress_daemonset() -> None:
    here = Leader(with_nodes(*(f"n{n}" for n in range(100))))
    tries: list[str] = []

    def hang(verb: str, kind: str, name: str) -> str:
        if kind != "Deployment":
            return ""
        tries.append(name)
        here.clock.advance(10)
        return "timed out"

    here.api.fault = hang
    for _ in range(20):
        began = here.clock()
        here.look()
        assert here.clock() - began <= 20
    assert len({*tries}) > 5
    tries.clear()
    assert here.reconciler.reconcile("other/dns") is None

    assert tries == []
    here.api.fault = lambda verb, kind, name: ""
    here.settle()
    assert len(deployments(here.api)) == 100


def refusing(*names: str) -> Callable[[str, str, str], str]:
    return lambda verb, kind, name: "forbidden" if verb != "status" and name in names else ""


def test_what_was_refused_and_is_wanted_no_more_leads_to_no_look() -> None:
    here = settled("n1", "n2")
    here.api.put("Node", raw_node("n3"))
    here.api.deliver()
    here.api.fault = refusing("web-n3")
    assert 5 <= here.looks(600) <= 100
    here.api.remove("Node", "n3")
    here.api.deliver()

    here.looks(10)
    assert here.looks(600) <= 1
    assert here.looks(600) <= 1


def test_what_was_refused_to_one_that_is_gone_leads_no_other_to_look() -> None:
    api = with_nodes("n1", "n2")
    here = Leader(api)
    here.settle()
    add_dns(api)
    here.api.fault = refusing("dns-n1", "dns-n2")
    here.looks(60, KEY, "edge/dns")
    api.remove("IngressDaemonSet", "edge/dns")
    api.deliver()

    assert here.looks(600, KEY, "edge/dns") == 2
    assert here.looks(600, KEY) == 1


@pytest.mark.parametrize("fault", ["forbidden", "not found", "garbled", "lost"])
def test_no_look_comes_sooner_than_the_pace(fault: str) -> None:
    here = outdated("n1", "n2", rolling=DETACHING)
    here.api.fault = lambda verb, kind, name: fault if verb != "status" else ""
    for _ in range(200):
        due = here.look()
        assert due is None or due >= here.reconciler.pace(KEY) > 0
        here.clock.advance(0.05 if due is None else due)
    assert here.looks(600) <= 200


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "RoleBinding"])
def test_a_change_that_an_admission_policy_undoes_is_repeated_less_and_less_often(kind: str) -> None:
    here = settled("n1", healthCheckNodePorts=[10080])
    name = {"Deployment": "web-n1", "DaemonSet": "web-10080", "RoleBinding": "web-health-checker"}[kind]
    change: Any = {"metadata": {"labels": {"app": "mine"}}, "subjects": [{"kind": "User", "name": "x"}]}
    if kind == "DaemonSet":
        change = {"metadata": {"annotations": {TEMPLATE_HASH: "another"}}}
    here.api.edit(kind, f"edge/{name}", change)  # type: ignore[arg-type]
    here.api.deliver()
    frozen = copy.deepcopy(here.api.objects[kind, f"edge/{name}"])  # type: ignore[index]

    def undo(written: str, raw: Any) -> None:
        if (written, raw["metadata"]["name"]) == (kind, name):
            raw |= {part: copy.deepcopy(value) for part, value in frozen.items() if part != "metadata"}
            raw["metadata"] = copy.deepcopy(frozen["metadata"])

    here.api.mutate = undo  # type: ignore[assignment]
    before = len(here.api.writes)
    assert here.looks(600) <= 100

    written = [each for each in here.api.writes[before:] if each.startswith(f"change {kind}")]
    assert 4 <= len(written) <= 40
    assert "stores it unchanged" in dict(here.recorder.events)["FailedUpdate"]


@pytest.mark.parametrize(
    ("kind", "lost"), [("Node", EXCLUDED), ("Node", DETACHED), ("Deployment", SCHEDULED)]
)
def test_a_mark_that_an_admission_policy_removes_is_written_less_and_less_often(kind: str, lost: str) -> None:
    """Though the rest of the write, with the time of now, is stored each time."""
    here = outdated("n1", rolling=DETACHING | {"labelNodeToDetach": True})

    def strip(written: str, raw: Any) -> None:
        for part in ("labels", "annotations") if written == kind else ():
            (raw["metadata"].get(part) or {}).pop(lost, None)

    here.api.mutate = strip  # type: ignore[assignment]
    assert here.looks(120) <= 200

    assert "stores it unchanged" in dict(here.recorder.events)["FailedUpdate"]
    progressing = here.conditions()["Progressing"]
    assert progressing["reason"] == "WaitingForNodes"
    assert "an admission policy undoes it" in progressing["message"]


def test_a_namespace_that_is_gone_is_not_asked_for_again_and_again() -> None:
    here = Leader(with_nodes("n1"))
    here.api.fault = lambda verb, kind, name: "not found" if (verb, kind) == ("create", "Deployment") else ""
    assert here.look() is not None
    assert "FailedCreate" not in here.recorder.reasons

    for _ in range(4):
        here.clock.advance(30)
        here.look()
    assert "FailedCreate" in here.recorder.reasons


@pytest.mark.parametrize("kind", ["Deployment", "RoleBinding"])
def test_what_a_finalizer_holds_is_deleted_once_and_not_created_before_it_is_gone(kind: Kind) -> None:
    here, key = settled("n1", healthCheckNodePorts=[10080]), "edge/web-n1"
    if kind == "Deployment":
        here.api.edit("Node", "n1", {"metadata": {"labels": {INSTANCE_TYPE: SUPER_NODE}}})
    else:
        key, other = "edge/web-health-checker", HealthChecker(image="drawbridge:1", cluster_role="other")
        here.settings = here.settings.model_copy(update={"health_checker": other})
    here.api.change(kind, key, {"metadata": {"finalizers": ["example.com/other"]}})
    asked = list[tuple[str, Kind]]()
    with here.fault(lambda verb, kind, name: asked.append((verb, kind)) or ""):  # type: ignore[func-returns-value]
        here.looks(60)
        here.api.change("Node", "n1", {"metadata": {"labels": {INSTANCE_TYPE: None}}})
        here.looks(60)
    assert [verb for verb, of in asked if of == kind and verb in ("create", "delete")] == ["delete"]

    here.api.remove(kind, key)
    here.settle()
    assert "deletionTimestamp" not in here.api.objects[kind, key]["metadata"]


def test_an_object_that_has_changed_meanwhile_is_read_and_planned_again() -> None:
    here = outdated("n1", rolling=DETACHING)
    here.api.edit("Node", "n1", {"metadata": {"labels": {"new": "label"}}})  # not delivered
    here.look()
    assert DETACHED not in here.api.objects["Node", "n1"]["metadata"]["annotations"]
    here.look()

    assert DETACHED in here.api.objects["Node", "n1"]["metadata"]["annotations"]
    assert here.api.objects["Node", "n1"]["metadata"]["labels"] == {"new": "label"}


def test_an_unmanaged_object_is_left_alone_and_read_again_until_it_is_gone() -> None:
    api = with_nodes("n1", "n2")
    unmanaged = {"metadata": {"name": "web-n1", "namespace": "edge"}, "spec": {"replicas": 1}}
    api.put("Deployment", unmanaged)
    here = Leader(api)
    for _ in range(4):
        here.look()
        api.deliver()
    assert "labels" not in api.objects["Deployment", "edge/web-n1"]["metadata"]
    assert deployments(api) == {"edge/web-n1", "edge/web-n2"}
    here.clock.advance(STATUS_PERIOD)
    here.look()
    assert "ForeignDeployment" in here.recorder.reasons

    api.remove("Deployment", "edge/web-n1")
    api.deliver()
    here.clock.advance(UNLABELLED_PERIOD)
    here.look()
    assert "ingress-daemon-for-node" in api.objects["Deployment", "edge/web-n1"]["metadata"]["labels"]


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("Deployment", {"app": "web", NODE_LABEL: "n1"}),
        ("DaemonSet", {FOR: "web-10080"}),
        ("RoleBinding", {FOR: "web-health-checker"}),
        ("ControllerRevision", {REVISION_OF: "web"}),
    ],
)
def test_what_lost_its_labels_by_hand_gets_them_again_so_that_another_leader_finds_it(
    kind: Kind, labels: dict[str, str]
) -> None:
    here = settled("n1", healthCheckNodePorts=[10080])
    [key] = [key for of, key in here.api.objects if of == kind]
    here.api.change(kind, key, {"metadata": {"labels": dict.fromkeys(labels) | {"mine": "too"}}})
    here.steps(20)
    assert here.api.objects[kind, key]["metadata"]["labels"] == labels | {"mine": "too"}

    other = Leader(here.api, here)
    here.api.change("IngressDaemonSet", KEY, {"spec": {"healthCheckNodePorts": []}})
    other.steps(20)
    assert ((kind, key) in here.api.objects) == (kind in ("Deployment", "ControllerRevision"))


def test_an_unmanaged_object_that_cannot_be_read_blocks_nothing() -> None:
    api = with_nodes("n1", "n2")
    api.put("Deployment", {"metadata": {"name": "web-n1", "namespace": "edge"}})
    here = Leader(api)
    here.look()
    api.fault = lambda verb, kind, name: "timed out" if verb == "get" else ""
    api.put("Node", {**api.objects["Node", "n2"], "metadata": {"name": "n3", "labels": {}}})
    api.deliver()
    here.clock.advance(UNLABELLED_PERIOD)
    due = here.look()

    assert "edge/web-n3" in deployments(api)
    assert due is not None
    assert due > 0


def test_a_status_is_written_at_most_once_a_second() -> None:
    here = Leader(with_nodes("n1", rolling=DETACHING))
    for _ in range(5):
        due = here.look()
        here.api.deliver()
    assert due
    assert due <= STATUS_PERIOD, "what is left is written soon"
    assert [each for each in here.api.writes if "status" in each] == ["status IngressDaemonSet web"]

    here.clock.advance(STATUS_PERIOD)
    here.look()
    assert [each for each in here.api.writes if "status" in each] == ["status IngressDaemonSet web"] * 2


def test_an_owner_whose_name_no_object_can_have_is_looked_at_once() -> None:
    """A Deployment can name any, also one with a slash: it would fail for good, as often as there are such names."""
    assert Leader(with_nodes("n1")).reconciler.reconcile("edge/web/scale") is None


def test_a_leader_that_may_not_write_ends_and_takes_no_write_for_one_of_unknown_outcome() -> None:
    here = outdated("n1", rolling=DETACHING)
    here.leads = False
    with pytest.raises(LeadershipLost):
        here.look()

    here.leads = True
    here.look()
    assert here.off() == {"n1"}


def test_a_status_that_cannot_be_written_is_an_error_for_the_queue() -> None:
    here = Leader(with_nodes("n1"))
    here.api.fault = lambda verb, kind, name: "timed out" if verb == "status" else ""
    with pytest.raises(KubeError):
        here.look()
    assert deployments(here.api) == {"edge/web-n1"}
    assert here.recorder.reasons == []


def test_budgets_are_kept_among_those_that_share_nodes() -> None:
    api = with_nodes("n1", "n2", "n3", rolling=DETACHING)
    here = Leader(api)
    add_dns(api)
    for key in (KEY, "edge/dns"):
        for _ in range(3):
            here.reconciler.reconcile(key)
    here.run_pods()
    api.deliver()
    for name in ("web", "dns"):
        here.retemplate("proxy:2", f"edge/{name}")
    for key in (KEY, "edge/dns"):
        here.reconciler.reconcile(key)

    assert here.off() == {"n1"}


def test_pods_are_replaced_when_their_health_checker_has_confirmed_and_an_event_says_when_it_does_not() -> (
    None
):
    rolling = {"maxUnavailableNodes": 1, "annotateDeploymentToDetach": {"gracePeriodSeconds": 5}}
    here = settled("n1", healthCheckNodePorts=[10080], rolling=rolling)
    here.unread = {"n1"}
    here.retemplate("proxy:2")
    here.settle(until=lambda: here.clock() - here.began > 100)
    assert here.images() == {"proxy:1"}
    [said] = [message for reason, message in here.recorder.events if reason == "DetachmentUnconfirmed"]
    assert "10080 cannot be read: connection refused" in said

    here.unread = set()
    here.settle()
    assert here.images() == {"proxy:2"}


def in_turns(here: Leader, times: int) -> None:
    """Two that share their nodes."""
    for _ in range(times):
        for key in (KEY, "edge/dns"):
            here.reconciler.reconcile(key)
            here.run_pods()
            here.api.deliver()
            here.clock.advance(0.7)


def test_what_is_refused_to_another_ingress_daemonset_halts_nothing() -> None:
    here = Leader(with_nodes("n1", "n2", rolling=DETACHING, progressDeadlineSeconds=60))
    add_dns(here.api)
    canary = {"maxUnavailableNodes": 0, "canary": {"nodeSelector": {"canary": "yes"}}}
    strategy = {"updateStrategy": {"rollingUpdate": canary | {"annotateNodeToDetach": None}}}
    here.api.change("IngressDaemonSet", "edge/dns", {"spec": strategy})
    here.api.change("Node", "n2", {"metadata": {"labels": {"canary": "yes"}}})
    in_turns(here, 5)
    here.api.fault = refusing("n1")
    here.retemplate("proxy:2")
    in_turns(here, 3)
    here.retemplate("proxy:3", "edge/dns")
    in_turns(here, 100)

    status = here.api.objects["IngressDaemonSet", "edge/dns"]["status"]
    assert {each["reason"] for each in status["conditions"]} >= {"CanaryPaused", "AsDesired"}
    assert "Halted" in {each["reason"] for each in here.conditions().values()}


def test_one_refusal_before_a_long_grace_halts_nothing() -> None:
    annotation = {"annotateDeploymentToDetach": {"gracePeriodSeconds": 300}}
    rolling = {"maxUnavailableNodes": 1, **annotation}
    here = outdated("n1", rolling=rolling, progressDeadlineSeconds=60)
    with here.fault(refusing("web-n1")):
        here.looks(5)
    assert {*here.status["failures"]["nodes"]} == {"n1"}
    here.settle()

    assert here.images() == {"proxy:2"}
    assert "RolloutHalted" not in here.recorder.reasons


def test_a_status_has_no_more_failing_nodes_than_can_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = NodeFailure("x" * 2 * LONGEST_REFUSAL, NOW, None, 600)
    assert MOST_FAILURES * len(msgspec.json.encode({"n" * 253: longest})) < 1 << 19
    monkeypatch.setattr("controllers.ingress_daemonset.pacing.MOST_FAILURES", 2)
    nodes = [f"n{n}" for n in range(5)]
    here = outdated(*nodes, rolling={**DETACHING, "maxUnavailableNodes": 5}, progressDeadlineSeconds=60)
    with here.fault(refusing("web-n3", "web-n4")):
        here.looks(5)
    with here.fault(refusing(*(f"web-{each}" for each in nodes))):
        here.looks(60)

    assert {*here.status["failures"]["nodes"]} == {"n3", "n4"}
    assert "RolloutHalted" in here.recorder.reasons
