"""What Calico's API server hides in an annotation is read in the other API group, and laid open by a write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from calico.reservations import Reservations
from calico.segment import MANAGED_BY, MANAGER, METADATA, RECORDS, body, laid_open, revealed
from kube.types import ObjectMeta
from tests.api_server import Api
from tests.factories import record
from tests.misbehaving_server import serving

V1 = "crd.projectcalico.org/v1"
IN_V1 = f"/apis/{V1}/ipreservations"
FIRST, SECOND = record("10.0.0.1/32"), record("10.0.0.2/32")


def as_calico_stores_it(**metadata: Any) -> dict[str, Any]:
    """A v3 object as Calico 3.28 writes it into the custom resource (taken from its own conversion)."""
    held = body([FIRST])
    rest = {"creationTimestamp": "2026-01-02T03:00:00Z", "finalizers": ["a/b"]}
    hidden = rest | {
        "labels": {MANAGED_BY: MANAGER, "team": "redis"},
        "annotations": held["metadata"]["annotations"] | {"note": "c"},
    }
    annotations = {METADATA: json.dumps(hidden, separators=(",", ":"))}
    return {"metadata": {"name": "a", "annotations": annotations} | metadata, "spec": held["spec"]}


@contextmanager
def served_in_v1(raw: dict[str, Any]) -> Iterator[tuple[Api, Reservations]]:
    api = Api(V1)
    api.put(IN_V1, raw)
    with serving(api) as server:
        yield api, Reservations(server.client())


def test_a_segment_that_was_written_in_the_other_group_is_ours_with_its_records() -> None:
    with served_in_v1(as_calico_stores_it()) as (_, reservations):
        (seen,) = reservations.list()
    assert (seen.ours, seen.records) == (True, (FIRST,))


def test_a_write_leaves_no_hidden_copy_that_would_win_over_it() -> None:
    with served_in_v1(as_calico_stores_it()) as (api, reservations):
        written = reservations.write(reservations.get("a", timeout=1), [FIRST, SECOND], timeout=1)
        (stored,) = api.in_collection(IN_V1)
    annotations = stored["metadata"]["annotations"]
    assert (written.ours, written.records) == (True, (FIRST, SECOND))
    assert stored["metadata"]["labels"] == {MANAGED_BY: MANAGER, "team": "redis"}
    assert (annotations["note"], len(json.loads(annotations[RECORDS]))) == ("c", 2)
    assert json.loads(annotations[METADATA]) == {
        "creationTimestamp": "2026-01-02T03:00:00Z",
        "finalizers": ["a/b"],
    }


def test_what_is_hidden_outweighs_what_stands_beside_it_as_it_does_for_calico() -> None:
    hidden = json.dumps({"labels": {"a": "hidden"}})
    shown = revealed(ObjectMeta(labels={"a": "open", "b": "open"}, annotations={METADATA: hidden}))
    assert shown.labels == {"a": "hidden", "b": "open"}


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({}, id="nothing"),
        pytest.param({METADATA: '{"creationTimestamp":null}'}, id="neither labels nor annotations"),
        pytest.param({METADATA: '{"labels":'}, id="what nobody can read"),
    ],
)
def test_metadata_that_hides_nothing_is_left_alone(annotations: dict[str, str]) -> None:
    metadata = ObjectMeta(labels={"a": "b"}, annotations=annotations)
    assert revealed(metadata) is metadata
    assert laid_open(metadata, {"c": "d"}) == {"annotations": {"c": "d"}}
