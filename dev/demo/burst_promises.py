"""Whether what was promised about replicas came true, judged from what was seen of them alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dev.demo.burst import Course, Replicas
from dev.demo.promises import Promise, judged, none_of, span


def placed_first(replicas: Replicas, count: int) -> Promise:
    """Each of *count* pods was placed before the scheduler gave it a node, and went where it was to go."""
    courses = list(replicas.courses.values())
    faults = [fault for course in courses for fault in _astray(course)]
    if len(courses) != count:
        faults.append(f"{len(courses)} of {count} pods were seen")
    leads = [each.bound - each.placed for each in courses if each.bound and each.placed]
    proof = f"{count} of {count}, {span(leads)} revisions ahead"
    return judged("each replica is placed before it is scheduled", faults, proof)


def split(replicas: Replicas, revision: int, *, home: int, away: int) -> Promise:
    """So many were at *home*, and so many on super nodes, when it came to *revision*."""
    standing = replicas.standing(revision)
    there = sum(course.is_away for course in standing)
    seen = f"{len(standing) - there} local, {there} on the super node"
    faults = [] if (len(standing) - there, there) == (home, away) else [seen]
    nodes = sorted({course.node for course in standing})
    text = f"of {home + away} replicas {home} stays local, {away} are on the super node"
    return judged(text, faults, ", ".join(nodes))


def never_more_local(replicas: Replicas, number: int) -> Promise:
    most = replicas.most(lambda course: not course.is_away)
    faults = [f"{most} were local at one time"] if most > number else none_of(replicas.standing())
    return judged(f"at no time more than {number} is local", faults, f"at most {most}, by every revision")


def super_node_first(replicas: Replicas, before: int, after: int) -> Promise:
    """Of the replicas at *before*, those that are gone at *after* were on super nodes; local ones have stayed."""
    old, new = replicas.standing(before), replicas.standing(after)
    went = [course for course in old if course not in new]
    faults = [f"{course.name} left {course.node}" for course in went if not course.is_away]
    kept = _names([course for course in new if not course.is_away])
    proof = f"{_names(went)} left; {kept or 'none'} stays local"
    return judged(f"scaled to {len(new)}, the super node is left first", faults or none_of(went), proof)


def _astray(course: Course) -> Iterator[str]:
    if course.placed is None:
        yield f"{course.name} was not placed"
    elif course.bound is None:
        yield f"{course.name} has no node"
    elif course.bound < course.placed:
        yield f"{course.name} was scheduled before it was placed"


def _names(courses: Sequence[Course]) -> str:
    return ", ".join(course.name for course in courses)
