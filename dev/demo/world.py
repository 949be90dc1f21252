"""What a step plays with: kubectl and helm as an operator has them, and what is seen meanwhile."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import Empty, SimpleQueue

from dev.demo import burst_table, fleet_table, rollout_table, stage, table
from dev.demo.burst import Replicas
from dev.demo.fleet import Fleet
from dev.demo.rollout import Answer, Rollout
from dev.demo.screen import ADDRESSES, EDGE, NODES, REPLICAS, Screen
from dev.demo.table import Rules
from dev.lab.errors import LabError
from dev.lab.history import History, addresses
from dev.lab.session import Lab
from dev.lab.watching import Observations, WatchLost
from kube.types import Pod

GLANCE = 0.1


@dataclass
class World:
    lab: Lab
    screen: Screen
    rules: Rules
    observations: Observations
    history: History = field(default_factory=History)
    fleet: Fleet = field(default_factory=Fleet)
    replicas: Replicas = field(default_factory=Replicas)
    rollout: Rollout = field(default_factory=Rollout)
    answers: SimpleQueue[Answer] = field(default_factory=SimpleQueue)
    """Of health checks, not taken in yet."""

    def kubectl(
        self, *arguments: str, stdin: str | None = None, meanwhile: Callable[[], object] = lambda: None
    ) -> str:
        """Show the command and run it, and give its output; LabError when it fails.

        *meanwhile* is called again and again while it runs.
        """
        return self._run("kubectl", arguments, stdin, meanwhile)

    def helm(self, *arguments: str) -> str:
        return self._run("helm", arguments)

    def delete(self, pods: Sequence[Pod]) -> None:
        """Delete *pods*, all of one namespace, and see them off."""
        namespace = pods[0].metadata.namespace
        names = (pod.metadata.name for pod in pods)
        self.kubectl("-n", namespace, "delete", "pods", "--wait=false", *names)
        self.await_departure(pods)

    def until(self, condition: Callable[[History], object], seconds: float) -> bool:
        """Whether *condition* came true within *seconds*."""
        end = time.monotonic() + seconds
        while not condition(self.history):
            if time.monotonic() >= end:
                return False
            self.look()
        return True

    def await_running(self, namespace: str, count: int) -> list[Pod]:
        """The running pods of *namespace* as soon as there are *count*; LabError after 30 s."""
        if not self.until(lambda history: len(history.running(namespace)) == count, 30):
            raise LabError(f"waited 30 s without success for {count} running pods in namespace {namespace}")
        return self.history.running(namespace)

    def await_departure(self, pods: Sequence[Pod]) -> None:
        """Until *pods* are gone and their addresses are held, but not forever: judging is for later."""
        self.until(lambda history: all(_left_its_address(history, pod) for pod in pods), 20)

    def await_configuration(self, rules: Rules) -> None:
        """Until the running leader works by *rules*, which count from now on; LabError after 30 s."""
        if not self.until(lambda _: stage.is_in_force(self.lab.client, rules), 30):
            raise LabError("waited 30 s without success for the changed configuration to be applied")
        self.rules = rules

    def look(self) -> None:
        """Take in what the watches have delivered, waiting a moment for it, and the cloud, and show it."""
        self._take_in()
        now = datetime.now(UTC).replace(microsecond=0)  # all rows tick at once: one drawing a second
        if self.rollout.courses:
            self.screen.show(EDGE, rollout_table.rows(self.rollout), rollout_table.summary(self.rollout))
        elif self.replicas.courses:
            self.screen.show(REPLICAS, burst_table.rows(self.replicas), burst_table.summary(self.replicas))
        elif self.fleet.courses:
            self.fleet.look(stage.on_record(self.lab.cloud, self.lab.client))
            self.screen.show(NODES, fleet_table.rows(self.fleet, now), fleet_table.summary(self.fleet))
        else:
            rows = table.rows(self.history, self.rules, now)
            self.screen.show(ADDRESSES, rows, table.summary(self.history))

    def _take_in(self) -> None:
        while not self.answers.empty():
            self.rollout.hear(self.answers.get())
        patience = GLANCE
        while True:
            try:
                observed = self.observations.get(timeout=patience)
            except Empty:
                return
            if isinstance(observed, WatchLost):
                raise observed
            self.history.add(observed)
            self.fleet.add(observed)
            self.replicas.add(observed)
            self.rollout.add(observed)
            patience = 0.0

    def _run(
        self,
        program: str,
        arguments: tuple[str, ...],
        stdin: str | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> str:
        shown = shlex.join([program, *(each.replace(f"{stage.ROOT}/", "") for each in arguments)])
        self.screen.command(f"echo {shlex.quote(stdin)} | {shown}" if stdin else shown)
        run = {"kubectl": self.lab.kubectl, "helm": self.lab.helm}[program]
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(lambda: run(*arguments, stdin=stdin))
            while not done.done():
                self.look()
                meanwhile()
            return done.result().stdout


def _left_its_address(history: History, pod: Pod) -> bool:
    held = {hold.record.cidr for hold in history.holds_of(pod)}
    return pod.metadata.uid in history.departures and addresses(pod) <= held
