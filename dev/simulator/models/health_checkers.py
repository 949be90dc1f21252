"""The health checkers of nodes: the product's own program, a process for each running pod of their DaemonSets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from api.health_checks import PATHS, STATE_PATH
from controllers.ingress_daemonset.health_checks import FOR
from dev.fake_api import FakeAPI
from dev.simulator.core.kernel import Kernel, Process
from healthchecker.answers import Answer
from healthchecker.checker import Checker
from healthchecker.config import Config
from healthchecker.watcher import follow
from kube.client import Client
from kube.resources import NODES, PODS
from runtime import threading

Raw = dict[str, Any]
LATENCY = 0.005


class HealthCheckers:
    """*connect* gives a connection to the API server for a process of this name."""

    def __init__(self, api: FakeAPI, kernel: Kernel, connect: Callable[[str], Any]) -> None:
        self._api, self._kernel, self._connect = api, kernel, connect
        self._running: dict[str, tuple[Process, Checker, str, int]] = {}
        """By the uid of the pod; with its node's name and its port."""
        self._seen = -1

    def step(self, _now: datetime) -> None:
        version = self._api.version_of(PODS)
        if version == self._seen:
            return
        self._seen = version
        wanted = {each["metadata"]["uid"]: each for each in self._api.peek(PODS) if _runs(each)}
        for uid in self._running.keys() - wanted.keys():
            self._kernel.kill(self._running.pop(uid)[0])
        for uid in wanted.keys() - self._running.keys():
            self._start(uid, wanted[uid])

    def _start(self, uid: str, pod: Raw) -> None:
        config = Config.from_environment(_environment(pod))
        process = Process(f"health-checker-{config.node}")
        client = Client(self._connect(process.name), timeout=config.bound / 6)
        checker, stop = Checker(config), threading.Event()
        self._running[uid] = process, checker, config.node, config.port
        self._kernel.spawn(lambda: follow(client, config, checker, stop), "watch", process)

    def probe(self, node: str, port: int) -> int:
        """The status that a load balancer gets; 0 when nothing listens there."""
        checker = self._of(node, port)
        return 0 if checker is None else 503 if checker.problem() else 200

    def is_ready(self, pod: Raw) -> bool:
        """What the readiness probe of a health checker is answered: whether it has seen its Deployment."""
        running = self._running.get(pod["metadata"]["uid"])
        return FOR not in (pod["metadata"].get("labels") or {}) or (
            running is not None and running[1].state().seen_seconds_ago is not None
        )

    def get(self, host: str, port: int, path: str, seconds: float, longest: int) -> Answer:
        """In place of ``healthchecker.answers.get``."""
        self._kernel.sleep(LATENCY)
        node = next((each for each in self._api.peek(NODES) if _address(each) == host), None)
        checker = self._of(node["metadata"]["name"], port) if node else None
        if checker is None:
            raise ConnectionRefusedError(f"nothing listens at {host}:{port}")
        if path == STATE_PATH:
            return Answer(200, msgspec.json.encode(checker.state()))
        return Answer(503 if path in PATHS and checker.problem() else 200, b"")

    def _of(self, node: str, port: int) -> Checker | None:
        at = (checker for _, checker, on, listens in self._running.values() if (on, listens) == (node, port))
        return next(at, None)


def _runs(pod: Raw) -> bool:
    status = pod.get("status") or {}
    return FOR in (pod["metadata"].get("labels") or {}) and status.get("phase") == "Running"


def _environment(pod: Raw) -> Mapping[str, str]:
    fields = {"spec.nodeName": pod["spec"]["nodeName"], "metadata.namespace": pod["metadata"]["namespace"]}
    return {
        each["name"]: each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in pod["spec"]["containers"][0]["env"]
        if each.get("value") or each.get("valueFrom")
    }


def _address(node: Raw) -> str:
    addresses = (node.get("status") or {}).get("addresses") or []
    return next((each["address"] for each in addresses if each["type"] == "InternalIP"), "")
