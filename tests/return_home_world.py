"""A cluster whose controllers replace what is evicted, on nodes that a test chooses, and a leader that returns pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, cast

from api.elasticity import BURST, LOCAL_REPLICAS
from controllers.controller import Clock
from controllers.elasticity.nodes import Nodes
from controllers.elasticity.pods import Observed, decode_for_return
from controllers.elasticity.reporter import Reporter
from controllers.elasticity.return_home.reconciler import ReturnReconciler
from controllers.elasticity.snapshot import Workload
from controllers.elasticity.sources import REPLICA_SETS, PodCache, Sources
from dev.simulator.models.cluster import Cluster as Objects
from dev.simulator.models.replica_sets import ReplicaSets, pod_of
from dev.simulator.models.stateful_sets import StatefulSets
from kube.resources import NAMESPACES, STATEFUL_SETS
from settings import ElasticitySettings
from settings.elasticity import ReturnHome
from tests.elasticity_world import AWAY, HOME, Client, Cluster, PodFeed, node, super_node
from tests.elasticity_world import sorted_out as nodes_of
from tests.factories import NOW
from tests.fakes import FakeClock, FakeRecorder

NOTHING: Mapping[str, Any] = {}
OURS = "drawbridge"
AFTER, INTERVAL, LOOK = 600.0, 60.0, 20.0
SETTINGS = ElasticitySettings(enabled=True, return_home=ReturnHome(enabled=True))
ALLOCATABLE = {"cpu": "4", "memory": "8Gi", "pods": "10"}
REQUESTS = {"containers": [{"name": "app", "image": "app", "resources": {"requests": {"cpu": "1"}}}]}
READY = [{"type": "Ready", "status": "True", "lastTransitionTime": NOW.isoformat()}]


def fleet(*others: Any, allocatable: Mapping[str, str] = ALLOCATABLE) -> Nodes:
    return nodes_of([node(HOME, allocatable=dict(allocatable)), super_node(allocatable=ALLOCATABLE), *others])


class Leader:
    """It knows of pods what it has heard."""

    def __init__(self, homes: Homes) -> None:
        client, self.recorder = Client(homes.cluster), FakeRecorder()
        pods, recorder = PodFeed(homes.cluster.api, decode_for_return), cast(Any, self.recorder)
        self.hear = pods.hear
        sources = Sources(
            PodCache(client, pods.informer),
            lambda: homes.nodes,
            lambda: homes.settings,
            lambda: None,
            lambda _: Workload(),
        )
        clock = Clock(lambda: NOW + timedelta(seconds=homes.clock()), homes.clock)
        reporter = Reporter(recorder, clock.now, Observed(clock.monotonic))
        self.reconciler = ReturnReconciler(sources, client, OURS, reporter, clock)


class Homes:
    """*placing* says on which node a replacement comes: HOME, AWAY, or "" for none yet."""

    def __init__(self, settings: ElasticitySettings = SETTINGS, nodes: Nodes | None = None) -> None:
        self.settings, self.nodes = settings, nodes or fleet()
        self.clock, self.cluster = FakeClock(0.0), Cluster()
        self.placing: Callable[[str], str] = lambda _: HOME
        self.starts: Callable[[str], bool] = lambda _: True
        self.ends: Callable[[str], bool] = lambda _: True
        self.evicted: list[tuple[float, str]] = []
        self.cluster.api.put(NAMESPACES, {"metadata": {"name": OURS}})
        self.cluster.api.now = lambda: NOW + timedelta(seconds=self.clock())
        objects = Objects(self.cluster.api)
        self._controllers = ReplicaSets(objects), StatefulSets(objects)
        self.leader = Leader(self)

    # What a cluster does.

    def workload(
        self,
        name: str,
        *places: str,
        n: str | None = None,
        annotations: Mapping[str, str] = NOTHING,
        spec: Mapping[str, Any] = NOTHING,
    ) -> None:
        """A ReplicaSet with a pod on each of *places*; those on super nodes came there for want of room."""
        deployment = name.partition("-")[0]
        controller = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": deployment,
            "uid": f"deployment-{deployment}",
            "controller": True,
        }
        labels = {"app": name, "pod-template-hash": "1"}
        given = ({LOCAL_REPLICAS: n} if n else {}) | dict(annotations)
        template = {"metadata": {"labels": labels, "annotations": given}, "spec": REQUESTS | dict(spec)}
        made = self.cluster.api.put(
            REPLICA_SETS,
            {
                "metadata": {"name": name, "namespace": "shop", "ownerReferences": [controller]},
                "spec": {
                    "replicas": len(places),
                    "selector": {"matchLabels": labels},
                    "template": template,
                },
            },
        )
        for number, place in enumerate(places, 1):
            self.cluster.put(pod_of(made, template, name=f"{name}-{number}", namespace="shop"))
            self.bind(f"{name}-{number}", place)
        self.control()

    def stateful_set(self, name: str, replicas: int, strategy: Mapping[str, Any], **parts: Any) -> None:
        """Its controller is a model of Kubernetes' own; all its pods start at `placing`."""
        labels = {"app": name}
        template = {"metadata": {"labels": labels, "annotations": {"version": "1"}}, "spec": REQUESTS}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "updateStrategy": dict(strategy),
            "template": template,
            **parts,
        }
        self.cluster.api.put(STATEFUL_SETS, {"metadata": {"name": name, "namespace": "shop"}, "spec": spec})
        self.control()

    def versions(self, owner: str) -> dict[str, str]:
        """Of the template that each pod of a StatefulSet has."""
        return {
            name: raw["metadata"]["annotations"]["version"]
            for name, raw in self.cluster.pods.items()
            if raw["metadata"]["labels"].get("app") == owner
        }

    def update(self, owner: str, **spec: Any) -> None:
        """Change the template of a StatefulSet, and *spec*."""
        template = {"metadata": {"annotations": {"version": "2"}}}
        self.cluster.api.edit(STATEFUL_SETS, owner, {"spec": {"template": template, **spec}}, "shop")
        for _ in range(10):
            self.control()

    def bind(self, name: str, place: str) -> None:
        conditions = READY if self.starts(name) else []
        burst = {"metadata": {"annotations": {BURST: "allowed"}}} if place == AWAY else {}
        status = {"phase": "Running", "conditions": conditions}
        self.cluster.edit(name, {"spec": {"nodeName": place}, "status": status, **burst})

    def control(self) -> None:
        """What kubelets, controllers and the scheduler do: end pods, replace them, and bind what is new."""
        for name, raw in self.cluster.pods.items():
            if "deletionTimestamp" in raw["metadata"] and self.ends(name):
                self.cluster.remove(name)
        for _ in range(3):
            for each in self._controllers:
                each.step(NOW + timedelta(seconds=self.clock()))
            for name, raw in self.cluster.pods.items():
                is_new = not raw["spec"].get("nodeName") and "app" in raw["metadata"]["labels"]
                if is_new and (place := self.placing(name)):
                    self.bind(name, place)

    def of(self, owner: str) -> dict[str, str]:
        """The node of each pod of a workload."""
        return {
            name: raw["spec"].get("nodeName", "")
            for name, raw in self.cluster.pods.items()
            if raw["metadata"]["labels"].get("app") == owner and "deletionTimestamp" not in raw["metadata"]
        }

    def away(self, owner: str) -> int:
        return sum(place == AWAY for place in self.of(owner).values())

    # What leaders do.

    def look(self) -> None:
        """Hear all, reconcile, let the cluster follow; then some time passes."""
        self.leader.hear()
        self.reconcile()
        self.control()
        self.clock.advance(LOOK)

    def reconcile(self) -> None:
        before = self.alive()
        try:
            self.leader.reconciler.reconcile()
        finally:
            self.evicted += [(self.clock(), name) for name in sorted(before - self.alive())]

    def run(self, seconds: float) -> None:
        end = self.clock() + seconds
        while self.clock() < end:
            self.look()

    def alive(self) -> set[str]:
        return {name for name, raw in self.cluster.pods.items() if "deletionTimestamp" not in raw["metadata"]}
