"""`python -m dev.demo`: a lab comes up, every step is played and judged, and the exit code is the outcome."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event
from typing import Any

from rich.console import Console

from dev.demo import features, page, reservations
from dev.demo.stage import Stage
from dev.lab.bootstrap import running
from dev.lab.errors import LabError
from dev.lab.session import Lab
from dev.lab.watching import WatchLost
from kube.errors import KubeError

INTRODUCTION = """\
Drawbridge holds the IP of a pod in Calico before the pod may go, so that no other pod gets it too soon.
And it lets a node take no pods before the node has its anycast IP.
And of a workload's replicas it keeps the first ones local, and sends the others to the cloud.
And it takes an edge node off its load balancer before it updates the pods there.
A real control plane comes up on this machine, with the chart installed on it, and an emulated Tencent Cloud;
all is gone at the end, unless you keep it: make demo KEEP=1.
Where Kubernetes' programs are not there yet, they are fetched or built first: that takes minutes, once."""
VALUES: dict[str, Any] = {
    "replicaCount": 2,
    "controllers": {"replicaCount": 2},
    "ipReservation": {
        "duration": f"{reservations.HOLD}s",
        "maxCount": 300,
        "advanced": {"releasePeriod": "1s"},
    },
    "elasticity": {"enabled": True, "switch": {"default": False}},
    "ingressDaemonSet": {"enabled": True},
    "cloud": {"subnets": [{"id": "subnet-demo0001", "zone": "ap-singapore-1"}]},
}
CLOUD: dict[str, Any] = {"bind_seconds": 8}
"""Long enough for a node that opens too early to be found out."""
WIDTH_WITHOUT_TERMINAL = 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    out = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL)
    start = time.monotonic()
    out.print(INTRODUCTION)
    try:
        kept, broken = perform(out, _progress(out, start), keep=options.keep)
    except (LabError, KubeError, WatchLost) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; the lab is gone", file=sys.stderr)
        return 130
    outcome = f"of {kept + len(broken)} promises {len(broken)} were broken: {'; '.join(broken)}"
    took = f"the lab is gone; it took {time.monotonic() - start:.0f} s"
    out.print(f"{outcome if broken else f'all {kept} promises were kept'}; {took}", soft_wrap=True)
    return 1 if broken else 0


def perform(out: Console, progress: Callable[[str], None], *, keep: bool) -> tuple[int, list[str]]:
    """How many promises were kept, and those that were not. *keep*: the lab and its page stay until Ctrl-C."""
    calico = reservations.RESERVATIONS.api_version
    with running(values=VALUES, calico=calico, cloud=CLOUD, progress=progress) as lab:
        stage = Stage(lab, out)
        reservations.play(stage)
        features.nodes_join(stage)
        features.replicas_go_to_the_cloud(stage)
        features.edge_nodes_are_updated(stage)
        stage.title("The dashboard")
        out.print(
            "The command serves a page on this machine: what all features do now, live.", style="italic"
        )
        with page.dashboard(lab) as address:
            out.print(f"$ drawbridge dashboard\n  {address}", soft_wrap=True)
            faults = "; ".join(page.faults(address))
            stage.verdict("each page of the dashboard shows what is in the cluster", faults)
            if keep:
                _stay(out, lab, address)
    return stage.kept, stage.broken


def _stay(out: Console, lab: Lab, address: str) -> None:
    out.print(f"\nThe lab stays until Ctrl-C. Its dashboard:\n  {address}", soft_wrap=True)
    out.print(f"and for kubectl:\n  export KUBECONFIG={lab.kubeconfig}", soft_wrap=True)
    with suppress(KeyboardInterrupt):
        Event().wait()


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
