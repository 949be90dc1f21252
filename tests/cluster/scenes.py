"""Scenes with nodes that need an anycast IP, all played at once: most of their time they wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from dev.lab.session import Lab
from tests.cluster.anycast import Fleet, joined

Scene = Callable[[Fleet], None]


@contextmanager
def playing(lab: Lab, scenes: Sequence[Scene]) -> Iterator[Callable[[Scene], None]]:
    """What it gives waits for the end of one of them, and raises what that raised."""
    with ThreadPoolExecutor(len(scenes)) as pool:
        played = {scene: pool.submit(_play, lab, scene) for scene in scenes}
        yield lambda scene: played[scene].result()


def _play(lab: Lab, scene: Scene) -> None:
    with joined(lab) as fleet:
        scene(fleet)


def title(scene: Scene) -> str:
    return scene.__name__.replace("_", " ")
