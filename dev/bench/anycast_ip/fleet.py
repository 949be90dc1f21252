"""Many nodes join at once and are awaited until they are open, or leave and are awaited until nothing is left."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import Empty

import msgspec

from api.anycast_ip import is_proven_bound, is_tainted
from controllers.anycast_ip.claim import NODE_INSTANCE, NODE_NAME, SELECTED
from dev.lab import nodes
from dev.lab.errors import LabError
from dev.lab.install import NAMESPACE
from dev.lab.session import Lab
from dev.lab.watching import Observations, WatchLost, watching
from kube.resources import CONFIG_MAPS, NODES, Selection
from kube.types import Node

CONCURRENCY = 16
PATIENCE = 300.0


@dataclass(frozen=True)
class Joined:
    """*seconds* from the first request to the last node's opening; *early* is how many were seen open before."""

    names: Sequence[str]
    seconds: float
    early: int


def join(lab: Lab, size: int) -> Joined:
    """Let *size* new nodes join."""
    # Never a name twice: kwok might mistake a new node for the old one.
    prefix = secrets.token_hex(3)
    names = [f"anycast-{prefix}-{number}" for number in range(size)]
    with watching(lab.client, {NODES: Node}) as observations, ThreadPoolExecutor(CONCURRENCY) as pool:
        begin = time.monotonic()
        joining = pool.map(partial(nodes.join, lab.client), names)
        end, early = opened(observations, set(names), begin + PATIENCE)
        list(joining)
    return Joined(names, end - begin, early)


def leave(lab: Lab, names: Collection[str]) -> float:
    """Seconds from the first request until no claim is left: the addresses and their tags are gone before."""
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        begin = time.monotonic()
        leaving = pool.map(partial(nodes.leave, lab.client), names)
        lab.wait(
            lambda: not _is_claimed(lab) or _nap(), PATIENCE, f"the addresses of {len(names)} nodes to go"
        )
        end = time.monotonic()
        list(leaving)
    return end - begin


def left_behind(lab: Lab) -> int:
    """How many addresses there are, and tags of nodes, in a cloud that ought to have none."""
    state = lab.cloud.state()
    return len(state["addresses"]) + sum(tag["key"] in (NODE_NAME, NODE_INSTANCE) for tag in state["tags"])


def opened(observations: Observations, names: Collection[str], deadline: float) -> tuple[float, int]:
    """When the last of *names* was open, and how many were seen without their taint before that."""
    waiting, early = set(names), set[str]()
    while waiting:
        try:
            seen = observations.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise LabError(f"{len(waiting)} of {len(names)} nodes were not open in time") from None
        if isinstance(seen, WatchLost):
            raise seen
        if (
            isinstance(seen.object, Node)
            and seen.object.metadata.name in waiting
            and not is_tainted(seen.object)
        ):
            (waiting.remove if is_proven_bound(seen.object) else early.add)(seen.object.metadata.name)
    return time.monotonic(), len(early)


def _is_claimed(lab: Lab) -> bool:
    pages = lab.client.list_pages(CONFIG_MAPS, Selection(NAMESPACE, SELECTED), type=msgspec.Raw, page_size=1)
    return bool(next(pages).items)


def _nap() -> bool:
    time.sleep(0.2)  # what is to be measured runs on this machine, too
    return False
