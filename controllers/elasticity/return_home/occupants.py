"""What is kept of a pod only while the return is enabled: what it takes of its node, and whether it is ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

import msgspec

from api.elasticity import BURST
from controllers.elasticity.pod_spec import PodSpec
from kube.types import Condition, ObjectMeta, Value, complete

ON_NODES, BURSTS = "on a node", "burst"
"""Index values: pods that take something of a node, and those that went to super nodes because there was no room."""


class Occupant(Value, frozen=True):
    """*requests* are what the pod takes of its node; *spec* and annotations are kept of a burst pod only."""

    metadata: ObjectMeta = ObjectMeta()
    node_name: str = ""
    finished: bool = False
    ready: bool = False
    requests: Mapping[str, Decimal] = {}
    spec: bytes = b""

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None


def facets(occupant: Occupant) -> Iterable[str]:
    if occupant.finished or not occupant.node_name:
        return
    yield ON_NODES
    if occupant.spec:
        yield BURSTS


def decode(encoded: msgspec.Raw) -> Occupant:
    """MsgspecError when it cannot be read."""
    raw = _POD.decode(encoded)
    place, metadata = _PLACE.decode(raw.spec), raw.metadata
    finished = raw.status.phase in ("Succeeded", "Failed")
    is_burst = BURST in metadata.annotations and bool(place.node_name)
    return Occupant(
        metadata if is_burst else _slim(metadata),
        place.node_name,
        finished,
        any((each.type, each.status) == ("Ready", "True") for each in raw.status.conditions),
        {} if finished or not place.node_name else _SPEC.decode(raw.spec).requests,
        bytes(raw.spec) if is_burst else b"",
    )


def _slim(metadata: ObjectMeta) -> ObjectMeta:
    return ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        deletion_timestamp=metadata.deletion_timestamp,
    )


class _Status(Value, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class _Pod(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: _Status = _Status()


class _Place(Value, frozen=True):
    node_name: str = ""


complete(Occupant, _Pod, _Place)
_POD = msgspec.json.Decoder(_Pod)
_PLACE = msgspec.json.Decoder(_Place)
_SPEC = msgspec.json.Decoder(PodSpec)
