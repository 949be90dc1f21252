"""Others read over HTTP which addresses nodes are about to use: on a real control plane, from each replica."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta

import pytest

from api.anycast_ip import OPEN, transitions_of
from dev.lab import install
from dev.lab.session import Lab
from kube.resources import CONFIG_MAPS
from tests.chaos import programs
from tests.cluster import anycast
from tests.cluster.anycast import DRAWBRIDGE, Fleet
from tests.cluster.workloads import is_ready, pods_of_component

NAME, PORT = "anycast-ips", 8082
ANNOUNCE_BEFORE = 20
"""Seconds: longer than until another replica leads."""
SECONDS = 60
VALUES = {
    "controllers": {"replicaCount": 2},
    "anycastIP": {
        "allowList": {
            "enabled": True,
            "configMap": NAME,
            "announceBefore": f"{ANNOUNCE_BEFORE}s",
            "http": {"enabled": True},
        }
    },
}


@contextmanager
def served(lab: Lab) -> Iterator[None]:
    """Two replicas answer with the list, for the length of a block."""
    install.upgrade(lab, VALUES)
    try:
        lab.wait(
            lambda: len(replicas(lab)) == 2 and answers(lab) == {200}, SECONDS, "both replicas to answer"
        )
        yield
    finally:
        install.upgrade(lab, {})
        lab.wait(lambda: len(replicas(lab)) == 1, SECONDS, "the controllers to be as before")
        lab.client.delete(CONFIG_MAPS, NAME, DRAWBRIDGE)


def replicas(lab: Lab) -> dict[str, str]:
    """The IPs of the ready pods, by their names; empty while others are there, too."""
    pods = pods_of_component(lab, "controllers")
    are_ready = all(is_ready(each) and "deletionTimestamp" not in each["metadata"] for each in pods)
    return {each["metadata"]["name"]: each["status"]["podIP"] for each in pods} if are_ready else {}


def get(address: str, path: str = "/", **headers: str) -> tuple[int, str, str]:
    """The status, the ETag and the body."""
    with closing(http.client.HTTPConnection(address, PORT, timeout=SECONDS)) as connection:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("ETag", ""), answer.read().decode()


def answers(lab: Lab) -> set[int]:
    try:
        return {get(each)[0] for each in replicas(lab).values()}
    except OSError:
        return set()


def published(lab: Lab) -> dict[str, datetime]:
    """By address, since when each is listed, as both replicas say, which are asked one after the other."""

    def agreed() -> str:
        found = {get(each, "/addresses.json") for each in replicas(lab).values()}
        return found.pop()[2] if len(found) == 1 else ""

    body = lab.wait(agreed, SECONDS, "both replicas to answer the same")
    return {entry["address"]: datetime.fromisoformat(entry["since"]) for entry in json.loads(body)}


@pytest.mark.promise
def test_an_address_is_published_over_http_before_its_node_uses_it_whichever_replica_leads(
    cloud_lab: Lab, fleet: Fleet
) -> None:
    anycast.assert_empty_soon(cloud_lab, lambda: anycast.left_behind(cloud_lab))
    with served(cloud_lab):
        fleet.join("a")
        message = fleet.await_event("a", "AnycastIpAnnounced")
        (address,) = fleet.ordered_for("a")
        assert message.startswith(f"{address['ip']} ({address['id']})")
        assert address["status"] == "UNBIND"
        since = published(cloud_lab)
        assert since.keys() == {address["ip"]}
        fleet.wait(lambda: fleet.condition("a").get("reason") == "AnycastIpAnnounced", "the condition")
        replace_leader(cloud_lab)
        fleet.await_open("a")

        assert published(cloud_lab) == since
        opened = next(each.at for each in transitions_of(fleet.node("a")) if each.to == OPEN)
        waited = opened - since[address["ip"]]
        assert timedelta(seconds=ANNOUNCE_BEFORE) <= waited
        one, two = replicas(cloud_lab).values()
        status, etag, body = get(one, "/cidrs.txt")
        assert (status, body) == (200, f"{address['ip']}/32\n")
        assert get(two, "/", **{"If-None-Match": etag}) == (304, etag, "")
        fleet.leave("a")
        fleet.wait(lambda: published(cloud_lab) == {}, "the address to be taken out of the list")


def replace_leader(lab: Lab) -> None:
    """Back when another pod leads."""
    former = programs.leader(lab)
    programs.delete(lab, former)
    programs.another_leader(lab, than=former)
    lab.wait(lambda: len(replicas(lab)) == 2, SECONDS, "two replicas")
