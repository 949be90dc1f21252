"""Copies of all that the leader decides on, complete before it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from controllers.elasticity.nodes import FollowedNode, SuperNodes, super_nodes
from controllers.elasticity.ordinals import StatefulSet, slim
from controllers.elasticity.pods import Pod, decode
from controllers.elasticity.switches import parse
from controllers.elasticity.writer import PODS
from controllers.manager import Context
from kube.client import Resource
from kube.event_recorder import EventRecorder, Regarding
from kube.informer import Informer
from kube.list_watch import Selection
from kube.types import ConfigMap
from settings import ElasticitySettings
from webhook.elasticity import SWITCH

NODES = Resource("", "v1", "nodes", namespaced=False)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets")
CONFIG_MAPS = Resource("", "v1", "configmaps")

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Copies:
    pods: Informer[Pod]
    nodes: Informer[FollowedNode]
    switches: Informer[ConfigMap]
    stateful_sets: Informer[StatefulSet]

    def super_nodes(self) -> SuperNodes:
        return super_nodes(self.nodes.list())

    def first_ordinal(self, pod: Pod) -> int | None:
        """The least ordinal of its StatefulSet; None while that is not known."""
        owner = pod.metadata.controller
        found = owner and self.stateful_sets.get(f"{pod.metadata.namespace}/{owner.name}")
        return found.spec.ordinals.start if owner and found and found.metadata.uid == owner.uid else None

    def switch(self) -> tuple[bool | None, str]:
        """What the global switch says, and what is wrong with it."""
        said = next((each.data.get(SWITCH) for each in self.switches.list()), None)
        return parse(said)


@contextmanager
def followed(context: Context, settings: ElasticitySettings) -> Iterator[Copies]:
    """Complete copies, unless it is time to stop; read from the API server now, not before."""
    switch, informers = settings.switch, context.informers
    where = Selection(switch.namespace, field_selector=f"metadata.name={switch.name}")
    copies = Copies(
        informers.of(PODS, Pod, decode=decode),
        informers.of(NODES, FollowedNode),
        informers.of(CONFIG_MAPS, ConfigMap, where),
        informers.of(STATEFUL_SETS, StatefulSet, decode=slim),
    )
    every: tuple[Informer[Any], ...] = (copies.pods, copies.nodes, copies.switches, copies.stateful_sets)
    try:
        context.wait_synced(*every)
        yield copies
    finally:
        for each in every:
            informers.release(each)


class GlobalSwitch:
    """What the ConfigMap says; what is wrong with it is told there, once."""

    def __init__(
        self, copies: Copies, recorder: EventRecorder, settings: Callable[[], ElasticitySettings]
    ) -> None:
        self._copies, self._recorder, self._settings = copies, recorder, settings
        self._told = ""

    def read(self) -> bool | None:
        says, problem = self._copies.switch()
        if problem and problem != self._told:
            at = self._settings().switch
            regarding = Regarding(CONFIG_MAPS.api_version, "ConfigMap", at.name, at.namespace)
            log.warning("the global switch cannot be read", error=problem)
            self._recorder.event(regarding, "BadSwitch", problem, type="Warning")
        self._told = problem
        return says
