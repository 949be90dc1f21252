"""Whether what was promised about nodes came true, judged from what was seen of them alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from controllers.anycast_ip.claim import instance_of
from dev.demo.fleet import Course, Fleet, Opening, Placement, is_for, remains
from dev.demo.promises import Promise, judged, none_of, span
from dev.lab.cloud.values import BOUND


def opened_when_bound(fleet: Fleet, count: int) -> Promise:
    """Each of *count* nodes was born tainted, and has opened only when the cloud had bound its address to it."""
    courses = list(fleet.courses.values())
    faults = [f"{course.name} {fault}" for course in courses for fault in _too_early(fleet, course)]
    leads = [lead for course in courses if (lead := seconds_bound(fleet, course)) is not None]
    proof = f"{count} of {count}, {span(leads)} s after the cloud had bound it"
    return judged("no node is open before its address is bound", faults or _missing(courses, count), proof)


def no_pod_too_early(fleet: Fleet, count: int) -> Promise:
    """At least *count* pods came, each to a node that was rightly open just before."""
    came = [(course, each) for course in fleet.courses.values() for each in fleet.came_to(course)]
    faults = [fault for course, each in came if (fault := _came_too_early(fleet, course, each))]
    if len(came) < count:
        faults.append(f"{len(came)} of {count} pods came")
    openings = [(each, course.opening_before(each.revision)) for course, each in came]
    leads = [each.revision - opening.revision for each, opening in openings if opening]
    proof = f"{len(came)} of {len(came)} pods, {span(leads)} revisions after the opening"
    return judged("no pod comes to a node before its address is bound", faults, proof)


def one_address_each(fleet: Fleet) -> Promise:
    """Each node had one address ordered, and each that lives has the one that it shows, and no other."""
    living = fleet.living()
    faults = [fault for course in living if (fault := _not_one(fleet, course))]
    ordered, many = fleet.last.ordered if fleet.last else 0, len(fleet.courses)
    if ordered != many:
        faults.append(f"{ordered} addresses were ordered for {many} nodes")
    return judged(
        "each node has exactly one address, which no other has",
        faults or none_of(living),
        f"{ordered} ordered for {many} nodes",
    )


def nothing_left(fleet: Fleet, name: str) -> Promise:
    """The node is gone, and so is all that was on record for it."""
    text = f"the address of {name} goes with its node, and nothing is left of it"
    course = fleet.course(name)
    if course is None or course.gone is None:
        return judged(text, [f"{name} is still there"], "")
    faults = list(remains(course, fleet.last)) if fleet.last else ["the cloud was not asked"]
    if course.address is None:
        faults.append(f"{name} had no address")
    return judged(text, faults, f"no address, tag or claim {_after(course)} its end")


def seconds_bound(fleet: Fleet, course: Course) -> float | None:
    """How long its address had been bound when it opened first; None when that is not known."""
    if not course.openings:
        return None
    bound = fleet.bound.get(course.openings[0].address)
    return (course.openings[0].seen - bound) / timedelta(seconds=1) if bound else None


def _too_early(fleet: Fleet, course: Course) -> Iterator[str]:
    if course.changes[0][1]:
        yield "was born without the taint"
    if not course.openings:
        yield "has not opened"
    for opening in course.openings:
        if fault := _unbound(fleet, opening):
            yield fault


def _came_too_early(fleet: Fleet, course: Course, came: Placement) -> str:
    opening = course.opening_before(came.revision)
    fault = _unbound(fleet, opening) if opening else "was not open"
    return f"{came.pod.metadata.name} came to {course.name}, which {fault}" if fault else ""


def _unbound(fleet: Fleet, opening: Opening) -> str:
    if not opening.address:
        return "was open without an address"
    if opening.found not in BOUND:
        return f"was open, but {opening.address} was {opening.found or 'not looked at'}"
    bound = fleet.bound.get(opening.address)
    if bound and opening.seen < bound:
        early = (bound - opening.seen) / timedelta(seconds=1)
        return f"was open {early:.1f} s before {opening.address} was bound"
    return ""


def _not_one(fleet: Fleet, course: Course) -> str:
    instance = instance_of(course.node)
    there = [each.id for each in fleet.last.addresses if is_for(each, instance)] if fleet.last else []
    shown = course.openings[-1].address if course.openings else "no address"
    return "" if there == [shown] else f"{course.name} shows {shown}, but has {', '.join(there) or 'none'}"


def _missing(courses: list[Course], count: int) -> list[str]:
    return [] if len(courses) == count else [f"{len(courses)} of {count} nodes were seen"]


def _after(course: Course) -> str:
    if course.gone is None or course.cleared is None:
        return "after"
    return f"{(course.cleared - course.gone) / timedelta(seconds=1):.1f} s after"
