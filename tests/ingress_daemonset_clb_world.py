"""The leader of IngressDaemonSets with the emulated cloud on one clock: calls that are refused, lost or late."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from api.ingress_daemonset.types import IngressDaemonSet
from cloud.apis import Api as CloudApi
from cloud.caller import Caller, Timing
from cloud.client import LoadBalancers
from cloud.errors import Throttled, Unavailable, kind_of
from controllers.controller import Clock
from controllers.ingress_daemonset.detachment import BackendsByNode
from controllers.ingress_daemonset.object_cache import LoadBalancerCache
from controllers.ingress_daemonset.weights import WeightReconciler, WeightStore
from controllers.workqueue import PENDING, WorkQueue
from dev.fake_api import NAMESPACES
from dev.lab.cloud import Knobs
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.load_balancers import ACTIONS
from dev.lab.cloud.values import Target
from dev.lab.cloud.world import REGION, World
from kube.errors import KubeError
from kube.resources import NODES
from settings import CLBSettings
from tests.cloud_server import limited
from tests.fakes import FakeClock
from tests.ingress_daemonset_leader import Api, Leader
from tests.ingress_daemonset_world import raw_node, raw_resource

T = TypeVar("T")
BALANCER = "lb-edge0000"
WEIGHT, TASK = 10, 2.0
"""Of each backend, and the seconds that the cloud takes to change it."""
ROLLING = {"maxUnavailableNodes": 1, "setWeightToDetach": {"loadBalancers": [BALANCER]}}
ALLOWED = {"enabled": True, "loadBalancers": [{"id": BALANCER, "namespaces": ["edge"]}]}


class Transport:
    """The emulated cloud without its sockets; *fault* says what becomes of a call of an action."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.fault: Callable[[str], str] = lambda action: ""
        self.late: list[Callable[[], object]] = []
        """Calls that are still under way."""

    def call(self, api: CloudApi, params: Mapping[str, object], type: type[T], timeout: float) -> T:  # noqa: A002
        fault = self.fault(api.action)
        if fault == "throttled":
            raise Throttled("RequestLimitExceeded", "too many", action=api.action)
        if fault == "late":
            self.late.append(lambda: self._run(api, params))
        if fault in ("late", "never"):
            raise Unavailable("Network", "timed out", action=api.action)
        answer = self._run(api, params)
        if fault == "twice":
            self.late.append(lambda: self._run(api, params))
        if fault == "lost":
            raise Unavailable("Network", "connection reset", action=api.action)
        return msgspec.convert({"RequestId": "r-1", **answer}, type)

    def deliver_late(self) -> None:
        late, self.late = self.late, []
        for each in late:
            each()

    def _run(self, api: CloudApi, params: Mapping[str, object]) -> Mapping[str, Any]:
        action = ACTIONS[api.action]
        try:
            with self.world.advanced():
                return action.run(self.world, msgspec.convert(params, action.params), REGION)
        except Fault as fault:
            raise kind_of(fault.code)(fault.code, str(fault), action=api.action) from None


def cloud_of(*nodes: str) -> Transport:
    """With a load balancer of two listeners, each with a backend on each node."""
    world = World(Knobs(weight_seconds=TASK), FakeClock())
    world.put_load_balancer(
        BALANCER,
        [
            Target(listener=listener, location=location, instance=f"ins-{each}", port=port, weight=WEIGHT)
            for each in nodes
            for listener, location, port in (("lbl-tcp", "", 443), ("lbl-http", "loc-1", 80))
        ],
    )
    return Transport(world)


def with_nodes(*names: str, **spec: Any) -> Api:
    """An IngressDaemonSet edge/web, and nodes that are instances of the cloud."""
    api = Api()
    api.put("IngressDaemonSet", raw_resource(**({"rolling": ROLLING} | spec)))
    for name in names:
        raw = raw_node(name)
        api.put("Node", raw | {"spec": raw["spec"] | {"providerID": f"qcloud:///200001/ins-{name}"}})
    api.fake.put(NAMESPACES, {"metadata": {"name": "drawbridge"}})
    api.deliver()
    return api


