"""A node gets traffic only while the health checker sees that its pods are there, and are to stay."""

from __future__ import annotations

import http.client
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from api.health_checks import FAIL, SCHEDULED, State, deployment_name
from api.ingress_daemonset import TO_BE_UPDATED
from api.ingress_daemonset.types import Annotation
from controllers.ingress_daemonset.detachment import detach_deployment, detach_doubt, settle_deployment
from dev.fake_api import merged
from healthchecker.__main__ import serve
from healthchecker.checker import Checker, Deployment, DeploymentSpec, DeploymentStatus, fault_of
from healthchecker.config import Config, ConfigError, Endpoint
from kube.types import ObjectMeta, OwnerReference
from tests.factories import NOW
from tests.fakes import FakeClock

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
        ObjectMeta(**{"name": "nginx-node-1", "owner_references": (OURS,), **metadata}),
        DeploymentSpec(replicas),
        DeploymentStatus(available),
    )


OTHERS = OwnerReference(kind=OURS.kind, name="other", controller=True)
FAULTS = {
    "all replicas are available": (deployment(), None),
    "another annotation": (deployment(annotations={"a": "b"}), None),
    "no Deployment": (None, "Deployment nginx-node-1 does not exist"),
    "one is missing": (deployment(available=1), "1 of 2 replicas of Deployment nginx-node-1"),
    "update scheduled": (deployment(annotations={TO_BE_UPDATED: "true"}), "is about to be updated"),
    "being deleted": (deployment(deletion_timestamp=NOW), "is being deleted"),
    "without an owner": (deployment(owner_references=()), "does not belong to IngressDaemonSet nginx"),
    "of another one": (deployment(owner_references=(OTHERS,)), "does not belong to IngressDaemonSet nginx"),
}


