"""What a storm of deletions cost is counted, judged, and shown as figures, a page and a picture."""

from __future__ import annotations

import pytest

from bench.ip_reservation.judge import MOST, judged
from calico.segment import IPReservation, ReservationSpec
from kube.types import ObjectMeta, Pod, PodStatus
from lab.history import Observation
from tests.factories import NOW

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


# What runs


# Processes


# Page and picture
