"""Copies of all that the leader decides on, complete before it begins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import structlog

from controllers.elasticity.nodes import FollowedNode, SuperNodes, super_nodes
from controllers.elasticity.ordinals import StatefulSet, slim
from controllers.elasticity.pods import Pod, decode
from controllers.elasticity.switches import parse
from controllers.elasticity.writer import PODS
from controllers.workqueue import StaleInformer
from kube.client import Client, Resource
from kube.event_recorder import EventRecorder, Regarding
from kube.informer import Informer
from kube.types import ConfigMap
from settings import ElasticitySettings
from webhook.elasticity import SWITCH

NODES = Resource("", "v1", "nodes", namespaced=False)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets")
CONFIG_MAPS = Resource("", "v1", "configmaps")
LONGEST_SILENCE = 300.0
"""Seconds without a LIST or a watch that succeeded; a quiet watch is opened anew after little more than a minute."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Copies:
    pods: Informer[Pod]
    nodes: Informer[FollowedNode]
    switches: Informer[ConfigMap]
    stateful_sets: Informer[StatefulSet]

    def check(self) -> None:
        """Raise StaleInformer when one of them has been silent too long."""
        silence, kind = max(
            (self.pods.silence, "pods"),
            (self.nodes.silence, "nodes"),
            (self.switches.silence, "configmaps"),
            (self.stateful_sets.silence, "statefulsets"),
        )
        if silence > LONGEST_SILENCE:
            raise StaleInformer(f"nothing was heard of {kind} for {silence:.0f} s")

    def wait_synced(self, stop: threading.Event) -> None:
        """Return when all are complete, or when *stop* is set."""
        for each in (self.pods, self.nodes, self.switches, self.stateful_sets):
            while not each.wait_synced(0.1) and not stop.is_set():
                self.check()

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
def followed(client: Client, settings: ElasticitySettings, stop: threading.Event) -> Iterator[Copies]:
    """Complete copies, unless *stop* is set; read from the API server now, not before."""
    switch = settings.switch
    copies = Copies(
        Informer(client, PODS, Pod, decode=decode),
        Informer(client, NODES, FollowedNode),
        Informer(
            client,
            CONFIG_MAPS,
            ConfigMap,
            namespace=switch.namespace,
            field_selector=f"metadata.name={switch.name}",
        ),
        Informer(client, STATEFUL_SETS, StatefulSet, decode=slim),
    )
    with ExitStack() as following:
        for each in (copies.pods, copies.nodes, copies.switches, copies.stateful_sets):
            following.callback(each.stop)
            each.start()
        copies.wait_synced(stop)
        yield copies


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
