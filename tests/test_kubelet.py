"""The lab's kubelet: its decisions as functions of values, and its containers as real processes."""

from __future__ import annotations

import http.server
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lab.kubelet import nodes, probes, status, volumes
from lab.kubelet.container import Container
from lab.kubelet.expand import command, environment, expand
from lab.kubelet.kubeconfig import api_server
from lab.kubelet.life import Life
from lab.kubelet.process import Mount, Process, Recipe
from lab.kubelet.recipes import Image, Machine, image_of, recipe
from lab.kubelet.status import Ended, State
from lab.kubelet.values import CannotRun, Meta, Place, Pod, references, refusals
from lab.waiting import until
from tests.fake_api import NAMESPACES, FakeAPI

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


def after(seconds: float) -> Callable[[], float]:
    """A deadline that stays."""
    end = time.monotonic() + seconds
    return lambda: end


# Environment and command line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("$(A)", "1", id="a known variable is replaced"),
        pytest.param("x$(A)y$(B)", "x1y2", id="several in one text"),
        pytest.param("$(C)", "$(C)", id="an unknown one stays as it is"),
        pytest.param("$$(A)", "$(A)", id="a doubled dollar keeps it from being replaced"),
        pytest.param("$$$(A)", "$1", id="a doubled dollar before a reference"),
        pytest.param("$A ${A} $", "$A ${A} $", id="the shell's forms mean nothing"),
        pytest.param("$(A", "$(A", id="one that is not closed stays"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        pytest.param({"value": "v-$(BASE)"}, "v-given", id="a value that refers to an earlier one"),
        pytest.param({"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, "web-0", id="name"),
        pytest.param(
            {"valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}, "shop", id="namespace"
        ),
        pytest.param({"valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}, "u-1", id="uid"),
        pytest.param({"valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}}, "web", id="label"),
        pytest.param({"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}, "lab-0", id="node"),
        pytest.param(
            {"valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}}, "robot", id="account"
        ),
        pytest.param({"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, "127.128.0.9", id="pod ip"),
        pytest.param(
            {"valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}, "127.128.0.1", id="host ip"
        ),
        pytest.param({"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}, "cv", id="ConfigMap key"),
        pytest.param({"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, "sv", id="Secret key"),
        pytest.param(
            {"valueFrom": {"secretKeyRef": {"name": "s", "key": "z", "optional": True}}},
            None,
            id="an optional key that is missing leaves the variable out",
        ),
    ],
)
def test_a_variable_has_the_value_its_source_says(variable: dict[str, Any], expected: str | None) -> None:
    container = {"env": [{"name": "X", **variable}]}
    store = {("ConfigMap", "c"): {"k": b"cv"}, ("Secret", "s"): {"k": b"sv"}}

    assert environment(pod(), container, PLACE, store, {"BASE": "given"}).get("X") == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        pytest.param(
            {"configMapKeyRef": {"name": "gone", "key": "k"}}, "configmap 'gone' not found", id="object"
        ),
        pytest.param({"configMapKeyRef": {"name": "c", "key": "z"}}, "key z in ConfigMap c", id="key"),
        pytest.param({"fieldRef": {"fieldPath": "status.phase"}}, "'status.phase' is not known", id="field"),
        pytest.param(
            {"resourceFieldRef": {"resource": "limits.cpu"}}, "resourceFieldRef", id="kind of source"
        ),
    ],
)
def test_what_is_missing_for_the_environment_is_named(variable: dict[str, Any], text: str) -> None:
    container = {"env": [{"name": "X", "valueFrom": variable}]}

    with pytest.raises(CannotRun, match=text):
        environment(pod(), container, PLACE, {("ConfigMap", "c"): {}, ("ConfigMap", "gone"): None}, {})


def test_a_container_without_a_command_is_refused_with_its_name() -> None:
    with pytest.raises(CannotRun, match="container 'main' has no command"):
        command({"name": "main"}, {})


# Images and recipes


def test_an_image_that_was_not_given_is_refused_with_the_way_out() -> None:
    with pytest.raises(CannotRun, match=r"'team/other:1'.*--image other=DIRECTORY"):
        image_of("team/other:1", {"app": Image("/srv")})


def test_a_recipe_carries_the_mounts_the_working_directory_the_api_server_and_services(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path, {"app": Image("/srv", "/venv/bin")}, ("127.0.0.1", 6443))
    container = {
        "name": "main",
        "image": "app",
        "command": ["serve", "$(KUBERNETES_SERVICE_HOST)", "$(SHOP_WEB_SERVICE_HOST)"],
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108
            {"name": "config", "mountPath": "/etc/app"},
        ],
    }
    given = pod(volumes=[{"name": "scratch", "emptyDir": {}}, {"name": "config", "configMap": {"name": "c"}}])

    made = recipe(machine, given, container, PLACE, {}, {"SHOP_WEB_SERVICE_HOST": "127.96.0.7"})

    assert (made.argv, made.workingDir, made.env["KUBERNETES_SERVICE_PORT"]) == (
        ["serve", "127.0.0.1", "127.96.0.7"],
        "/srv",
        "6443",
    )
    assert made.env["PATH"].startswith("/venv/bin:")
    base = tmp_path / "volumes" / "u-1"
    assert list(made.mounts) == [
        Mount(str(base / "config"), "/etc/app", True),
        Mount(str(base / "scratch"), "/tmp", False),  # noqa: S108
    ]


def test_an_image_that_a_volume_would_hide_is_shown_in_it(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    machine = Machine(tmp_path / "lab", {"app": Image(str(clone), "/usr/bin")}, ("127.0.0.1", 6443))
    container = {
        "name": "main",
        "image": "app",
        "command": ["serve"],
        "volumeMounts": [{"name": "scratch", "mountPath": str(tmp_path)}],
    }

    made = recipe(machine, pod(volumes=[{"name": "scratch", "emptyDir": {}}]), container, PLACE, {}, {})

    assert [each.target for each in made.mounts] == [str(tmp_path), str(clone)]
    assert made.mounts[1] == Mount(str(clone), str(clone), True)


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


def test_every_reference_of_a_pod_is_found() -> None:
    given = pod(
        containers=[
            {
                "name": "main",
                "image": "app",
                "envFrom": [{"secretRef": {"name": "a"}}],
                "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "b", "key": "k"}}}],
            }
        ],
        volumes=[
            {"name": "v", "secret": {"secretName": "c"}},
            {
                "name": "w",
                "projected": {"sources": [{"configMap": {"name": "d"}}, {"secret": {"name": "e"}}]},
            },
        ],
    )

    assert references(given) == {
        ("Secret", "a"),
        ("ConfigMap", "b"),
        ("Secret", "c"),
        ("ConfigMap", "d"),
        ("Secret", "e"),
    }


# Volumes


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        pytest.param({"emptyDir": {}}, {}, id="emptyDir is empty"),
        pytest.param({"configMap": {"name": "c"}}, {"a": b"1", "b": b"2"}, id="ConfigMap: all keys"),
        pytest.param(
            {"configMap": {"name": "c", "items": [{"key": "a", "path": "x/y"}]}},
            {"x/y": b"1"},
            id="items: only those",
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


def test_a_volume_is_replaced_as_a_whole(tmp_path: Path) -> None:
    assert volumes.write(tmp_path, {"a": b"1", "b": b"1"})
    first = (tmp_path / "..data").resolve()

    assert volumes.write(tmp_path, {"a": b"2", "c/d": b"2"})

    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("..")) == ["a", "c"]
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "c" / "d").read_bytes()) == (b"2", b"2")
    assert os.readlink(tmp_path / "a") == "..data/a"
    assert not first.exists()


# Status

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


def conditions(given: Pod, mains: list[State], before: Any = (), now: float = NOW) -> dict[str, Any]:
    made = status.status(given, PLACE, [], mains, before=before, since=NOW, now=now)
    return {each["type"]: each for each in made["conditions"]}


def test_a_pod_is_ready_when_all_its_containers_are() -> None:
    assert conditions(pod(), [RUNNING])["Ready"]["status"] == "True"
    unready = conditions(pod(), [RUNNING, WAITING])["Ready"]
    assert (unready["status"], unready["reason"]) == ("False", "ContainersNotReady")


def test_a_readiness_gate_holds_back_the_pod_alone() -> None:
    found = conditions(pod(readinessGates=[{"conditionType": "example.com/open"}]), [RUNNING])

    assert (found["ContainersReady"]["status"], found["Ready"]["reason"]) == (
        "True",
        "ReadinessGatesNotReady",
    )


def written(*mains: State) -> dict[str, Any]:
    return status.status(pod(), PLACE, [], mains, before=(), since=NOW, now=NOW)


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
    told = written(RUNNING)
    live = {each["type"]: each["status"] for each in told["conditions"]} | changes
    conditions = [{"type": kind, "status": value} for kind, value in live.items()]
    found = replace(pod(), status={"conditions": conditions})

    assert status.is_altered(found, told) is expected


@pytest.fixture
def heartbeats() -> Iterator[tuple[FakeAPI, list[float]]]:
    """Of node lab-0, and when its pods were corrected."""
    api, corrected, stop = FakeAPI(), list[float](), threading.Event()
    api.put(NAMESPACES, {"metadata": {"name": nodes.LEASE_NAMESPACE}})
    client = api.client()
    nodes.register(client, "lab-0", "127.128.0.1")
    beating = threading.Thread(
        target=nodes.keep_beating,
        args=(client, ["lab-0"], stop),
        kwargs={"every": 0.01, "correct_pods": lambda: corrected.append(time.monotonic())},
    )
    beating.start()
    yield api, corrected
    stop.set()
    beating.join(SECONDS)


def test_a_node_and_its_pods_that_were_taken_for_lost_are_corrected(
    heartbeats: tuple[FakeAPI, list[float]],
) -> None:
    api, corrected = heartbeats
    lost = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    client = api.client()
    client.patch(nodes.NODES.sub("status"), "lab-0", {"status": {"conditions": lost}})
    begun = time.monotonic()

    until(lambda: readiness(client.get(nodes.NODES, "lab-0")) == ["True"])
    until(lambda: corrected[-1:] > [begun])


def readiness(node: dict[str, Any]) -> list[str]:
    return [each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"]


def test_a_container_that_waits_to_be_started_again_tells_how_it_ended() -> None:
    told = status.container_status(CRASHED)

    assert told["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "later"}}
    assert (told["lastState"]["terminated"]["exitCode"], told["restartCount"]) == (3, 1)


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


# Probes


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


# Addresses and the kubeconfig


def test_the_api_server_is_that_of_the_current_context(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(
        "current-context: b\n"
        "contexts: [{name: a, context: {cluster: x}}, {name: b, context: {cluster: y}}]\n"
        "clusters: [{name: x, cluster: {server: 'https://h:1'}}, {name: y, cluster: {server: 'https://127.0.0.1:2'}}]\n"
    )

    assert api_server(path) == ("127.0.0.1", 2)


# Containers as processes


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Process]:
    """Makes a container of this machine's Python running the given code."""
    base = tmp_path / "base"
    base.mkdir()

    def make(code: str, *mounts: Mount, read_only: bool = False) -> Process:
        env = {"PATH": os.environ["PATH"]}
        argv = [sys.executable, "-I", "-S", "-u", "-c", code]
        process = Process(Recipe(argv, env, "/", "web-0", mounts, read_only, str(base)), tmp_path / "log")
        process.follow(lambda: None)
        return process

    return make


def ended(process: Process) -> int | None:
    process.wait(after(SECONDS))
    return process.exit_code


def test_a_container_writes_where_it_likes_and_the_machine_stays_as_it_is(
    made: Callable[..., Process], tmp_path: Path
) -> None:
    inside = tmp_path / "written"
    inside.write_text("mine")
    code = (
        f"open({str(inside)!r}, 'w').write('theirs')\n"
        "import os\nos.makedirs('/data/x')\nopen('/etc/new', 'w')"
    )

    assert ended(made(code)) == 0
    assert inside.read_text() == "mine"
    assert not Path("/data").exists()
    assert not Path("/etc/new").exists()


def test_a_volume_stands_at_its_place_through_links_and_changes_are_seen(
    made: Callable[..., Process], tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    volumes.write(volume, {"token": b"one"})
    code = (
        "import time\npath = '/var/run/secrets/kubernetes.io/serviceaccount/token'\n"
        "while open(path).read() != 'two': time.sleep(0.01)"
    )
    process = made(code, Mount(str(volume), "/var/run/secrets/kubernetes.io/serviceaccount", True))
    volumes.write(volume, {"token": b"two"})

    assert ended(process) == 0
    assert not Path("/var/run/secrets/kubernetes.io").exists()


def test_only_a_volume_that_is_not_read_only_can_be_written(
    made: Callable[..., Process], tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    mounts = (Mount(str(tmp_path / "a"), "/a", True), Mount(str(tmp_path / "b"), "/b", False))

    assert ended(made("open('/b/x', 'w')", *mounts)) == 0
    assert (tmp_path / "b" / "x").exists()
    assert ended(made("open('/a/x', 'w')", *mounts)) == 1
    assert "Read-only file system" in (tmp_path / "log").read_text()


def test_a_read_only_root_is_honoured(made: Callable[..., Process], tmp_path: Path) -> None:
    assert ended(made("open('/etc/x', 'w')", read_only=True)) == 1
    assert "Read-only file system" in (tmp_path / "log").read_text()


def test_a_killed_container_takes_all_its_processes_along(
    made: Callable[..., Process], tmp_path: Path
) -> None:
    (tmp_path / "v").mkdir()
    mark = f"child-{os.getpid()}-{time.monotonic_ns()}"
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', {mark!r}])\n"
        "open('/v/up', 'w')\ntime.sleep(60)"
    )
    process = made(code, Mount(str(tmp_path / "v"), "/v", False))
    until((tmp_path / "v" / "up").exists)
    until(lambda: with_argument(mark))
    process.kill()

    assert ended(process) == 137
    until(lambda: not with_argument(mark))


def with_argument(text: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and text.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_the_end_of_the_thread_that_made_it_is_the_end_of_a_container(made: Callable[..., Process]) -> None:
    made_there: list[Process] = []
    thread = threading.Thread(target=lambda: made_there.append(made("import time; time.sleep(60)")))
    thread.start()
    thread.join()

    assert ended(made_there[0]) in (137, -9)
    until(lambda: not Path(f"/proc/{made_there[0].pid}/stat").exists())


def test_a_program_that_does_not_exist_is_told_and_not_started(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    with pytest.raises(CannotRun, match="No such file or directory"):
        Process(
            Recipe(["no-such-program"], {"PATH": "/bin"}, "/", "web-0", (), False, str(tmp_path / "base")),
            tmp_path / "l",
        )


def test_a_command_is_run_inside_of_the_container(made: Callable[..., Process], tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "file").write_text("seen")
    process = made("import time; time.sleep(60)", Mount(str(tmp_path / "v"), "/here", True))

    assert process.exec(["cat", "/here/file"], 5) == (0, "seen")
    assert process.exec(["sleep", "30"], 0.2)[0] == 124
    process.kill()
    assert ended(process) == 137


# One life of a container

SERVER = """
import signal, sys, time
def end(*_):
    print("TERM", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
while True: time.sleep(0.01)
"""


def life(process: Process, spec: dict[str, Any], warned: list[str] | None = None) -> Life:
    said = warned if warned is not None else []
    spec = {"name": "main", **spec}
    return Life(
        process,
        spec,
        address="127.0.0.1",
        grace=5,
        poke=lambda: None,
        warn=lambda reason, _: said.append(reason),
    )


def up(tmp_path: Path) -> Callable[[], bool]:
    return lambda: "up" in (tmp_path / "log").read_text()


def test_who_does_not_end_in_time_is_killed(made: Callable[..., Process], tmp_path: Path) -> None:
    process = made(SERVER.replace("sys.exit(0)", "pass"))
    until(up(tmp_path))
    one = life(process, {})
    one.stop(after(0.3))

    until(lambda: one.exit_code == 137)


def test_a_container_that_ends_is_due_again_later_and_counts_its_restarts(
    made: Callable[..., Process],
) -> None:
    container = Container({"name": "main", "image": "app"}, init=False, policy="Always")
    assert container.due_in(100.0) == 0
    one = life(made("raise SystemExit(3)"), {})
    container.begin(one)
    until(lambda: one.exit_code is not None)
    container.collect(100.0)

    assert container.due_in(100.0) == pytest.approx(1.0)
    state = container.state(terminating=False)
    assert (state.waiting[0], state.last and state.last.exit_code) == ("CrashLoopBackOff", 3)
    container.begin(life(made("pass"), {}))
    assert container.state(terminating=False).restarts == 1


def test_a_stopped_container_is_not_started_again(made: Callable[..., Process], tmp_path: Path) -> None:
    container = Container({"name": "main", "image": "app"}, init=False, policy="Always")
    process = made(SERVER)
    until(up(tmp_path))
    one = life(process, {})
    container.begin(one)
    container.stop(after(5))
    until(lambda: one.exit_code is not None)
    container.collect(100.0)

    assert (container.done, container.due_in(100.0)) == (True, None)
