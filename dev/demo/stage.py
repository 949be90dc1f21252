"""Where the demo plays: a lab, what an operator types there, and the judge who looks at it from outside."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from dev.judge import Invariant
from dev.lab.errors import LabError
from dev.lab.install import NAMESPACE as DRAWBRIDGE
from dev.lab.repository import ROOT
from dev.lab.session import Lab
from dev.outside import Outside, judged
from kube.client import Resource
from kube.resources import PODS
from kube.types import Pod

HERE = Path(__file__).parent
SECONDS = 60.0
STEPS = 10
WRONG = 1
"""How the command ends when it shows that something is wrong, as it is meanwhile."""
T = TypeVar("T")


@dataclass
class Stage:
    lab: Lab
    out: Console
    broken: list[str] = field(default_factory=list)
    """What was promised and was not kept."""
    kept: int = 0
    step_number: int = 0

    def step(self, title: str, story: str) -> None:
        self.step_number += 1
        self.title(f"{self.step_number}/{STEPS} {title}")
        self.out.print(story, style="italic")

    def title(self, text: str) -> None:
        self.out.print()
        self.out.rule(text, align="left", style="bold")

    def verdict(self, promise: str, fault: str = "") -> None:
        self.kept += not fault
        if fault:
            self.broken.append(promise)
        mark, style = ("✗", "bold red") if fault else ("✓", "bold green")
        self.out.print(f"{mark} {promise}{f': {fault}' if fault else ''}", style=style)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Show the command, and run it; LabError when it fails."""
        self._show("kubectl", arguments, stdin)
        return self.lab.kubectl(*arguments, stdin=stdin).stdout

    def helm(self, *arguments: str) -> None:
        self._show("helm", arguments)
        self.lab.helm(*arguments)

    def drawbridge(self, *arguments: str) -> None:
        """What the command shows of it."""
        self._show("drawbridge", arguments)
        if self._start(arguments).wait(SECONDS) > WRONG:
            raise LabError(f"drawbridge {shlex.join(arguments)} failed")

    @contextmanager
    def watched(self, *arguments: str) -> Iterator[None]:
        """What the command shows as it changes, for the length of a block."""
        self._show("drawbridge", (*arguments, "-w"))
        process = self._start((*arguments, "-w"))
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(SECONDS)

    @contextmanager
    def judged(self, invariants: Sequence[Invariant], *kinds: Resource, **where: Any) -> Iterator[Outside]:
        """The block, and the rest that follows it, are put before these invariants."""
        with judged(self.lab, invariants, *kinds, **where) as outside:
            yield outside
            found = {each.invariant: each.message for each in outside.at_rest(SECONDS)}
        self.out.print()
        for each in invariants:
            self.verdict(each.name, found.get(each.name, ""))

    def wait(self, condition: Callable[[], T | None], what: str) -> T:
        return self.lab.wait(condition, SECONDS, what)

    def pods(self, namespace: str) -> list[Pod]:
        """Those that are not on their way out, by name."""
        found = self.lab.client.list(PODS, namespace, type=Pod).items
        return sorted((pod for pod in found if not pod.terminating), key=lambda pod: pod.metadata.name)

    def running(self, namespace: str, count: int) -> list[Pod]:
        """All pods of the namespace, once so many run, and no others."""

        def found() -> list[Pod]:
            pods = self.pods(namespace)
            return pods if len(pods) == count and all(map(_runs, pods)) else []

        return self.wait(found, f"{count} running pods in namespace {namespace}")

    def programs(self, component: str = "webhook,controllers") -> list[dict[str, Any]]:
        """Drawbridge's own pods."""
        selector = f"app.kubernetes.io/component in ({component})"
        return self.lab.client.list(PODS, DRAWBRIDGE, label_selector=selector).items

    def _start(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "cli", "--kubeconfig", str(self.lab.kubeconfig), *arguments]
        return subprocess.Popen(command, cwd=ROOT)

    def _show(self, program: str, arguments: Sequence[str], stdin: str | None = None) -> None:
        line = shlex.join([program, *(each.replace(f"{ROOT}/", "") for each in arguments)])
        shown = f"echo {shlex.quote(stdin)} | {line}" if stdin else line
        self.out.print(f"$ {shown}", style="bold cyan", markup=False, soft_wrap=True)


def restarts(program: dict[str, Any]) -> int:
    return sum(each["restartCount"] for each in program["status"].get("containerStatuses", ()))


def _runs(pod: Pod) -> bool:
    return pod.status.phase == "Running" and bool(pod.status.addresses)
