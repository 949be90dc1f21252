"""What was seen of nodes in a rollout: when each was off its load balancer, which pods it had, what health checks said.

Deployments and pods live in one etcd: their revisions decide which came first. What a health check said when a pod was
about to go is read from the clock of this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from api.ingress_daemonset import NODE_LABEL, TO_BE_UPDATED
from dev.lab.history import Observation
from healthchecker.checker import Deployment
from kube.types import Pod

REVISION = "pod-template-hash"
OK = 200


@dataclass(frozen=True)
class Answer:
    """What the load balancer's health check of *node* got; only those that differ from the one before are kept."""

    node: str
    status: int
    at: datetime


@dataclass(frozen=True)
class Change:
    """From *revision* on the node was *off*, or on again; *complete* is whether all its pods were available then."""

    revision: int
    off: bool
    complete: bool
    seen: datetime


@dataclass(frozen=True)
class Resident:
    """A pod from revision *born* on; it has *left* once it is being deleted."""

    pod: Pod
    born: int
    left: int | None = None
    left_at: datetime | None = None

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def template(self) -> str:
        return self.pod.metadata.labels.get(REVISION, "")


@dataclass(frozen=True)
class Course:
    """One node, by its Deployment."""

    node: str
    changes: tuple[Change, ...] = ()
    residents: tuple[Resident, ...] = ()
    answers: tuple[Answer, ...] = ()

    @property
    def is_off(self) -> bool:
        return bool(self.changes) and self.changes[-1].off

    @property
    def status(self) -> int | None:
        """What the last health check got."""
        return self.answers[-1].status if self.answers else None

    def off_at(self, revision: int) -> bool:
        """Whether it was off just before *revision*."""
        return [each.off for each in self.changes if each.revision < revision][-1:] == [True]

    def answered_at(self, moment: datetime) -> Answer | None:
        """The answer that stood at that *moment*."""
        return next((each for each in reversed(self.answers) if each.at <= moment), None)

    def standing(self) -> list[Resident]:
        return [each for each in self.residents if each.left is None]

    def is_old(self, resident: Resident) -> bool:
        """Whether it is of the template that the node had first."""
        return resident.template == self.residents[0].template


@dataclass
class Rollout:
    courses: dict[str, Course] = field(default_factory=dict)
    """By the name of the node."""

    def add(self, observation: Observation) -> None:
        seen = observation.object
        if isinstance(seen, dict) or not (node := seen.metadata.labels.get(NODE_LABEL, "")):
            return
        course = self.courses.get(node) or Course(node)
        if isinstance(seen, Deployment):
            self.courses[node] = _changed(course, seen, observation)
        elif isinstance(seen, Pod):
            self.courses[node] = _inhabited(course, seen, observation)

    def hear(self, answer: Answer) -> None:
        course = self.courses.get(answer.node) or Course(answer.node)
        if course.status != answer.status:
            self.courses[answer.node] = replace(course, answers=(*course.answers, answer))

    def most_off(self) -> int:
        """How many nodes were off at one time, at most."""
        revisions = [each.revision for course in self.courses.values() for each in course.changes]
        return max((self._off_after(each) for each in revisions), default=0)

    def _off_after(self, revision: int) -> int:
        return sum(course.off_at(revision + 1) for course in self.courses.values())


def gone(course: Course) -> Sequence[Resident]:
    """The pods of *course* that have left."""
    return [each for each in course.residents if each.left is not None]


def _changed(course: Course, deployment: Deployment, observation: Observation) -> Course:
    off = TO_BE_UPDATED in deployment.metadata.annotations
    if off == course.is_off:
        return course
    complete = deployment.status.available_replicas >= deployment.spec.replicas
    change = Change(observation.revision, off, complete, observation.seen)
    return replace(course, changes=(*course.changes, change))


def _inhabited(course: Course, pod: Pod, observation: Observation) -> Course:
    known = {each.pod.metadata.uid: each for each in course.residents}
    uid, revision = pod.metadata.uid, observation.revision
    resident = replace(known.get(uid) or Resident(pod, revision), pod=pod)
    if resident.left is None and (pod.terminating or observation.gone):
        resident = replace(resident, left=revision, left_at=observation.seen)
    return replace(course, residents=tuple({**known, uid: resident}.values()))
