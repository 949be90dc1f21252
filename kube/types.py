"""The few fields of Kubernetes objects that Drawbridge reads, as values."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Protocol, TypeVar

import msgspec


class Completed(msgspec.StructMeta):
    """Lets threads use a type: msgspec completes one at its first use, and two threads at it together crash it.

    What its fields refer to is defined before it.
    """

    def __new__(cls, *args: Any, **options: Any) -> Completed:
        made = super().__new__(cls, *args, **options)
        msgspec.json.Decoder(made)
        return made


class Value(msgspec.Struct, metaclass=Completed, frozen=True, rename="camel", omit_defaults=True):
    """A part of an object; fields that are absent take their defaults, fields not named here are passed over."""


class OwnerReference(Value, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Value, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    generation: int = 0
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, as ``metav1.GetControllerOf`` finds it."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def about(self) -> dict[str, str]:
        """The keys by which logs name the object."""
        return {"namespace": self.namespace, "name": self.name, "uid": self.uid}

    @property
    def guard(self) -> dict[str, str]:
        """In a write's metadata or preconditions: it is for no other object, nor for another version of this one."""
        return {"uid": self.uid, "resourceVersion": self.resource_version}


Moment = Annotated[datetime, msgspec.Meta(tz=True)]
NEVER = datetime.max.replace(tzinfo=UTC)


def after(moment: datetime, seconds: float) -> datetime:
    """NEVER, if that is beyond all times: the API server stores any number of seconds, and any year."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return NEVER


class Object(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


class Condition(Value, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Moment | None = None


class PodIP(Value, frozen=True):
    ip: str = ""


class Container(Value, frozen=True):
    restart_policy: str = ""


class PodSpec(Value, frozen=True):
    node_name: str = ""
    host_network: bool = False
    restart_policy: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()

    @property
    def ending(self) -> tuple[Container, ...]:
        """Those that are not always restarted, by their policy (Kubernetes 1.35)."""
        every = (*self.containers, *self.init_containers)
        return tuple(each for each in every if each.restart_policy not in ("", "Always"))


class PodStatus(Value, frozen=True):
    phase: str = ""
    reason: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")
    conditions: tuple[Condition, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every address of the pod, one per family."""
        listed = tuple(each.ip for each in self.pod_ips if each.ip)
        return listed or ((self.pod_ip,) if self.pod_ip else ())


class Pod(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        """Whether its containers have ended for good."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class Namespace(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class Taint(Value, frozen=True):
    """Whole, so that the list can be written back."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Toleration(Value, frozen=True):
    """Whole, so that the list can be written back."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SchedulingGate(Value, frozen=True):
    name: str = ""


class NodeSpec(Value, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeAddress(Value, frozen=True):
    type: str = ""
    address: str = ""


class NodeStatus(Value, frozen=True):
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    allocatable: dict[str, str] = {}


class Node(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        return any((each.type, each.status) == ("Ready", "True") for each in self.status.conditions)


MIRROR = "kubernetes.io/config.mirror"
"""The annotation of mirrors of static pods, which run whatever the API server stores."""
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
SUPER_NODE = "eklet"
"""The instance type of super nodes, which have no machine: the name of the virtual kubelet behind them."""


def is_super(node: Node) -> bool:
    return node.metadata.labels.get(INSTANCE_TYPE) == SUPER_NODE


class ConfigMap(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class PersistentVolumeClaimSpec(Value, frozen=True):
    storage_class_name: str | None = None
    volume_name: str = ""
    """The volume it is bound to, or nothing."""


class PersistentVolumeClaim(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class PersistentVolume(Value, frozen=True):
    """*spec* as it is: what kind of volume it is, is said by the name of one of its fields."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}


class TopologyRequirement(Value, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Value, frozen=True):
    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


def rfc3339(moment: datetime) -> str:
    """*moment*, in UTC, as objects have their times: without parts of a second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def key_of(metadata: ObjectMeta) -> str:
    """``namespace/name``, or ``name`` for what stands in no namespace."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def version_of(metadata: ObjectMeta) -> int:
    """Larger for what is newer."""
    return as_number(metadata.resource_version)


def as_number(resource_version: str) -> int:
    """0 for a server whose versions are opaque."""
    return int(resource_version) if resource_version.isdecimal() else 0


NOTHING: dict[str, str] = {}


def compact(metadata: ObjectMeta, annotations: Iterable[str]) -> ObjectMeta:
    """With these annotations alone, of its owners the controller, and without its creation."""
    owner, given = metadata.controller, metadata.annotations
    kept = {sys.intern(name): sys.intern(given[name]) for name in annotations if name in given}
    return ObjectMeta(
        name=metadata.name,
        namespace=sys.intern(metadata.namespace),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=_shared(tuple(metadata.labels.items())),
        annotations=kept or NOTHING,
        owner_references=_owners(owner) if owner else (),
        deletion_timestamp=metadata.deletion_timestamp,
        deletion_grace_period_seconds=metadata.deletion_grace_period_seconds,
    )


def slim(metadata: ObjectMeta) -> ObjectMeta:
    """What names an object, and whether it terminates."""
    return ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        deletion_timestamp=metadata.deletion_timestamp,
    )


