"""A node gets traffic only while the health checker sees that its pods are there, and are to stay."""

from __future__ import annotations

import dataclasses
import http.client
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Gauge

from controllers.ingress_daemonset import rollout_annotations
from healthchecker import DEFAULT_ANNOTATION, SCHEDULED, State, checker, deployment_name
from healthchecker.__main__ import serve
from healthchecker.checker import Checker, Deployment, DeploymentSpec, DeploymentStatus, Metadata, fault_of
from healthchecker.config import Config, ConfigError
from kube.types import OwnerReference
from tests.factories import NOW
from webhook import ingress_daemonset

ROOT = Path(__file__).parent.parent
CONFIG = Config("edge", "node-1", "nginx", 10080)
OURS = OwnerReference(kind="IngressDaemonSet", name="nginx", controller=True)
ENVIRONMENT = {
    "POD_NAMESPACE": "edge",
    "NODE_NAME": "node-1",
    "INGRESS_DAEMONSET": "nginx",
    "HEALTH_CHECK_PORT": "10080",
}


def deployment(*, replicas: int = 2, available: int = 2, **metadata: Any) -> Deployment:
    return Deployment(
        Metadata(**{"name": "nginx-node-1", "owner_references": (OURS,), **metadata}),
        DeploymentSpec(replicas),
        DeploymentStatus(available),
    )


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(deployment(), id="all replicas are available"),
        pytest.param(deployment(annotations={"a": "b"}), id="another annotation"),
    ],
)
def test_a_node_gets_traffic(seen: Deployment) -> None:
    assert fault_of(seen, CONFIG) is None


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        pytest.param(None, "there is no Deployment nginx-node-1", id="no Deployment"),
        pytest.param(
            deployment(available=1), "1 of 2 replicas of Deployment nginx-node-1", id="one is missing"
        ),
        pytest.param(
            deployment(annotations={DEFAULT_ANNOTATION: "true"}), "is to be updated", id="update scheduled"
        ),
        pytest.param(deployment(deletion_timestamp=NOW), "is being deleted", id="being deleted"),
        pytest.param(
            deployment(owner_references=()),
            "is not one of IngressDaemonSet nginx",
            id="a Deployment without an owner",
        ),
        pytest.param(
            deployment(owner_references=(OwnerReference(kind=OURS.kind, name="other", controller=True),)),
            "is not one of IngressDaemonSet nginx",
            id="another one's Deployment with our name",
        ),
    ],
)
def test_a_node_gets_no_traffic_and_it_is_said_why(seen: Deployment | None, fault: str) -> None:
    assert fault in str(fault_of(seen, CONFIG))


def test_the_annotation_is_the_configured_one() -> None:
    config = Config("edge", "node-1", "nginx", 10080, annotation="example.com/soon")

    assert "example.com/soon" in str(fault_of(deployment(annotations={"example.com/soon": "x"}), config))
    assert fault_of(deployment(annotations={DEFAULT_ANNOTATION: "x"}), config) is None


def test_what_was_not_seen_yet_gets_no_traffic() -> None:
    assert "has not been seen yet" in str(Checker(CONFIG, Clock()).problem())


def test_while_the_api_server_is_away_the_last_answer_is_kept() -> None:
    clock = Clock()
    good, bad = Checker(CONFIG, clock), Checker(CONFIG, clock)
    good.see(deployment(), clock.now)
    bad.see(deployment(available=1), clock.now)
    for each in (good, bad):
        each.failed(OSError("no route to host"))

    clock.now += 99999
    assert good.problem() is None
    assert "1 of 2 replicas" in str(bad.problem())
    assert good.is_blind


def test_one_that_is_to_fail_without_the_api_server_answers_200_until_the_bound_and_no_longer() -> None:
    clock = Clock()
    checker = Checker(dataclasses.replace(CONFIG, fails=True), clock)
    checker.see(deployment(), clock.now)
    checker.failed(OSError("no route to host"))

    clock.now += 30
    assert checker.problem() is None
    clock.now += 1
    assert checker.problem() == "Deployment nginx-node-1 was last seen 31 s ago: no route to host"
    assert checker.state().status == 503
    assert checker.state().for_seconds == 1


def test_news_that_there_is_none_prolong_the_sight_but_do_not_begin_it() -> None:
    clock = Clock()
    checker = Checker(CONFIG, clock)
    checker.nothing_new(clock.now)
    assert "has not been seen yet" in str(checker.problem())

    checker.see(deployment(), clock.now)
    checker.nothing_new(clock.now + 20)
    clock.now += 40
    assert checker.problem() is None
    assert checker.age == 20


def scheduled(mark: str = "first", **metadata: Any) -> Deployment:
    annotations = {DEFAULT_ANNOTATION: "", SCHEDULED: mark}
    return deployment(annotations=annotations, uid="u1", resource_version="8", generation=3, **metadata)


