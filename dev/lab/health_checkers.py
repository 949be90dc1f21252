"""The real health checkers of an IngressDaemonSet, as the containers of its DaemonSet would run them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import urllib.error
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_network
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from dev.lab import processes
from dev.lab.direct import urlopen
from dev.lab.nodes import move
from dev.lab.policy.mutations import without_policy
from dev.lab.repository import ROOT
from dev.lab.session import Lab
from dev.lab.waiting import stretch
from kube.resources import DAEMON_SETS

Raw = dict[str, Any]
ANSWER_SECONDS = 30
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
    answers: list[Answer] = field(default_factory=list)

    def ask(self, path: str = "/healthz") -> Answer:
        """OSError when nothing listens there."""
        try:
            with urlopen(self.url + path, timeout=ANSWER_SECONDS) as answer:
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
def checking(
    lab: Lab, namespace: str, nodes: Sequence[str], **environment: str
) -> Iterator[dict[str, Checker]]:
    """One on each node, by the words and permissions that the one DaemonSet gives it, and *environment*."""
    [found] = lab.wait(lambda: lab.client.list(DAEMON_SETS, namespace).items, 180, "the health checkers")
    [container] = without_policy(found)["spec"]["template"]["spec"]["containers"]
    variables = environment | {"KUBECONFIG": str(kubeconfig_of(lab, namespace))}
    with ExitStack() as stack:
        yield {
            node: stack.enter_context(
                _running(lab, container, {"namespace": namespace, "node": node}, variables)
            )
            for node in nodes
        }


def kubeconfig_of(lab: Lab, namespace: str, account: str = "default") -> Path:
    """For what runs there as this ServiceAccount."""
    known = yaml.safe_load(lab.kubeconfig.read_text())
    token = lab.kubectl("create", "token", account, "-n", namespace).stdout.strip()
    known["users"] = [{"name": each["name"], "user": {"token": token}} for each in known["users"]]
    path = lab.directory / f"kubeconfig-{namespace}-{account}"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(known))
    return path


@contextmanager
def _running(
    lab: Lab, container: Raw, place: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[Checker]:
    # The last ones of the lab's pods, which get theirs from the other end.
    address = str(ip_network(lab.slot.pod_range)[-2 - next(_NUMBERS)])
    move(lab.client, place["node"], address)
    fields = {"spec.nodeName": place["node"], "metadata.namespace": place["namespace"]}
    variables = {
        each["name"]: str(each["value"])
        if "value" in each
        else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
    }
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    log = lab.logs / f"checker-{place['node']}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable if each == "python" else each for each in container["command"]],
            cwd=ROOT,
            env={**inherited, **variables, **environment, "DRAWBRIDGE_BIND_HOST": address},
            stdout=output,
            stderr=output,
            preexec_fn=processes.die_with_parent,
        )
    try:
        yield Checker(f"http://{address}:{container['ports'][0]['hostPort']}")
    finally:
        process.terminate()
        assert process.wait(ANSWER_SECONDS * stretch()) == 0, log.read_text()
