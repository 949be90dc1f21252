"""A replica of the webhook that dies in the middle of a drain."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence

from dev.demo import stage
from dev.demo.promises import Death, Judge, died_in_between, reserved_before_gone
from dev.demo.stage import NAMESPACE, REPLICAS
from dev.demo.step import Step
from dev.demo.world import World
from dev.lab.errors import LabError
from dev.lab.install import NAMESPACE as DRAWBRIDGE
from dev.lab.killing import kill_pod, main_processes
from kube.types import Pod

DRAINS = 3


def play(world: World) -> Judge:
    running = world.await_running(NAMESPACE, REPLICAS)
    nodes = [node for node, _ in Counter(pod.spec.node_name for pod in running).most_common(2)]
    pods = [pod for pod in running if pod.spec.node_name in nodes]
    before = stage.webhooks(world.lab.client)
    killed = _drain(world, nodes, pods, victim=min(before))
    world.await_departure(pods)
    world.kubectl("uncordon", *nodes)
    world.until(lambda _: stage.webhooks(world.lab.client).keys() >= before.keys(), 30)
    after = stage.webhooks(world.lab.client)
    deaths = [Death(name, revision, after.get(name, 0) - before[name]) for name, revision in killed.items()]
    return lambda history: [died_in_between(history, deaths, pods), reserved_before_gone(history, pods)]


def _drain(world: World, nodes: Sequence[str], pods: Sequence[Pod], victim: str) -> dict[str, int]:
    """Drain *nodes*, kill *victim* meanwhile, and repeat the drain that ends for it; the revision of the death."""
    killed: dict[str, int] = {}

    def kill_once() -> None:
        if not killed and any(world.history.holds_of(pod) for pod in pods):
            killed[victim] = _kill(world, victim)

    for _ in range(DRAINS):
        try:
            world.kubectl("drain", *nodes, "--timeout=30s", meanwhile=kill_once)
            break
        except LabError as error:
            world.screen.note(f"it ends with: {str(error).splitlines()[-1]}")
    return killed


def _kill(world: World, name: str) -> int:
    """Returns the revision at which it was dead."""
    lab = world.lab
    pids = set(main_processes(lab, DRAWBRIDGE, name))
    kill_pod(lab, DRAWBRIDGE, name, signal.SIGKILL)
    lab.wait(lambda: not pids & set(main_processes(lab, DRAWBRIDGE, name)), 10, f"the end of {name}")
    world.screen.note(f"{name} is killed with SIGKILL")
    return int(lab.client.list(stage.PODS, NAMESPACE).resource_version)


STEP = Step(
    title="Lose a webhook server in the middle of a drain",
    story="One of the two is killed as soon as an IP is reserved. A request that it had in work fails, and a drain that"
    " ends for it is repeated; but no pod goes before its IP is reserved.",
    play=play,
)
