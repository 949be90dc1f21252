"""A segment is one IPReservation that Drawbridge owns: its addresses, and a record of why each is reserved.

Calico reads ``spec.reservedCIDRs``; the records are in an annotation of the same object, so that one atomic write
says both. Only canonical ``a.b.c.d/32`` and ``/128`` are written, none twice: one malformed entry makes most Calico
versions refuse an address to every pod of the cluster (libcalico-go, ``lib/ipam/ipam.go``: getReservedIPs goes on with
what it could not parse).

A segment only loses records after it was created: level 0 is a batch of the ledger, a higher one was compacted by
the leader.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from bz2 import BZ2Decompressor, compress
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

import msgspec

from kube.types import Moment, ObjectMeta, Value, at_any_depth

KIND = "IPReservation"
RECORDS = "drawbridge.io/reservations"
RELEASE = "drawbridge.io/release"
"""Addresses of the segment, separated by commas, that an operator wants released as soon as their pods are gone."""
TERM = "drawbridge.io/term"
"""Of the leader that confirmed the segment: a new one makes writes of a former one conflict."""
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "drawbridge"
LEVEL = "drawbridge.io/level"
"""The label whose value is a number: 0, or how often the records were compacted."""
PREFIX = "drawbridge-"
"""How the name of each segment begins, whatever the installation is called: the admission policy knows them by it."""
METADATA = "projectcalico.org/metadata"
"""Where Calico's API server (``projectcalico.org/v3``) puts the labels and annotations that its clients write.

As JSON in one annotation of the custom resource (``crd.projectcalico.org/v1``), which wins over the real ones
(libcalico-go, ``lib/backend/k8s/resources/resources.go``; older versions kept both where they belong).
"""
ENTRIES = 512
"""Addresses in one segment; the admission policy of the chart has the same bound."""
SIZE = 128 * 1024
"""Bytes of records in one segment, before they are packed: an object's annotations may have 256 KiB."""
PACKED = 64
"""From so many records on, they are packed: Calico's allocator reads all of them for each new pod, and 45 bytes of each
are 25 ms for 10,000, 300 are 70. Fewer stay as JSON, for people and for the speed of admission."""

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_WRITTEN = re.compile(rf"{_OCTET}(\.{_OCTET}){{3}}/32")
"""What nearly all entries are: `ip_network` takes twenty times as long, 70 ms for 10,000 in each run of `status`."""


class NotReserved(Exception):
    """The reservation could not be made durable in time; the message says why."""


class Record(Value, frozen=True):
    """Why one address is reserved.

    *at* is when it was reserved, *asked* when its pod's deletion or eviction was last admitted, *ended* when its pod
    was first seen gone: the reserve time counts from there, and only the leader writes it. A *late* record is of a pod
    that never passed admission. Where a pod that comes back gets its addresses, *owner_uid* says which StatefulSet it
    is of, and *addresses* how many it had.
    """

    cidr: str
    at: Moment
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    node: str = ""
    owner: str = ""
    reason: str = ""
    late: bool = False
    asked: Moment | None = None
    ended: Moment | None = None
    owner_uid: str = ""
    addresses: int = 1

    @property
    def key(self) -> str:
        """The address and the pod for which it is reserved."""
        return key_of(self.cidr, self.uid)

    @property
    def last_asked(self) -> datetime:
        return self.asked or self.at


def key_of(cidr: str, uid: str) -> str:
    return f"{cidr} {uid}"


Keys = frozenset[str]
"""Of records."""
NO_KEYS: Keys = frozenset()


class ReservationSpec(Value, frozen=True):
    reserved_cidrs: list[str] = msgspec.field(default_factory=list, name="reservedCIDRs")


