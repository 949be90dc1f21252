"""`drawbridge reservations`: what an operator did by editing annotations."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from calico.segment import LEVEL, MANAGED_BY, MANAGER, RELEASE, body
from dev.fake_api import FakeAPI
from tests import cli
from tests.factories import NOW, record

RESERVATIONS = cli.resource("IPReservation")


def segment(api: FakeAPI, name: str, *records: Any) -> None:
    raw = body(records)
    raw["metadata"] |= {"name": name, "labels": {MANAGED_BY: MANAGER, LEVEL: "0"}}
    api.put(RESERVATIONS, raw)


@pytest.fixture
def api() -> FakeAPI:
    found = cli.installed()
    gone = record("10.0.0.1/32", reason="evicted", ended=NOW - timedelta(minutes=30))
    there = record("10.0.0.2/32", reason="deleted", namespace="kafka", pod="kafka-0", uid="b")
    segment(found, "one", gone, there)
    return found


def order(api: FakeAPI, name: str = "one") -> str | None:
    annotation: str | None = api.get(RESERVATIONS, name)["metadata"]["annotations"].get(RELEASE)
    return annotation


def test_each_ip_is_listed_once_with_its_pod_and_its_release(api: FakeAPI) -> None:
    segment(api, "copy", record("10.0.0.1/32", reason="evicted"))
    api.put(
        RESERVATIONS,
        {"metadata": {"name": "mine"}, "spec": {"reservedCIDRs": ["10.9.9.9/32", "10.8.0.0/16"]}},
    )

    found = cli.shown(api, "reservations", "list")["reservations"]
    assert {(each["address"], each["reason"], each["object"]) for each in found} == {
        ("10.0.0.1", "evicted", "copy"),
        ("10.0.0.2", "deleted", "one"),
        ("10.9.9.9", "unmanaged", "mine"),
    }


def test_the_next_release_comes_first(api: FakeAPI) -> None:
    lines = cli.run(api, "reservations", "list").output.splitlines()

    assert [line.split()[:3] for line in lines[1:]] == [
        ["10.0.0.1", "redis/redis-0", "evicted"],
        ["10.0.0.2", "kafka/kafka-0", "deleted"],
    ]
    assert "in 10m" in lines[1]
    assert "no end stored" in lines[2]


def test_the_time_of_the_release_is_that_of_the_settings_everywhere(api: FakeAPI) -> None:
    """From the same record and the same settings: nothing stored could contradict them."""
    listed = {each["address"]: each for each in cli.shown(api, "reservations", "list")["reservations"]}
    ended = datetime.fromisoformat(listed["10.0.0.1"]["endedAt"])
    expected = f"{ended + timedelta(minutes=40):%Y-%m-%dT%H:%M:%S}"
    [explained] = cli.shown(api, "explain", "ip", "10.0.0.1")["reservations"]
    [first] = cli.shown(api, "status")["ipReservation"]["nextReleases"]

    assert {each["expiresAt"][:19] for each in (listed["10.0.0.1"], explained, first)} == {expected}
    assert listed["10.0.0.2"]["expiresAt"] is None
    wide = cli.run(api, "reservations", "list", "-o", "wide").output.splitlines()
    assert "EXPIRES AT" in wide[0]
    assert f"{expected}Z" in wide[1]


def test_a_namespace_selects(api: FakeAPI) -> None:
    found = cli.shown(api, "reservations", "list", "-n", "kafka")["reservations"]

    assert [each["address"] for each in found] == ["10.0.0.2"]


def test_a_release_is_ordered_by_the_annotation_of_the_segment(api: FakeAPI) -> None:
    result = cli.run(api, "reservations", "release", "10.0.0.1", "10.0.0.2", answer="y\n")

    assert order(api) == "10.0.0.1,10.0.0.2"
    assert "10.0.0.1: pod redis/redis-0, gone for 30m" in result.output
    assert result.output.splitlines()[-2:] == [
        "10.0.0.1: the leader releases it within 5s",
        "10.0.0.2: the leader releases it when pod kafka/kafka-0 is gone",
    ]


def test_a_release_adds_to_earlier_ones(api: FakeAPI) -> None:
    for address in ("10.0.0.1", "10.0.0.2"):
        assert cli.run(api, "reservations", "release", address, "--yes").exit_code == 0

    assert order(api) == "10.0.0.1,10.0.0.2"


def test_nothing_is_released_unless_the_user_agrees(api: FakeAPI) -> None:
    assert cli.run(api, "reservations", "release", "10.0.0.1", answer="n\n").exit_code == 1
    assert order(api) is None


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.9", "Error: 10.0.0.9 is not reserved"),
        ("redis-0", "Error: 'redis-0' is not an IP address"),
        ("10.7.7.7", "Error: 10.7.7.7 is reserved by IPReservation mine, which Drawbridge does not manage"),
    ],
)
def test_what_cannot_be_released_is_named_and_nothing_is_changed(
    api: FakeAPI, address: str, expected: str
) -> None:
    api.put(RESERVATIONS, {"metadata": {"name": "mine"}, "spec": {"reservedCIDRs": ["10.7.7.7/32"]}})
    result = cli.run(api, "reservations", "release", "10.0.0.1", address, "--yes")

    assert result.exit_code == 1
    assert result.output.splitlines()[0] == expected
    assert order(api) is None


@pytest.mark.parametrize("address", ["10.0.0.7", "fd00::"])
def test_an_ip_is_held_until_it_is_released(api: FakeAPI, address: str) -> None:
    assert cli.run(api, "reservations", "hold", address, answer="y\n").exit_code == 0
    assert "already" in cli.run(api, "reservations", "hold", address).output
    [held] = [
        each for each in cli.shown(api, "reservations", "list")["reservations"] if each["address"] == address
    ]
    assert (held["reason"], held["expiresAt"]) == ("held by hand", None)

    result = cli.run(api, "reservations", "release", address, "--yes")
    assert result.output == f"{address}: no longer held by hand\n"
    assert [each["metadata"]["name"] for each in api.list(RESERVATIONS)] == ["one"]


def test_without_calico_the_way_out_is_named() -> None:
    api = cli.installed()
    api.unserved = {"projectcalico.org/v3"}
    result = cli.run(api, "reservations", "list")

    assert result.exit_code == 3
    assert "is Calico installed with its CRDs?" in result.output


def test_what_is_held_by_hand_is_not_called_released_at_the_end_of_its_time(api: FakeAPI) -> None:
    def expiring() -> list[str]:
        return [each["address"] for each in cli.shown(api, "status")["ipReservation"]["nextReleases"]]

    assert expiring() == ["10.0.0.1"]
    assert "in 10m" in cli.run(api, "reservations", "list").output
    cli.run(api, "reservations", "hold", "10.0.0.1", "--yes")

    [ours] = [each for each in cli.shown(api, "reservations", "list")["reservations"] if each["keptBy"]]
    assert (ours["address"], ours["keptBy"]) == ("10.0.0.1", "held-10-0-0-1")
    assert "in 10m" not in cli.run(api, "reservations", "list").output
    assert expiring() == []
    said = cli.shown(api, "explain", "ip", "10.0.0.1")["summary"]
    assert said.endswith("; held-10-0-0-1, which Drawbridge does not manage, keeps it reserved then")


@pytest.mark.parametrize("uid", ["uid-redis-0", "forged"], ids=["just gone", "forged"])
def test_no_pod_is_said_to_exist_that_does_not(api: FakeAPI, uid: str) -> None:
    segment(api, "none", record("10.0.0.3/32", uid=uid))

    for command in (("reservations", "list"), ("status",), ("explain", "ip", "10.0.0.3")):
        assert "exist" not in cli.run(api, *command).output
    assert "or drops it if there never was such a pod" in cli.run(api, "explain", "ip", "10.0.0.3").output
