"""The lab's kubelet: its decisions as functions of values, and its containers as real processes."""

from __future__ import annotations

import http.server
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lab.kubelet import launch, probes, status, volumes
from lab.kubelet.expand import environment
from lab.kubelet.process import Mount, Process, Recipe
from lab.kubelet.status import Ended, State
from lab.kubelet.values import Meta, Place, Pod, refusals
from lab.waiting import until

PLACE = Place("127.128.0.9", "127.128.0.1")
NOW = 1_800_000_000.0
SECONDS = 10.0


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


def from_field(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        pytest.param({"value": "v-$(BASE) $$(BASE) $(NONE)"}, "v-given $(BASE) $(NONE)", id="a reference"),
        pytest.param(from_field("metadata.labels['app']"), "web", id="a label"),
        pytest.param(from_field("status.podIP"), "127.128.0.9", id="the pod's address"),
        pytest.param({"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}, "cv", id="ConfigMap"),
        pytest.param({"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, "sv", id="Secret"),
        pytest.param(
            {"valueFrom": {"secretKeyRef": {"name": "s", "key": "z", "optional": True}}},
            None,
            id="an optional key that is missing",
        ),
    ],
)
def test_a_variable_has_the_value_its_source_says(variable: dict[str, Any], expected: str | None) -> None:
    container = {"env": [{"name": "X", **variable}]}
    store = {("ConfigMap", "c"): {"k": b"cv"}, ("Secret", "s"): {"k": b"sv"}}

    assert environment(pod(), container, PLACE, store, {"BASE": "given"}).get("X") == expected  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        pytest.param(
            {"configMap": {"name": "c", "items": [{"key": "a", "path": "x/y"}]}},
            {"x/y": b"1"},
            id="some keys",
        ),
        pytest.param({"secret": {"secretName": "s"}}, {"k": b"sv"}, id="Secret"),
        pytest.param(
            {"secret": {"secretName": "no", "optional": True}}, {}, id="an optional one that is missing"
        ),
        pytest.param(
            {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.annotations"}}]}},
            {"l": b'note="say \\"hi\\""'},
            id="annotations as a file",
        ),
        pytest.param(
            {
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                        {"configMap": {"name": "c", "items": [{"key": "b", "path": "ca.crt"}]}},
                    ]
                }
            },
            {"token": b"jwt", "ca.crt": b"2"},
            id="projected: token and the rest in one directory",
        ),
    ],
)
def test_a_volume_holds_what_its_sources_say(volume: dict[str, Any], expected: dict[str, bytes]) -> None:
    store: Any = {
        ("ConfigMap", "c"): {"a": b"1", "b": b"2"},
        ("Secret", "s"): {"k": b"sv"},
        ("Secret", "no"): None,
    }

    assert volumes.contents(pod(), {"name": "v", **volume}, PLACE, store, {("", 3607): "jwt"}) == expected


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


def written(given: Pod, *mains: State) -> dict[str, Any]:
    return status.status(given, PLACE, [], mains, before=(), since=NOW, now=NOW)


@pytest.mark.parametrize(
    ("gates", "mains", "containers", "reason"),
    [
        pytest.param([], [RUNNING], "True", "", id="ready"),
        pytest.param([], [RUNNING, WAITING], "False", "ContainersNotReady", id="a container is not"),
        pytest.param(["example.com/open"], [RUNNING], "True", "ReadinessGatesNotReady", id="a closed gate"),
    ],
)
def test_a_pod_is_ready_with_all_its_containers_and_gates(
    gates: list[str], mains: list[State], containers: str, reason: str
) -> None:
    given = pod(readinessGates=[{"conditionType": gate} for gate in gates])
    found = {each["type"]: each for each in written(given, *mains)["conditions"]}

    assert found["ContainersReady"]["status"] == containers
    assert found["Ready"]["status"] == ("False" if reason else "True")
    assert (found["Ready"]["reason"] or "") == reason


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, False, id="as written"),
        pytest.param({"Ready": "False"}, True, id="marked unready"),
        pytest.param({"ContainersReady": "Unknown"}, True, id="unknown"),
        pytest.param({"PodScheduled": "True", "example.com/open": "False"}, False, id="not the kubelet's"),
    ],
)
def test_a_status_that_another_writer_has_changed_is_altered(changes: dict[str, str], expected: bool) -> None:
    ours = written(pod(), RUNNING)
    live = {each["type"]: each["status"] for each in ours["conditions"]} | changes
    conditions = [{"type": kind, "status": value} for kind, value in live.items()]
    found = replace(pod(), status={"conditions": conditions})

    assert status.is_altered(found, ours) is expected


@pytest.mark.parametrize(
    ("policy", "code", "init", "expected"),
    [
        ("Always", 0, False, True),
        ("OnFailure", 0, False, False),
        ("OnFailure", 1, False, True),
        ("Never", 1, False, False),
        ("Always", 0, True, False),
        ("Always", 1, True, True),
    ],
)
def test_a_container_is_started_again_as_its_policy_says(
    policy: str, code: int, init: bool, expected: bool
) -> None:
    assert status.may_restart(policy, code, init=init) is expected


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ok" and self.headers["X-Who"] == "me" else 503)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        return


@pytest.fixture
def health_port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(("path", "expected"), [("/ok", True), ("/bad", False)])
def test_an_http_probe_goes_to_the_named_port_with_its_headers(
    health_port: int, path: str, expected: bool
) -> None:
    container = {"ports": [{"name": "health", "containerPort": health_port}]}
    probe = {"httpGet": {"port": "health", "path": path, "httpHeaders": [{"name": "X-Who", "value": "me"}]}}

    assert probes.network_check(probe, container, "127.0.0.1")(1.0) is expected


def test_a_probe_of_what_never_answers_ends_with_its_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port, begun = silent.getsockname()[1], time.monotonic()

        assert not probes.network_check({"httpGet": {"port": port}}, {}, "127.0.0.1")(0.2)
        assert time.monotonic() - begun < 2
        assert probes.network_check({"tcpSocket": {"port": port}}, {}, "127.0.0.1")(0.2)
    assert not probes.network_check({"tcpSocket": {"port": port}}, {}, "127.0.0.1")(0.2)


def test_a_killed_container_takes_all_its_processes_along(tmp_path: Path) -> None:
    volume, base = tmp_path / "v", tmp_path / "base"
    volume.mkdir()
    base.mkdir()
    mark = f"child-{os.getpid()}-{time.monotonic_ns()}"
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', {mark!r}])\n"
        "open('/v/up', 'w')\ntime.sleep(60)"
    )
    argv = [sys.executable, "-I", "-S", "-u", "-c", code]
    env, mounts = {"PATH": os.environ["PATH"]}, (Mount(str(volume), "/v", False),)
    process = Process(Recipe(argv, env, "/", "web-0", mounts, False, str(base)), tmp_path / "log")
    process.follow(lambda: None)
    until((volume / "up").exists)
    until(lambda: with_argument(mark))
    process.kill()

    end = time.monotonic() + SECONDS
    process.wait(lambda: end)
    assert process.exit_code == 137
    until(lambda: not with_argument(mark))


def test_a_file_system_of_the_machine_below_the_place_of_a_volume_is_out_of_reach() -> None:
    machine = {"/", "/data", "/database", "/data/store", "/data/file"}

    assert launch.uncovered(machine - {"/data"}, {"/data"}) == {"/", "/database"}


def with_argument(text: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and text.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