class IPReservation(Value, frozen=True, dict=True):
    """An IPReservation, ours or unmanaged, as the API server serves it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReservationSpec = ReservationSpec()

    @property
    def ours(self) -> bool:
        return revealed(self.metadata).labels.get(MANAGED_BY) == MANAGER

    @property
    def level(self) -> int:
        level = revealed(self.metadata).labels.get(LEVEL, "")
        return int(level) if level.isdecimal() else 0

    def is_owned_by(self, uid: str) -> bool:
        return any(owner.uid == uid for owner in self.metadata.owner_references)

    @property
    def size(self) -> int:
        """Bytes of its records, of SIZE at most."""
        return len(self._encoded)

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """At least one record per reserved address, one for each pod that had it, also after edits by users.

        An address without a record belongs to no pod, and counts as reserved since the segment was created; a record
        without an address is ignored.
        """
        reserved = {cidr for entry in self.spec.reserved_cidrs if (cidr := canonical(entry))}
        known = {record.key: record for record in _decode(self._encoded) if record.cidr in reserved}
        unknown_since = self.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
        bare = sorted(reserved - {record.cidr for record in known.values()})
        return (*known.values(), *(Record(cidr, unknown_since) for cidr in bare))

    @cached_property
    def _encoded(self) -> bytes:
        return _unpacked(revealed(self.metadata).annotations.get(RECORDS, "[]"))

    @cached_property
    def by_key(self) -> Mapping[str, Record]:
        """The records, in a segment of ours."""
        return {record.key: record for record in self.records} if self.ours else {}

    @cached_property
    def keys(self) -> frozenset[str]:
        """Of the records, in a segment of ours."""
        return frozenset(self.by_key)

    @cached_property
    def to_be_released(self) -> Mapping[str, str | None]:
        """The entries of RELEASE, each with its CIDR when it is an address."""
        named = revealed(self.metadata).annotations.get(RELEASE, "")
        return {entry: canonical(entry) for part in named.split(",") if (entry := part.strip())}

    @cached_property
    def cidrs(self) -> frozenset[str]:
        """Of the records."""
        return frozenset(record.cidr for record in self.records)

    @cached_property
    def malformed(self) -> tuple[str, ...]:
        """The entries that Calico cannot parse."""
        return tuple(entry for entry in self.spec.reserved_cidrs if not (canonical(entry) or _parsed(entry)))


# Each pass of the leader reads all segments that have changed.
@lru_cache(maxsize=16384)
def canonical(entry: str) -> str | None:
    """*entry* as we would have written it, or None when it is not one address."""
    if _WRITTEN.fullmatch(entry):
        return entry
    network = _parsed(entry)
    return network.with_prefixlen if network and network.prefixlen == network.max_prefixlen else None


def pages(
    records: Iterable[Record], entries: int = ENTRIES, size: int = SIZE
) -> Iterator[tuple[Record, ...]]:
    """*records* in the order in which they are, in as few segments as these limits allow."""
    page: list[Record] = []
    left = size
    for record in records:
        left -= size_of([record])
        if page and (len(page) >= entries or left < 0):
            yield tuple(page)
            page, left = [], size - size_of([record])
        page.append(record)
    if page:
        yield tuple(page)


def size_of(records: Iterable[Record]) -> int:
    """Bytes of *records* in a segment, at most."""
    return len(_encode(records))


def body(records: Iterable[Record]) -> dict[str, Any]:
    """The part of an IPReservation that holds *records*: a merge patch, and the core of a new object."""
    unique = {record.key: record for record in records}.values()
    encoded = _encode(unique)
    text = encoded if len(unique) < PACKED else b64encode(compress(encoded))
    return {
        "metadata": {"annotations": {RECORDS: text.decode()}},
        "spec": {"reservedCIDRs": list(dict.fromkeys(record.cidr for record in unique))},
    }


def _parsed(entry: str) -> IPv4Network | IPv6Network | None:
    """None where Calico cannot parse it: Python also knows scope ids, and masks in place of lengths."""
    if "%" in entry or "." in entry.partition("/")[2]:
        return None
    try:
        return ip_network(entry, strict=False)
    except ValueError:
        return None


class _Hidden(msgspec.Struct):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


def revealed(metadata: ObjectMeta) -> ObjectMeta:
    """*metadata* with the labels and annotations that ``projectcalico.org/v3`` would show."""
    hidden = _hidden(metadata)
    if not hidden.labels and not hidden.annotations:
        return metadata
    return msgspec.structs.replace(
        metadata,
        labels=metadata.labels | hidden.labels,
        annotations=metadata.annotations | hidden.annotations,
    )


def laid_open(metadata: ObjectMeta, annotations: Mapping[str, str | None]) -> dict[str, Any]:
    """A merge patch of *metadata* that sets *annotations* and leaves no hidden copy that would win over them."""
    hidden = _hidden(metadata)
    if not hidden.labels and not hidden.annotations:
        return {"annotations": annotations}
    rest = msgspec.json.decode(metadata.annotations[METADATA], type=dict[str, msgspec.Raw])
    kept = {name: value for name, value in rest.items() if name not in ("labels", "annotations")}
    still_hidden = {METADATA: msgspec.json.encode(kept).decode()}
    return {"labels": hidden.labels, "annotations": {**hidden.annotations, **still_hidden, **annotations}}


def _hidden(metadata: ObjectMeta) -> _Hidden:
    try:
        return _HIDDEN_DECODER.decode(metadata.annotations.get(METADATA, "{}"))
    except (msgspec.MsgspecError, RecursionError):  # then Calico itself cannot read the object
        return _Hidden()


def _encode(records: Iterable[Record]) -> bytes:
    return _ENCODER.encode(list(records))


def _unpacked(annotation: str) -> bytes:
    """The JSON of its records; nothing where it cannot be read, or would take more memory than any of ours."""
    if annotation.lstrip().startswith("["):
        return annotation.encode()
    try:
        stream = BZ2Decompressor()
        encoded = stream.decompress(b64decode(annotation, validate=True), max_length=8 * SIZE)
    except (binascii.Error, ValueError, OSError):
        return b""
    return encoded if stream.eof else b""


def _decode(encoded: bytes) -> list[Record]:
    try:
        return at_any_depth(_DECODER.decode, encoded)  # five times as fast as one by one
    except msgspec.MsgspecError:
        return list(_readable(encoded))


def _readable(encoded: bytes) -> Iterator[Record]:
    """All records but the malformed ones."""
    with suppress(msgspec.MsgspecError):
        for entry in at_any_depth(_ENTRIES.decode, encoded):
            with suppress(msgspec.MsgspecError):
                yield msgspec.json.decode(entry, type=Record)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(list[Record])
_ENTRIES = msgspec.json.Decoder(list[msgspec.Raw])
_HIDDEN_DECODER = msgspec.json.Decoder(_Hidden)
