"""`python -m dev.demo`: a lab comes up, every step is played and judged, and the exit code is the outcome."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event

from rich.console import Console

from calico.segment import IPReservation
from dev.demo import burst_table, fleet_table, page, rollout_table, stage, table
from dev.demo.promises import Judge, Promise
from dev.demo.screen import Screen, console, fleet_proofs, promises, proofs, replica_proofs, rollout_proofs
from dev.demo.step import Step
from dev.demo.steps import STEPS, burst, join, rollout
from dev.demo.world import World
from dev.lab.bootstrap import running
from dev.lab.errors import LabError
from dev.lab.nodes import NODES
from dev.lab.session import Lab
from dev.lab.watching import Kind, WatchLost, watching
from healthchecker.checker import Deployment
from kube.client import Resource
from kube.errors import KubeError
from kube.types import Node, Pod

INTRODUCTION = """\
Drawbridge holds the IP of a pod in Calico before the pod may go, so that no other pod gets it too soon.
And it lets a node take no pods before the node has its anycast IP.
And of a workload's replicas it keeps the first ones local, and sends the others to the cloud.
And it takes an edge node off its load balancer before it updates the pods there.
A real control plane comes up on this machine, with the chart installed on it, and an emulated Tencent Cloud;
all is gone at the end, unless you keep it: make demo KEEP=1.
Where Kubernetes' programs are not there yet, they are fetched or built first: that takes minutes, once."""


LAST = "The dashboard"
"""The title of what follows the steps."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    out = console(sys.stdout.isatty())
    start = time.monotonic()
    out.print(INTRODUCTION)
    try:
        verdicts = perform(out, _progress(out, start), keep=options.keep)
    except (LabError, KubeError, WatchLost) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; the lab is gone", file=sys.stderr)
        return 130
    broken = sum(not promise.kept for _, promise in verdicts)
    outcome = f"{broken} of {len(verdicts)} promises were broken" if broken else "all promises were kept"
    out.print(f"{outcome}; the lab is gone; it took {time.monotonic() - start:.0f} s")
    return 1 if broken else 0


def perform(
    out: Console, progress: Callable[[str], None], *, keep: bool = False
) -> list[tuple[str, Promise]]:
    """Play all steps in a separate lab and judge them, at the end, by all that was seen.

    *keep*: the lab and its dashboard stay until Ctrl-C.
    """
    calico = stage.RESERVATIONS.api_version
    with running(values=stage.VALUES, calico=calico, cloud=stage.CLOUD, progress=progress) as lab:
        kinds: dict[Resource, Kind] = {
            stage.PODS: Pod,
            stage.RESERVATIONS: IPReservation,
            NODES: Node,
            stage.DEPLOYMENTS: Deployment,
        }
        with watching(lab.client, kinds) as observations:
            world = World(lab, Screen(out), stage.RULES, observations)
            with world.screen:
                judges = play(world)
        with page.dashboard(lab) as address:
            shown = _open(world.screen, address)
            verdicts = [(title, promise) for title, judge in judges for promise in judge(world.history)]
            seen = table.proofs(world.history, without=(join.NAMESPACE, burst.NAMESPACE, rollout.NAMESPACE))
            out.print(proofs(seen), fleet_proofs(fleet_table.proofs(world.fleet)))
            out.print(replica_proofs(burst_table.proofs(world.replicas)))
            out.print(rollout_proofs(rollout_table.proofs(world.rollout)))
            out.print(promises([*verdicts, (LAST, shown)]))
            if keep:
                _stay(out, lab, address)
    return [*verdicts, (LAST, shown)]


def _open(screen: Screen, address: str) -> Promise:
    screen.title(LAST)
    screen.story("The command serves a page on this machine: what all features do now, live.")
    screen.command("drawbridge dashboard")
    screen.note(address)
    shown = page.shows_all(page.open_pages(address))
    screen.verdict(shown)
    return shown


def _stay(out: Console, lab: Lab, address: str) -> None:
    out.print(f"\nThe lab stays until Ctrl-C. Its dashboard:\n  {address}", soft_wrap=True)
    out.print(f"and for kubectl:\n  export KUBECONFIG={lab.kubeconfig}", soft_wrap=True)
    with suppress(KeyboardInterrupt):
        Event().wait()


def play(world: World) -> list[tuple[str, Judge]]:
    """All steps, each with its judge."""
    _set_the_stage(world)
    return [(step.title, _play(step, number, world)) for number, step in enumerate(STEPS, 1)]


def _set_the_stage(world: World) -> None:
    world.screen.title("The stage: three nodes and a Redis-like cluster")
    world.kubectl("apply", "-f", str(stage.ROOT / "dev" / "demo" / "redis.yaml"))
    world.await_running(stage.NAMESPACE, stage.REPLICAS)


def _play(step: Step, number: int, world: World) -> Judge:
    world.screen.title(f"{number}/{len(STEPS)} {step.title}")
    world.screen.story(step.story)
    judge = step.play(world)
    for promise in judge(world.history):
        world.screen.verdict(promise)
    return judge


def _progress(out: Console, start: float) -> Callable[[str], None]:
    return lambda text: out.print(f"  {time.monotonic() - start:4.1f} s  {text}", style="dim")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dev.demo",
        description="Show on a real control plane what Drawbridge promises, and check it.",
    )
    parser.add_argument("--keep", action="store_true", help="let the lab and its dashboard stay until Ctrl-C")
    return parser


if __name__ == "__main__":
    sys.exit(main())
