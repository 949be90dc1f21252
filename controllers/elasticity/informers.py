"""The informers of all that decisions rest on, complete before the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from controllers.elasticity.annotations import parse
from controllers.elasticity.nodes import WatchedNode
from controllers.elasticity.pod_cache import PODS
from controllers.elasticity.pods import Pod, decode
from controllers.elasticity.snapshot import StatefulSet, slim
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
class ElasticityInformers:
    pods: Informer[Pod]
    nodes: Informer[WatchedNode]
    switches: Informer[ConfigMap]
    stateful_sets: Informer[StatefulSet]

    def first_ordinal(self, pod: Pod) -> int | None:
        """The least ordinal of its StatefulSet; None while that is not known."""
        owner = pod.metadata.controller
        found = owner and self.stateful_sets.get(f"{pod.metadata.namespace}/{owner.name}")
        return found.spec.ordinals.start if owner and found and found.metadata.uid == owner.uid else None


@contextmanager
def informed(context: Context, settings: ElasticitySettings) -> Iterator[ElasticityInformers]:
    """Complete informers, unless it is time to stop; they list now, not before."""
    switch, informers = settings.switch, context.informers
    where = Selection(switch.namespace, field_selector=f"metadata.name={switch.name}")
    found = ElasticityInformers(
        informers.of(PODS, Pod, decode=decode),
        informers.of(NODES, WatchedNode),
        informers.of(CONFIG_MAPS, ConfigMap, where),
        informers.of(STATEFUL_SETS, StatefulSet, decode=slim),
    )
    every: tuple[Informer[Any], ...] = (found.pods, found.nodes, found.switches, found.stateful_sets)
    try:
        context.wait_synced(*every)
        yield found
    finally:
        for each in every:
            informers.release(each)


class GlobalSwitch:
    """The global switch of the ConfigMap; a value that cannot be read is reported on it, once."""

    def __init__(
        self,
        config_maps: Informer[ConfigMap],
        recorder: EventRecorder,
        settings: Callable[[], ElasticitySettings],
    ) -> None:
        self._config_maps, self._recorder, self._settings = config_maps, recorder, settings
        self._reported = ""

    def read(self) -> bool | None:
        value, problem = parse(next((each.data.get(SWITCH) for each in self._config_maps.list()), None))
        if problem and problem != self._reported:
            at = self._settings().switch
            regarding = Regarding(CONFIG_MAPS.api_version, "ConfigMap", at.name, at.namespace)
            log.warning("global switch not readable", namespace=at.namespace, name=at.name, error=problem)
            self._recorder.event(regarding, "BadSwitch", problem, type="Warning")
        self._reported = problem
        return value
