"""The lab's kubelet: its decisions as functions of values, and its containers as real processes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lab.kubelet import launch, status
from lab.kubelet.status import Ended, State
from lab.kubelet.values import Meta, Pod, refusals

NOW = 1_800_000_000.0


def pod(*, labels: dict[str, str] | None = None, deleted: bool = False, **spec: Any) -> Pod:
    spec = {"containers": [{"name": "main", "image": "app"}], "nodeName": "lab-0", **spec}
    metadata = Meta(
        name="web-0",
        namespace="shop",
        uid="u-1",
        labels=labels or {"app": "web"},
        annotations={"note": 'say "hi"'},
        deletion_timestamp=datetime(2027, 1, 1, tzinfo=UTC) if deleted else None,
    )
    return Pod(metadata=metadata, spec={"serviceAccountName": "robot", **spec})


def test_what_the_kubelet_does_not_know_is_refused_all_at_once() -> None:
    strange = pod(
        initContainers=[{"name": "side", "image": "app", "restartPolicy": "Always"}],
        containers=[{"name": "main", "image": "app", "livenessProbe": {"grpc": {"port": 1}}}],
        volumes=[{"name": "disk", "persistentVolumeClaim": {"claimName": "c"}}],
    )

    found = "\n".join(refusals(strange))

    assert "'disk' is of kind 'persistentVolumeClaim'" in found
    assert "init container 'side'" in found
    assert "livenessProbe of container 'main'" in found


RUNNING = State("main", running_since=NOW, ready=True, started=True)
WAITING = State("main", waiting=("ContainerCreating", "soon"))
GOOD_END = Ended(0, "Completed", "", NOW, NOW + 1)
BAD_END = Ended(3, "Error", "", NOW, NOW + 1)
SUCCEEDED = State("main", ended=GOOD_END)
FAILED = State("main", ended=BAD_END)
CRASHED = State("main", waiting=("CrashLoopBackOff", "later"), last=BAD_END, restarts=1)


@pytest.mark.parametrize(
    ("policy", "deleted", "inits", "mains", "expected"),
    [
        pytest.param("Always", False, [], [WAITING], "Pending", id="not yet started"),
        pytest.param("Always", False, [WAITING], [WAITING], "Pending", id="init container not yet done"),
        pytest.param("Never", False, [FAILED], [WAITING], "Failed", id="init container failed for good"),
        pytest.param("Always", False, [], [RUNNING], "Running", id="running"),
        pytest.param("Always", False, [], [RUNNING, WAITING], "Pending", id="one of two not yet started"),
        pytest.param("Always", False, [], [CRASHED], "Running", id="waiting to be started again"),
        pytest.param("OnFailure", False, [], [SUCCEEDED], "Succeeded", id="job that succeeded"),
        pytest.param(
            "Never", False, [], [SUCCEEDED, FAILED], "Failed", id="job of which one container failed"
        ),
        pytest.param(
            "Never", False, [], [SUCCEEDED, RUNNING], "Running", id="job of which one container runs"
        ),
        pytest.param("Always", True, [], [SUCCEEDED], "Succeeded", id="deleted and ended well"),
        pytest.param("Always", True, [], [FAILED], "Failed", id="deleted and ended badly"),
        pytest.param("Always", True, [], [RUNNING], "Running", id="deleted and still running"),
    ],
)
def test_the_phase_follows_from_the_containers(
    policy: str, deleted: bool, inits: list[State], mains: list[State], expected: str
) -> None:
    assert status.phase(pod(restartPolicy=policy, deleted=deleted), inits, mains) == expected


def test_a_file_system_of_the_machine_below_the_place_of_a_volume_is_out_of_reach() -> None:
    machine = {"/", "/data", "/database", "/data/store", "/data/file"}

    assert launch.uncovered(machine - {"/data"}, {"/data"}) == {"/", "/database"}
