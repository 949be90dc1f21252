"""The benchmark of the command fills a cluster with what it says, and compares each call with its reads."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from bench.cli import VERBS, objects
from bench.cli.calls import Recording, Took, figures, timed
from bench.cli.objects import Size
from cli.app import COMMANDS
from controllers.anycast_ip.claim import read
from kube.rest_config import Connection
from kube.types import ConfigMap, Node, Pod
from lab.errors import LabError
from webhook.anycast_ip import is_proven_bound
from webhook.elasticity import GATE, LOCAL, PLACEMENT, SUPER

SIZE = Size(20, 2, 400, 50)


def decoded(raw: Any, kind: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(raw), type=kind)


def test_nodes_are_open_by_the_change_that_opens_them_and_the_last_are_super_nodes() -> None:
    made = list(objects.nodes(SIZE))
    assert [objects.is_super(each) for each in made] == [False] * 18 + [True] * 2

    created = made[3] | {"metadata": made[3]["metadata"] | {"uid": "uid-3"}}
    annotations = objects.opened(created)["metadata"]["annotations"]
    opened = created | {"metadata": created["metadata"] | {"annotations": annotations}}
    assert is_proven_bound(decoded(opened, Node))
    claim = read(decoded(objects.claim(created), ConfigMap))
    assert (claim.node, claim.uid) == ("node-3.example.internal", "uid-3")


def test_pods_run_but_for_those_that_wait_and_half_of_the_elastic_ones_are_on_super_nodes() -> None:
    numbers = range(SIZE.pods)
    made = {number: objects.pod(number, SIZE) for number in numbers}
    waiting = {number for number in numbers if objects.waits(number)}
    supers = {objects.node_name(18), objects.node_name(19)}

    assert waiting == {0}
    assert all(objects.is_elastic(number) for number in waiting)
    assert made[0]["spec"]["schedulingGates"] == [{"name": GATE}]
    away = {number for number in numbers if made[number]["spec"].get("nodeName") in supers}
    assert len(away) == sum(map(objects.is_elastic, numbers)) / 2
    for number in numbers:
        change = objects.started(number, SIZE)
        expected = (SUPER if number in away else LOCAL) if objects.is_elastic(number) else None
        assert change["metadata"]["annotations"].get(PLACEMENT) == expected
        assert decoded(change, Pod).status.phase == "Running"


def test_what_the_api_server_fills_in_is_not_sent() -> None:
    for each in (objects.pod(7, SIZE), next(objects.nodes(SIZE))):
        assert each["metadata"].keys().isdisjoint(objects.BY_SERVER)
    assert len({each["metadata"]["name"] for each in objects.namespaces(SIZE)}) == SIZE.namespaces == 2
    assert len({each.cidr for each in objects.records(SIZE)}) == SIZE.reserved


def test_figures_are_medians_and_the_ratio_is_to_the_reads_alone() -> None:
    calls = [Took(0.9, 0.4), Took(0.5, 0.3), Took(0.7, 0.2)]
    reads = [Took(0.1, 0.0), Took(0.2, 0.0), Took(0.35, 0.0)]
    found = {each.name: each for each in figures("status", calls, reads, at_most=0.6)}

    assert (found["status: median of 3"].value, found["status: median of 3"].met) == (0.7, False)
    assert found["status: longest"].value == 0.9
    assert found["status: CPU"].value == 0.3
    assert found["status: against its reads alone"].ratio == pytest.approx(3.5)


def test_a_call_is_timed_and_one_that_fails_is_no_measurement() -> None:
    assert timed([sys.executable, "-c", "input()"], {}, given=b"x\n").wall > 0

    with pytest.raises(LabError, match="ended with 3"):
        timed([sys.executable, "-c", "raise SystemExit(3)"], {})


class Silent(Connection):
    host = "https://here"

    def __init__(self) -> None:
        self.pool = self  # type: ignore[assignment]

    def authorization(self) -> dict[str, str]:
        return {}

    def request(self, method: str, url: str, **_: Any) -> str:
        return f"{method} {url}"


def test_what_is_read_is_recorded_with_its_form() -> None:
    recording = Recording(Silent())
    assert recording.request("GET", "https://here/api?limit=1", headers={"Accept": "a"}).startswith("GET")
    recording.request("POST", "https://here/api", headers={"Accept": "a"})

    assert recording.reads == [("/api?limit=1", "a")]


def test_every_verb_is_one_of_the_command() -> None:
    assert {arguments[0] for arguments in VERBS.values()} <= COMMANDS.keys()
