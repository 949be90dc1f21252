"""Run one scenario to its end, and judge it at every instant and at rest."""

from __future__ import annotations

import traceback
from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any

from api.ingress_daemonset import INGRESS_DAEMONSETS
from dev.judge import Finding, Judge
from dev.judge.address import NONE_BOUND
from dev.judge.observation import BOUND, condition
from dev.judge.truth import any_crash
from dev.simulator import objects
from dev.simulator.core.kernel import HotLoop, Kernel
from dev.simulator.models.budgets import BUDGETS
from dev.simulator.promises import promises
from dev.simulator.scenario import SETTLES, Operation, Scenario
from dev.simulator.world import Entry, World
from kube.resources import DEPLOYMENTS, NAMESPACES, NODES, STATEFUL_SETS
from settings.anycast_ip import NEED_LABEL

Raw = dict[str, Any]
STEP = 5.0
"""Seconds between two looks whether something was found."""
QUIET = 120.0
FRESH = 120.0


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
    if scenario.script:
        world.kernel.spawn(lambda: play(world, scenario), "script", after=SETTLES)
    for operation in scenario.operations:
        if operation.number not in left_out:
            schedule(world, operation)
    judge = world.outside.judge
    judge.promise(promises(scenario.values, changed=False))
    try:
        run(world, judge, SETTLES + scenario.busy)
        world.note("world", "nothing happens any more")
        world.calm()
        while (world.at_work or kernel.now < world.suspended_until) and not judge.findings:
            run(world, judge, STEP)
        elsewhere = "anycast_ip" in scenario.features and is_any_elsewhere(world)
        run(world, judge, scenario.rest + (NONE_BOUND if elsewhere else 0.0))
        run_rollouts(world, judge)
        if not judge.findings:
            judge.rest(world.observed_at_rest())
        if not judge.findings:
            start_afresh(world, judge)
    except HotLoop as error:
        judge.find("rest: no hot loop", kernel.now, str(error))
    outcome.findings = [*judge.findings.values(), *crashes(kernel)]
    outcome.history, outcome.digest = world.history.entries, world.history.digest
    return outcome


def run(world: World, judge: Judge, seconds: float) -> None:
    """For so many seconds, or until something was found."""
    end = world.kernel.now + seconds
    while world.kernel.now < end and not judge.findings:
        world.run(min(STEP, end - world.kernel.now))


def run_rollouts(world: World, judge: Judge) -> None:
    """Until they are over, or no node has gone on within the time that one may take."""
    for _ in world.api.peek(NODES):
        before = world.outside.digest()
        run(world, judge, until_deadline(world))
        if judge.findings or world.outside.digest() == before:
            return


def until_deadline(world: World) -> float:
    """Seconds after which a node that is not updated at rest has failed, or is trusted again: documented."""
    specs = [
        each["spec"]
        for each in world.api.peek(INGRESS_DAEMONSETS)
        if (each.get("status") or {}).get("desiredNodes") and (is_rolling_out(each) or is_any_on_trial(each))
    ]
    return max(
        (
            each.get("podsPerNode", 1) * (600.0 + each.get("minReadySeconds", 0)) + graces(each)
            for each in specs
        ),
        default=0,
    )


def is_rolling_out(resource: Raw) -> bool:
    return condition(resource, "Progressing").get("reason") in ("RollingOut", "WaitingForNodes")


def is_any_on_trial(resource: Raw) -> bool:
    """Whether a node that has failed is well, and its failure is soon forgotten, also in a paused rollout."""
    failures = resource["status"].get("failures") or {}
    return any("wellSince" in each for each in (failures.get("nodes") or {}).values())


def graces(spec: Raw) -> float:
    """Of one update, each at its longest."""
    rolling = spec["updateStrategy"]["rollingUpdate"]
    parts = [rolling, *(each for each in rolling.values() if isinstance(each, dict))]
    return sum(float(value) for each in parts for key, value in each.items() if key.endswith("Seconds"))


def is_any_elsewhere(world: World) -> bool:
    """Whether an address of a claim is in another account, or may be, as none is bound."""
    is_any_bound = any(each.status in BOUND for each in world.cloud.addresses)
    return bool(world.claims) and bool(world.cloud.other_account.addresses or not is_any_bound)


def start_afresh(world: World, judge: Judge) -> None:
    """At rest nothing is written, and a start of all of our programs changes nothing."""
    world.outside.writes.clear()
    run(world, judge, QUIET)
    if (writes := world.outside.writes) and not any_crash(world.outside.observation()):
        judge.find(
            "rest: when the world stands still, nothing is written", world.kernel.now, str(dict(writes))
        )
    before = world.outside.digest()
    for replica in world.product.controllers:
        world.product.kill(replica)
    for replica in world.product.servers:
        world.product.restart_server(replica)
    run(world, judge, FRESH)
    after = world.outside.digest()
    if changed := {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}:
        message = ", ".join(sorted(changed))
        judge.find("rest: a fresh start with the same specs changes nothing", world.kernel.now, message)
    run_rollouts(
        world, judge
    )  # One is halted later by a leader whose clock is behind that of the one before.
    if not judge.findings:
        judge.rest(world.observed_at_rest())


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
    world.skews = scenario.skews
    world.start_release()
    world.kernel.spawn(lambda: workloads(world, scenario), "users", after=5.0)


def workloads(world: World, scenario: Scenario) -> None:
    dice = world.dice("budgets")
    for app in ("redis", "web"):
        if dice.random() < 0.4 and not scenario.script:
            world.api.put(BUDGETS, objects.disruption_budget(app))
    if "ip_reservation" in scenario.features:
        world.kubectl.create(STATEFUL_SETS, objects.stateful_set("redis", 3), objects.SHOP)
    if "elasticity" in scenario.features:
        world.api.put(NODES, objects.super_node("eklet-1", 200))
        world.kubectl.create(DEPLOYMENTS, objects.deployment("web", 4, local=2), objects.SHOP)
    if "ingress_daemonset" in scenario.features:
        world.kubectl.create(INGRESS_DAEMONSETS, objects.ingress_daemon_set("edge"), objects.SHOP)


def play(world: World, scenario: Scenario) -> None:
    assert scenario.script is not None
    for seconds in scenario.script(world):
        world.kernel.sleep(seconds)


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