class ClbLeader(Leader):
    """With the weights of one load balancer; *before* is the leader before."""

    def __init__(self, api: Api, cloud: Transport | None = None, before: ClbLeader | None = None) -> None:
        self.known: LoadBalancerCache | None = None
        self.before_write: Callable[[], None] = lambda: None
        super().__init__(api, before)
        assert cloud or before
        self.cloud = cloud or before.cloud  # type: ignore[union-attr]
        clb = CLBSettings.model_validate(ALLOWED)
        self.settings = self.settings.model_copy(update={"clb": clb})
        clock = Clock(self.now, self.clock)
        self.known = LoadBalancerCache(lambda: self.settings.clb, clock)
        timing = Timing(self.clock, self.clock.advance, lambda: 0.0)
        calls = Caller(self.cloud, limited(4, 2), math.inf, self._check, lambda: None, timing)  # type: ignore[arg-type]
        self.store = WeightStore(api.fenced(self._check, math.inf), "drawbridge")
        cloud, queue = LoadBalancers(calls), WorkQueue("weights", clock=self.clock)
        self.weights = WeightReconciler(
            lambda: cloud, self.store, lambda _: None, self.cache, self.known, queue
        )

    def backends(self, resource: IngressDaemonSet, names: Sequence[str]) -> BackendsByNode:
        return self.known.of(resource, names) if self.known else {}

    def _check(self) -> None:
        super()._check()
        self.before_write()

    def look(self) -> float | None:
        dues = [self.weigh(), super().look()]
        return min((each for each in dues if each is not None), default=None)

    def weigh(self) -> float | None:
        due = self.weights.reconcile(BALANCER)
        return 1.0 if due == PENDING else due

    def step(self) -> None:
        """A reconcile of each, whatever comes of it, and a second."""
        before = self.image_by_node()
        with suppress(KubeError):
            self.look()
        self.judge(before)
        self.run_pods()
        self.api.deliver()
        self.clock.advance(1.0)

    def judge(self, before: Mapping[str, str]) -> None:
        """No pod was replaced while its node had a weight, and no more nodes are off than allowed."""
        weights = self.cloud.world.weights(BALANCER)
        replaced = [node for node, image in self.image_by_node().items() if before.get(node, image) != image]
        assert not [key for key, weight in weights.items() if weight and _node_in(key) in replaced]
        found = self.api.fake.peek(NODES)
        nodes = {raw["metadata"]["name"] for raw in found if not _has_left(raw)}
        assert len(nodes & {_node_in(key) for key, weight in weights.items() if not weight}) <= 1

    def has(self, image: str) -> bool:
        """Whether all nodes have it."""
        return self.images() == {image}

    def weights_of(self, node: str) -> set[int]:
        return {weight for key, weight in self.weight_by_key.items() if _node_in(key) == node}

    @property
    def weight_by_key(self) -> dict[str, int]:
        return self.cloud.world.weights(BALANCER)

    @property
    def is_restored(self) -> bool:
        """Whether all weights are as before, and nothing is remembered."""
        return {*self.weight_by_key.values()} == {WEIGHT} and not self.store.memory(BALANCER)

    def run(self, until: Callable[[], object], steps: int = 1200) -> None:
        for _ in range(steps):
            if until():
                return
            self.step()
        raise AssertionError(f"not so in the end: {self.weight_by_key}, {self.store.memory(BALANCER)}")


def _has_left(node: dict[str, Any]) -> bool:
    return "eklet" in node["metadata"].get("labels", {}).values()


def _node_in(key: str) -> str:
    return key.partition("ins-")[2].partition(":")[0]


def rolling(*nodes: str, rolling: Mapping[str, Any] | None = None, **spec: Any) -> ClbLeader:
    """A leader whose pods run, and are to get a new template."""
    api = with_nodes(*nodes, rolling={**ROLLING, **(rolling or {})}, **spec)
    here = ClbLeader(api, cloud_of(*nodes))
    here.cloud.world.clock = here.clock
    here.settle()
    here.retemplate("proxy:2")
    return here
