"""All of Kubernetes that surrounds an API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from random import Random
from typing import Protocol

from dev.fake_api import FakeAPI
from dev.simulator.models.addresses import Addresses
from dev.simulator.models.cluster import Cluster
from dev.simulator.models.controller import Spawn, at_once
from dev.simulator.models.daemon_sets import DaemonSets
from dev.simulator.models.deployments import Deployments
from dev.simulator.models.garbage_collector import GarbageCollector
from dev.simulator.models.jobs import Jobs
from dev.simulator.models.kubelets import Kubelets
from dev.simulator.models.node_lifecycle import NodeLifecycle
from dev.simulator.models.pod_behaviour import Note
from dev.simulator.models.pod_gc import PodGC
from dev.simulator.models.replica_sets import ReplicaSets
from dev.simulator.models.scheduler import Scheduler
from dev.simulator.models.stateful_sets import StatefulSets


class Model(Protocol):
    def step(self, now: datetime) -> datetime | None:
        """Do what is due; when something is due again though nothing changes."""


class Kubernetes:
    """*addresses* is where those of pods come from; *spawn* lets writes wait for admission side by side."""

    def __init__(
        self,
        api: FakeAPI,
        dice: Callable[[str], Random],
        addresses: Addresses | None = None,
        spawn: Spawn = at_once,
        note: Note = lambda who, what: None,
    ) -> None:
        self.cluster = cluster = Cluster(api)
        self.kubelets = Kubelets(cluster, dice("kubelets"), addresses, spawn=spawn, note=note)
        self.models: Mapping[str, Model] = {
            "deployments": Deployments(cluster, spawn),
            "replica sets": ReplicaSets(cluster, spawn),
            "stateful sets": StatefulSets(cluster, spawn),
            "daemon sets": DaemonSets(cluster, spawn),
            "jobs": Jobs(cluster, spawn),
            "garbage collector": GarbageCollector(cluster),
            "pod gc": PodGC(cluster, spawn),
            "node lifecycle": NodeLifecycle(cluster, self.kubelets.silent, spawn),
            "scheduler": Scheduler(cluster, dice("scheduler")),
            "kubelets": self.kubelets,
        }
