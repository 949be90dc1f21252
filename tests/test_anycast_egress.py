"""A node opens only when traffic leaves with its address, as a pod on it has seen, and only that pod counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from api.anycast_ip import TAINT
from cli.anycast_ip.node import standing
from controllers.anycast_ip.claim import claim_for
from controllers.anycast_ip.egress import LABEL, LABEL_VALUE, Outcome, ProbePod, body, outcome_of
from controllers.anycast_ip.egress_probe import ANOTHER, NO_ANSWER
from controllers.anycast_ip.planner import plan
from controllers.anycast_ip.snapshot import Action, Check, Checked, Seen, Snapshot
from dev.lab.cloud import Knobs
from kube.errors import Forbidden
from kube.resources import PODS
from settings import AnycastIPSettings
from settings.anycast_ip import EgressCheck
from tests.anycast_world import SETTINGS, Lab, a_node, an_address, metric, plenty
from tests.factories import NOW
from tests.tables import table

URL = "https://ip.example.com/"
CHECKING = EgressCheck.model_validate(
    {"enabled": True, "url": URL, "image": "drawbridge:1", "timeout": "60s"}
)
Raw = dict[str, Any]
Kubelet = Callable[["EgressLab", Raw], Raw | None]


def checking(**fields: Any) -> AnycastIPSettings:
    return SETTINGS.model_copy(update={"egress_check": CHECKING} | fields)


def ended(code: int, message: str = "") -> Raw:
    terminated = {"exitCode": code, "message": message}
    return {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [{"name": "egress-check", "state": {"terminated": terminated}}],
    }


def honest(lab: EgressLab, pod: Raw) -> Raw:
    """What a service would see: the address that is bound to the instance of the node."""
    seen = next((each.ip for each in lab.on(pod["spec"]["nodeName"])), "10.0.0.1")
    expected = pod["spec"]["containers"][0]["args"][1]
    return ended(0 if seen == expected else ANOTHER, f"seen as {seen}")


def never(lab: EgressLab, pod: Raw) -> None:
    """It stays as it is."""


def elsewhere(lab: EgressLab, pod: Raw) -> Raw:
    return ended(ANOTHER, "seen as 203.0.113.9")


class EgressLab(Lab):
    """A lab whose nodes run the pods of checks: *kubelet* gives the status of one, or None.

    *seen* has the uids of nodes for which a pod has passed.
    """

    kubelet: Kubelet

    def __init__(self, knobs: Knobs, settings_: AnycastIPSettings, kubelet: Kubelet = honest) -> None:
        self.kubelet, self.seen = kubelet, set[str]()
        super().__init__(knobs, settings_)

    def turn(self) -> bool:
        for pod in self.pods():
            is_ours = LABEL in pod["metadata"].get("labels", {})
            is_over = pod["status"].get("phase") in ("Succeeded", "Failed")
            if is_ours and not is_over and (status := self.kubelet(self, pod)):
                self.end(pod, status)
        return super().turn()

    def end(self, pod: Raw, status: Raw) -> None:
        if status["phase"] == "Succeeded":
            self.seen.update(each["uid"] for each in pod["metadata"]["ownerReferences"])
        self.kube.place("pods", {**pod, "status": status})

    def pods(self) -> list[Raw]:
        return [{"status": {}, **self.kube.api.get(PODS, name, "drawbridge")} for name in self.names()]

    def names(self) -> list[str]:
        return [name for kind, name in self.kube.objects if kind == "pods"]

    def created(self) -> int:
        return sum(call.method == "POST" and call.path.endswith("/pods") for call in self.kube.api.calls)


def lab_with(kubelet: Kubelet = honest) -> EgressLab:
    return EgressLab(plenty(), checking(), kubelet)


def test_a_node_opens_when_its_address_was_seen_and_the_pod_goes() -> None:
    lab = lab_with(never)
    before = metric("egress_checks_total", result="passed")
    lab.join()
    lab.run(lambda: len(lab.pods()) == 1, 30, "a pod")
    lab.run_for(20)
    assert not lab.is_open()
    lab.kubelet = honest
    lab.run(lab.all_open, 10, "open")
    lab.run(lambda: not lab.pods(), 10, "no pod is left")

    assert lab.created() == 1
    assert metric("egress_checks_total", result="passed") == before + 1
    assert lab.recorder.reasons == ["AnycastIpBound"]


def test_while_it_is_off_no_pod_is_created_and_none_is_listed() -> None:
    off = CHECKING.model_copy(update={"enabled": False})
    lab = EgressLab(plenty(), checking(egress_check=off))
    lab.opened()
    lab.run_for(600)

    assert [call for call in lab.kube.api.calls if call.path.endswith("/pods")] == []


def test_a_node_whose_traffic_leaves_otherwise_stays_closed_and_says_so() -> None:
    lab = lab_with(elsewhere)
    lab.join()
    lab.run_for(3600)
    (address,) = lab.on("n1")

    assert not lab.is_open()
    reason, message = lab.recorder.events[-1]
    assert reason == "AnycastIpEgressFailed"
    assert "seen as 203.0.113.9" in message
    assert address.ip in message
    assert lab.recorder.reasons.count(reason) == 1
    assert lab.said() == ("False", "AnycastIpEgressFailed")
    assert metric("egress_failing") == 1
    assert 10 <= lab.created() <= 20  # doubling from 10 s to 5 minutes
    lab.kubelet = honest
    lab.run(lab.all_open, 310, "open")
    lab.run(lambda: metric("egress_failing") == 0, 10, "none fails")
    assert lab.said() == ("True", "AnycastIpBound")


def test_many_checks_are_read_with_one_request_a_second() -> None:
    lab = lab_with(never)
    for number in range(8):
        lab.join(f"n{number}")
    lab.run(lambda: len(lab.names()) == 8, 120, "a pod on each")
    before = lists_of_pods(lab)
    lab.run_for(30)
    assert lists_of_pods(lab) - before <= 31
    lab.kubelet = honest
    lab.run(lab.all_open, 60, "open")
    lab.run(lambda: not lab.names(), 30, "no pod is left")
    before = lists_of_pods(lab)
    lab.run_for(900)

    assert lists_of_pods(lab) - before <= 4


def lists_of_pods(lab: EgressLab) -> int:
    return sum(call.method == "GET" and call.path.endswith("/pods") for call in lab.kube.api.calls)


def test_a_pod_that_an_earlier_leader_creates_late_is_deleted_and_those_of_others_stay() -> None:
    lab = lab_with()
    lab.opened()
    for name, labels in (("egress-check-late", {LABEL: LABEL_VALUE}), ("egress-check-mine", {})):
        metadata = {"name": name, "namespace": "drawbridge", "labels": labels}
        lab.kube.place(
            "pods", {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": "Succeeded"}}
        )
    lab.run(lambda: lab.names() == ["egress-check-mine"], 310, "it is gone")
    lab.run_for(600)

    assert lab.names() == ["egress-check-mine"]


def test_what_forbids_the_pods_is_said() -> None:
    lab = lab_with()

    def forbid(name: str, _: Any) -> None:
        if name.startswith("egress-check-"):
            raise Forbidden(403, "Forbidden", "violates PodSecurity")

    lab.kube.before_write = forbid
    lab.join()
    lab.run(lambda: "AnycastIpEgressFailed" in lab.recorder.reasons, 60, "an Event")
    assert "violates PodSecurity" in dict(lab.recorder.events)["AnycastIpEgressFailed"]
    lab.kube.before_write = lambda name, body: None
    lab.run(lab.all_open, 60, "open")


CLOSED, BOUND = a_node(TAINT), an_address()
CLAIM = replace(claim_for(CLOSED, SETTINGS, NOW), address="eip-1")
OF = Checked("eip-1", "1.2.3.4", URL)


def seen(of: Checked) -> Check:
    return Check(of, passed=True)


@pytest.mark.parametrize(
    ("check", "settings_", "expected"),
    [
        pytest.param(None, SETTINGS, Action.OPEN, id="not configured"),
        pytest.param(None, checking(), Action.CHECK, id="not checked"),
        pytest.param(seen(OF), checking(), Action.OPEN, id="seen"),
        pytest.param(seen(Checked("eip-1", "1.2.3.5", URL)), checking(), Action.CHECK, id="another IP"),
        pytest.param(seen(Checked("eip-2", "1.2.3.4", URL)), checking(), Action.CHECK, id="another id"),
        pytest.param(seen(Checked("eip-1", "1.2.3.4", "http://b/")), checking(), Action.CHECK, id="elsewhere"),
        pytest.param(Check(OF, trouble="seen as 1.1.1.1"), checking(), Action.CHECK, id="failed"),
    ],
)  # fmt: skip
def test_a_bound_address_opens_a_node_when_it_was_seen(
    check: Check | None, settings_: AnycastIPSettings, expected: Action
) -> None:
    snapshot = Snapshot("u1", CLOSED, CLAIM, seen=Seen(BOUND), egress=check)
    step = plan(snapshot, settings_)

    assert step.action is expected
    assert (step.note is not None) == bool(check and check.trouble)


def pod_in(phase: str = "", **status: Any) -> ProbePod:
    return ProbePod(status={"phase": phase or "Pending", **status})


def waiting(reason: str) -> ProbePod:
    return pod_in(containerStatuses=[{"state": {"waiting": {"reason": reason}}}])


def failed(code: int, message: str = "") -> ProbePod:
    return ProbePod(status=ended(code, message))


RUNNING, PASSED = pod_in("Running"), failed(0, "seen as 1.2.3.4")
UNSEEN, UNUSABLE = "the service does not see that address", "the service gives no usable answer"
FAILED, SLOW = "its pod failed", "its pod has not ended in 60 s"
WAITING = Check(OF, token="t", created=100.0)
UNSENT = Check(OF, token="t")


@table(
    "check, pod, looked_at, expected",
    {
        "new": (WAITING, ProbePod(), 101, None),
        "pending": (WAITING, waiting("ImagePullBackOff"), 101, None),
        "running": (WAITING, RUNNING, 101, None),
        "unknown": (WAITING, pod_in("Unknown"), 101, None),
        "passed": (WAITING, PASSED, 101, ("passed", "")),
        "another": (WAITING, failed(ANOTHER, "seen as ::1"), 101, ("another address", f"{UNSEEN}: seen as ::1")),
        "another, without a message": (WAITING, failed(ANOTHER), 101, ("another address", UNSEEN)),
        "no answer": (WAITING, failed(NO_ANSWER, "it answered 5\n"), 101, ("no answer", f"{UNUSABLE}: it answered 5")),
        "without the program": (WAITING, failed(1), 101, ("no result", f"{FAILED}: exit code 1")),
        "not begun by Python": (WAITING, failed(2), 101, ("no result", f"{FAILED}: exit code 2")),
        "killed": (WAITING, failed(137), 101, ("no result", f"{FAILED}: exit code 137")),
        "evicted": (WAITING, pod_in("Failed", reason="Evicted"), 101, ("no result", f"{FAILED}: Evicted")),
        "ended, read late": (WAITING, PASSED, 900, ("passed", "")),
        "too long": (WAITING, RUNNING, 160, ("no result", f"{SLOW}: Running")),
        "never begun": (WAITING, waiting("Slow"), 160, ("no result", f"{SLOW}: Pending Slow")),
        "deleted": (WAITING, None, 101, ("no result", "its pod was deleted before it ended")),
        "in no list from before its creation": (WAITING, None, 100, None),
        "not created for certain": (UNSENT, None, 900, None),
        "created, but the answer was lost": (UNSENT, PASSED, 101, ("passed", "")),
    },
)  # fmt: skip
def test_a_check_ends_with_its_pod_or_its_time(
    check: Check, pod: ProbePod | None, looked_at: float, expected: Outcome | None
) -> None:
    assert outcome_of(check, pod, looked_at, 60.0) == expected


def test_the_pod_runs_on_its_node_alone_and_may_do_nothing() -> None:
    pod = body("t", CLOSED, BOUND, CHECKING)
    spec, (container,) = pod["spec"], pod["spec"]["containers"]

    assert (spec["nodeName"], spec["hostNetwork"], spec["restartPolicy"]) == ("n1", True, "Never")
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["automountServiceAccountToken"] is False
    assert not {"volumes", "initContainers", "serviceAccountName", "hostPID"} & spec.keys()
    assert spec["activeDeadlineSeconds"] == 60
    assert container["args"] == [URL, "1.2.3.4", "20"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}
    ]


def test_the_command_says_when_a_closed_node_opens() -> None:
    assert standing(CLOSED, checking()).endswith(f"; it opens when {URL} sees its address")
    assert standing(CLOSED, SETTINGS).endswith(": no address is proven bound")
