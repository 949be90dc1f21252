"""An owner counts as deleted only by the API server's word, and then for ever."""

from __future__ import annotations

import math

import pytest
from msgspec import structs

from api.ip_reservation import OWNERS
from calico.reservations import Reservations
from controllers.controller import CLOCK
from controllers.ip_reservation import calls
from controllers.ip_reservation.calls import LiveReader
from kube.client import Client
from kube.errors import ServerError
from kube.types import OwnerReference
from tests.misbehaving_server import Answer, answers, in_turn, refuses, serving

STATEFUL_SET = OwnerReference("apps/v1", "StatefulSet", "redis", "uid-1", controller=True)
GONE = refuses(404, "NotFound")
NOW = math.inf
"""Of a pod that began to go after every look."""


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
        pytest.param(owner(deletionTimestamp="2026-01-02T03:04:05Z"), True, id="terminating"),
        pytest.param(refuses(403, "Forbidden"), False, id="not readable"),
    ],
)
@pytest.mark.parametrize(("api_version", "kind"), OWNERS)
def test_an_owner_is_deleted_when_it_is_gone_or_terminating(
    answer: Answer, expected: bool, api_version: str, kind: str
) -> None:
    with serving(lambda asked: answer) as server:
        reference = OwnerReference(api_version, kind, "redis", "uid-1", controller=True)
        assert reader(server.client()).is_owner_deleted("shop", reference, NOW) is expected
        path = f"/apis/{api_version}/namespaces/shop/{kind.lower()}s/redis"
        assert [asked.path for asked in server.asked] == [path]


@pytest.mark.parametrize(
    ("api_version", "kind"), [("apps.example.com/v1", "StatefulSet"), ("apps.example.com/v1", "RedisCluster")]
)
def test_a_kind_that_we_do_not_know_is_not_asked_for(api_version: str, kind: str) -> None:
    with serving(lambda asked: GONE) as server:
        owners = reader(server.client())
        assert not owners.is_owner_deleted("shop", OwnerReference(api_version, kind, "redis", "uid-1"), NOW)
        assert server.asked == []


def test_what_is_deleted_is_asked_for_once_and_what_is_there_or_not_known_each_time() -> None:
    with serving(in_turn(refuses(500, "InternalError"), owner(), owner(), GONE, owner())) as server:
        owners = reader(server.client())
        with pytest.raises(ServerError):
            owners.is_owner_deleted("shop", STATEFUL_SET, NOW)
        assert [owners.is_owner_deleted("shop", STATEFUL_SET, NOW) for _ in range(5)] == [
            False,
            False,
            True,
            True,
            True,
        ]
        assert len(server.asked) == 4


def test_one_look_at_an_owner_that_is_there_serves_all_pods_that_began_to_go_before_it() -> None:
    with serving(lambda asked: owner()) as server:
        owners = reader(server.client())
        since = CLOCK.monotonic()
        assert [owners.is_owner_deleted("shop", STATEFUL_SET, since) for _ in range(3)] == [False] * 3
        assert len(server.asked) == 1
        assert not owners.is_owner_deleted("shop", STATEFUL_SET, CLOCK.monotonic())
        assert len(server.asked) == 2


@pytest.mark.parametrize(("namespace", "name"), [("test", "redis"), ("shop", "redis-copy")])
def test_a_pod_that_names_the_uid_of_an_owner_elsewhere_says_nothing_of_it(namespace: str, name: str) -> None:
    """As a copy that was applied from `kubectl get -o yaml`, or forged: its IP would be given back for no reason."""
    there = "/apis/apps/v1/namespaces/shop/statefulsets/redis"
    with serving(lambda asked: owner() if asked.path == there else GONE) as server:
        owners = reader(server.client())
        assert owners.is_owner_deleted(namespace, structs.replace(STATEFUL_SET, name=name), NOW)
        assert not owners.is_owner_deleted("shop", STATEFUL_SET, NOW)


def test_only_the_last_deleted_owners_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "REMEMBERED_OWNERS", 2)
    with serving(lambda asked: GONE) as server:
        owners = reader(server.client())
        for number in (0, 1, 2, 2, 0):
            assert owners.is_owner_deleted(
                "shop", OwnerReference("apps/v1", "ReplicaSet", "a", str(number)), NOW
            )
        assert len(server.asked) == 4
