"""An owner counts as deleted only by the API server's word, and then for ever."""

from __future__ import annotations

from typing import Any

import pytest

from calico.reservations import Reservations
from controllers.clock import CLOCK
from controllers.ip_reservation.snapshot import LiveReader
from kube.client import Client
from kube.errors import ApiError, NotFound, Unreachable
from kube.types import OwnerReference
from tests.misbehaving_server import Answer, answers, in_turn, refuses, resets, serving

STATEFUL_SET = OwnerReference("apps/v1", "StatefulSet", "redis", "uid-1", controller=True)
GONE = refuses(404, "NotFound")


def reader(client: Client) -> LiveReader:
    return LiveReader(client, Reservations(client), CLOCK)


def owner(uid: str = "uid-1", **metadata: str) -> Answer:
    return answers({"metadata": {"name": "redis", "uid": uid, **metadata}, "spec": {"replicas": 3}})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(owner(), False, id="there"),
        pytest.param(GONE, True, id="gone"),
        pytest.param(owner("uid-2"), True, id="another of its name"),
        pytest.param(owner(deletionTimestamp="2026-01-02T03:04:05Z"), True, id="going"),
        pytest.param(refuses(403, "Forbidden"), False, id="not for us to read"),
    ],
)
def test_an_owner_is_deleted_when_it_is_gone_or_going(answer: Answer, expected: bool) -> None:
    with serving(lambda asked: answer) as server:
        assert reader(server.client()).is_owner_deleted("shop", STATEFUL_SET) is expected
        assert [asked.path for asked in server.asked] == ["/apis/apps/v1/namespaces/shop/statefulsets/redis"]


@pytest.mark.parametrize(
    ("api_version", "kind", "path"),
    [
        ("apps/v1", "ReplicaSet", "/apis/apps/v1/namespaces/shop/replicasets/redis"),
        ("apps/v1", "DaemonSet", "/apis/apps/v1/namespaces/shop/daemonsets/redis"),
        ("batch/v1", "Job", "/apis/batch/v1/namespaces/shop/jobs/redis"),
    ],
)
def test_each_kind_of_workload_is_looked_up_where_it_is(api_version: str, kind: str, path: str) -> None:
    with serving(lambda asked: GONE) as server:
        assert reader(server.client()).is_owner_deleted(
            "shop", OwnerReference(api_version, kind, "redis", "uid-1")
        )
        assert [asked.path for asked in server.asked] == [path]


@pytest.mark.parametrize(
    ("api_version", "kind"), [("apps.example.com/v1", "StatefulSet"), ("apps.example.com/v1", "RedisCluster")]
)
def test_a_kind_that_we_do_not_know_is_not_asked_for(api_version: str, kind: str) -> None:
    with serving(lambda asked: GONE) as server:
        owners = reader(server.client())
        assert not owners.is_owner_deleted("shop", OwnerReference(api_version, kind, "redis", "uid-1"))
        assert server.asked == []


def test_what_is_deleted_is_asked_for_once_and_what_is_there_each_time() -> None:
    with serving(in_turn(owner(), owner(), GONE, owner())) as server:
        owners = reader(server.client())
        assert [owners.is_owner_deleted("shop", STATEFUL_SET) for _ in range(5)] == [
            False,
            False,
            True,
            True,
            True,
        ]
        assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("fault", "error"),
    [(refuses(500, "InternalError"), ApiError), (resets, Unreachable)],
    ids=["500", "reset"],
)
def test_a_server_that_cannot_tell_decides_nothing(fault: Answer, error: type[Exception]) -> None:
    with serving(in_turn(fault, owner())) as server:
        owners = reader(server.client())
        with pytest.raises(error):
            owners.is_owner_deleted("shop", STATEFUL_SET)
        assert not owners.is_owner_deleted("shop", STATEFUL_SET)


class Nothing:
    """A client of an API server without any object; it counts what it is asked."""

    asked = 0

    def get(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        raise NotFound(404, "NotFound", "none")


def test_not_more_than_the_last_ten_thousand_are_remembered() -> None:
    client: Any = Nothing()
    owners = reader(client)
    for number in range(10_001):
        assert owners.is_owner_deleted("shop", OwnerReference("apps/v1", "ReplicaSet", "a", f"uid-{number}"))
    assert owners.is_owner_deleted("shop", OwnerReference("apps/v1", "ReplicaSet", "a", "uid-1"))
    assert client.asked == 10_001
    assert owners.is_owner_deleted("shop", OwnerReference("apps/v1", "ReplicaSet", "a", "uid-0"))
    assert client.asked == 10_002
