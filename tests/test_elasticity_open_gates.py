"""Switched off, the feature leaves no pod gated: the leader opens gates, and so does the Job before an upgrade."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from api.elasticity import GATE, PLACEMENT, REASON
from controllers.elasticity import controller, open_gates
from controllers.elasticity.open_gates import WEBHOOK, WHY, Patience, open_all, remove_webhook
from controllers.elasticity.reporter import OLDEST_GATE, PODS_BY_STATE, clear
from dev.fake_api import FakeAPI, Reply, Request, refusal
from dev.lab.waiting import until
from kube.errors import Backoff, Invalid
from settings import ElasticitySettings
from tests.elasticity_world import STUCK, raw_pod
from tests.fakes import FakeClock, FakeRecorder
from tests.managed import lead
from tests.misbehaving_server import serving
from tests.tables import table

PODS = "/api/v1/pods"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
OTHER_GATE = {"name": "others.example/gate"}
DEFAULTS = Patience()
OFF = ElasticitySettings(enabled=False, open_gates=True)


class Cluster:
    """Pods and a webhook configuration, as the leader and the Job find them; *then* happens when the Job sleeps."""

    def __init__(self, *webhooks: str) -> None:
        self.clock, self.api, self.recorder = FakeClock(0.0), FakeAPI(), FakeRecorder()
        if webhooks:
            named = [{"name": each} for each in webhooks]
            self.api.put(CONFIGURATIONS, {"metadata": {"name": "drawbridge"}, "webhooks": named})
        self.api.fault = self._conflicting
        self.then: Callable[[float], object] = lambda now: None
        self.conflicts = 0
        self.sections = {"elasticity": OFF}

    def _conflicting(self, asked: Request) -> Reply | None:
        if asked.method != "PATCH" or CONFIGURATIONS not in asked.path or not self.conflicts:
            return None
        self.conflicts -= 1
        return refusal(422, "Invalid", "the test did not hold")

    def sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.then(self.clock())

    def create(self, *names: str, **parts: Any) -> None:
        for name in names:
            self.api.put(PODS, raw_pod(name, **parts))

    def webhooks(self) -> list[str]:
        return [w["name"] for each in self.api.list(CONFIGURATIONS) for w in each.get("webhooks", ())]

    def pods(self) -> dict[str, dict[str, Any]]:
        return {each["metadata"]["name"]: each for each in self.api.list(PODS)}

    def annotations(self) -> dict[str, dict[str, str]]:
        return {name: pod["metadata"]["annotations"] for name, pod in self.pods().items()}

    def gated(self) -> set[str]:
        gate = {"name": GATE}
        return {name for name, pod in self.pods().items() if gate in pod["spec"].get("schedulingGates", [])}

    def open_all(self, patience: Patience = DEFAULTS) -> str:
        return open_all(self.api.client(), "drawbridge", patience, clock=self.clock, sleep=self.sleep)

    @contextmanager
    def led(self) -> Iterator[None]:
        """By a leader for which the feature is off, unless *sections* say that it is on."""
        stop = threading.Event()
        with serving(self.api) as server:
            given = (controller, server.client(), lambda: self.sections, self.recorder, stop)
            leader = threading.Thread(target=lead, args=given, daemon=True)
            leader.start()
            try:
                yield
            finally:
                stop.set()
                leader.join(30)
                assert not leader.is_alive()


def test_gates_are_opened_as_they_come_and_no_placement_is_written() -> None:
    lab = Cluster()
    lab.create("web-1", "web-2")
    with lab.led():
        until(lambda: not lab.gated(), 60)
        lab.create("web-3", spec={"schedulingGates": [OTHER_GATE, {"name": GATE}]})
        lab.create("free", gated=False)
        until(lambda: not lab.gated(), 60)
        until(lambda: PODS_BY_STATE.labels("gated")._value.get() == 0, 60)

    assert lab.pods()["web-3"]["spec"]["schedulingGates"] == [OTHER_GATE]
    found = lab.annotations()
    assert not any(PLACEMENT in each for each in found.values())
    assert (found["web-1"][REASON], REASON in found["free"]) == (WHY, False)
    asked = {each.query.get("fieldSelector") for each in lab.api.calls if each.path == PODS}
    assert asked == {open_gates.UNBOUND}


def test_a_pod_whose_gate_may_not_be_opened_says_so_once_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_gates, "PERIOD", 0.5)
    monkeypatch.setattr(open_gates, "PAUSES", Backoff(base=0.5, cap=1.0))
    tries = []

    def fault(asked: Request) -> Reply | None:
        if asked.method == "PATCH" and asked.path.endswith("/bad"):
            tries.append(asked)
            return refusal(403, "Forbidden", "a policy")
        return None

    lab = Cluster()
    lab.api.fault = fault
    lab.create("bad", "web-1")
    with lab.led():
        until(lambda: lab.gated() == {"bad"} and len(tries) >= 3, 60)

        assert lab.recorder.reasons == ["FailedPlacement"]
        assert PODS_BY_STATE.labels("gated")._value.get() == 1
        until(lambda: OLDEST_GATE._value.get() > 0, 60)
        lab.api.fault = lambda asked: None
        until(lambda: not lab.gated(), 60)


def test_what_was_counted_while_the_feature_was_on_is_not_counted_for_ever() -> None:
    clear()  # as other tests may have counted
    lab = Cluster()
    lab.sections = {"elasticity": ElasticitySettings(enabled=True)}
    stuck = raw_pod("web-1", gated=False) | {"status": {"phase": "Pending", "conditions": [STUCK]}}
    lab.api.put(PODS, stuck)
    with lab.led():
        until(lambda: PODS_BY_STATE.labels("pending")._value.get() == 1, 60)
        lab.sections = {"elasticity": OFF}
        until(lambda: PODS_BY_STATE.labels("pending")._value.get() == 0, 60)


# The Job


OTHERS = ["anycast-ip.drawbridge.io", "ingress-daemonset-defaults.drawbridge.io"]


@table(
    "webhooks, pods, left, ends",
    {
        "the webhook goes alone, and then all gates": ([OTHERS[0], WEBHOOK, OTHERS[1]], 2, OTHERS, 15.0),
        "there is nothing to do": (OTHERS[:1], 0, OTHERS[:1], 0.0),
        "there is no configuration": ([], 1, [], 15.0),
        "it was deleted a moment ago": ([], 0, [], 10.0),
    },
)
def test_gates_are_opened_and_it_ends_when_it_is_quiet(
    webhooks: list[str], pods: int, left: list[str], ends: float
) -> None:
    cluster = Cluster(*webhooks)
    cluster.create(*(f"web-{number}" for number in range(pods)))

    assert cluster.open_all() == ""
    assert (cluster.webhooks(), cluster.gated()) == (left, set())
    assert cluster.clock() == ends


def test_the_leader_has_time_to_place_what_is_gated() -> None:
    cluster = Cluster(WEBHOOK)
    cluster.clock.advance(100.0)
    cluster.create("web-1", "web-2")

    def place(now: float) -> None:
        if now == 103:
            cluster.api.put(PODS, cluster.pods()["web-1"] | {"spec": {"containers": []}})

    cluster.then = place
    assert cluster.open_all() == ""
    found = cluster.annotations()
    assert (found["web-1"].get(REASON), found["web-2"][REASON]) == (None, WHY)


def test_what_is_gated_by_a_request_in_progress_is_opened_too() -> None:
    cluster, last = Cluster(WEBHOOK), 18.0
    names = iter(range(100))
    cluster.then = lambda now: cluster.create(f"web-{next(names)}") if now <= last else None

    assert cluster.open_all() == ""
    assert cluster.gated() == set()
    assert cluster.clock() >= last + DEFAULTS.settle


def test_an_api_server_that_fails_for_a_while_is_asked_again() -> None:
    cluster = Cluster(WEBHOOK)
    cluster.create("web-1")
    cluster.conflicts = 2
    inner = cluster.api.fault
    failing = [refusal(503, "ServiceUnavailable")] * 3
    cluster.api.fault = lambda asked: failing.pop() if failing else inner(asked)

    assert cluster.open_all() == ""
    assert (cluster.webhooks(), cluster.gated()) == ([], set())


def test_pods_that_cannot_be_opened_are_named_in_the_end() -> None:
    cluster = Cluster(WEBHOOK)
    cluster.create(*(f"web-{number}" for number in range(12)))
    inner = cluster.api.fault
    cluster.api.fault = lambda asked: (
        refusal(403, "Forbidden", "a policy")
        if asked.method == "PATCH" and "/pods/" in asked.path
        else inner(asked)
    )

    left = cluster.open_all(Patience(all=20.0))

    assert left.startswith(f"pods with gate {GATE}: shop/web-0, ")
    assert left.endswith(" and 2 more")
    assert cluster.clock() <= 20 + open_gates.LOOK


def test_a_configuration_that_changes_meanwhile_is_not_cut_at_the_wrong_place() -> None:
    cluster = Cluster("anycast-ip.drawbridge.io", WEBHOOK)
    cluster.conflicts = 1
    client = cluster.api.client()
    with pytest.raises(Invalid):
        remove_webhook(client, "drawbridge")
    assert remove_webhook(client, "drawbridge")
    assert not remove_webhook(client, "drawbridge")
    patches = [json.dumps(asked.body) for asked in cluster.api.calls if asked.method == "PATCH"]

    assert all('"op": "test", "path": "/webhooks/1/name"' in each for each in patches)


def test_the_program_says_what_is_left_and_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(open_gates.Client, "from_environment", classmethod(lambda cls: None))
    seen = []

    def fake(_client: object, configuration: str, patience: Patience) -> str:
        seen.append((configuration, patience))
        return "pods with gate x: shop/web-1"

    monkeypatch.setattr(open_gates, "open_all", fake)
    assert open_gates.main(["drawbridge", "--settle=8s", "--within=1m"]) == 1
    assert seen == [("drawbridge", Patience(8.0, all=60.0))]
    message = capsys.readouterr().err
    assert "shop/web-1" in message
    assert "--no-hooks" in message
    monkeypatch.setattr(open_gates, "open_all", lambda *_: "")
    assert open_gates.main(["drawbridge"]) == 0
