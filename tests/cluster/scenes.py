"""Scenes that are all played at once: most of their time they wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

S = TypeVar("S", bound=Callable[..., None])


@contextmanager
def playing(scenes: Mapping[S, Callable[[], None]]) -> Iterator[Callable[[S], None]]:
    """By how each is played. What it gives waits for the end of one, and raises what that raised."""
    with ThreadPoolExecutor(len(scenes)) as pool:
        played = {scene: pool.submit(play) for scene, play in scenes.items()}
        yield lambda scene: played[scene].result()


def title(scene: Callable[..., None]) -> str:
    return scene.__name__.replace("_", " ")
