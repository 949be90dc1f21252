"""The benchmark of elasticity tells pods' courses by what was seen, and judges what is promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from queue import SimpleQueue

import pytest

from bench.elasticity.crowd import CROWD, LOCAL, OF, SIZE, Arrival, Course, Crowd, followed
from bench.elasticity.figures import of_placing
from bench.elasticity.phases import Phase
from bench.processes import MIB, Usage
from bench.report import Figure
from kube.types import ObjectMeta, Pod, PodSpec, PodStatus
from lab.history import Observation
from lab.watching import Observations, WatchLost
from tests.factories import NOW
from webhook.elasticity import PLACEMENT

PLAIN, PLACED = Crowd("plain", 1), Crowd("placed", 1, is_placed=True)


def by_name(found: Sequence[Figure]) -> dict[str, Figure]:
    return {each.name.partition(": ")[2] or each.name: each for each in found}


def missed(found: Mapping[str, Figure]) -> set[str]:
    return {name for name, each in found.items() if each.met is False}


# A crowd


def seen(
    after: float, *, crowd: str = "placed", name: str = "a", placed: str = "", node: str = "", phase: str = ""
) -> Observation:
    """A pod as it was so many seconds after NOW."""
    labels = {CROWD: crowd, OF: f"{crowd}-0"}
    annotations = {PLACEMENT: placed} if placed else {}
    metadata = ObjectMeta(name=name, uid=f"uid-{name}", labels=labels, annotations=annotations)
    pod = Pod(metadata, PodSpec(node_name=node), PodStatus(phase=phase))
    return Observation(pod, False, NOW + timedelta(seconds=after))


def observed(*what: Observation | WatchLost) -> Observations:
    queue: Observations = SimpleQueue()
    for each in what:
        queue.put(each)
    return queue


def its_course(*after_birth: Observation) -> Course:
    """Of pod "a" among a crowd whose other pods run all at once."""
    others = [seen(0.0, name=str(number), node="n", phase="Running") for number in range(1, SIZE)]
    courses = followed(observed(*others, seen(1.0), *after_birth), PLACED, deadline=0.0)
    return next(course for course in courses if course.pod.metadata.name == "a")


def test_each_step_of_a_pod_is_at_the_time_when_it_was_seen_first() -> None:
    course = its_course(
        seen(2.0, placed="local"),
        seen(2.5, placed="local"),
        seen(3.0, placed="local", node="kwok-1"),
        seen(4.0, placed="local", node="kwok-1", phase="Running"),
    )

    times = [course.born, course.placed, course.bound, course.running]
    assert times == [NOW + timedelta(seconds=number) for number in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("node", "is_local"), [("kwok-1", True), ("eklet-subnet-1", False)], ids=["home", "super node"]
)
def test_a_pod_on_a_super_node_is_not_local(node: str, is_local: bool) -> None:
    assert its_course(seen(4.0, node=node, phase="Running")).is_local is is_local


# Its figures


def phase(crowd: Crowd, courses: Sequence[Course], requests: int = SIZE, patches: int = SIZE) -> Phase:
    grown = {
        'apiserver_flowcontrol_dispatched_requests_total{flow_schema="drawbridge"}': float(requests),
        'apiserver_flowcontrol_dispatched_requests_total{flow_schema="workload-low"}': 9999.0,
        'apiserver_request_total{resource="pods",subresource="",verb="PATCH"}': float(patches),
        'apiserver_request_total{resource="pods",subresource="status",verb="PATCH"}': 9999.0,
    }
    return Phase(crowd, Arrival(NOW, courses), grown, {"leader": Usage(2.0, 50 * MIB, 60 * MIB)})


def courses(crowd: Crowd, *, home: int, last: float, others: float = 1.0) -> list[Course]:
    """All are born at once; the first is placed and bound at *last*, in seconds, the others at *others*."""
    return [
        _course(crowd, number, "kwok-0" if number < home else "eklet-subnet-1", others if number else last)
        for number in range(SIZE)
    ]


def _course(crowd: Crowd, number: int, node: str, after: float) -> Course:
    pod = seen(0.0, crowd=crowd.name, name=str(number), node=node).object
    assert isinstance(pod, Pod)
    at = NOW + timedelta(seconds=after)
    return Course(pod, NOW, placed=at if crowd.is_placed else None, bound=at)


ALONE = phase(PLAIN, courses(PLAIN, home=SIZE, last=10.0), patches=0)


@pytest.mark.parametrize(
    ("placed", "misses"),
    [
        pytest.param(
            phase(PLACED, courses(PLACED, home=LOCAL, last=20.0), requests=110), set(), id="just so"
        ),
        pytest.param(
            phase(PLACED, courses(PLACED, home=LOCAL, last=20.1)),
            {"until no gate is left, against the scheduler alone"},
            id="too slow",
        ),
        pytest.param(
            phase(PLACED, courses(PLACED, home=LOCAL, last=10.0, others=2.02)),
            {"p50 wait for a place, against the scheduler alone"},
            id="too long a wait for most",
        ),
        pytest.param(
            phase(PLACED, courses(PLACED, home=LOCAL, last=1.0), requests=111),
            {"requests of ours per pod, of any kind"},
            id="too many requests",
        ),
        pytest.param(
            phase(PLACED, courses(PLACED, home=LOCAL + 1, last=1.0)),
            {"too many or too few local"},
            id="one too many at home",
        ),
    ],
)
def test_placing_is_judged_by_what_is_promised(placed: Phase, misses: set[str]) -> None:
    assert missed(by_name(list(of_placing(ALONE, placed)))) == misses


def test_a_pod_that_slipped_through_is_told() -> None:
    courses_of_all = courses(PLACED, home=LOCAL, last=1.0)
    courses_of_all[0] = replace(courses_of_all[0], placed=None)

    found = by_name(list(of_placing(ALONE, phase(PLACED, courses_of_all))))

    assert missed(found) == {"let through without a placement"}


# At rest
