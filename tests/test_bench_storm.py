"""What a storm of deletions cost is counted, judged, and shown as figures, a page and a picture."""

from __future__ import annotations

import pytest

from bench.ip_reservation.figures import figures
from bench.ip_reservation.judge import MOST, judged
from bench.ip_reservation.rows import Rows, rows
from bench.ip_reservation.runs import CLUSTER, Assigned, Counted, Run, Setting
from bench.ip_reservation.storm import Load, Storm
from bench.ip_reservation.variants import NO_OP_CONDITIONS, NONE, OURS, Variant
from bench.processes import Usage
from calico.segment import IPReservation, ReservationSpec
from kube.types import ObjectMeta, Pod, PodStatus
from lab.history import Observation
from tests.factories import NOW

STORM, ONE, STEADY = Load(10, 4), Load(10, 1), Load(10, 4, rate=5)
SETTINGS = [Setting(STORM), Setting(STORM, busy=True), Setting(ONE), Setting(STEADY)]


# The judge


def pod(name: str, revision: int, namespace: str = "storm") -> Observation:
    """That it is gone."""
    metadata = ObjectMeta(name=name, namespace=namespace, uid=name, resource_version=str(revision))
    return Observation(Pod(metadata, status=PodStatus(pod_ip=name)), True, NOW)


def segment(name: str, revision: int, *ips: str, gone: bool = False) -> Observation:
    metadata = ObjectMeta(name=name, resource_version=str(revision))
    spec = ReservationSpec([f"{ip}/32" for ip in ips])
    return Observation(IPReservation(metadata, spec), gone, NOW)


A, B = "10.0.0.1", "10.0.0.2"
MANY = [f"10.1.{number >> 8}.{number & 255}" for number in range(MOST)]
GONE = "10.0.0.1/32 of 10.0.0.1"


@pytest.mark.parametrize(
    ("observations", "lost"),
    [
        pytest.param([pod(A, 5), segment("x", 3, A)], [], id="reserved before, however late it was seen"),
        pytest.param([pod(A, 5)], [f"{GONE} was not reserved when the pod was gone"], id="never reserved"),
        pytest.param(
            [pod(A, 5), segment("x", 7, A)],
            [f"{GONE} was not reserved when the pod was gone"],
            id="reserved too late",
        ),
        pytest.param(
            [segment("x", 3, A), segment("x", 4), pod(A, 5)],
            [f"{GONE} was not reserved when the pod was gone"],
            id="given up before",
        ),
        pytest.param(
            [segment("x", 3, A, B), pod(A, 5), segment("x", 6, B)],
            [f"{GONE} was released early"],
            id="released while few are reserved",
        ),
        pytest.param(
            [segment("x", 3, A), pod(A, 5), segment("x", 6, A, gone=True)],
            [f"{GONE} was released early"],
            id="its object is deleted",
        ),
        pytest.param(
            [segment("x", 3, A), pod(A, 5), segment("all", 6, A, *MANY), segment("x", 7, A, gone=True)],
            [],
            id="compacted: added before it is deleted",
        ),
        pytest.param(
            [segment("x", 3, A), segment("all", 4, *MANY), pod(A, 5), segment("x", 6, A, gone=True)],
            [],
            id="released because many are reserved",
        ),
        pytest.param(
            [
                segment("x", 3, A),
                segment("all", 4, *MANY),
                pod(A, 5),
                segment("x", 6, A, gone=True),
                segment("y", 7, A),
            ],
            [f"{GONE} was free for a while"],
            id="compacted: deleted before it is added",
        ),
        pytest.param([pod(A, 5, "other")], [], id="of another namespace"),
    ],
)
def test_an_address_is_lost_that_was_free_at_any_revision_of_its_hold(
    observations: list[Observation], lost: list[str]
) -> None:
    assert judged(observations, "storm").lost == lost


# Figures


def a_run(variant: str, setting: Setting, seconds: float, **counted: float) -> Run:
    """Ten deletions that each waited a hundredth of the time, but for one that waited a tenth."""
    name = f'{{name="{variant}.example"}}'
    registration = {"webhooks": [{"name": f"{variant}.example"}]} if variant != NONE else None
    grown = {
        f"apiserver_admission_webhook_request_total{name}": counted.get("calls", 10.0),
        f"apiserver_admission_webhook_admission_duration_seconds_sum{name}": seconds / 10,
        f"apiserver_admission_webhook_admission_duration_seconds_count{name}": 10.0,
        'apiserver_request_total{resource="ipreservations",verb="POST"}': counted.get("writes", 0.0),
        'apiserver_request_total{resource="ipreservations",verb="WATCH"}': 100.0,
        'apiserver_request_total{resource="pods",verb="DELETE"}': 100.0,
    }
    servers = "webhook server" if variant == OURS else "no-op"
    used = {f"{servers} {number}": Usage(seconds / 20, 50 << 20) for number in (1, 2)}
    control_plane = {"kube-apiserver": Usage(seconds, 1 << 30), "etcd": Usage(seconds / 10, 1 << 20)}
    others = {"leader": Usage(0.1, 60 << 20), "standby": Usage(0.1, 50 << 20)} if variant == OURS else {}
    whole = {CLUSTER: Usage(2 * seconds, 0)}
    later = Counted(
        {'apiserver_request_total{resource="ipreservations",verb="DELETE"}': counted.get("deletes", 0.0)},
        {CLUSTER: Usage(0.5 if variant == OURS else 0.1, 0)},
    )
    waited = [seconds / 100] * 9 + [seconds / 10]
    return Run(
        Variant(variant, {}, registration),
        setting,
        Storm(seconds, int(counted.get("refused", 0)), waited),
        Counted(grown, {**used, **control_plane, **others, **whole}),
        later,
        judged([segment("x", 1, A)] * 2 + [pod(B, 2)] * int(counted.get("lost", 0)), "storm"),
        Assigned([0.1], [seconds / 10]),
    )


SECONDS = {NONE: (2.0, 1.0, 9.0), NO_OP_CONDITIONS: (3.0, 2.5, 9.0), OURS: (3.0, 4.0, 9.0)}
"""Of three rounds of each variant, one of them an outlier for all."""


def all_rows(settings: list[Setting] = SETTINGS, **counted: float) -> Rows:
    return rows(
        [
            a_run(variant, setting, seconds, **(counted if variant == OURS else {}))
            for setting in settings
            for variant, rounds in SECONDS.items()
            for seconds in rounds
        ]
    )


@pytest.mark.parametrize(("refused", "lost"), [(0, 0), (1, 2)])
def test_what_is_refused_and_lost_is_counted_over_all_settings_and_rounds(refused: int, lost: int) -> None:
    found = figures(all_rows(refused=refused, lost=lost), SETTINGS)[-2:]

    assert [(each.name, each.value, each.met) for each in found] == [
        ("all 120 deletions: requests refused", 12 * refused, not refused),
        ("all 120 deletions: pods whose IP was lost", 12 * lost, not lost),
    ]


# What runs


# Processes


# Page and picture
