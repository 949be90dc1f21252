"""Run one scenario to its end, and judge it at every instant and at rest."""

from __future__ import annotations

import traceback
from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random

from dev.simulator import objects
from dev.simulator.core.kernel import HotLoop, Kernel
from dev.simulator.operations import is_home
from dev.simulator.scenario import FEATURES, SETTLES, Operation, Scenario
from dev.simulator.world import Entry, World
from kube.resources import DEPLOYMENTS, NAMESPACES, NODES, STATEFUL_SETS
from settings.anycast_ip import NEED_LABEL
from webhook.ingress_daemonset import INGRESS_DAEMONSETS


@dataclass(frozen=True)
class Finding:
    """An invariant that did not hold."""

    invariant: str
    at: float
    message: str


@dataclass
class Outcome:
    scenario: Scenario
    findings: list[Finding] = field(default_factory=list)
    history: list[Entry] = field(default_factory=list)
    digest: str = ""


def simulate(kernel: Kernel, scenario: Scenario, left_out: Collection[int] = ()) -> Outcome:
    """Of the first invariant that does not hold; *left_out* are the numbers of operations."""
    world = World(kernel, scenario.seed)
    outcome = Outcome(scenario)
    furnish(world, scenario)
    for operation in scenario.operations:
        if operation.number not in left_out:
            schedule(world, operation)
    try:
        world.run(SETTLES + scenario.busy)
        world.note("world", "nothing happens any more")
        world.calm()
        world.run(scenario.rest)
    except HotLoop as error:
        outcome.findings.append(Finding("no hot loop", kernel.now, str(error)))
    outcome.findings += crashes(kernel)
    outcome.history, outcome.digest = world.history.entries, world.history.digest
    return outcome


def furnish(world: World, scenario: Scenario) -> None:
    """The cluster before the first operation: nodes, workloads of users, the release."""
    dice = world.dice("furniture")
    world.api.put(NAMESPACES, objects.namespace())
    world.install(scenario.values)
    for _ in range(scenario.nodes):
        number = world.next_number()
        marks = {
            NEED_LABEL: dice.choice(["true", ""]) if "anycast_ip" in scenario.features else "",
            objects.INGRESS_LABEL: "true" if dice.random() < 0.8 else "",
        }
        world.api.put(NODES, objects.node(f"node-{number}", number, marks))
    skews = iter(scenario.skews)
    for number in range(2):
        world.product.start_controllers(f"drawbridge-controllers-{number}", world.configuration, next(skews))
    for number in range(2):
        world.product.start_server(f"drawbridge-webhook-{number}", world.configuration, next(skews))
    world.kernel.spawn(lambda: workloads(world, scenario), "users", after=5.0)


def workloads(world: World, scenario: Scenario) -> None:
    if "ip_reservation" in scenario.features:
        world.kubectl_create(STATEFUL_SETS, objects.stateful_set("redis", 3))
    if "elasticity" in scenario.features:
        world.api.put(NODES, objects.super_node("eklet-1", 200))
        world.kubectl_create(DEPLOYMENTS, objects.deployment("web", 4, local=2))
    if "ingress_daemonset" in scenario.features:
        world.kubectl_create(INGRESS_DAEMONSETS, objects.ingress_daemon_set("edge"))


def schedule(world: World, operation: Operation) -> None:
    dice = Random(f"{world.seed}/operation {operation.number}")  # noqa: S311 - dice, no secret

    def act() -> None:
        if done := operation.kind.act(world, dice):
            world.note("operation", f"{operation.kind.name}: {done}")

    world.kernel.spawn(act, f"operation {operation.number}", world.kernel.system, after=operation.at)


def crashes(kernel: Kernel) -> list[Finding]:
    """Threads of the product that ended by an exception which nothing caught."""
    return [
        Finding("no thread dies", kernel.now, f"{task.process.name} {task.name}: {described(error)}")
        for task, error in kernel.failures
    ]


def described(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error} ({where})"


__all__ = ["FEATURES", "Finding", "Outcome", "is_home", "simulate"]
