"""A segment as a value: what is written, what is read back, and what its limits keep out."""

from __future__ import annotations

import json
from base64 import b64encode
from bz2 import compress
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from calico.reservations import Reservations
from calico.segment import (
    LEVEL,
    MANAGED_BY,
    MANAGER,
    METADATA,
    PACKED,
    RECORDS,
    IPReservation,
    body,
    canonical,
    laid_open,
    pages,
    revealed,
    size_of,
)
from dev.fake_api import FakeAPI, calico_api
from kube.types import ObjectMeta
from tests.factories import DEEP, NOW, ago, numbered, record, segment
from tests.misbehaving_server import serving

addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(
    lambda address: str(ip_network(address))
)


@given(st.lists(addresses))
def test_what_is_written_is_canonical_unique_and_read_back_as_it_was(many: list[str]) -> None:
    records = [record(address, uid=address) for address in many]

    written = body(records)["spec"]["reservedCIDRs"]
    read = segment(*records)

    assert len(set(written)) == len(written)
    assert all(ip_network(cidr).num_addresses == 1 and str(ip_network(cidr)) == cidr for cidr in written)
    assert {each.cidr for each in read.records} == set(many)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("10.0.0.1", "10.0.0.1/32"),
        ("10.0.0.1/32", "10.0.0.1/32"),
        ("FD00::0001", "fd00::1/128"),
        ("10.0.0.0/30", None),
        *((junk, None) for junk in ("", "10.0.0.300", "010.0.0.1", "10.0.0.1/33", "redis-0", "fe80::1%eth0")),
        *((f"{junk}/32", None) for junk in ("10.0.0.256", "010.0.0.1", "10.0.0.00", "10.0.0", "1.10.0.0.1")),
        ("10.0.0.1/32\n", None),
    ],
)
def test_canonical(entry: str, expected: str | None) -> None:
    assert canonical(entry) == expected


def test_another_pod_with_the_same_address_takes_no_place_of_the_first() -> None:
    first, later = record(), record(uid="another", at=NOW)

    assert segment(first, later).records == (first, later)
    assert body([first, later])["spec"] == {"reservedCIDRs": [first.cidr]}


@given(st.lists(addresses, unique=True, max_size=30), st.integers(1, 10))
def test_nothing_is_lost_and_no_page_has_more_than_its_entries(many: list[str], entries: int) -> None:
    records = [record(address, uid=address) for address in many]

    found = [*pages(records, entries)]

    assert [each for page in found for each in page] == records
    assert [len(page) for page in found[:-1]] == [entries] * (len(found) - 1)
    assert all(0 < len(page) <= entries for page in found)


@given(st.lists(st.integers(1, 250), max_size=60), st.integers(1, 30))
def test_a_page_is_full_when_its_records_would_outgrow_the_annotation(names: list[int], entries: int) -> None:
    many = [record(f"10.0.0.{n}/32", pod="p" * length) for n, length in enumerate(names)]

    found = [*pages(many, entries, 2_000)]

    assert [each for page in found for each in page] == many
    assert all(len(body(page)["metadata"]["annotations"][RECORDS]) <= 2_000 for page in found)
    for page, following in pairwise(found):
        full = len(page) == entries or size_of([*page, following[0]]) > 2_000 - 2 * len(page)
        assert full, "it had room for more"


def test_a_record_that_is_larger_than_a_page_has_one_for_itself() -> None:
    assert [*pages([record(), record("10.0.0.2/32")], 64, 10)] == [(record(),), (record("10.0.0.2/32"),)]


@pytest.mark.parametrize(
    ("labels", "level"),
    [
        pytest.param({LEVEL: "0"}, 0, id="a batch"),
        pytest.param({LEVEL: "12"}, 12, id="compacted"),
        pytest.param({LEVEL: "x"}, 0, id="that another client has changed"),
    ],
)
def test_the_level_of_a_segment(labels: dict[str, str], level: int) -> None:
    assert IPReservation(ObjectMeta(labels=labels)).level == level
    hidden = {METADATA: json.dumps({"labels": labels})}
    assert IPReservation(ObjectMeta(annotations=hidden)).level == level


def test_an_entry_has_no_field_that_says_nothing() -> None:
    (entry,) = json.loads(body([record()])["metadata"]["annotations"][RECORDS])
    assert entry.keys() == {"cidr", "at", "namespace", "pod", "uid"}


