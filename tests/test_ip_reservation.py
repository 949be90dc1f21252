"""The admission of ip_reservation: golden cases, and what happens when nothing can be reserved."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from api.ip_reservation import meets_any
from api.standing import RESERVED, mark_of
from calico.segment import NotReserved
from kube.errors import Forbidden, Unreachable
from kube.types import Pod
from settings import IPReservationSettings, LabelSelector
from tests.factories import NOW, pod, raw_pod
from tests.fakes import FakeClock, FakeCluster, FakeLedger
from webhook.admission import Request, ReviewError, parse
from webhook.ip_reservation.reads import MOST, WINDOW, UnreadPods
from webhook.ip_reservation.webhook import IPReservationWebhook

CASES = sorted((Path(__file__).parent / "data" / "ip_reservation").glob("*.yaml"))


def request(
    operation: str = "DELETE", *, pod: dict[str, Any] | None = None, username: str = "alice", **fields: Any
) -> Request:
    old = raw_pod(**pod) if pod is not None else None
    raw = {
        "uid": "request-1",
        "operation": operation,
        "name": "redis-0",
        "namespace": "redis",
        "userInfo": {"username": username},
        "oldObject": old,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": raw | fields}
    return parse(msgspec.json.encode(review))


def feature(
    cluster: FakeCluster | None = None,
    ledger: FakeLedger | None = None,
    *,
    knows_clients: bool = False,
    clock: FakeClock | None = None,
    **settings: Any,
) -> IPReservationWebhook:
    parsed, unread = IPReservationSettings.model_validate(settings), UnreadPods(clock or FakeClock())
    return IPReservationWebhook(
        cluster or FakeCluster(),
        ledger or FakeLedger(),
        lambda: parsed,
        lambda: NOW,
        lambda addresses: knows_clients or unread.admits(addresses),
        lambda _: "0123456789abcdef",
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    ledger = FakeLedger()
    cluster = FakeCluster([pod(**each) for each in case.get("pods", [])], case.get("namespaces"))

    decision = feature(cluster, ledger, **case.get("settings", {})).review(
        request(**case["request"]), deadline=0
    )

    expect = case["expect"]
    assert decision.allowed
    assert [each.cidr for each in ledger.records] == expect.get("reserved", [])
    assert {each.reason for each in ledger.records} == ({expect["reason"]} if "reason" in expect else set())
    assert decision.audit.get("skipped") == expect.get("skipped")
    assert decision.audit.get("reserved", "") == ",".join(expect.get("reserved", []))


# Which pods are selected


def expression(operator: str, *values: str, key: str = "a") -> dict[str, object]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}


SELECTORS = {
    "the value": ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
    "another value": ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
    "one label is enough": ({"matchLabels": {"a": "1", "b": "2"}}, {"b": "2"}, True),
    "In": (expression("In", "1", "2"), {"a": "2"}, True),
    "absent is not In": (expression("In", "1"), {}, False),
    "not NotIn": (expression("NotIn", "1"), {"a": "1"}, False),
    "absent is NotIn": (expression("NotIn", "1"), {}, True),
    "Exists, though empty": (expression("Exists"), {"a": ""}, True),
    "does not Exist": (expression("Exists"), {"b": "a"}, False),
    "not DoesNotExist": (expression("DoesNotExist"), {"a": ""}, False),
    "DoesNotExist": (expression("DoesNotExist"), {"b": ""}, True),
    "one expression is enough": (
        {"matchLabels": {"a": "1"}} | expression("Exists", key="b"),
        {"b": "x"},
        True,
    ),
    "no requirement selects nothing": ({}, {"a": "1"}, False),
}


@pytest.mark.parametrize(("selector", "labels", "selected"), SELECTORS.values(), ids=SELECTORS)
def test_meeting_any_one_requirement_is_enough(
    selector: dict[str, object], labels: dict[str, str], selected: bool
) -> None:
    assert meets_any(LabelSelector.model_validate(selector), labels) is selected


# Reviews


def test_the_record_says_for_whom_the_address_is_held() -> None:
    ledger = FakeLedger()

    feature(ledger=ledger).review(request(pod={}), deadline=0)

    held = ledger.records[0]
    assert (held.namespace, held.pod, held.uid) == ("redis", "redis-0", "uid-redis-0")
    assert (held.node, held.owner, held.at, held.late) == ("node-1", "StatefulSet/redis", NOW, False)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("uid", ""),
        ("uid", "u" * 254),
        ("name", ""),
        ("name", ".."),
        ("name", "a/log"),
        ("name", "a?watch=1"),
        ("namespace", "a b"),
    ],
)
def test_a_pod_that_no_api_server_can_have_stored_is_refused(field: str, value: str) -> None:
    ledger = FakeLedger()

    with pytest.raises(ReviewError, match=f"^request.oldObject is no stored pod: metadata.{field} is '"):
        feature(ledger=ledger).review(request(pod={"metadata": {field: value}}), deadline=0)

    assert ledger.records == []


def test_a_record_is_never_longer_than_one_of_a_stored_pod() -> None:
    ledger = FakeLedger()
    long = "n" * 10_000
    owner = {"apiVersion": "v1", "kind": long, "name": long, "uid": "u", "controller": True}

    forged = {"metadata": {"ownerReferences": [owner]}, "spec": {"nodeName": long}}
    feature(ledger=ledger).review(request(pod=forged), deadline=0)

    assert len(msgspec.json.encode(ledger.records)) < 2000


def test_only_the_leader_writes_when_a_pod_ended() -> None:
    ledger = FakeLedger()

    feature(ledger=ledger).review(
        request(pod={"status": {"phase": "Failed", "reason": "Evicted"}}), deadline=0
    )

    assert [(each.late, each.ended) for each in ledger.records] == [(True, None)]


def deletion(number: int, **parts: Any) -> Request:
    return request(pod={"name": f"redis-{number}", "ip": f"10.0.1.{number}"} | parts)


def test_a_client_that_is_not_known_reserves_few_addresses_for_pods_that_do_not_exist() -> None:
    ledger, clock = FakeLedger(), FakeClock()
    webhook = feature(ledger=ledger, clock=clock)

    decisions = [webhook.review(deletion(number), deadline=0) for number in range(200)]
    assert len(ledger.records) == MOST
    assert {each.audit.get("skipped") for each in decisions[MOST:]} == {"no such pod"}

    clock.advance(WINDOW - 1)
    webhook.review(deletion(201), deadline=0)
    assert len(ledger.records) == MOST

    clock.advance(1)
    for number in range(200):
        webhook.review(deletion(number), deadline=0)
    assert len(ledger.records) == 2 * MOST


def test_all_pods_that_exist_are_reserved_by_what_the_api_server_says() -> None:
    ledger = FakeLedger()
    cluster = FakeCluster([pod(f"redis-{number}", ip=f"10.0.1.{number}") for number in range(100)])
    webhook = feature(cluster, ledger)

    for number in range(100):
        assert webhook.review(deletion(number), deadline=0).allowed
    assert [each.cidr for each in ledger.records] == [f"10.0.1.{number}/32" for number in range(100)]
    assert cluster.reads == 100 - MOST

    webhook.review(deletion(7, metadata={"uid": "another"}), deadline=0)
    webhook.review(deletion(8, ip="10.9.9.9"), deadline=0)
    assert [each.cidr for each in ledger.records[100:]] == ["10.0.1.8/32"]


def test_of_api_servers_that_are_known_by_their_certificates_no_pod_is_read() -> None:
    ledger, cluster = FakeLedger(), FakeCluster()
    webhook = feature(cluster, ledger, knows_clients=True)

    for number in range(100):
        webhook.review(deletion(number), deadline=0)

    assert (len(ledger.records), cluster.reads) == (100, 0)


def test_a_pod_that_cannot_be_read_keeps_running() -> None:
    class Away(FakeCluster):
        def pod(self, namespace: str, name: str, *, deadline: float = 0.0) -> Pod:
            raise Unreachable("the API server is away")

    webhook = feature(Away())
    decisions = [webhook.review(deletion(number), deadline=0) for number in range(MOST + 1)]

    assert [each.allowed for each in decisions] == [True] * MOST + [False]
    assert (decisions[-1].code, decisions[-1].retry_after) == (503, 1)


AWAY = NotReserved("the store is away")
EVICTION = {"operation": "CREATE", "subResource": "eviction", "object": {"metadata": {"name": "redis-0"}}}


@pytest.mark.parametrize(
    ("refusal", "parts", "answer"),
    [
        pytest.param(AWAY, {"pod": {}}, (503, "ServiceUnavailable"), id="the ledger"),
        pytest.param(
            Unreachable(str(AWAY)), {"name": "", "pod": {}}, (503, "ServiceUnavailable"), id="the API server"
        ),
        pytest.param(
            AWAY, EVICTION, (429, "TooManyRequests"), id="an eviction, for which a drain then waits"
        ),
    ],
)
def test_what_cannot_be_reserved_is_refused_with_what_to_do_and_repeated_by_the_client(
    refusal: Exception, parts: dict[str, Any], answer: tuple[int, str]
) -> None:
    webhook = feature(FakeCluster([pod()]), FakeLedger(refusal))
    decision = webhook.review(request(**parts), deadline=0)

    assert (decision.allowed, decision.retry_after) == (False, 1)
    assert (decision.code, decision.reason) == answer
    for part in ("pod redis/redis-0", "the store is away", "drawbridge.io/reserve-ip=false"):
        assert part in decision.message


def test_an_evicted_pod_is_reserved_while_it_is_not_known_whether_its_mark_counts() -> None:
    def forbidden(_: float) -> str | None:
        raise Forbidden(403, "Forbidden", "no")

    ledger, mark = FakeLedger(), {RESERVED: mark_of("0123456789abcdef", pod())}
    marked = FakeCluster([pod(metadata={"annotations": mark})])
    webhook = dataclasses.replace(feature(marked, ledger), epoch=forbidden)

    assert webhook.review(request(**EVICTION), deadline=0).allowed
    assert [each.cidr for each in ledger.records] == ["10.0.0.1/32"]


@pytest.mark.parametrize(
    ("settings", "namespace"), [({"failurePolicy": "Ignore"}, "redis"), ({}, "kube-system")]
)
def test_what_cannot_be_reserved_passes_with_a_warning_where_nothing_may_wait_for_it(
    settings: dict[str, Any], namespace: str
) -> None:
    webhook = feature(ledger=FakeLedger(AWAY), **settings)
    decision = webhook.review(request(namespace=namespace, pod={}), deadline=0)

    assert decision.allowed
    assert f"{namespace}/redis-0 is not reserved yet: the store is away" in decision.warnings[0]
    assert decision.audit == {"failed-open": decision.warnings[0]}
