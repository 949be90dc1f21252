"""A load balancer that asks the real health checkers of nodes, which run here as processes, again and again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path

import yaml

from api import health_checks
from dev.demo.rollout import Answer
from dev.lab.nodes import move
from dev.lab.processes import marked_environment
from dev.lab.session import Lab

INTERVAL, PATIENCE = 0.1, 5.0
END_SECONDS = 10.0
Report = Callable[[Answer], None]


@contextmanager
def asking(
    lab: Lab, namespace: str, name: str, nodes: Sequence[str], port: int, report: Report
) -> Iterator[None]:
    """Run the checkers of IngressDaemonSet *name* on *nodes*, with their own permissions, and *report* answers."""
    kubeconfig, stop = _kubeconfig(lab, namespace), threading.Event()
    addresses = ip_network(lab.slot.pod_range)
    with ExitStack() as stack:
        stack.callback(stop.set)
        for number, node in enumerate(nodes, 2):
            address = str(addresses[-number])
            move(lab.client, node, address)
            environment = {
                health_checks.NAMESPACE: namespace,
                health_checks.INGRESS_DAEMONSET: name,
                health_checks.NODE: node,
                health_checks.PORT: str(port),
                "DRAWBRIDGE_BIND_HOST": address,
                "KUBECONFIG": str(kubeconfig),
            }
            stack.enter_context(_running(lab, f"health-checker-{node}", environment))
            url = f"http://{address}:{port}/healthz"
            threading.Thread(target=_ask, args=(node, url, report, stop), daemon=True).start()
        yield


def _kubeconfig(lab: Lab, namespace: str) -> Path:
    """That of the ServiceAccount which Drawbridge has given the right to follow Deployments, and no other."""
    token = lab.kubectl("-n", namespace, "create", "token", "default").stdout.strip()
    known = yaml.safe_load(lab.kubeconfig.read_text())
    users = [{"name": each["name"], "user": {"token": token}} for each in known["users"]]
    path = lab.directory / f"health-checker-{namespace}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump({**known, "users": users}))
    return path


@contextmanager
def _running(lab: Lab, name: str, environment: Mapping[str, str]) -> Iterator[None]:
    with (lab.logs / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "healthchecker"],
            cwd=Path(health_checks.__file__).parent.parent,
            env={**os.environ, **marked_environment(lab.directory), **environment},
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(END_SECONDS)


def _ask(node: str, url: str, report: Report, stop: threading.Event) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while not stop.wait(INTERVAL):
        asked = datetime.now(UTC)
        if status := _status(direct, url):
            report(Answer(node, status, asked))


def _status(direct: urllib.request.OpenerDirector, url: str) -> int:
    """0 where there is no answer: then nothing was said."""
    try:
        with direct.open(url, timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0