@given(st.integers(PACKED - 2, PACKED + 2))
def test_many_records_are_packed_and_read_again_as_they_were(count: int) -> None:
    many = tuple(numbered(n, pod="\N{SNOWMAN}") for n in range(count))
    whole = segment(*many)

    assert whole.records == many
    assert whole.size == size_of(many)
    assert whole.metadata.annotations[RECORDS].startswith("[") == (count < PACKED)


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(compress(b" " * 2**26), id="of more memory than ours would take"),
        pytest.param(compress(b"[]")[:-1], id="cut off"),
        pytest.param(b"BZh9 no stream", id="no stream"),
    ],
)
def test_what_cannot_be_unpacked_leaves_the_addresses_reserved(packed: bytes) -> None:
    whole = segment(record())
    annotations = {RECORDS: b64encode(packed).decode()}
    edited = replace(whole, metadata=replace(whole.metadata, annotations=annotations))

    assert edited.size == 0
    assert [(each.cidr, each.uid) for each in edited.records] == [(record().cidr, "")]


def test_an_address_without_a_record_counts_from_the_creation_of_its_object() -> None:
    edited = IPReservation(
        ObjectMeta(annotations={RECORDS: "not json"}, creation_timestamp=ago(hours=1)),
        msgspec.convert({"reservedCIDRs": ["10.0.0.9/32"]}, type=type(segment().spec)),
    )

    assert [(each.cidr, each.at, each.uid) for each in edited.records] == [("10.0.0.9/32", ago(hours=1), "")]


@pytest.mark.parametrize(
    "spoilt",
    [
        pytest.param({"cidr": "10.0.0.2/32", "at": "2026-01-02T03:04:05"}, id="a time without its zone"),
        pytest.param({"at": "2026-01-02T03:04:05Z"}, id="no address"),
        pytest.param("10.0.0.2/32", id="no record at all"),
        pytest.param({"deep": "DEEP"}, id="nested too deeply"),
    ],
)
def test_one_record_that_a_hand_has_spoilt_takes_none_of_the_others_with_it(spoilt: object) -> None:
    first, second = record("10.0.0.1/32"), record("10.0.0.2/32")
    whole = segment(first, second)
    annotation = msgspec.json.encode([spoilt, first]).decode().replace('"DEEP"', DEEP)

    edited = replace(whole, metadata=replace(whole.metadata, annotations={RECORDS: annotation}))

    assert edited.records[0] == first
    assert [(each.cidr, each.uid) for each in edited.records[1:]] == [("10.0.0.2/32", "")]


def test_a_record_whose_address_was_taken_out_by_hand_holds_nothing() -> None:
    both = segment(record("10.0.0.1/32"), record("10.0.0.2/32"))
    edited = replace(both, spec=replace(both.spec, reserved_cidrs=["10.0.0.2/32"]))

    assert [each.cidr for each in edited.records] == ["10.0.0.2/32"]


def test_entries_that_stop_calico_are_named() -> None:
    wrong = [
        "10.0.0.1-5",
        "10.0.0.1/33",
        "10.0.0.0/255.255.0.0",
        "10.0.0.1/255.255.255.255",
        "fe80::%eth0/64",
    ]
    assert segment(entries=["10.0.0.1/30", *wrong]).malformed == tuple(wrong)


# What Calico's API server hides in an annotation


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
def served_in_v1(raw: dict[str, Any]) -> Iterator[tuple[FakeAPI, Reservations]]:
    api = calico_api(V1)
    api.put(IN_V1, raw)
    with serving(api) as server:
        yield api, Reservations(server.client())


def test_a_write_leaves_no_hidden_copy_that_would_win_over_it() -> None:
    with served_in_v1(as_calico_stores_it()) as (api, reservations):
        written = reservations.write(*reservations.list(), [FIRST, SECOND], timeout=1)
        (stored,) = api.list(IN_V1)
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
    metadata = ObjectMeta(labels={"a": "open", "b": "open"}, annotations={METADATA: hidden})
    assert revealed(metadata).labels == {"a": "hidden", "b": "open"}
    assert laid_open(metadata, {"c": "d"}) == {
        "labels": {"a": "hidden"},
        "annotations": {METADATA: "{}", "c": "d"},
    }


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({}, id="nothing"),
        pytest.param({METADATA: '{"creationTimestamp":null}'}, id="neither labels nor annotations"),
        pytest.param({METADATA: '{"labels":'}, id="unreadable"),
        pytest.param({METADATA: f'{{"deep":{DEEP}}}'}, id="nested too deeply"),
    ],
)
def test_metadata_that_hides_nothing_is_left_alone(annotations: dict[str, str]) -> None:
    metadata = ObjectMeta(labels={"a": "b"}, annotations=annotations)
    assert revealed(metadata) is metadata
    assert laid_open(metadata, {"c": "d"}) == {"annotations": {"c": "d"}}


def test_only_segments_of_ours_are_found_by_their_records() -> None:
    assert segment(record()).keys == {record().key}
    assert segment(record(), ours=False).keys == set()