def test_the_state_says_for_how_long_a_detachment_has_been_answered_with_503() -> None:
    clock = Clock()
    checker = Checker(CONFIG, clock)
    assert checker.state() == State(503, str(checker.problem()))

    checker.see(deployment(uid="u1", resource_version="7"), clock.now)
    clock.now += 5
    assert checker.answer() is None
    assert checker.state() == State(200, "", 5, "u1", "7", seen_seconds_ago=5)

    # The time of the list counts for the age of what is known, not for the answers that came after it.
    checker.see(scheduled(), clock.now - 2)
    clock.now += 10
    assert checker.answer() == checker.problem()
    checker.see(scheduled(), clock.now)
    clock.now += 1
    known = State(503, str(checker.problem()), 11, "u1", "8", 3, "first", 11, 1, 1)
    assert checker.state() == known


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(scheduled("second"), id="another detachment"),
        pytest.param(
            replace(scheduled(), metadata=replace(scheduled().metadata, uid="u2")), id="another one"
        ),
    ],
)
def test_another_detachment_counts_from_when_it_is_seen(other: Deployment) -> None:
    clock = Clock()
    checker = Checker(CONFIG, clock)
    checker.see(scheduled(), clock.now)
    checker.answer()
    clock.now += 60
    checker.see(other, clock.now)

    state = checker.state()
    assert (state.status, state.for_seconds, state.detached_seconds, state.refusals) == (503, 60, 0, 0)


def test_a_node_that_is_short_of_pods_is_not_detached_by_that() -> None:
    clock = Clock()
    checker = Checker(CONFIG, clock)
    checker.see(deployment(available=0, annotations={SCHEDULED: "first"}), clock.now)
    clock.now += 60

    assert (checker.state().status, checker.state().scheduled, checker.state().detached_seconds) == (
        503,
        "",
        0,
    )


def test_a_shortened_name_has_no_dot_before_its_hash() -> None:
    name = deployment_name("n" * 49, "a.example.com-and-some-more")

    assert name.startswith("n" * 49 + "-a-")


def test_the_task_is_read_from_the_environment() -> None:
    assert Config.from_environment(ENVIRONMENT) == CONFIG
    own = {"TO_BE_UPDATED_ANNOTATION": "example.com/soon", "LONGEST_WITHOUT_SIGHT_SECONDS": "12"}
    assert Config.from_environment(ENVIRONMENT | own) == Config(
        "edge", "node-1", "nginx", 10080, "example.com/soon", 12
    )
    assert Config.from_environment(ENVIRONMENT | {"ON_API_SERVER_OUTAGE": "fail"}).fails


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_a_variable_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not set"):
        Config.from_environment({each: value for each, value in ENVIRONMENT.items() if each != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [("HEALTH_CHECK_PORT", "http"), ("HEALTH_CHECK_PORT", "65536"), ("LONGEST_WITHOUT_SIGHT_SECONDS", "5")],
)
def test_a_number_that_cannot_be_used_is_refused_with_its_name_and_the_range(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is '{value}'; write a whole number from "):
        Config.from_environment(ENVIRONMENT | {name: value})


def ask(
    path: str, problem: str | None = None, method: str = "GET", seen: float | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body."""
    registry = CollectorRegistry()
    Gauge("some", "thing", registry=registry).set(7)
    state = State(503, problem or "", seen_seconds_ago=seen)
    with (
        closing(serve(lambda: problem, lambda: state, ("127.0.0.1", 0), registry)) as server,
        closing(http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)) as connection,
    ):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()


@pytest.mark.parametrize("path", ["/healthz", "/ok", "/", "/healthz?a"])
def test_every_health_path_answers_the_same(path: str) -> None:
    assert ask(path)[::2] == (200, b"ok\n")
    assert ask(path, "no pods")[::2] == (503, b"no pods\n")


def test_the_state_is_on_the_same_port_and_is_no_health_check() -> None:
    status, headers, body = ask("/state", "no pods")

    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert msgspec.json.decode(body, type=State) == State(503, "no pods")


@pytest.mark.parametrize(("seen", "status"), [(None, 503), (0.5, 200)])
def test_it_is_ready_when_it_has_seen_its_deployment_whatever_it_answers(
    seen: float | None, status: int
) -> None:
    assert ask("/ready", "not for load balancers", seen=seen)[0] == status


def test_another_path_or_method_is_refused() -> None:
    assert ask("/health")[::2] == (404, b"not found; here are /healthz, /ok, /, /metrics, /state, /ready\n")
    assert ask("/healthz", method="POST")[0] == 405


def test_the_program_carries_none_of_the_big_libraries() -> None:
    """One runs on each node: each of these is megabytes."""
    heavy = [
        "kubernetes",
        "pydantic",
        "flask",
        "gunicorn",
        "yaml",
        "cryptography",
        "requests",
        "tencentcloud",
    ]
    code = f"import sys, healthchecker.__main__; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_the_words_are_those_of_admission_and_the_controllers() -> None:
    assert DEFAULT_ANNOTATION == ingress_daemonset.TO_BE_UPDATED
    assert checker.KIND == ingress_daemonset.KIND
    assert SCHEDULED == rollout_annotations.SCHEDULED


def test_a_word_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match="ON_API_SERVER_OUTAGE is 'open'; write keep or fail"):
        Config.from_environment(ENVIRONMENT | {"ON_API_SERVER_OUTAGE": "open"})


def test_a_head_has_the_status_and_no_body() -> None:
    status, headers, body = ask("/healthz", "no pods", "HEAD")

    assert (status, headers["Content-Length"], body) == (503, "8", b"")


def test_no_cache_may_keep_an_answer() -> None:
    assert ask("/healthz")[1]["Cache-Control"] == "no-store"
