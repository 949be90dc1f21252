"""Real workloads, made and placed by the real control plane, run by the lab's kubelet."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dev.lab.session import Lab
from kube.client import Client, Resource
from kube.errors import NotFound

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
PODS = Resource("", "v1", "pods")
CONFIG_MAPS = Resource("", "v1", "configmaps")
SERVICES = Resource("", "v1", "services")
DEPLOYMENTS = Resource("apps", "v1", "deployments")

SECONDS = 60
"""For what is awaited: most of it takes one."""
ON_THE_LAB = {
    "nodeSelector": {"drawbridge.io/lab": "node"},
    "tolerations": [{"key": "drawbridge.io/lab", "operator": "Exists"}],
    "terminationGracePeriodSeconds": 5,
}

WEB = """
import http.server, os, signal, sys
class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/text":
            body = open("/etc/web/text", "rb").read()
        else:
            body = os.environ["POD_NAME"].encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)
def end(*_):
    print("TERM", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
http.server.ThreadingHTTPServer((os.environ["POD_IP"], 8080), Web).serve_forever()
"""


class Space:
    """A namespace of one test, and what one asks of it."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.name = name
        self.client: Client = lab.client

    def create(self, resource: Resource, name: str, **body: Any) -> dict[str, Any]:
        metadata = {"name": name, "namespace": self.name}
        made: dict[str, Any] = self.client.create(resource, {"metadata": metadata, **body}, self.name)
        return made

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(PODS, name, self.name)
        return found

    def run(self, name: str, code: str, *, spec: dict[str, Any] | None = None, **container: Any) -> None:
        main = {
            "name": "main",
            "image": "drawbridge:test",
            "command": ["python", "-u", "-c", code],
            **container,
        }
        self.create(PODS, name, spec={**ON_THE_LAB, "containers": [main], **(spec or {})})

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        return self.lab.wait(condition, SECONDS, what)

    def container(self, name: str) -> dict[str, Any]:
        statuses = self.pod(name)["status"].get("containerStatuses") or [{}]
        return dict(statuses[0])

    def wait_ready(self, name: str) -> dict[str, Any]:
        self.wait(lambda: self.container(name).get("ready"), f"pod {name} to get ready")
        return self.pod(name)

    def gone(self, name: str) -> bool:
        try:
            self.pod(name)
        except NotFound:
            return True
        return False

    def log(self, name: str, number: int = 0) -> str:
        found = list((self.lab.directory / "pods").glob(f"{self.name}_{name}_*/main/{number}.log"))
        return found[0].read_text() if found else ""


@pytest.fixture
def space(bare_lab: Lab, request: pytest.FixtureRequest) -> Iterator[Space]:
    name = request.node.name.replace("_", "-")[:50].strip("-") + f"-{time.monotonic_ns() % 10_000}"
    bare_lab.client.create(NAMESPACES, {"metadata": {"name": name}})
    one = Space(bare_lab, name)
    accounts = Resource("", "v1", "serviceaccounts")
    bare_lab.wait(
        lambda: found(bare_lab.client, accounts, "default", name), SECONDS, "the namespace's account"
    )
    yield one
    bare_lab.client.delete(NAMESPACES, name)


def found(client: Client, resource: Resource, name: str, namespace: str) -> bool:
    try:
        client.get(resource, name, namespace)
    except NotFound:
        return False
    return True


def test_a_deleted_pod_is_unready_then_hooked_then_signalled_then_gone(space: Space) -> None:
    code = WEB.replace('print("TERM", flush=True)', 'print("TERM", open("/v/hook").read(), flush=True)')
    waits = "until [ -e /v/go ]; do sleep 0.1; done; echo hooked > /v/hook"
    hook = {"exec": {"command": ["sh", "-c", waits]}}
    env = [
        {"name": "POD_NAME", "value": "x"},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    mounts = [{"name": "v", "mountPath": "/v"}]
    spec = {"volumes": [{"name": "v", "emptyDir": {}}], "terminationGracePeriodSeconds": 600}
    space.run("web", code, spec=spec, env=env, lifecycle={"preStop": hook}, volumeMounts=mounts)
    uid = space.wait_ready("web")["metadata"]["uid"]
    space.wait(lambda: "up" in space.log("web"), "the program to be up")
    space.client.delete(PODS, "web", space.name)

    space.wait(lambda: not space.container("web")["ready"], "it to be unready while it lives")
    assert "TERM" not in space.log("web")
    (space.lab.directory / "volumes" / uid / "v" / "go").touch()
    space.wait(lambda: space.gone("web"), "the pod to be gone")
    assert "TERM hooked" in space.log("web")


def test_a_container_that_crashes_or_is_not_alive_is_restarted(space: Space) -> None:
    space.run("crash", "import time\nprint('up')\ntime.sleep(0.2)\nraise SystemExit(3)")
    probe = {"exec": {"command": ["test", "!", "-e", "/var/sick"]}, "periodSeconds": 1, "failureThreshold": 1}
    code = "import time\ntime.sleep(0.5)\nopen('/var/sick', 'w')\ntime.sleep(600)"
    space.run("sick", code, livenessProbe=probe, spec={"terminationGracePeriodSeconds": 1})

    for name in ("crash", "sick"):
        space.wait(lambda: space.container(name).get("restartCount", 0) >= 1, f"{name} to restart")  # noqa: B023
    assert space.container("crash")["lastState"]["terminated"]["exitCode"] == 3
    space.wait(lambda: "up" in space.log("crash", 1), "the output of the second run")
    assert not Path("/var/sick").exists()


def test_a_killed_kubelet_leaves_no_process(bare_lab: Lab, tmp_path: Path) -> None:
    kubelet = subprocess.Popen(
        [
            *(sys.executable, "-m", "dev.lab.kubelet", "--kubeconfig", str(bare_lab.kubeconfig)),
            *("--directory", str(tmp_path), "--nodes", "brief", "--pod-cidr", "127.254.0.0/24"),
            *("--image", f"drawbridge={ROOT}:{Path(sys.executable).parent}"),
        ],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert kubelet.stdout is not None
    try:
        assert kubelet.stdout.readline() == "ready\n"
        space = Space(bare_lab, "default")
        code = "import subprocess, time\nsubprocess.Popen(['sleep', '600'])\ntime.sleep(600)"
        space.run("orphan", code, spec={**ON_THE_LAB, "nodeName": "brief"})
        bare_lab.wait(lambda: len(tree(kubelet.pid)) >= 3, SECONDS, "the pod's processes to be there")
        processes = tree(kubelet.pid)
        kubelet.send_signal(signal.SIGKILL)
        kubelet.wait()

        bare_lab.wait(lambda: not any(map(alive, processes)), SECONDS, "the pod's processes to be gone")
    finally:
        kubelet.kill()
        kubelet.wait()
        kubelet.stdout.close()
        bare_lab.client.delete(PODS, "orphan", "default", grace_seconds=0)
        bare_lab.client.delete(Resource("", "v1", "nodes", namespaced=False), "brief")


def tree(pid: int) -> list[int]:
    """All processes below the one given."""
    found: list[int] = []
    with suppress(OSError):  # gone meanwhile, as what only starts others
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in path.read_text().split():
                found += [int(child), *tree(int(child))]
    return found


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
