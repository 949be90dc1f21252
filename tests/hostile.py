"""The webhook server as it is installed, for hostile clients, and what it holds for them."""

import http.client
import json
import os
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.fake_api import FakeAPI
from dev.lab.waiting import until
from tests import kubeconfigs, misbehaving_server
from tests.factories import raw_pod
from tests.server import ROOT, Answer, Server, configure, gunicorn, trusting

PATH = "/validate/pods/ip-reservation"
JSON = {"Content-Type": "application/json"}

QUICK = f"""
from pathlib import Path
from webhook.connection import Limits
from webhook.worker import WebhookWorker

exec(Path({str(ROOT / "gunicorn.conf.py")!r}).read_text())
WebhookWorker.limits = Limits(first=5.0, request=5.0, linger=1.0)
"""
"""All as installed, but for deadlines that a test can await."""


def valid_review(**request: Any) -> dict[str, Any]:
    """A review as the API server sends it, of a deletion that is no reason to reserve anything."""
    fields = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "subResource": "",
        "name": "redis-0",
        "namespace": "redis",
        "operation": "DELETE",
        "userInfo": {"username": "admin", "uid": "1", "groups": ["system:masters"], "extra": {"a": ["b"]}},
        "object": None,
        "oldObject": raw_pod(spec={"hostNetwork": True}),
        "dryRun": False,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields | request}


VALID = json.dumps(valid_review()).encode()


@contextmanager
def installed(directory: Path) -> Iterator[Server]:
    """gunicorn.conf.py and wsgi.py as in the image; its API server is a small one of ours."""
    api = FakeAPI()
    api.put("/api/v1/namespaces", {"metadata": {"name": "redis"}})
    api.put("/api/v1/pods", raw_pod("redis-1"))
    with misbehaving_server.serving(api) as cluster:
        environ = _configure(directory, cluster.url)
        with gunicorn("-c", str(directory / "quick.py"), "wsgi:app", cwd=directory, **environ) as server:
            server.port = int(server.wait_for_line(r"Listening at: https://[^ ]*:(\d+)")[1])
            yield server


def _configure(directory: Path, api_server: str) -> dict[str, str]:
    (directory / "quick.py").write_text(QUICK)
    environ = configure(directory, drainPeriod="0s").environ
    kubeconfig = kubeconfigs.written(directory / "kubeconfig", api_server)
    return environ | {"KUBECONFIG": kubeconfig, "KUBERNETES_SERVICE_HOST": ""}


@dataclass(frozen=True)
class Cost:
    """What the serving process holds: open files, and MiB of memory, now and at most."""

    files: int
    memory: float
    peak: float


def cost(server: Server) -> Cost:
    pid = server.process.pid
    [worker] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    held = dict(re.findall(r"(Vm\w+):\s+(\d+) kB", Path(f"/proc/{worker}/status").read_text()))
    memory, peak = (int(held[name]) / 1024 for name in ("VmRSS", "VmHWM"))
    return Cost(len(os.listdir(f"/proc/{worker}/fd")), memory, peak)


class Caller:
    """One client; it connects again only when the server has closed its connection."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=30)

    def ask(
        self,
        body: bytes = VALID,
        *,
        method: str = "POST",
        path: str = PATH,
        headers: Mapping[str, str] = JSON,
    ) -> Answer:
        self._connection.request(method, path, body, dict(headers))
        with self._connection.getresponse() as response:
            return Answer(response.status, response.headers, response.read())

    def close(self) -> None:
        self._connection.close()


class Bystander:
    """A good client that calls all the while, on a lasting connection and on new ones."""

    def __init__(self, server: Server) -> None:
        self.calls, self.failed = 0, list[object]()
        self._port, self._context, self._stop = server.port, trusting(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def is_served(self) -> bool:
        """Whether it gets answers from now on."""
        enough = self.calls + 3
        return until(lambda: self.calls >= enough, 30)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        lasting = Caller(self._port, self._context)
        while not self._stop.wait(0.05):
            newcomer = Caller(self._port, self._context)
            self._call(lasting)
            self._call(newcomer)
            newcomer.close()
        lasting.close()

    def _call(self, caller: Caller) -> None:
        try:
            answer = caller.ask()
            if b'"allowed":true' not in answer.body:
                self.failed.append(answer)
        except (OSError, http.client.HTTPException) as error:
            self.failed.append(error)
        self.calls += 1
