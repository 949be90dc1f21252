"""What was seen of pods that say how many of their like stay local: when each was placed, and where it came to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from api.elasticity import LOCAL_REPLICAS, PLACEMENT, REASON
from dev.lab.history import Observation
from kube.types import Pod

SUPER_NODES = "eklet-"
"""How the names of super nodes begin, and no others."""


@dataclass(frozen=True)
class Course:
    """One pod; each revision is that at which the step was seen first. It has *left* once it is being deleted."""

    pod: Pod
    born: int
    at: datetime
    placed: int | None = None
    bound: int | None = None
    left: int | None = None

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def node(self) -> str:
        return self.pod.spec.node_name

    @property
    def why(self) -> str:
        return self.pod.metadata.annotations.get(REASON, "")

    @property
    def is_away(self) -> bool:
        """On a super node."""
        return self.node.startswith(SUPER_NODES)

    def stands_at(self, revision: int) -> bool:
        """Whether it had its node then, and was to stay."""
        came = self.bound is not None and self.bound <= revision
        return came and (self.left is None or revision < self.left)


@dataclass
class Replicas:
    courses: dict[str, Course] = field(default_factory=dict)
    """By the uid of the pod."""

    def add(self, observation: Observation) -> None:
        pod = observation.object
        if isinstance(pod, Pod) and LOCAL_REPLICAS in pod.metadata.annotations:
            known = self.courses.get(pod.metadata.uid) or Course(pod, observation.revision, observation.seen)
            self.courses[pod.metadata.uid] = _gone_on(known, pod, observation)

    def standing(self, revision: int | None = None) -> list[Course]:
        """Those that had their nodes at *revision*, or have them now."""
        at = self.revision if revision is None else revision
        return [course for course in self.courses.values() if course.stands_at(at)]

    @property
    def revision(self) -> int:
        """Of the last step of any of them."""
        return max((step for course in self.courses.values() for step in _steps(course)), default=0)

    def most(self, counted: Callable[[Course], bool]) -> int:
        """How many that are *counted* had their nodes at one time, at most."""
        revisions = {course.bound for course in self.courses.values() if course.bound is not None}
        return max((sum(map(counted, self.standing(each))) for each in revisions), default=0)


def _gone_on(course: Course, pod: Pod, observation: Observation) -> Course:
    revision = observation.revision
    is_placed, leaves = PLACEMENT in pod.metadata.annotations, pod.terminating or observation.gone
    return replace(
        course,
        pod=pod,
        placed=course.placed or (revision if is_placed else None),
        bound=course.bound or (revision if pod.spec.node_name else None),
        left=course.left or (revision if leaves else None),
    )


def _steps(course: Course) -> list[int]:
    return [step for step in (course.born, course.placed, course.bound, course.left) if step is not None]
