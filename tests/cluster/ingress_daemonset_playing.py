"""Scenes with IngressDaemonSets, all played at once: most of their time they wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from lab.session import Lab
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.ingress_daemonset_history import Record

Scene = Callable[[Edge], None]


@contextmanager
def playing(
    lab: Lab, record: Record, scenes: Mapping[Scene, Sequence[str]]
) -> Iterator[Callable[[Scene], None]]:
    """Each on nodes of these names; what it gives waits for the end of one, and raises what that raised."""
    with ThreadPoolExecutor(len(scenes)) as pool:
        played = {scene: pool.submit(_play, lab, record, scene, nodes) for scene, nodes in scenes.items()}
        yield lambda scene: played[scene].result()


def _play(lab: Lab, record: Record, scene: Scene, nodes: Sequence[str]) -> None:
    scene(Edge(lab, record, *nodes))


def title(scene: Scene) -> str:
    return scene.__name__.replace("_", " ")
