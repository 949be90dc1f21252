"""The admission of elasticity: golden cases, and pods for which there is no leader."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from api.elasticity import GATE, REASON, WAITS
from dev.fake_api import FakeAPI
from kube.errors import Forbidden, KubeError, Unreachable
from kube.lease_spec import LeaseSpec, expired_for, first_seen
from settings import ElasticitySettings, LeaderElection
from tests.admission import admitted, asked
from tests.factories import NOW
from tests.fakes import FakeClock
from tests.tables import table
from webhook.admission import Request, ReviewError
from webhook.elasticity.leader import LEASES, REFRESH, LeaseReader
from webhook.elasticity.webhook import NO_LEADER, PlacementWebhook

CASES = sorted((Path(__file__).parent / "data" / "elasticity").glob("*.yaml"))
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web-5d9f",
    "uid": "uid-rs",
    "controller": True,
}


def raw_pod(**parts: Any) -> dict[str, Any]:
    """A pod of a Deployment as it comes to admission; *parts* are merged into metadata and spec."""
    metadata = {"generateName": "web-5d9f-", "namespace": "web", "ownerReferences": [OWNER]}
    spec = {"containers": [{"name": "web", "image": "nginx"}], "schedulerName": "default-scheduler"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | parts.get("metadata", {}),
        "spec": spec | parts.get("spec", {}),
        "status": {},
    }


def request(pod: dict[str, Any], **fields: str) -> Request:
    return asked(pod, namespace=pod["metadata"].get("namespace", ""), **fields)


def gate(**settings: Any) -> PlacementWebhook:
    parsed = ElasticitySettings.model_validate({"enabled": True, **settings})
    return PlacementWebhook(lambda: parsed, lambda _: 0.0)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    pod, expect = raw_pod(**case["pod"]), case["expect"]
    feature, question = gate(**case.get("settings", {})), request(pod)

    decision = feature.review(question, deadline=0)

    after = admitted(pod, question, decision)
    others = {name: value for name, value in pod["metadata"].items() if name != "annotations"}
    metadata = others | expect.get("metadata", _explained(pod, expect["audit"]))
    assert decision.allowed
    assert after == pod | {"spec": pod["spec"] | expect.get("spec", {}), "metadata": metadata}
    assert decision.audit == expect["audit"]
    assert list(decision.warnings) == expect.get("warnings", [])
    assert feature.review(request(after), deadline=0).patch == ()


def _explained(pod: dict[str, Any], audit: dict[str, str]) -> dict[str, Any]:
    """A pod that is gated says what it waits for; no other annotation changes."""
    waits = {REASON: WAITS} if "gated" in audit else {}
    found = pod["metadata"].get("annotations", {}) | waits
    return {"annotations": found} if found else {}


def test_what_is_not_known_of_a_pod_survives() -> None:
    pod = raw_pod(metadata={"annotations": {"LOCAL_REPLICAS": "1"}}) | {"unheardOf": {"x": [1]}}
    pod["spec"] |= {"unheardOf": None, "schedulingGates": [{"name": "other", "unheardOf": 1.5}]}
    question = request(pod)

    after = admitted(pod, question, gate().review(question, deadline=0))

    assert after["unheardOf"] == {"x": [1]}
    assert after["spec"]["unheardOf"] is None
    assert after["spec"]["schedulingGates"] == [
        {"name": "other", "unheardOf": 1.5},
        {"name": "drawbridge.io/placement"},
    ]


def test_it_fails_open_and_reviews_new_pods_alone() -> None:
    lives = request(raw_pod(metadata={"annotations": {"LOCAL_REPLICAS": "1"}}), operation="UPDATE")

    assert gate().fails_open()
    for question in (lives, asked(None)):
        assert gate().review(question, deadline=0).audit == {"skipped": "no new pod"}


@table(
    "parts, field",
    {
        "a bare number": ({"metadata": {"annotations": {"LOCAL_REPLICAS": 1}}}, "annotations"),
        "gates that are no list": ({"spec": {"schedulingGates": "none"}}, "schedulingGates"),
        "affinity that is a list": ({"spec": {"affinity": {"nodeAffinity": []}}}, "nodeAffinity"),
    },
)
def test_a_pod_that_cannot_be_read_is_named(parts: dict[str, Any], field: str) -> None:
    with pytest.raises(ReviewError, match=rf"request\.object .*{field}"):
        gate().review(request(raw_pod(**parts)), deadline=0)


def test_a_pod_that_is_too_large_to_be_changed_loses_only_what_the_leader_writes() -> None:
    annotations = {"LOCAL_REPLICAS": "1", "drawbridge.io/placement": "local"}
    large = [{"name": str(number)} for number in range(10_001)]
    pod = raw_pod(metadata={"annotations": annotations}, spec={"volumes": large})
    decision = gate().review(question := request(pod), deadline=0)

    after, [warning] = admitted(pod, question, decision), decision.warnings
    assert after["spec"] == pod["spec"]
    assert after["metadata"]["annotations"] == {"LOCAL_REPLICAS": "1"}
    assert warning.startswith("elasticity: this pod is left as it is: it has about 20026 fields")


# Without a leader that could open it, no pod is gated; a Lease that cannot be read changes nothing

DURATION = 15
ELECTION = LeaderElection(resource_name="drawbridge", resource_namespace="gate-system")
HAD_NONE = "; when it was created, there had been none for {} s"
POD = raw_pod(metadata={"annotations": {"LOCAL_REPLICAS": "1"}})


class World:
    """One Lease at a fake API server, and what reads it."""

    def __init__(self, ahead: float = 0.0, **election: Any) -> None:
        self.clock, self.api = FakeClock(0.0), FakeAPI()
        self.renew()
        self.reader = LeaseReader(
            self.api.client(),
            lambda: ELECTION.model_copy(update=election),
            clock=self.clock,
            now=lambda: NOW + timedelta(seconds=self.clock() + ahead),
        )

    def renew(self) -> None:
        at = NOW + timedelta(seconds=self.clock())
        spec = {
            "holderIdentity": "controllers_1",
            "leaseDurationSeconds": DURATION,
            "renewTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        self.api.put(LEASES, {"metadata": {"name": "drawbridge", "namespace": "gate-system"}, "spec": spec})

    @property
    def reads(self) -> int:
        return len(self.api.calls)

    def fail(self, error: Exception) -> None:
        def fault(_: object) -> None:
            raise error

        self.api.fault = fault

    def absence(self) -> float:
        return self.reader.absence(self.clock() + 4.5)

    def wait(self, seconds: float, *, renewing: bool) -> None:
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            if renewing:
                self.renew()
            self.absence()


@pytest.mark.parametrize("held", [True, False], ids=["its end", "it was looked for"])
def test_a_lease_that_is_not_renewed_is_absent_since(held: bool) -> None:
    world = World()
    if held:
        world.wait(300, renewing=True)
    else:
        world.api.remove(LEASES, "drawbridge", "gate-system")
    assert world.absence() == 0
    world.wait(DURATION + 60 if held else 61, renewing=False)

    assert 60 - REFRESH <= world.absence() <= (60 + REFRESH if held else 61)


def test_one_read_in_a_few_seconds_serves_all_pods() -> None:
    world = World()
    for _ in range(100):
        world.absence()
    assert world.reads == 1
    world.clock.advance(REFRESH)
    world.absence()

    assert world.reads == 2


def test_an_absence_of_long_ago_is_not_believed_while_the_lease_is_read_again() -> None:
    """Pods come in crowds: while the first one reads, the others ask."""
    world, asked, found = World(), threading.Event(), list[float]()
    world.wait(DURATION + 120, renewing=False)
    assert world.absence() > 60
    world.clock.advance(3600.0)
    world.renew()

    def election() -> LeaderElection:
        asked.set()
        return ELECTION

    other = threading.Thread(target=lambda: found.append(world.absence()))

    def fault(_: object) -> None:
        world.reader._election = election
        other.start()
        asked.wait()

    world.api.fault = fault
    assert world.absence() == 0
    other.join()
    assert found == [0]


def test_a_server_that_has_just_started_goes_by_the_time_that_the_lease_names() -> None:
    world = World()
    world.clock.advance(600)
    assert world.absence() == 0, "that is the time of another machine's clock"
    world.wait(REFRESH, renewing=False)

    assert world.absence() == 600 + REFRESH - DURATION


@pytest.mark.parametrize("ahead", [-300.0, 300.0])
@pytest.mark.parametrize("period", [2.0, 10.0])
def test_a_server_that_has_just_started_takes_no_leader_for_gone_by_its_own_clock(
    ahead: float, period: float
) -> None:
    world = World(ahead, retry_period=period)
    for second in range(60):
        assert world.absence() == 0
        world.clock.advance(1.0)
        if second % period == period - 1:
            world.renew()


@pytest.mark.parametrize("error", [Unreachable("timed out"), Forbidden(403, "Forbidden", "not you")])
def test_what_cannot_be_read_says_nothing(error: KubeError) -> None:
    world = World()
    world.absence()
    world.fail(error)
    world.wait(600, renewing=False)

    assert world.absence() == 0


def test_an_absence_stays_known_while_the_lease_cannot_be_read() -> None:
    world = World()
    world.wait(DURATION + 60, renewing=False)
    known = world.absence()
    world.fail(Unreachable("timed out"))
    world.wait(60, renewing=False)

    assert known > 0
    assert world.absence() == known


def test_the_read_is_bounded_within_the_deadline() -> None:
    clock, timeouts = FakeClock(0.0), list[float]()

    def get(*_: object, timeout: float, **__: object) -> None:
        timeouts.append(timeout)
        raise Unreachable("timed out")

    client: Any = SimpleNamespace(find=get)
    reader = LeaseReader(client, lambda: ELECTION, clock=clock)
    reader.absence(clock() + 0.3)
    clock.advance(REFRESH)
    reader.absence(clock() + 10)

    assert timeouts == [pytest.approx(0.3), 1.0]


def test_without_an_election_there_is_no_lease_to_read() -> None:
    world = World(leader_elect=False)

    assert world.absence() == 0
    assert world.reads == 0


@pytest.mark.parametrize("renew_time", [None, "", "yesterday", "2026-13-01T00:00:00Z", "2026-11-22T00:00:00"])
def test_a_time_that_cannot_be_read_is_now(renew_time: str | None) -> None:
    seen = first_seen(LeaseSpec(renew_time=renew_time), 100.0, NOW)

    assert expired_for(seen, 100.0) == 0


NO_MORE = "this pod is neither gated nor placed"


@table(
    "absence, after, reason, warning",
    {
        "for a moment": (0.0, "1m", WAITS, ""),
        "for a while": (40.0, "1m", WAITS + HAD_NONE.format(40), "after 60 s without one"),
        "for as long as is configured": (61.0, "5m", WAITS + HAD_NONE.format(61), "after 300 s without one"),
        "for too long": (61.0, "1m", NO_LEADER, f"have had no leader for 61 s: {NO_MORE}"),
    },
)
def test_without_a_leader_a_pod_is_gated_for_a_while_and_it_and_its_creator_learn_why(
    absence: float, after: str, reason: str, warning: str
) -> None:
    settings = ElasticitySettings.model_validate({"enabled": True, "gateFallbackAfter": after})
    feature, question = PlacementWebhook(lambda: settings, lambda _: absence), request(POD)

    decision = feature.review(question, deadline=0)
    after = admitted(POD, question, decision)
    assert after["spec"].get("schedulingGates", []) == [{"name": GATE}] * (reason != NO_LEADER)
    assert after["metadata"]["annotations"][REASON] == reason
    assert [warning in each for each in decision.warnings] == [True] * bool(warning)
    assert feature.review(request(after), deadline=0).patch == ()


def test_a_pod_that_does_not_wait_costs_no_read() -> None:
    world = World()
    feature = PlacementWebhook(lambda: ElasticitySettings(enabled=True), world.reader.absence)

    feature.review(request(raw_pod()), deadline=0)

    assert world.reads == 0
