"""Commands read no more of a large cluster than they show."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from calico.segment import ReservationSpec, body
from cli.ip_reservation.reservations import listed
from settings import IPReservationSettings
from tests import cli
from tests.factories import numbered, record, segment


def reads(*command: str, records: Any = ()) -> list[tuple[str, dict[str, str]]]:
    """Paths and queries of all that is read, in a cluster with these reservations."""
    api = cli.installed("anycastIP", "elasticity")
    api.put(cli.resource("Node"), {"metadata": {"name": "node-1"}})
    made = body(records)
    made["metadata"] |= {"name": "segment", "labels": {"app.kubernetes.io/managed-by": "drawbridge"}}
    api.put(cli.resource("IPReservation"), made)
    cli.run(api, *command)
    return [(call.path, call.query) for call in api.calls if call.method == "GET"]


def test_pods_are_not_read_as_a_whole() -> None:
    """A cluster has 20,000: one is read for the count, and those that are pending, on super nodes, or have ended."""
    queries = [query for path, query in reads("status") if path == "/api/v1/pods"]

    ended = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"
    assert sorted(queries, key=str) == [
        {"fieldSelector": ended, "resourceVersion": "0", "includeObject": "None"},
        {"fieldSelector": "status.phase=Pending", "resourceVersion": "0"},
        {"limit": "1"},
    ]


def test_a_reservation_of_another_workload_costs_no_read_of_successors() -> None:
    found = reads("explain", "ip", "10.0.0.1", records=[record(pod="web-1", uid="uid-web")])

    assert sum(path.endswith("/pods/web-1") for path, _ in found) == 1, "for its life alone"


@pytest.mark.parametrize(
    ("values", "needed"),
    [
        pytest.param({"elasticity": {"localReplicas": 2}}, True, id="elasticity"),
        pytest.param(
            {"ipReservation": {"labelSelector": {"matchLabels": {"a": "b"}}}}, True, id="reservation"
        ),
        pytest.param({"anycastIP": {"nodeLabels": {"a": "b"}}}, False, id="anycast"),
        pytest.param({"ipReservation": {"maxCount": -1}}, False, id="refused"),
    ],
)
def test_pods_are_read_only_for_a_change_that_may_concern_them(
    tmp_path: Path, values: dict[str, Any], needed: bool
) -> None:
    """All pods of a large cluster are hundreds of megabytes."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))

    assert any(path.endswith("/pods") for path, _ in reads("simulate", "values", str(file))) == needed


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("doctor",),
        ("explain", "ip", "10.0.0.1"),
        ("simulate", "join", "2"),
        ("simulate", "drain", "node-1"),
        ("addresses", "list"),
        ("elasticity", "list"),
        ("reservations", "list"),
    ],
    ids=" ".join,
)
def test_no_object_and_no_list_is_read_twice(command: tuple[str, ...]) -> None:
    found = reads(*command, records=[record(pod="web-1", uid="uid-web")])

    twice = {path for path, query in found if found.count((path, query)) > 1}
    discovery = {path for path, _ in found if path.startswith("/apis/") and path.count("/") == 3}
    # The Lease is read by what the webhook server asks for the leader, too.
    assert twice - discovery <= {"/apis/coordination.k8s.io/v1/namespaces/drawbridge/leases/drawbridge"}


def test_reservations_are_not_compared_with_each_entry_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, contains = list[object](), IPv4Network.__contains__
    monkeypatch.setattr(
        IPv4Network, "__contains__", lambda self, other: looks.append(other) or contains(self, other)
    )
    ours = segment(*map(numbered, range(100)))
    wide = replace(segment(ours=False, name="wide"), spec=ReservationSpec(["10.0.0.96/30", "10.0.0.64/27"]))
    single = segment(*map(numbered, range(99, 200)), ours=False, name="single")

    shown = listed([ours, single, wide], IPReservationSettings())
    found = {each.address: each.kept_by for each in shown if each.pod}

    assert [found[f"10.0.0.{n}"] for n in (63, 64, 98, 99)] == ["", "wide", "wide", "single"]
    assert looks == []
