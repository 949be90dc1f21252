"""IPReservations are found in the group that is served, and never overwritten unseen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from calico.reservations import AUTO, NotServed, Reservations
from calico.segment import LEVEL, MANAGED_BY, MANAGER, RELEASE, IPReservation
from dev.fake_api import FakeAPI, Kind, calico_api, merged, refusal
from dev.lab.waiting import stretch
from kube.client import Resource
from kube.errors import Conflict, NotFound, ServerError, Unreachable
from kube.transport import MERGE_PATCH
from tests.factories import record
from tests.misbehaving_server import Handler, Server, hangs, refuses, serving

V3, V1 = "projectcalico.org/v3", "crd.projectcalico.org/v1"
IN_V3, IN_V1 = f"/apis/{V3}/ipreservations", f"/apis/{V1}/ipreservations"


@contextmanager
def cluster(*calico: str) -> Iterator[tuple[FakeAPI, Server, Reservations]]:
    api = calico_api(*calico)
    with serving(api) as server:
        yield api, server, Reservations(server.client())


def discoveries(server: Server) -> list[str]:
    ends = ("ipreservations", "clusterinformations/default")
    return [asked.path for asked in server.asked if not asked.path.endswith(ends)]


@pytest.mark.parametrize(
    ("served", "configured", "expected"),
    [
        pytest.param((V3,), AUTO, V3, id="v3 alone"),
        pytest.param((V1,), AUTO, V1, id="v1 alone"),
        pytest.param((V1, V3), AUTO, V3, id="both"),
        pytest.param((V1, V3), V1, V1, id="both, and v1 is configured"),
    ],
)
def test_the_group_that_is_served_is_used_v3_first(
    served: tuple[str, ...], configured: str, expected: str
) -> None:
    with cluster(*served) as (_, server, _):
        assert Reservations(server.client(), configured).resource().api_version == expected


@pytest.mark.parametrize(
    ("served", "configured", "tried"),
    [
        pytest.param((), AUTO, f"in {V3} and {V1}", id="no Calico"),
        pytest.param((V1,), V3, f"in {V3}", id="not the configured group"),
    ],
)
def test_a_cluster_that_serves_none_is_reported_with_the_groups(
    served: tuple[str, ...], configured: str, tried: str
) -> None:
    with cluster(*served) as (_, server, _), pytest.raises(NotServed) as caught:
        Reservations(server.client(), configured).resource()
    assert str(caught.value) == (
        f"the cluster serves no IPReservation {tried}: is Calico installed with its CRDs?"
    )


def test_the_group_is_looked_for_once() -> None:
    with cluster(V1) as (_, server, reservations):
        for name in ("a", "b"):
            reservations.create(name, [record()], timeout=1)
        assert len(reservations.list()) == 2
        assert discoveries(server) == [f"/apis/{V3}", f"/apis/{V1}"]


INFORMATION = Resource("projectcalico.org", "v3", "clusterinformations", namespaced=False)
INFORMATION_V1 = Resource("crd.projectcalico.org", "v1", "clusterinformations", namespaced=False)


@pytest.mark.parametrize(
    ("works_in", "served", "expected"),
    [
        pytest.param([INFORMATION_V1], (V3, V1), V1, id="v3 is only installed beside it"),
        pytest.param(
            [INFORMATION, INFORMATION_V1], (V3, V1), V3, id="its API server has both, or it has moved"
        ),
        pytest.param([INFORMATION], (V3,), V3, id="v3 alone"),
        pytest.param([], (V3, V1), V3, id="it has not started"),
    ],
)
def test_of_two_groups_that_are_served_the_one_in_which_calico_works_is_used(
    works_in: list[Resource], served: tuple[str, ...], expected: str
) -> None:
    kinds = [Kind(each, "ClusterInformation") for each in (INFORMATION, INFORMATION_V1)]
    api = calico_api(*served, kinds=kinds)
    for each in works_in:
        api.put(each, {"metadata": {"name": "default"}})

    assert Reservations(api.client()).resource().api_version == expected
    assert Reservations(api.client(), V3).resource().api_version == V3, "it is configured"
    api.fault = lambda call: refusal(403, "Forbidden", "no") if call.path.endswith("/default") else None
    assert Reservations(api.client()).resource().api_version == V3, "who may not see it takes the first"


def test_a_server_that_cannot_tell_is_asked_again() -> None:
    with cluster(V3, V1) as (api, _, reservations):
        api.fault = lambda asked: refuses(503, "ServiceUnavailable") if V3 in asked.path else None
        with pytest.raises(ServerError):  # and not the second best group
            reservations.resource()
        api.fault = lambda asked: None
        assert reservations.resource().api_version == V3


def test_a_group_that_is_gone_is_discovered_again_at_the_next_creation() -> None:
    with cluster(V3) as (api, _, reservations):
        reservations.create("a", [record()], timeout=1)
        api.unserved = {V3}
        with pytest.raises(NotFound):
            reservations.create("b", [record()], timeout=1)
        reservations.create("b", [record()], timeout=1)
        assert [each["apiVersion"] for each in api.list(IN_V1)] == [V1]


def test_a_segment_that_is_gone_says_nothing_about_its_group() -> None:
    with cluster(V3) as (_, server, reservations):
        made = reservations.create("a", [record()], timeout=1)
        reservations.delete(made)
        with pytest.raises(NotFound):
            reservations.write(made, [], timeout=1)
        assert discoveries(server)[:3] == [f"/apis/{V3}", f"/apis/{V1}", f"{IN_V3}/a"]
        assert discoveries(server).count(f"/apis/{V3}") == 1


@pytest.mark.parametrize("group", [V3, V1])
def test_what_is_created_is_ours_and_says_its_records(group: str) -> None:
    first, second = record("10.0.0.1/32"), record("fd00::1/128")
    with cluster(group) as (api, server, _):
        made = Reservations(server.client()).create("a", [first, second], timeout=1)
        (stored,) = api.list(f"/apis/{group}/ipreservations")
    assert (stored["apiVersion"], stored["kind"]) == (group, "IPReservation")
    assert stored["metadata"]["labels"] == {MANAGED_BY: MANAGER, LEVEL: "0"}
    assert stored["spec"] == {"reservedCIDRs": ["10.0.0.1/32", "fd00::1/128"]}
    assert (made.ours, made.records) == (True, (first, second))


def test_a_write_changes_the_records_and_leaves_what_others_wrote_alone() -> None:
    with cluster(V3) as (api, server, reservations):
        reservations.create("a", [record("10.0.0.1/32")], timeout=1)
        (stored,) = api.list(IN_V3)
        theirs = {"labels": {MANAGED_BY: MANAGER, "team": "b"}, "annotations": {"note": "c"}}
        api.put(IN_V3, stored | {"metadata": stored["metadata"] | theirs})
        (seen,) = reservations.list()
        written = reservations.write(seen, [record("10.0.0.2/32")], timeout=1)
        (asked,) = [each for each in server.asked if each.method == "PATCH"]
    assert asked.headers["content-type"] == MERGE_PATCH
    assert asked.body["metadata"].keys() == {"annotations", "resourceVersion"}
    assert asked.body["metadata"]["resourceVersion"] == seen.metadata.resource_version
    assert written.metadata.labels == theirs["labels"]
    assert written.metadata.annotations["note"] == "c"
    assert written.records == (record("10.0.0.2/32"),)


@pytest.mark.parametrize(
    ("kept", "stays"),
    [
        pytest.param(["10.0.0.1/32", "10.0.0.2/32"], True, id="it has work left"),
        pytest.param(["10.0.0.2/32"], False, id="it is done"),
        pytest.param([], False, id="nothing is left"),
    ],
)
def test_an_order_to_release_is_taken_away_when_it_is_carried_out(kept: list[str], stays: bool) -> None:
    with cluster(V3) as (api, _, reservations):
        reservations.create("a", [record("10.0.0.1/32"), record("10.0.0.2/32")], timeout=1)
        (stored,) = api.list(IN_V3)
        api.put(IN_V3, merged(stored, {"metadata": {"annotations": {RELEASE: "10.0.0.1"}}}))
        (seen,) = reservations.list()
        written = reservations.write(seen, [record(each) for each in kept], timeout=1)
    assert (RELEASE in written.metadata.annotations) is stays


Act = Callable[[Reservations, IPReservation], object]

CHANGES = [
    pytest.param(lambda store, seen: store.write(seen, [record("10.0.0.9/32")], timeout=1), id="write"),
    pytest.param(lambda store, seen: store.delete(seen), id="delete"),
]


@pytest.mark.parametrize("act", CHANGES)
def test_what_changed_since_it_was_seen_is_left_as_it_is(act: Act) -> None:
    newer = [record("10.0.0.1/32"), record("10.0.0.2/32")]
    with cluster(V3) as (_, _, reservations):
        seen = reservations.create("a", newer[:1], timeout=1)
        reservations.write(seen, newer, timeout=1)
        with pytest.raises(Conflict):
            act(reservations, seen)
        assert [each.records for each in reservations.list()] == [tuple(newer)]


@pytest.mark.parametrize("knows_the_group", [True, False])
@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda store, seen: store.list(timeout=0.1), id="list"),
        pytest.param(lambda store, seen: store.create("b", [record()], timeout=0.1), id="create"),
        pytest.param(lambda store, seen: store.write(seen, [record()], timeout=0.1), id="write"),
        pytest.param(lambda store, seen: store.delete(seen, timeout=0.1), id="delete"),
    ],
)
def test_a_call_ends_at_its_timeout(act: Act, knows_the_group: bool) -> None:
    with cluster(V3) as (api, server, reservations):
        seen = reservations.create("a", [record()], timeout=1)
        if not knows_the_group:
            reservations = Reservations(server.client())
        api.fault = lambda asked: hangs
        began = time.monotonic()
        with pytest.raises(Unreachable):
            act(reservations, seen)
        assert time.monotonic() - began < 0.5 * stretch()


def test_the_search_for_the_group_and_the_call_share_one_timeout() -> None:
    def late(handler: Handler) -> None:
        handler.server.closing.wait(0.2)
        refuses(404, "NotFound")(handler)

    with cluster() as (api, server, _):
        api.fault = lambda asked: late
        with pytest.raises(Unreachable):  # and not NotServed, with the whole timeout for either group
            Reservations(server.client()).list(timeout=0.3)
