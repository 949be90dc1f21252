"""Real health checkers, as the containers of their DaemonSets would run them, and a load balancer that asks them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_network
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from dev.lab import processes
from dev.lab.nodes import move
from dev.lab.policy.mutations import without_policy
from dev.lab.session import Lab
from dev.lab.waiting import stretch
from kube.client import Client
from tests.chaos.outside import Outside, Prober, judged, of_edges
from tests.cluster.ingress_daemonset import DAEMONSETS, INGRESS_DAEMONSETS, SECONDS, Raw
from tests.cluster.ingress_daemonset_edge import Edge

ROOT = Path(__file__).parents[2]
PATHS = ("/healthz", "/ok", "/")
ANSWER_SECONDS = 30
EVERY = 0.1
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Answer:
    """What a load balancer got, *at* that time."""

    status: int
    text: str
    at: datetime


@dataclass
class Checker:
    """The health checker of a node, and what it has answered so far."""

    url: str
    log: Path
    answers: list[Answer] = field(default_factory=list)

    def ask(self, path: str = "/healthz") -> Answer:
        """OSError when nothing listens there."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=ANSWER_SECONDS) as answer:
                return Answer(answer.status, answer.read().decode(), datetime.now(UTC))
        except urllib.error.HTTPError as refusal:
            with refusal:
                return Answer(refusal.code, refusal.read().decode(), datetime.now(UTC))

    def says(self, status: int, text: str = "") -> bool:
        """Whether it answers so now; a closed port answers nothing."""
        try:
            answer = self.ask()
        except OSError:
            return False
        return answer.status == status and text in answer.text

    def status(self) -> int:
        """What it answers now; 0 when nothing listens there."""
        try:
            return self.ask().status
        except OSError:
            return 0

    def course(self) -> list[int]:
        """The statuses so far: each change."""
        return [status for status, _ in groupby(each.status for each in self.answers)]


@contextmanager
def checking(edge: Edge, nodes: Sequence[str], **environment: str) -> Iterator[dict[str, Checker]]:
    """One of each node's, by the words and permissions that its DaemonSet gives it, and *environment*."""
    [found] = edge.wait(lambda: edge.client.list(DAEMONSETS, edge.namespace).items, "its DaemonSet")
    daemon_set = without_policy(found)
    kubeconfig = kubeconfig_of(edge)
    variables = environment | {"KUBECONFIG": str(kubeconfig)}
    with ExitStack() as stack:
        yield {node: stack.enter_context(_running(edge, daemon_set, node, variables)) for node in nodes}


def kubeconfig_of(edge: Edge, account: str = "default") -> Path:
    """For what runs in its namespace as this ServiceAccount."""
    known = yaml.safe_load(edge.lab.kubeconfig.read_text())
    token = edge.lab.kubectl("create", "token", account, "-n", edge.namespace).stdout.strip()
    known["users"] = [{"name": each["name"], "user": {"token": token}} for each in known["users"]]
    path = edge.lab.directory / f"kubeconfig-{edge.namespace}"
    path.write_text(yaml.safe_dump(known))
    return path


@contextmanager
def judged_by_answers(
    edge: Edge, checkers: Mapping[str, Checker], client: Client | None = None
) -> Iterator[Outside]:
    """A load balancer probes these *checkers*, and uses all of their nodes."""
    balancer = Prober(lambda: {edge.node_name(name): each.status() for name, each in checkers.items()})
    where = {"client": client, "balancer": balancer, "namespace": edge.namespace}
    with judged(edge.lab, of_edges(), INGRESS_DAEMONSETS, **where) as outside:
        outside.wait(lambda seen: len(seen.uses) == len(checkers), "the load balancer to use all nodes")
        yield outside


@contextmanager
def _running(edge: Edge, daemon_set: Raw, node: str, environment: dict[str, str]) -> Iterator[Checker]:
    # The last ones of the lab's pods, which get theirs from the other end.
    address = str(ip_network(edge.lab.slot.pod_range)[-2 - next(_NUMBERS)])
    move(edge.client, edge.node_name(node), address)
    [container] = daemon_set["spec"]["template"]["spec"]["containers"]
    variables = environment_of(container, edge, node)
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    log = edge.lab.logs / f"checker-{edge.node_name(node)}.log"
    command = [sys.executable if each == "python" else each for each in container["command"]]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=inherited | variables | environment | {"DRAWBRIDGE_BIND_HOST": address},
            stdout=output,
            stderr=output,
            preexec_fn=processes.die_with_parent,
        )
    try:
        yield Checker(f"http://{address}:{container['ports'][0]['hostPort']}", log)
    finally:
        process.terminate()
        assert process.wait(ANSWER_SECONDS * stretch()) == 0, log.read_text()


def environment_of(container: Raw, edge: Edge, node: str) -> dict[str, str]:
    """The environment of a health checker, as the kubelet of the node makes it."""
    return {each["name"]: _value(each, edge, node) for each in container["env"]}


def _value(variable: Raw, edge: Edge, node: str) -> str:
    fields = {"spec.nodeName": edge.node_name(node), "metadata.namespace": edge.namespace}
    said: Any = variable.get("value")
    return str(said) if said is not None else fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]


@contextmanager
def asking(lab: Lab, checkers: Sequence[Checker], every: float = EVERY) -> Iterator[None]:
    """A load balancer asks them all, again and again, and gets 200 first and last.

    Whatever path it asks for, the answer is the same.
    """
    ended = threading.Event()
    with ThreadPoolExecutor(len(checkers)) as pool:
        asked = [pool.submit(_ask_on, each, ended.wait, every) for each in checkers]
        try:
            _await_answers(lab, checkers)
            yield
            _await_answers(lab, checkers)
        finally:
            ended.set()
        for each in asked:
            each.result()


def _await_answers(lab: Lab, checkers: Sequence[Checker]) -> None:
    what = "the load balancer to have heard 200 of all"
    lab.wait(lambda: all(each.course()[-1:] == [200] for each in checkers), SECONDS, what)


def _ask_on(checker: Checker, pause: Callable[[float], bool], every: float) -> None:
    while not pause(every):
        first, *others = [checker.ask(path) for path in (*PATHS, PATHS[0])]
        checker.answers += [first, others[-1]]
        if first.text == others[-1].text:  # so it was the same all the while
            assert {(each.status, each.text) for each in others} == {(first.status, first.text)}


def await_all(
    lab: Lab, checkers: Sequence[Checker], status: int, text: str = "", seconds: float = 60
) -> None:
    what = f"all health checkers to answer {status} {text}"
    lab.wait(lambda: all(each.says(status, text) for each in checkers), seconds, what)
