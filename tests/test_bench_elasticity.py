"""The benchmark of elasticity times each step of a pod, and compares figures with what is promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from queue import SimpleQueue

import pytest

from bench.admission import of_path
from bench.elasticity import floor, rest
from bench.elasticity.crowd import CROWD, LOCAL, OF, OURS, SIZE, Arrival, Course, Crowd, followed
from bench.elasticity.figures import against_floor, of_placing
from bench.elasticity.phases import Phase
from bench.processes import MIB, Usage
from bench.report import Figure
from kube.types import ObjectMeta, Pod, PodSpec, PodStatus
from lab.errors import LabError
from lab.history import Observation
from lab.watching import Observations, WatchLost
from tests.factories import NOW
from tests.tables import table
from webhook.elasticity import LOCAL_REPLICAS, PLACEMENT

PLAIN, PLACED = Crowd("plain", 1), Crowd("placed", 1, OURS)


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


def test_pods_that_do_not_run_and_a_watch_that_is_lost_end_the_wait() -> None:
    other = seen(0.0, crowd="plain", name="b", node="n", phase="Running")
    with pytest.raises(LabError, match="0 of 100 pods ran in time; 1 were seen"):
        followed(observed(seen(0.0), other), PLACED, deadline=0.0)
    with pytest.raises(WatchLost):
        followed(observed(WatchLost("gone")), PLACED, deadline=0.0)


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
    return Course(pod, NOW, placed=at if crowd.annotations else None, bound=at)


def slow_ones(many: int) -> list[Course]:
    """So many of them have to wait three times as long as all the others."""
    slow = courses(PLACED, home=LOCAL, last=3.0, others=3.0)[:many]
    return [*slow, *courses(PLACED, home=LOCAL, last=1.0)[many:]]


ALONE = phase(PLAIN, courses(PLAIN, home=SIZE, last=10.0), patches=0)


@table(
    "placed, misses",
    {
        "just so": (phase(PLACED, courses(PLACED, home=LOCAL, last=20.0), requests=110), set()),
        "too slow": (
            phase(PLACED, courses(PLACED, home=LOCAL, last=20.1)),
            {"until no gate is left, against the scheduler alone"},
        ),
        "too long a wait for most": (
            phase(PLACED, courses(PLACED, home=LOCAL, last=10.0, others=2.02)),
            {"p50 wait for a place, against the scheduler alone"},
        ),
        "too long a wait for some": (
            phase(PLACED, slow_ones(10)),
            {"p99 wait for a place, against the scheduler alone"},
        ),
        "too many requests": (
            phase(PLACED, courses(PLACED, home=LOCAL, last=1.0), requests=111),
            {"requests of ours per pod, of any kind"},
        ),
        "one too many at home": (
            phase(PLACED, courses(PLACED, home=LOCAL + 1, last=1.0)),
            {"too many or too few local"},
        ),
    },
)
def test_placing_is_judged_by_what_is_promised(placed: Phase, misses: set[str]) -> None:
    assert missed(by_name(list(of_placing(ALONE, placed)))) == misses


def test_the_scheduler_alone_is_what_placing_is_compared_with() -> None:
    placed = phase(PLACED, courses(PLACED, home=LOCAL, last=15.0), patches=95)

    found = by_name(list(of_placing(ALONE, placed)))

    assert found["as many others bound by the scheduler alone"].value == 10.0
    assert found["until no gate is left, against the scheduler alone"].ratio == 1.5
    assert found["until all are bound, against the scheduler alone"].ratio == 1.5
    assert found["p50 wait for a place, against the scheduler alone"].value == 1.0
    assert found["p99 wait for a place, against the scheduler alone"].baseline == pytest.approx(1.09)
    assert found["patches per pod"].value == 0.95
    cpu = found["CPU of leader per 1,000 pods"]
    assert (cpu.value, cpu.baseline) == (20.0, 20.0)


def test_a_gate_that_decides_nothing_is_what_placing_is_compared_with() -> None:
    gated, placed = (phase(PLACED, courses(PLACED, home=LOCAL, last=last)) for last in (12.5, 15.1))

    found = by_name(list(against_floor(ALONE, gated, placed)))

    assert missed(found) == {"until no gate is left, against a gate that decides nothing"}
    assert (
        found["until no gate is left, a gate that decides nothing, against the scheduler alone"].ratio == 1.25
    )
    assert found["p50 wait for a place, against a gate that decides nothing"].ratio == 1.0


def test_a_gate_that_decides_nothing_is_called_as_ours_but_for_the_mark() -> None:
    condition = {"name": "x", "expression": f"'{LOCAL_REPLICAS}' in object.metadata.annotations"}
    rules = [{"resources": ["pods"]}]
    webhook = {"name": "ours", "clientConfig": {}, "rules": rules, "matchConditions": [condition]}
    ours = {"apiVersion": "v", "kind": "k", "metadata": {"name": "ours", "uid": "u"}, "webhooks": [webhook]}

    found = floor.registration(ours, b"authority")

    assert found["metadata"] == {"name": floor.NAME}
    [called] = found["webhooks"]
    assert called["rules"] == rules
    assert called["matchConditions"] == [
        {"name": "x", "expression": f"'{floor.MARK}' in object.metadata.annotations"}
    ]
    assert called["clientConfig"]["service"]["name"] == floor.NAME


def test_the_webhook_that_is_compared_is_that_of_its_path() -> None:
    named = {
        name: {"name": name, "clientConfig": {"service": {"path": f"/{name}"}}} for name in ("pods", "sets")
    }

    found = of_path({"kind": "x", "webhooks": list(named.values())}, "/pods")

    assert found == {"kind": "x", "webhooks": [named["pods"]]}


def test_the_controllers_at_rest_are_judged_by_their_cpu_and_memory() -> None:
    standby, leader = Usage(0.3, 20 * MIB), Usage(0.7, 71 * MIB, 90 * MIB)
    empty = {"leader": Usage(0.0, 50 * MIB), "standby": standby}

    found = by_name(rest.figures(2048, empty, (60.0, {"leader": leader, "standby": standby})))

    assert missed(found) == {"CPU of the leader, of a core", "memory of the leader, more for each pod"}
    assert found["CPU of the standby, of a core"].value == 0.5
