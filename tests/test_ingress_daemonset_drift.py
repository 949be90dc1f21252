"""What the API server answers to our write is the baseline; what another writer changes later is restored."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from api.ingress_daemonset import APPLIED_TEMPLATE, NODE_LABEL, TEMPLATE_HASH
from controllers.ingress_daemonset.children import shared_digest
from controllers.ingress_daemonset.drift import (
    Alteration,
    Baseline,
    Drift,
    Managed,
    alteration,
    annotations_of,
    drift_of,
)
from tests.factories import DEEP
from tests.ingress_daemonset_leader import DETACHING, KEY, UNKNOWN, Api, Leader, default, with_nodes
from tests.ingress_daemonset_world import workload
from tests.tables import table

Raw = dict[str, Any]
FLEET = tuple(f"n{number}" for number in range(1, 6))
DEPLOYMENTS = {f"edge/web-{name}" for name in FLEET}
CHECKER = "edge/web-10080"


def pod_of(api: Api, key: str) -> Raw:
    found: Raw = api.objects["Deployment", key]["spec"]["template"]["spec"]
    return found


def quiet(here: Leader, seconds: float = 3600) -> list[str]:
    """What is written while nothing happens; each look is at a time at which one is due, or a minute later."""
    before, until = len(here.api.writes), here.clock() + seconds
    while here.clock() < until:
        due = here.look()
        here.api.deliver()
        here.clock.advance(60 if due is None else max(due, 0.02))
    return here.api.writes[before:]


# Policies that mutate at admission


def add_sidecar(spec: Raw) -> None:
    if all(each["name"] != "sidecar" for each in spec["containers"]):
        spec["containers"].append({"name": "sidecar", "image": "mesh:1"})


def add_env(spec: Raw) -> None:
    for each in spec["containers"]:
        if not each.get("env"):
            each["env"] = [{"name": "CLUSTER", "value": "edge"}]


def use_mirror(spec: Raw) -> None:
    for each in spec["containers"]:
        each["image"] = "mirror.local/" + each["image"].removeprefix("mirror.local/")


def name_node(spec: Raw) -> None:
    """What differs from node to node."""
    spec["containers"][0]["workingDir"] = f"/{spec.get('nodeName', '')}"


POLICIES = (add_sidecar, add_env, use_mirror)


def policy(*changes: Callable[[Raw], None]) -> Callable[[str, Raw], None]:
    def mutate(kind: str, raw: Raw) -> None:
        if kind in ("Deployment", "DaemonSet") and "template" in raw.get("spec", {}):
            for each in changes:
                each(raw["spec"]["template"]["spec"])

    return mutate


NO_POLICY = policy()


def fleet(mutate: Callable[[str, Raw], None] = NO_POLICY, pod: Raw | None = None) -> Leader:
    api = with_nodes(*FLEET, rolling=DETACHING, healthCheckNodePorts=[10080], pod=pod)
    api.mutate = mutate  # type: ignore[assignment]
    here = Leader(api)
    here.settle()
    return here


def watch_for_detachments(here: Leader) -> set[str]:
    """The nodes that are off at any write from now on."""
    seen: set[str] = set()

    def look(verb: str, kind: str, name: str) -> str:
        seen.update(here.off())
        return ""

    here.api.fault = look  # type: ignore[assignment]
    return seen


@table("mutate", {name_node.__name__: policy(name_node), "all": policy(*POLICIES)})
def test_what_a_policy_adds_to_our_write_costs_no_write_at_rest_and_detaches_no_node(
    mutate: Callable[[str, Raw], None],
) -> None:
    here = fleet(mutate)
    seen = watch_for_detachments(here)

    assert quiet(here) == []
    assert seen == set()
    assert here.conditions()["Progressing"]["reason"] == "Complete"
    assert here.conditions()["Degraded"]["reason"] == "AsDesired"


def test_a_field_that_the_api_server_prunes_costs_no_write_and_ends_no_rollout() -> None:
    here = fleet(pod={UNKNOWN: 60})
    assert UNKNOWN not in pod_of(here.api, "edge/web-n1")
    assert quiet(here) == []
    here.retemplate("proxy:2")
    here.settle()

    assert (here.images(), here.off()) == ({"proxy:2"}, set())
    assert quiet(here) == []


# Changes by another writer

EDITS: dict[str, Raw] = {
    "image": {"spec": {"containers": [{"name": "proxy", "image": "mine:1"}]}},
    "hostPID": {"spec": {"hostPID": True}},
    "nodeName": {"spec": {"nodeName": "n9"}},
    "tolerations": {"spec": {"tolerations": []}},
    "label": {"metadata": {"labels": {"extra": "label"}}},
    "annotation": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}},
}


@pytest.mark.parametrize("edit", ["image", "nodeName", "tolerations", "label"])
def test_what_is_changed_by_hand_is_restored_after_the_node_is_detached(edit: str) -> None:
    here = fleet(policy(*POLICIES))
    before = copy.deepcopy(here.api.objects["Deployment", "edge/web-n2"]["spec"]["template"])
    here.api.change("Deployment", "edge/web-n2", {"spec": {"template": EDITS[edit]}})
    here.look()
    here.api.deliver()
    here.look()
    changed = here.api.objects["Deployment", "edge/web-n2"]["spec"]["template"]

    assert here.off() == {"n2"}
    assert changed != before
    here.settle()
    assert here.api.objects["Deployment", "edge/web-n2"]["spec"]["template"] == before
    assert here.off() == set()
    assert quiet(here) == []


def test_a_node_that_waits_to_be_restored_says_why() -> None:
    here = fleet()
    here.api.edit("IngressDaemonSet", KEY, {"spec": {"paused": True}})
    here.api.change("Deployment", "edge/web-n2", {"spec": {"template": EDITS["hostPID"]}})
    quiet(here, 5)
    waiting = here.status["waitingFor"]

    assert [(each["node"], each["phase"]) for each in waiting] == [("n2", "Outdated")]
    assert "was changed by another writer" in waiting[0]["reason"]


def test_a_health_checker_that_is_changed_by_hand_is_restored() -> None:
    here = fleet()
    before = copy.deepcopy(here.api.objects["DaemonSet", CHECKER]["spec"])
    edit = {"template": EDITS["hostPID"], "updateStrategy": {"type": "OnDelete"}}
    here.api.change("DaemonSet", CHECKER, {"spec": edit})
    here.settle()
    after = here.api.objects["DaemonSet", CHECKER]["spec"]

    assert after == before
    assert quiet(here) == []


def test_a_deployment_that_is_paused_by_hand_goes_on_at_once() -> None:
    here = fleet()
    here.api.change("Deployment", "edge/web-n2", {"spec": {"paused": True}})
    here.look()

    assert not here.api.objects["Deployment", "edge/web-n2"]["spec"].get("paused")
    assert here.off() == set()
    here.settle()
    assert quiet(here) == []


def test_settings_that_a_policy_decides_are_left_to_it() -> None:
    def history(kind: str, raw: Raw) -> None:
        if kind == "Deployment":
            raw["spec"]["revisionHistoryLimit"] = 3

    here = fleet(history)
    assert quiet(here) == []

    here.api.change("Deployment", "edge/web-n2", {"spec": {"replicas": 7}})
    here.settle()
    assert here.api.objects["Deployment", "edge/web-n2"]["spec"]["replicas"] == 2
    assert quiet(here) == []

    here.api.change("IngressDaemonSet", KEY, {"spec": {"podsPerNode": 3}})
    here.settle()
    assert {here.api.objects["Deployment", key]["spec"]["replicas"] for key in DEPLOYMENTS} == {3}
    assert quiet(here) == []


# A change that comes back


class Background:
    """Another writer that changes what it watches, soon after each change of it."""

    def __init__(self, here: Leader, kind: Any, key: str, patch: Raw) -> None:
        self.here, self.kind, self.key, self.patch = here, kind, key, patch

    def act(self) -> None:
        self.here.api.edit(self.kind, self.key, self.patch, manager="background-policy")
        self.here.api.deliver()

    def live_with(self) -> list[str]:
        """What we write in ten minutes while it acts after each of our looks."""
        here, before = self.here, len(self.here.api.writes)
        until = here.clock() + 600
        while here.clock() < until:
            due = here.look()
            self.act()
            here.run_pods()
            here.api.deliver()
            here.clock.advance(10 if due is None else max(due, 0.02))
        return [each for each in here.api.writes[before:] if not each.startswith("status")]


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        ("image", 'spec.template.spec.containers[{"name":"proxy"}].image'),
        ("annotation", "spec.template.metadata.annotations"),
    ],
)
def test_a_change_that_comes_back_is_said_once_and_left(edit: str, field: str) -> None:
    here = fleet()
    other = Background(here, "Deployment", "edge/web-n2", {"spec": {"template": EDITS[edit]}})
    other.act()
    written = other.live_with()

    assert len([each for each in written if each == "change Deployment web-n2"]) <= 6
    assert here.off() == set()
    assert other.live_with() == []
    assert (here.conditions()["Degraded"]["status"], here.conditions()["Degraded"]["reason"]) == (
        "True",
        "TemplateAltered",
    )
    assert here.conditions()["Progressing"]["reason"] == "Complete"
    assert here.recorder.reasons.count("TemplateAltered") == 1
    assert field in dict(here.recorder.events)["TemplateAltered"]
    assert "'background-policy'" in dict(here.recorder.events)["TemplateAltered"]
    waiting = here.status["waitingFor"]
    assert [(each["node"], each["phase"]) for each in waiting] == [("n2", "Altered")]
    assert here.status["updatedNodes"] == 4

    assert quiet(Leader(here.api)) == []


def altered() -> Leader:
    """By a background policy that has ended since."""
    here = fleet()
    other = Background(here, "Deployment", "edge/web-n2", {"spec": {"template": EDITS["hostPID"]}})
    other.act()
    other.live_with()
    assert pod_of(here.api, "edge/web-n2")["hostPID"] is True
    return here


@table(
    "image, edit",
    {
        "it goes with the next rollout": ("proxy:2", None),
        "it is restored when it changes": ("proxy:1", EDITS["label"]),
    },
)
def test_a_left_change_ends(image: str, edit: Raw | None) -> None:
    here = altered()
    if edit:
        here.api.change("Deployment", "edge/web-n2", {"spec": {"template": edit}})
    else:
        here.retemplate(image)
    here.settle()

    assert here.images() == {image}
    assert "hostPID" not in pod_of(here.api, "edge/web-n2")
    assert here.conditions()["Degraded"]["reason"] == "AsDesired"
    assert quiet(here) == []


def test_two_writers_that_change_it_in_turn_are_left_alone_too() -> None:
    here = fleet()
    edits = [EDITS["hostPID"], {"spec": {"hostPID": None, "hostIPC": True}}]
    for turn in range(12):
        here.api.edit("Deployment", "edge/web-n2", {"spec": {"template": edits[turn % 2]}})
        here.api.deliver()
        here.settle()
    before = len(here.api.writes)
    here.api.change("Deployment", "edge/web-n2", {"spec": {"template": edits[0]}})
    here.settle()

    assert [each for each in here.api.writes[before:] if not each.startswith("status")] == []
    assert here.conditions()["Degraded"]["reason"] == "TemplateAltered"


def test_a_health_checker_that_is_changed_again_and_again_is_left_and_said() -> None:
    here = fleet()
    other = Background(here, "DaemonSet", CHECKER, {"spec": {"template": EDITS["hostPID"]}})
    other.act()
    other.live_with()

    assert other.live_with() == []
    assert here.conditions()["Degraded"]["reason"] == "TemplateAltered"
    assert here.recorder.reasons.count("TemplateAltered") == 1
    assert "DaemonSet web-10080" in dict(here.recorder.events)["TemplateAltered"]


def test_managed_fields_that_cannot_be_read_are_read_later() -> None:
    here = fleet()
    other = Background(here, "Deployment", "edge/web-n2", {"spec": {"template": EDITS["hostPID"]}})
    here.api.fault = lambda verb, kind, name: "timed out" if verb == "get" else ""
    other.act()
    other.live_with()
    assert "TemplateAltered" not in here.recorder.reasons
    assert here.conditions()["Degraded"]["reason"] == "TemplateAltered"

    here.api.fault = lambda verb, kind, name: ""
    here.look()
    assert here.recorder.reasons.count("TemplateAltered") == 1


# Versions of the API server


def test_a_field_that_a_newer_api_server_defaults_is_no_change_by_another_writer() -> None:
    here = fleet()
    seen = watch_for_detachments(here)

    def newer(raw: Raw) -> None:
        default(raw)
        raw["spec"]["template"]["spec"].setdefault("hostUsers", True)

    here.api.upgrade(newer)
    here.api.deliver()
    before = len(here.api.writes)
    here.settle()
    changes = [each for each in here.api.writes[before:] if not each.startswith("status")]

    assert sorted(changes) == [
        "change DaemonSet web-10080",
        *(f"change Deployment web-{name}" for name in FLEET),
    ]
    assert seen == set()
    assert quiet(here) == []
    here.api.change("Deployment", "edge/web-n2", {"spec": {"template": {"spec": {"hostUsers": False}}}})
    here.settle()
    assert pod_of(here.api, "edge/web-n2")["hostUsers"] is True


def test_a_template_that_comes_back_before_its_answer_was_recorded_costs_no_rollout() -> None:
    unconfirmed = {"waitForDetachmentByAnnotatedTimestamp": {"key": "a/b", "gracePeriodSeconds": 1}}
    api = with_nodes(*FLEET, rolling=DETACHING | unconfirmed, healthCheckNodePorts=[10080])
    api.mutate = policy(*POLICIES)  # type: ignore[assignment]
    here = Leader(api)
    here.look()
    api.deliver()
    here.retemplate("proxy:2")
    here.settle(until=lambda: bool(here.off()))
    here.retemplate("proxy:1")
    here.settle()

    assert here.off() == set()
    assert quiet(here) == []


def test_a_leader_that_dies_before_it_has_recorded_the_answer_costs_no_rollout() -> None:
    api = with_nodes(*FLEET, rolling=DETACHING)
    api.mutate = policy(*POLICIES)  # type: ignore[assignment]
    Leader(api).look()
    here = Leader(api)
    seen = watch_for_detachments(here)
    here.settle()

    assert seen == set()
    assert quiet(here) == []


# The parts


def held(baseline: Baseline | None = None, generation: int = 4, **annotations: str) -> Any:
    given = annotations_of(baseline) if baseline else {}
    return workload({"metadata": {"generation": generation, "annotations": {**given, **annotations}}})


@table(
    "live, covered, wanted",
    {
        "as recorded": (held(Baseline("t", generation=4, digest="d")), False, Drift.NONE),
        "of an older generation": (held(Baseline("t", generation=2, digest="d")), False, Drift.NONE),
        "our own write": (held(Baseline("t", generation=4)), False, Drift.UNRECORDED),
        "another answer": (held(Baseline("t", generation=4, digest="x")), False, Drift.UNRECORDED),
        "a write without effect": (held(Baseline("t", generation=5, digest="d")), False, Drift.UNRECORDED),
        "changed since": (held(Baseline("t", generation=3, digest="x")), True, Drift.DRIFTED),
        "unknown, and covered": (held(Baseline("t", generation=3)), True, Drift.UNRECORDED),
        "unknown, and not covered": (held(Baseline("t", generation=3)), False, Drift.DRIFTED),
        "again": (held(Baseline("t", generation=3, digest="x", undone=("d",))), True, Drift.ALTERED),
        "of another template": (held(Baseline("u", generation=4, digest="d")), True, Drift.OUTDATED),
        "the baseline was removed": (held(**{TEMPLATE_HASH: "t"}), True, Drift.UNRECORDED),
        "the baseline was removed, and it is changed": (held(**{TEMPLATE_HASH: "t"}), False, Drift.DRIFTED),
        "without annotations": (held(), True, Drift.OUTDATED),
        "unreadable": (held(**{TEMPLATE_HASH: "t", APPLIED_TEMPLATE: "no json"}), True, Drift.UNRECORDED),
        "nested too deeply": (
            held(**{TEMPLATE_HASH: "t", APPLIED_TEMPLATE: f'{{"deep":{DEEP}}}'}),
            True,
            Drift.UNRECORDED,
        ),
        "of another template than its hash": (
            held(Baseline("u", generation=3, digest="x"), **{TEMPLATE_HASH: "t"}),
            True,
            Drift.UNRECORDED,
        ),
    },
)
def test_drift(live: Any, covered: bool, wanted: Drift) -> None:
    assert drift_of(live, "t", "d", lambda: covered) is wanted


def test_the_digest_is_the_same_on_each_node_and_for_each_order() -> None:
    def on(node: str, **spec: Any) -> Raw:
        labels = {"app": "web", NODE_LABEL: node}
        return {"spec": {"nodeName": node, **spec}, "metadata": {"creationTimestamp": None, "labels": labels}}

    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"hostPID": True, "containers": [{}]}}
    same = shared_digest(template)
    assert shared_digest(on("n1", containers=[{}], hostPID=True)) == same
    assert shared_digest(on("n2", hostPID=True, containers=[{}])) == same
    assert shared_digest(on("n1", containers=[{}], hostPID=False)) != same


OURS = {"manager": "drawbridge", "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{APPLIED_TEMPLATE}": {}}}}}


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"f:spec": {"f:hostPID": {}}}, ("spec.template.spec.hostPID",)),
        (
            {"f:spec": {"f:containers": {'k:{"name":"proxy"}': {"f:image": {}}}}},
            ('spec.template.spec.containers[{"name":"proxy"}].image',),
        ),
        (
            {"f:spec": {"f:containers": {'k:{"name":"more"}': {".": {}, "f:image": {}, "f:name": {}}}}},
            ('spec.template.spec.containers[{"name":"more"}]',),
        ),
        ({"f:metadata": {"f:labels": {"f:a": {}}}}, ("spec.template.metadata.labels.a",)),
        ({"f:spec": {"f:x": {"v:1": {}}}}, ("spec.template.spec.x[1]",)),
        ({}, ()),
    ],
)
def test_fields_of_another_manager_are_paths(fields: Raw, paths: tuple[str, ...]) -> None:
    other = {"manager": "kubectl-edit", "fieldsV1": {"f:spec": {"f:template": fields}}}
    of_status = {
        "manager": "kcm",
        "subresource": "status",
        "fieldsV1": {"f:spec": {"f:template": {"f:a": {}, "f:b": {}}}},
    }
    found = msgspec.convert({"metadata": {"managedFields": [OURS, other, of_status]}}, Managed)

    assert alteration(found) == Alteration("kubectl-edit", paths)
