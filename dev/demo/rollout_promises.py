"""Whether what was promised about a rollout came true, judged from what was seen of it alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from dev.demo.promises import Promise, judged, none_of, span
from dev.demo.rollout import OK, Answer, Course, Resident, Rollout, gone


def off_before_replaced(rollout: Rollout, count: int, seconds: float) -> Promise:
    """At least *count* pods went, each from a node that was off, and had failed its health checks for *seconds*."""
    went = [(course, each) for course in rollout.courses.values() for each in gone(course)]
    faults = [fault for course, each in went if (fault := _too_early(course, each, seconds))]
    if len(went) < count:
        faults.append(f"{len(went)} of {count} pods were replaced")
    leads = [lead for course, each in went if (lead := lead_of(course, each)) is not None]
    proof = f"{len(went)} pods, {span(leads)} s after the first 503"
    return judged(f"no pod goes before its node has failed health checks for {seconds:g} s", faults, proof)


def never_more_off(rollout: Rollout, number: int) -> Promise:
    most = rollout.most_off()
    faults = [f"{most} were off at one time"] if most > number else none_of([*range(most)])
    return judged(
        f"at no time more than {number} nodes are off", faults, f"at most {most}, by every revision"
    )


def on_when_complete(rollout: Rollout, count: int, pods: int) -> Promise:
    """Each of *count* nodes was off once, and on again only with *pods* new ones, all of them available."""
    courses = list(rollout.courses.values())
    faults = [f"{course.node} {fault}" for course in courses for fault in _incomplete(course, pods)]
    if len(courses) != count:
        faults.append(f"{len(courses)} of {count} nodes were seen")
    proof = f"{count} of {count}, their health checks: 200, 503, 200"
    return judged(f"each node is on again only with {pods} new pods, all available", faults, proof)


def lead_of(course: Course, resident: Resident) -> float | None:
    """How many seconds health checks had failed when the pod went."""
    answer = _standing_answer(course, resident)
    if answer is None or resident.left_at is None:
        return None
    return (resident.left_at - answer.at) / timedelta(seconds=1)


def _too_early(course: Course, resident: Resident, seconds: float) -> str:
    where = f"{resident.name} left {course.node}"
    if resident.left is None or not course.off_at(resident.left):
        return f"{where}, which was on"
    answer = _standing_answer(course, resident)
    if answer is None or answer.status == OK:
        return f"{where} while health checks passed"
    lead = lead_of(course, resident)
    return f"{where} {lead:.1f} s after the first 503" if lead is not None and lead < seconds else ""


def _standing_answer(course: Course, resident: Resident) -> Answer | None:
    return course.answered_at(resident.left_at) if resident.left_at else None


def _incomplete(course: Course, pods: int) -> Iterator[str]:
    if [each.off for each in course.changes] != [True, False]:
        yield "was not off once, and on again"
        return
    on = course.changes[1]
    if not on.complete:
        yield "was on again before all its pods were available"
    left = [each for each in course.residents if course.is_old(each) and not _left_before(each, on.revision)]
    if left:
        yield f"was on again with {left[0].name} of the old template"
    new = [each for each in course.standing() if not course.is_old(each)]
    if len(new) != pods:
        yield f"has {len(new)} new pods"
    if (said := _said(course)) != [OK, 503, OK]:
        yield f"answered {', '.join(map(str, said))}"


def _left_before(resident: Resident, revision: int) -> bool:
    return resident.left is not None and resident.left < revision


def _said(course: Course) -> list[int]:
    """Health checks from the first that passed on."""
    said = [each.status for each in course.answers]
    return said[said.index(OK) :] if OK in said else said
