"""However leaders, watches and health checkers fail, pods with open connections stay for their time, and no longer."""

from __future__ import annotations

from tests.ingress_daemonset_leader import Leader, with_nodes

GRACE, TIMEOUT = 20, 300
ROLLING = {
    "maxUnavailableNodes": 1,
    "annotateDeploymentToDetach": {"gracePeriodSeconds": GRACE},
    "waitForConnections": {"max": 5, "timeoutSeconds": TIMEOUT, "ports": [80]},
}


def detaching(connections: int | None, confirm: str = "required") -> Leader:
    """Whose node is to get a new template."""
    here = Leader(with_nodes("n1", healthCheckNodePorts=[10080], rolling={**ROLLING, "confirm": confirm}))
    here.connections["n1"] = connections
    here.settle()
    here.retemplate("proxy:2")
    return here


def steps(here: Leader, seconds: int, *, watches: bool = True) -> None:
    """A reconcile per second; without *watches*, its informers learn nothing."""
    for _ in range(seconds):
        here.look()
        here.run_pods()
        if watches:
            here.api.deliver()
        here.clock.advance(1.0)


def test_a_leader_that_ends_leaves_the_rest_of_the_time_to_the_next() -> None:
    here = detaching(6)
    steps(here, GRACE + TIMEOUT // 2)
    other = Leader(here.api, before=here)
    other.connections["n1"] = 6
    steps(other, TIMEOUT // 2 - 5)
    assert other.images() == {"proxy:1"}

    steps(other, 10)
    assert other.images() == {"proxy:2"}
    assert other.recorder.reasons.count("ConnectionsOpen") == 1


def test_a_count_from_before_the_health_checker_was_lost_does_not_release_pods() -> None:
    here = detaching(0, confirm="off")
    steps(here, GRACE - 5)
    here.unread.add("n1")
    steps(here, TIMEOUT - 10)
    assert here.images() == {"proxy:1"}

    steps(here, 30)
    assert here.images() == {"proxy:2"}


def test_a_health_checker_that_comes_back_ends_the_wait() -> None:
    here = detaching(None)
    steps(here, GRACE + 60)
    assert here.images() == {"proxy:1"}

    here.connections["n1"] = 0
    steps(here, 5)
    assert here.images() == {"proxy:2"}