@lru_cache(maxsize=4096)
def _owners(controller: OwnerReference) -> tuple[OwnerReference, ...]:
    return (controller,)


@lru_cache(maxsize=4096)
def _shared(labels: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {sys.intern(name): sys.intern(value) for name, value in labels}


FACTORS = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("", *"kMGTPE"))},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
    "m": Decimal("1e-3"),
    "u": Decimal("1e-6"),
    "n": Decimal("1e-9"),
}
FORM = re.compile(r"([+-]?[0-9]*\.?[0-9]*)((?:[eE][+-]?[0-9]{1,3})|[A-Za-z]*)")


@lru_cache(maxsize=1024)
def amount(quantity: str) -> Decimal:
    """ValueError for what is none."""
    found = FORM.fullmatch(quantity.strip())
    number, suffix = found.groups() if found else ("", "")
    if not re.search("[0-9]", number) or (suffix not in FACTORS and not re.search("[0-9]", suffix)):
        raise ValueError(f"{quantity[:20]!r} is no quantity")
    if suffix in FACTORS:
        return Decimal(number) * FACTORS[suffix]
    return Decimal(number + suffix)


DEEPEST = 200
"""Levels; nothing that is read lies below."""
MOST = 100_000_000
TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
"""Strings, and what makes a level."""

T = TypeVar("T")


def at_any_depth(decode: Callable[[bytes], T], data: bytes, *, most: int = MOST) -> T:
    """What *decode* makes of *data*, with null for what lies too deep; RecursionError for more than *most* tokens.

    An API server stores pods whose managedFields are 10,000 levels deep. msgspec gives up after less than 1,000, in
    what it passes over, too: one such pod would hide all others of its list.
    """
    try:
        return decode(data)
    except RecursionError:
        return decode(b"".join(_flattened(data, most)))


BEYOND = re.compile(rb'"(?:0000|-0001|10000)(-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")')
"""Times that Kubernetes takes and serves, and no datetime can be."""


def at_any_time(decode: Callable[[Any], T], data: bytes) -> T:
    """What *decode* makes of *data*, with the first year in place of those beyond all times.

    Clients write such a time into a condition or an Event; it would hide the object, or all of a list.
    """
    try:
        return at_any_depth(decode, data)
    except msgspec.ValidationError:
        return at_any_depth(decode, BEYOND.sub(rb'"0001\1', bytes(data)))


def converted(raw: Any, kind: type[T]) -> T:
    """*raw*, as it was read, as a value."""
    return at_any_time(lambda data: msgspec.json.decode(data, type=kind), msgspec.json.encode(raw))


def read_annotation(annotations: Mapping[str, str], key: str, kind: type[T]) -> T | None:
    """What stands there as JSON; None without it, and for what cannot be read: another client has written that."""
    try:
        return msgspec.json.decode(annotations[key], type=kind) if key in annotations else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def as_annotation(value: object) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def _flattened(data: bytes, most: int) -> Iterator[bytes]:
    level = kept = 0
    for number, token in enumerate(TOKENS.finditer(data)):
        if number > most:
            raise RecursionError("it is too deep, and too long to be cut")
        begin = token.start()
        if data[begin] in b"[{":
            level += 1
            if level == DEEPEST + 1:
                yield data[kept:begin]
        elif data[begin] in b"]}":
            if level == DEEPEST + 1:
                yield b"null"
                kept = token.end()
            level -= 1
    if level <= DEEPEST:
        yield data[kept:]
