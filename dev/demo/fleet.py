"""What was seen of the nodes that need an address: when each opened, which pods came, and what the cloud had for it.

Nodes and pods live in one etcd: their revisions decide which came first. What the cloud has is looked at again and
again; it says when it will have bound an address, by the clock of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from api.anycast_ip import ADDRESS_ID, is_tainted
from controllers.anycast_ip.claim import NODE_INSTANCE, instance_of
from dev.lab.cloud.values import HOLDING, Address
from dev.lab.history import Observation
from kube.types import Node, Pod
from settings.anycast_ip import NEED_LABEL


@dataclass(frozen=True)
class Look:
    """What is on record at one time, *at*: in the cloud, and of claims in the cluster."""

    at: datetime
    addresses: Sequence[Address] = ()
    ordered: int = 0
    """How many addresses were ever allocated."""
    binding: Mapping[str, datetime] = field(default_factory=dict)
    """When each address that is on its way to an instance will be bound, by its id."""
    tags: frozenset[str] = frozenset()
    """The values of all tags."""
    claims: frozenset[str] = frozenset()
    """The uids of the nodes that they are for."""


@dataclass(frozen=True)
class Opening:
    """A node was open from *revision* on, with the address of this id; *found* is how the cloud had that next."""

    revision: int
    seen: datetime
    address: str
    found: str = ""


@dataclass(frozen=True)
class Course:
    """One Node object from its creation on; *changes* are the revisions from which on it was open, or not."""

    node: Node
    born: datetime
    changes: tuple[tuple[int, bool], ...]
    openings: tuple[Opening, ...] = ()
    address: Address | None = None
    """The last that the cloud had for it."""
    gone: datetime | None = None
    cleared: datetime | None = None
    """When nothing was left of it that is gone."""

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def is_open(self) -> bool:
        return self.changes[-1][1]

    def opening_before(self, revision: int) -> Opening | None:
        """That by which it was open just before *revision*; None when it was not."""
        was_open = [state for since, state in self.changes if since < revision][-1:] == [True]
        return [each for each in self.openings if each.revision < revision][-1] if was_open else None


@dataclass(frozen=True)
class Placement:
    """A pod came to its node at *revision*."""

    pod: Pod
    revision: int
    gone: bool = False


@dataclass
class Fleet:
    courses: dict[str, Course] = field(default_factory=dict)
    """By the uid of the node."""
    placements: dict[str, Placement] = field(default_factory=dict)
    """By the uid of the pod."""
    bound: dict[str, datetime] = field(default_factory=dict)
    """When the cloud had bound each address first, by its id, as far as it was asked in time."""
    last: Look | None = None

    def add(self, observation: Observation) -> None:
        if isinstance(observation.object, Node):
            self._add_node(observation.object, observation)
        elif isinstance(observation.object, Pod) and observation.object.spec.node_name:
            self._add_pod(observation.object, observation)

    def look(self, look: Look) -> None:
        """Take in what is on record after all that was added until now."""
        self.last = look
        self.bound = {**look.binding, **self.bound}
        self.courses = {uid: _looked_up(course, look) for uid, course in self.courses.items()}

    def course(self, name: str) -> Course | None:
        """That of the last node of this name."""
        return next((each for each in reversed(self.courses.values()) if each.name == name), None)

    def living(self) -> list[Course]:
        return [course for course in self.courses.values() if course.gone is None]

    def came_to(self, course: Course) -> list[Placement]:
        return [each for each in self.placements.values() if each.pod.spec.node_name == course.name]

    def _add_node(self, node: Node, observation: Observation) -> None:
        if node.metadata.labels.get(NEED_LABEL) != "true":
            return
        course = self.courses.get(node.metadata.uid) or Course(node, observation.seen, ())
        gone = observation.seen if observation.gone else None
        self.courses[node.metadata.uid] = replace(_changed(course, node, observation), node=node, gone=gone)

    def _add_pod(self, pod: Pod, observation: Observation) -> None:
        first = self.placements.get(pod.metadata.uid) or Placement(pod, observation.revision)
        self.placements[pod.metadata.uid] = replace(first, gone=observation.gone)


def remains(course: Course, look: Look) -> Iterator[str]:
    """What is on record for a node, in words."""
    instance = instance_of(course.node)
    for each in look.addresses:
        if is_for(each, instance):
            yield f"{each.ip} is {each.status}"
    for value in sorted(look.tags & {course.name, instance}):
        yield f"a tag has the value {value}"
    if course.node.metadata.uid in look.claims:
        yield "its claim is there"


def is_for(address: Address, instance: str) -> bool:
    """Whether *address* is on *instance*, or was ordered for it."""
    there = address.instance_id == instance and address.status in HOLDING
    return there or address.tags.get(NODE_INSTANCE) == instance


def _changed(course: Course, node: Node, observation: Observation) -> Course:
    opened = not is_tainted(node)
    if course.changes and course.is_open == opened:
        return course
    changes = (*course.changes, (observation.revision, opened))
    if not opened:
        return replace(course, changes=changes)
    address = node.metadata.annotations.get(ADDRESS_ID, "")
    opening = Opening(observation.revision, observation.seen, address)
    return replace(course, changes=changes, openings=(*course.openings, opening))


def _looked_up(course: Course, look: Look) -> Course:
    instance = instance_of(course.node)
    mine = next((each for each in look.addresses if is_for(each, instance)), course.address)
    openings = tuple(
        each if each.found else replace(each, found=_found(each, instance, look)) for each in course.openings
    )
    cleared = course.cleared
    if cleared is None and course.gone is not None and not list(remains(course, look)):
        cleared = look.at
    return replace(course, address=mine, openings=openings, cleared=cleared)


def _found(opening: Opening, instance: str, look: Look) -> str:
    """The status of the address, on this instance."""
    for each in look.addresses:
        if each.id == opening.address:
            return each.status if each.instance_id == instance else f"on {each.instance_id or 'no instance'}"
    return "not in the cloud"
