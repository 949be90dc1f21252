"""The health checker of a node, as its DaemonSet runs it: how soon it answers, and what it holds in memory."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from api import health_checks
from api.health_checks import deployment_name
from api.ingress_daemonset import INGRESS_DAEMONSETS
from controllers.ingress_daemonset.health_checks import FOR
from dev.bench import processes
from dev.bench.deployments import CONTROLLERS
from dev.bench.ingress_daemonset.manifests import with_health_checker
from dev.bench.processes import Usage
from dev.lab.install import NAMESPACE
from dev.lab.processes import with_variable
from dev.lab.session import Lab
from dev.lab.waiting import until
from kube.resources import DEPLOYMENTS, PODS

NAME = "checked"
PATIENCE = 60.0
SETTLED = 2.0
"""Seconds after its first answer, when what a start allocates is there."""


@dataclass(frozen=True)
class Started:
    """*seconds* from the start of its process to its first 200; *usage* is that of a little later."""

    seconds: float
    usage: Usage


def starts(lab: Lab, namespace: str, times: int) -> list[Started]:
    """Of health checkers, one after the other; what they look at has been all right before."""
    port = _free_port()
    lab.client.create(INGRESS_DAEMONSETS, with_health_checker(namespace, NAME, _image(lab), port), namespace)
    lab.wait(lambda: _answers(port), PATIENCE, "a health checker to answer 200")
    found = [_restarted(lab, namespace, port) for _ in range(times)]
    lab.client.delete(INGRESS_DAEMONSETS, NAME, namespace)
    return found


def _restarted(lab: Lab, namespace: str, port: int) -> Started:
    before = _running(port)
    label = f"{FOR}={deployment_name(NAME, str(port))}"
    for pod in lab.client.list(PODS, namespace, label_selector=label).items:
        lab.client.delete(PODS, pod["metadata"]["name"], namespace)
    [pid] = lab.wait(lambda: _running(port) - before, PATIENCE, "a new health checker to start")
    answered_at = until(partial(_answered_at, port), PATIENCE, "it to answer 200", every=0.005)
    time.sleep(SETTLED)
    return Started(answered_at - processes.started_at(pid), processes.of([pid]))


def _running(port: int) -> set[int]:
    """The processes of the health checker on *port*."""
    return set(with_variable(health_checks.PORT, str(port)))


def _answered_at(port: int) -> float | None:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if _answers(port) else None


def _answers(port: int) -> bool:
    """Whether it answers 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", health_checks.PATHS[0])
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def _image(lab: Lab) -> str:
    deployment: Mapping[str, Any] = lab.client.get(DEPLOYMENTS, CONTROLLERS, NAMESPACE)
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])