@pytest.mark.parametrize(("seen", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_node_gets_traffic_or_it_is_said_why_not(seen: Deployment | None, fault: str | None) -> None:
    found = fault_of(seen, CONFIG)

    assert fault in found if fault and found else found is fault


def test_the_annotation_is_the_configured_one() -> None:
    config = Config("edge", "node-1", "nginx", 10080, annotation="example.com/soon")

    assert "example.com/soon" in str(fault_of(deployment(annotations={"example.com/soon": "x"}), config))
    assert fault_of(deployment(annotations={TO_BE_UPDATED: "x"}), config) is None


def test_a_node_is_detached_by_the_key_of_its_mark_too_until_the_checker_has_another_key() -> None:
    """The leader writes another key at once, and health checkers are replaced one after the other."""
    was, wanted = (Annotation(key=key) for key in (TO_BE_UPDATED, "example.com/soon"))
    annotations = detach_deployment({}, was, NOW)
    annotations = merged(annotations, detach_deployment(annotations, wanted, NOW + timedelta(seconds=9)))
    assert TO_BE_UPDATED not in annotations
    checker = Checker(CONFIG, FakeClock())
    checker.see(deployment(annotations=annotations), 0.0)

    assert "annotation example.com/soon" in str(checker.problem())
    assert detach_doubt("", annotations[SCHEDULED], 0, checker.state()) is None

    attached = merged(annotations, settle_deployment(annotations, NOW))
    assert fault_of(deployment(annotations=attached), CONFIG) is None
    by_hand = merged(annotations, {"example.com/soon": None})
    assert fault_of(deployment(annotations=by_hand), CONFIG) is None


@pytest.mark.parametrize("mark", ["", "no JSON", "[]", '{"key": 1}', "[" * 9_000])
def test_a_mark_that_cannot_be_read_detaches_no_node(mark: str) -> None:
    assert fault_of(deployment(annotations={SCHEDULED: mark}), CONFIG) is None


def test_while_the_api_server_is_away_the_last_answer_is_kept() -> None:
    clock = FakeClock()
    good, bad = Checker(CONFIG, clock), Checker(CONFIG, clock)
    good.see(deployment(), clock.at)
    bad.see(deployment(available=1), clock.at)
    for each in (good, bad):
        each.failed(OSError("no route to host"))

    clock.advance(99999)
    assert good.problem() is None
    assert "1 of 2 replicas" in str(bad.problem())
    assert good.is_blind


def test_one_that_is_to_fail_without_the_api_server_answers_200_until_the_bound_and_no_longer() -> None:
    clock = FakeClock()
    checker = Checker(replace(CONFIG, on_outage=FAIL), clock)
    checker.see(deployment(), clock.at)
    checker.failed(OSError("no route to host"))

    clock.advance(30)
    assert checker.problem() is None
    clock.advance(1)
    assert checker.problem() == "Deployment nginx-node-1 was last seen 31 s ago: no route to host"
    assert checker.state().status == 503


def test_news_that_there_is_none_prolong_the_sight_but_do_not_begin_it() -> None:
    clock = FakeClock()
    checker = Checker(CONFIG, clock)
    checker.nothing_new(clock.at)
    assert "has not been seen yet" in str(checker.problem())

    checker.see(deployment(), clock.at)
    checker.nothing_new(clock.at + 20)
    clock.advance(40)
    assert checker.problem() is None
    assert checker.age == 20


def scheduled(mark: str = "first", **metadata: Any) -> Deployment:
    annotations = {TO_BE_UPDATED: "", SCHEDULED: mark}
    return deployment(annotations=annotations, uid="u1", generation=3, **metadata)


def test_the_state_says_for_how_long_a_detachment_has_been_answered_with_503() -> None:
    clock = FakeClock()
    checker = Checker(CONFIG, clock)
    assert "has not been seen yet" in str(checker.problem())
    assert checker.state() == State(503, str(checker.problem()))

    checker.see(deployment(uid="u1"), clock.at)
    clock.advance(5)
    assert checker.state() == State(200, "", "u1", seen_seconds_ago=5)

    # The time of the list counts for the age of what is known, not for the answers that came after it.
    checker.see(scheduled(), clock.at - 2)
    clock.advance(10)
    checker.see(scheduled(), clock.at)
    clock.advance(1)
    known = State(503, str(checker.problem()), "u1", 3, "first", 11, 1)
    assert checker.state() == known


ANOTHER = replace(scheduled(), metadata=replace(scheduled().metadata, uid="u2"))


@pytest.mark.parametrize("other", [scheduled("second"), ANOTHER], ids=["detachment", "Deployment"])
def test_another_detachment_counts_from_when_it_is_seen(other: Deployment) -> None:
    clock = FakeClock()
    checker = Checker(CONFIG, clock)
    checker.see(scheduled(), clock.at)
    clock.advance(60)
    checker.see(other, clock.at)

    state = checker.state()
    assert (state.status, state.detached_seconds) == (503, 0)


def test_a_node_that_is_short_of_pods_is_not_detached_by_that() -> None:
    clock = FakeClock()
    checker = Checker(CONFIG, clock)
    checker.see(deployment(available=0, annotations={SCHEDULED: "first"}), clock.at)
    clock.advance(60)

    state = checker.state()
    assert (state.status, state.scheduled, state.detached_seconds) == (503, "", 0)


def test_a_shortened_name_has_no_dot_before_its_hash() -> None:
    name = deployment_name("n" * 49, "a.example.com-and-some-more")

    assert name.startswith("n" * 49 + "-a-")


def test_the_task_is_read_from_the_environment() -> None:
    assert Config.from_environment(ENVIRONMENT) == CONFIG
    own = {"TO_BE_UPDATED_ANNOTATION": "example.com/soon", "LONGEST_WITHOUT_SIGHT_SECONDS": "12"}
    own |= {"ON_API_SERVER_OUTAGE": "fail", "CONNECTION_PORTS": "80,443"}
    counted = Config("edge", "node-1", "nginx", 10080, "example.com/soon", 12, FAIL, counted=(80, 443))
    assert Config.from_environment(ENVIRONMENT | own) == counted
    by_metric = Config.from_environment(ENVIRONMENT | {"CONNECTION_METRIC": "9113 /metrics up"})
    assert by_metric.endpoint == Endpoint(9113, "/metrics", "up")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, None) for name in ENVIRONMENT),
        ("HEALTH_CHECK_PORT", "http"),
        ("HEALTH_CHECK_PORT", "65536"),
        ("LONGEST_WITHOUT_SIGHT_SECONDS", "5"),
        ("ON_API_SERVER_OUTAGE", "open"),
        ("CONNECTION_METRIC", "9113 /metrics"),
        ("CONNECTION_METRIC", "0 /metrics up"),
        ("CONNECTION_PORTS", "80,x"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_name(name: str, value: str | None) -> None:
    given = {each: text for each, text in (ENVIRONMENT | {name: value}).items() if text is not None}
    with pytest.raises(ConfigError, match=name):
        Config.from_environment(given)


def ask(
    path: str, problem: str | None = None, method: str = "GET", seen: float | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body."""
    state = State(503, problem or "", seen_seconds_ago=seen)
    with (
        closing(serve(lambda: problem, lambda: state, ("127.0.0.1", 0))) as server,
        closing(http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)) as connection,
    ):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()


HERE = b"not found; here are /healthz, /ok, /, /metrics, /state, /ready\n"


@pytest.mark.parametrize(
    ("method", "path", "problem", "status", "body"),
    [
        *(("GET", path, None, 200, b"ok\n") for path in ("/healthz", "/ok", "/", "/healthz?a")),
        *(("GET", path, "no pods", 503, b"no pods\n") for path in ("/healthz", "/ok", "/", "/healthz?a")),
        ("HEAD", "/healthz", "no pods", 503, b""),
        ("GET", "/health", None, 404, HERE),
        ("POST", "/healthz", None, 405, None),
    ],
)
def test_each_request_has_its_answer_which_no_cache_may_keep(
    method: str, path: str, problem: str | None, status: int, body: bytes | None
) -> None:
    found, headers, content = ask(path, problem, method)

    assert (found, content) == (status, content if body is None else body)
    assert status in (404, 405) or headers["Cache-Control"] == "no-store"
    assert method != "HEAD" or headers["Content-Length"] == "8"


def test_the_state_is_on_the_same_port_and_is_no_health_check() -> None:
    status, headers, body = ask("/state", "no pods")

    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert msgspec.json.decode(body, type=State) == State(503, "no pods")


@pytest.mark.parametrize(("seen", "status"), [(None, 503), (0.5, 200)])
def test_it_is_ready_when_it_has_seen_its_deployment_whatever_it_answers(
    seen: float | None, status: int
) -> None:
    assert ask("/ready", "not for load balancers", seen=seen)[0] == status


def test_the_program_carries_none_of_the_big_libraries() -> None:
    """One runs on each node: each of these is megabytes."""
    heavy = ["kubernetes", "pydantic", "flask", "gunicorn"]
    heavy += ["yaml", "cryptography", "requests", "tencentcloud"]
    code = f"import sys, healthchecker.__main__; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
