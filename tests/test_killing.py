"""A signal reaches the first process of the pod that was meant, and no other."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.killing import kill_pod
from lab.kubelet.process import Process, Recipe
from lab.session import Lab

CHILD_AND_SLEEP = "import subprocess, time\nsubprocess.Popen(['sleep', '60'])\ntime.sleep(60)"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Lab("killing")


@pytest.fixture
def runs(lab: Lab) -> Callable[[str], threading.Event]:
    """Runs a pod of that name in namespace shop, and tells its end."""
    base = lab.directory / "base"
    base.mkdir(parents=True)

    def run(pod: str) -> threading.Event:
        argv = [sys.executable, "-I", "-S", "-c", CHILD_AND_SLEEP]
        recipe = Recipe(argv, {"PATH": os.environ["PATH"]}, "/", pod, (), False, str(base))
        process = Process(recipe, lab.directory / "pods" / f"shop_{pod}_uid" / "main" / "0.log")
        ended = threading.Event()
        process.follow(ended.set)
        return ended

    return run


def test_a_killed_pod_ends_and_its_neighbour_lives_on(
    lab: Lab, runs: Callable[[str], threading.Event]
) -> None:
    killed, neighbour = runs("web-1"), runs("web-10")
    kill_pod(lab, "shop", "web-1", signal.SIGKILL)
    assert killed.wait(10)
    assert not neighbour.is_set()
    kill_pod(lab, "shop", "web-10", signal.SIGKILL)
    assert neighbour.wait(10)


def test_a_pod_that_does_not_run_is_named(lab: Lab) -> None:
    with pytest.raises(LabError, match="no container of pod shop/web-1 runs on a node of lab 'killing'"):
        kill_pod(lab, "shop", "web-1", signal.SIGKILL)
