"""A cluster and the emulated cloud on one clock, in which the controller lives, dies and comes again."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Any, TypeVar

import msgspec
from greenlet import getcurrent, greenlet
from msgspec.structs import replace

from api.anycast_ip import TAINT, is_proven_bound, is_tainted
from cloud.apis import Api
from cloud.caller import Caller, Timing
from cloud.client import Cloud
from cloud.errors import Unavailable
from cloud.responses import decoded
from cloud.types import Address as CloudAddress
from controllers.anycast_ip.brake import unbinds_in
from controllers.anycast_ip.claim import CLUSTER_UUID, FIELD, LABELS, Claim, data, instance_of, name_of
from controllers.anycast_ip.controller import Begun, assemble
from controllers.anycast_ip.reconciler import Reconciler
from controllers.anycast_ip.sources import ClaimStore, ReportedNode, decode
from controllers.controller import Clock, Controller
from controllers.manager import Context
from controllers.workqueue import _reconcile as reconcile_key
from dev.fake_api import NAMESPACES, FakeAPI, Objects, Reply, connection_to, merged
from dev.fake_api import Request as Asked
from dev.lab.cloud import Knobs, envelope, faults, policy, products
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.request import Request
from dev.lab.cloud.values import Address, Call, Instance
from dev.lab.cloud.world import World
from kube.client import Client
from kube.informer import Informer, identity_of
from kube.resources import CONFIG_MAPS, NODES, PODS
from kube.types import Node, NodeSpec, ObjectMeta, Taint
from settings import AnycastIPSettings
from settings.anycast_ip import NEED_LABEL
from tests.cloud_server import batchers, limited, step
from tests.factories import NOW
from tests.fakes import FakeClock, FakeRecorder
from tests.metrics import sample

T = TypeVar("T")
REGION = "ap-singapore"
UUID = "11111111-2222-4333-8444-555555555555"
SETTINGS = AnycastIPSettings(enabled=True, cluster_id="cls-abc")
CALLS = (
    "CreateTags",
    "AllocateAddresses",
    "AssociateAddress",
    "DescribeAddresses",
    "DisassociateAddress",
    "ReleaseAddresses",
    "DeleteTags",
    "write",
    "delete",
)
"""Of the cloud and of the API server: all at which a controller may die."""
PLACED = {"nodes": NODES, "configmaps": CONFIG_MAPS, "pods": PODS}


class Killed(BaseException):
    """The controller's end, in the middle of whatever it was at."""


def config_map(claim: Claim, text: str = "") -> dict[str, Any]:
    """That of *claim*, or with this *text* in its place."""
    metadata = {"name": name_of(claim.uid), "namespace": "drawbridge", "labels": LABELS}
    return {"metadata": metadata, "data": {FIELD: text} if text else data(claim)}


class Kube(Client):
    """Nodes, ConfigMaps and pods of a fake API server; *before* and *after* writes may raise.

    *before_write* has the name and the body of what is written.
    """

    def __init__(self) -> None:
        self.api = FakeAPI()
        super().__init__(connection_to(self.api))
        self.objects = Objects(self.api, *PLACED.values())
        self.before: Callable[[str], None] = lambda verb: None
        self.after: Callable[[str], None] = lambda verb: None
        self.before_write: Callable[[str, Any], None] = lambda name, body: None
        self.writes = 0
        self.api.fault, self.api.after = self._asked, self._answered
        for each in ("drawbridge", "kube-system"):
            self.api.put(NAMESPACES, {"metadata": {"name": each}})

    def place(self, plural: str, raw: dict[str, Any]) -> None:
        """As another client would, unseen by *before* and *after*."""
        given = msgspec.json.decode(msgspec.json.encode(raw))
        if plural == "configmaps":
            home = "kube-system" if given["metadata"]["name"] == CLUSTER_UUID else "drawbridge"
            given["metadata"].setdefault("namespace", home)
        given["metadata"].pop("resourceVersion", None)
        self.api.put(PLACED[plural], given)

    def _asked(self, call: Asked) -> None:
        if verb := _verb(call):
            self.before(verb)
        if call.method in ("POST", "PUT", "PATCH"):
            name = call.path.rpartition("/")[2] if call.method != "POST" else call.body["metadata"]["name"]
            self.before_write(name, call.body)

    def _answered(self, call: Asked, reply: Reply) -> None:
        verb = _verb(call)
        if reply.status < 400 and verb in ("write", "delete"):
            self.writes += verb == "write"
            self.after(verb)


def _verb(call: Asked) -> str:
    if call.method == "GET":
        return "list" if call.path.endswith(tuple(PLACED)) else ""
    return "delete" if call.method == "DELETE" else "write"


class Sender:
    """The emulator without a socket; *before* and *after* each call may raise.

    Another *world* is as with the keys of another account. *instead* has what is answered to an action with these
    parameters though nothing is done, if anything.
    """

    def __init__(self, world: World) -> None:
        self.world, self._dice, self._requests = world, Random(7), count()  # noqa: S311 - dice, not secrets
        self.before: Callable[[str], None] = lambda action: None
        self.after: Callable[[str], None] = lambda action: None
        self.instead: Callable[[str, Mapping[str, Any]], object] = lambda action, params: None

    def call(self, api: Api, params: Mapping[str, object], type: type[T], timeout: float) -> T:  # noqa: A002
        self.before(api.action)
        strike = faults.strike(self.world.knobs, api.action, self._dice)
        body, outcome = self._answer(api, params) if not strike.kind else (b"", strike.kind)
        self.world.log.append(
            Call(
                at=self.world.clock(),
                action=api.action,
                region=REGION,
                outcome=outcome,
                delivered=not (strike.kind or strike.lost),
                params=dict(params),
            )
        )
        self.after(api.action)
        if strike.lost or strike.kind.startswith("HT"):
            raise Unavailable("Lost", "no answer", action=api.action)
        return decoded(body or envelope.failure(Fault(strike.kind, ""), "r"), 200, type, api.action)

    def _answer(self, api: Api, params: Mapping[str, object]) -> tuple[bytes, str]:
        service, request = api.service, f"r{next(self._requests)}"
        try:
            policy.check_action(self.world, api.action)
            if code := self.world.knobs.errors.get(api.action):
                raise Fault(code, "refused")
            if found := self.instead(api.action, params):
                return envelope.success(found, request), "OK"
            action = products.find(service.name, service.version, api.action, REGION)
            read = Request("POST", "/", "", {}, msgspec.json.encode(params)).read(action.params)
            with self.world.advanced():
                policy.check_resources(self.world, api.action, read)
                return envelope.success(action.run(self.world, read, REGION), request), "OK"
        except Fault as fault:
            return envelope.failure(fault, request), fault.code


Answer = Future[Any]


def wait(answer: Answer) -> Any:
    """As a worker that waits for the cloud, while others work."""
    if not answer.done():
        getcurrent().parent.switch(answer)
    return answer.result(0)


class NodeWatch:
    """What an informer of nodes is fed with: the differences between what is shown from one time to the next."""

    kind, version, stopped, silence = "nodes", 0, False, 0.0

    def __init__(self) -> None:
        source: Any = self
        self.informer: Informer[ReportedNode] = Informer(source, decode)
        self._shown: dict[str, ReportedNode] = {}

    def attach(self, sink: object) -> None:
        pass

    def show(self, nodes: Collection[ReportedNode]) -> None:
        """Nodes by name, each as old as it is."""
        new, old = {each.metadata.name: each for each in nodes}, self._shown
        self._shown = new
        for name, node in old.items():
            if name not in new:
                self._send("DELETED", node)
        for name, node in new.items():
            if node is not old.get(name) and node != old.get(name):
                self._send("MODIFIED", node)

    def _send(self, kind: str, node: ReportedNode) -> None:
        if kind == "DELETED":  # its version is that of the deletion
            known = self.informer.get(node.metadata.name) or node
            version = str(int(known.metadata.resource_version) + 1)
            node = replace(node, metadata=replace(node.metadata, resource_version=version))
        raw = msgspec.Raw(msgspec.json.encode(node))
        self.informer.apply(kind, identity_of(raw), raw)


def plenty(**knobs: Any) -> Knobs:
    """Of an account that limits nothing but what *knobs* say."""
    return Knobs(
        **{"quota_total": 5000, "quota_daily": 100000, "tag_keys": 100000, "tag_values": 100000, **knobs}
    )


@dataclass
class Lab:
    """*turn* for turn; time passes between them, and in calls that wait."""

    knobs: Knobs = field(default_factory=plenty)
    settings: AnycastIPSettings = SETTINGS
    cluster: str = ""

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.world = World(self.knobs, self.clock)
        self.kube, self.sender = Kube(), Sender(self.world)
        self.recorder = FakeRecorder()
        self.lease: dict[str, str] = {}
        self.sleep: Callable[[float], object] = self.clock.advance
        self.shown: Callable[[], list[ReportedNode]] = self.nodes
        self.born = 0
        self.start()

    def start(self) -> None:
        """A controller that knows nothing, as after a crash."""
        self.claims = ClaimStore(self.kube, "drawbridge", self.clock, self.cluster)
        timing = Timing(self.clock, self.sleep)
        calls = Caller(self.sender, limited(30, 10), math.inf, lambda: None, lambda: None, timing)
        given: Any = self.recorder
        none: Any = None
        self.watch = NodeWatch()
        self.watch.show(self.shown())
        context = Context(self.kube, none, given, lambda: None, none, annotate=self.lease.update)
        clocks = Clock(lambda: NOW + timedelta(seconds=self.clock()), self.clock)
        begun = Begun(UUID, self.claims, unbinds_in(self.lease))
        informer = self.watch.informer
        self.controllers = assemble(context, Cloud(calls), informer, lambda: self.settings, begun, clocks)
        reconcile: Any = next(each.reconcile for each in self.controllers if each.queue.name == "anycast_ip")
        self.reconciler: Reconciler = reconcile.__self__
        self.sources = self.reconciler._reader._sources
        self.batchers = batchers(self.reconciler._reader._cloud)
        self._waiting = dict[Controller, list[tuple[greenlet, Answer]]]()
        for batcher in self.batchers:
            batcher.wait = wait  # type: ignore[method-assign]
        for controller in self.controllers:
            controller.start()

    def turn(self) -> bool:
        """All that can be done now; whether anything was."""
        self.watch.show(self.shown())
        worked = [self._work(each) and not each._first for each in self.controllers]
        sent = [step(batcher) for batcher in self.batchers]
        return any(worked) or any(sent)

    def _work(self, controller: Controller) -> bool:
        """Let its workers go on until they wait for the cloud, or nothing is queued."""
        worked, waiting = False, self._waiting.pop(controller, [])
        for worker, answer in waiting:
            worked |= answer.done()
            self._go_on(controller, worker, answer)
        while len(self._waiting.get(controller, ())) < controller.workers:
            key = controller.queue.get(wait=False)
            if key is None:
                break
            worked = True
            self._go_on(controller, greenlet(partial(self._reconcile, controller, key)))
        return worked

    def _go_on(self, controller: Controller, worker: greenlet, answer: Answer | None = None) -> None:
        if answer is None or answer.done():
            answer = worker.switch()
        if answer:
            self._waiting.setdefault(controller, []).append((worker, answer))

    def _reconcile(self, controller: Controller, key: str) -> None:
        try:
            reconcile_key(controller.queue, controller.reconcile, key)
        finally:
            controller.queue.done(key)

    def run(self, until: Callable[[], bool], seconds: float = 600.0, what: str = "") -> None:
        """Turn after turn until it is so; AssertionError when it is not in time, on the clock."""
        deadline = self.clock() + seconds
        while not until():
            assert self.clock() < deadline, f"not in {seconds} s: {what}; {self.describe()}"
            if not self.turn():
                self.clock.advance(min(1.0, max(0.02, self._due() - self.clock())))

    def _due(self) -> float:
        """When something can be done next."""
        promised = [due for each in self.controllers for due, *_ in each.queue._delayed[:1]]
        return min([each.due for each in self.batchers] + promised)

    def run_for(self, seconds: float) -> None:
        end = self.clock() + seconds
        self.run(lambda: self.clock() >= end, seconds + 60)

    def describe(self) -> str:
        nodes = {each.metadata.name: self.is_open(each.metadata.name) for each in self.nodes()}
        return f"nodes {nodes}, addresses {list(self.world.addresses.values())}, claims {self.claims.claims}"

    def nodes(self) -> list[ReportedNode]:
        return [msgspec.json.decode(each, type=ReportedNode) for each in self.kube.api.encoded(NODES)]

    def join(
        self, name: str = "n1", instance: str = "", *, gated: bool = True, **labels: str
    ) -> ReportedNode:
        """As the API server has it after admission; its uid is new each time."""
        self.born += 1
        instance = f"ins-{name}" if instance == "" else instance.removeprefix("none")
        self.world.fleet.pop(instance, None)
        node = {
            "metadata": {
                "name": name,
                "uid": f"{self.born:08d}-0000-4000-8000-000000000000",
                "labels": {NEED_LABEL: "true", **labels},
                "creationTimestamp": (NOW + timedelta(seconds=self.clock())).isoformat(),
            },
            "spec": {
                "providerID": f"qcloud:///100003/{instance}" if instance else "",
                "taints": [msgspec.to_builtins(TAINT)] if gated else [],
            },
        }
        self.kube.place("nodes", node)
        return self.node(name)

    def opened(self, *names: str, seconds: float = 120) -> None:
        """These nodes join, n1 by default, and all are open."""
        for name in names or ("n1",):
            self.join(name)
        self.run(self.all_open, seconds, "open")

    def leave(self, *names: str, scaled_in: bool = True) -> None:
        """The Node objects go, n1's by default, and if their pool was *scaled_in*, the instances end soon."""
        for name in names or ("n1",):
            instance = instance_of(self.node(name))
            if scaled_in and instance:
                self.world.fleet[instance] = Instance(id=instance, state="TERMINATING")
            del self.kube.objects["nodes", name]

    def node(self, name: str = "n1") -> ReportedNode:
        return msgspec.convert(self.kube.api.get(NODES, name), ReportedNode)

    def edit(self, name: str, change: dict[str, Any]) -> None:
        self.kube.place("nodes", merged(self.kube.api.get(NODES, name), change))

    def is_open(self, name: str = "n1") -> bool:
        node = self.node(name)
        return not is_tainted(node) and is_proven_bound(node)

    def all_open(self) -> bool:
        return all(self.is_open(each.metadata.name) for each in self.nodes())

    def is_clean(self, theirs: Collection[str] = ()) -> bool:
        """Whether nothing but *theirs* is left of nodes that are gone, neither here nor there."""
        names = {each.metadata.name for each in self.nodes()}
        claims = {claim.node for claim in self.claims.claims.values()}
        return claims <= names and len(self.elastic()) - len(theirs) == len(claims)

    def is_settled(self) -> bool:
        """Whether nothing is left of nodes that are gone but what is idle, and nothing idle is missing."""
        claims, pool = list(self.claims.claims.values()), self.settings.pool
        idle = [each for each in claims if each.pooled and each.address and not each.releasing]
        names = {each.metadata.name for each in self.nodes()}
        gone = {each.node for each in claims if each not in idle} - names
        return not gone and len(claims) == len(self.elastic()) and pool.min_idle <= len(idle) <= pool.size

    def elastic(self) -> list[Address]:
        return [each for each in self.world.addresses.values() if each.type != "WanIP"]

    def on(self, name: str = "n1") -> list[Address]:
        instance = f"ins-{name}"
        return [each for each in self.elastic() if each.instance_id == instance and each.status == "BIND"]

    def tag_values(self, key: str) -> set[str]:
        return {value for made, value in self.world.tags if made == key}

    def count(self, *actions: str) -> int:
        return sum(call.action in actions for call in self.world.calls)

    def add_address(self, instance: str, **fields: Any) -> str:
        """An address that another user has bound there."""
        address_id = self.world.new_id("eip")
        values = {"type": "AnycastEIP", "status": "BIND", "instance_id": instance} | fields
        address = Address(
            id=address_id, ip=self.world.new_ip(), region=REGION, created=self.clock(), **values
        )
        with self.world.advanced() as now:
            self.world.history.put(address_id, address, now)
        return address_id

    def vanish(self, address_id: str) -> None:
        """As when another user releases it."""
        with self.world.advanced() as now:
            self.world.history.put(address_id, None, now)

    def said(self, name: str = "n1") -> tuple[str, str] | None:
        """Status and reason of a node's condition."""
        held = self.node(name).condition
        return (held.status, held.reason) if held else None


def failing(at: str, error: BaseException) -> Callable[..., None]:
    """Raises *error* before, or after, each call or write of this name."""

    def called(name: str, *_: object) -> None:
        if name == at:
            raise error

    return called


def run_with_deaths(lab: Lab, until: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = lab.clock() + seconds
    while not until():
        try:
            lab.run(until, deadline - lab.clock(), what)
        except Killed:
            lab.start()


def open_lab(*names: str, settings: AnycastIPSettings = SETTINGS, **knobs: Any) -> Lab:
    """A lab whose nodes, n1 by default, are open."""
    lab = Lab(plenty(**knobs), settings)
    lab.opened(*names)
    return lab


def metric(name: str, **labels: str) -> float:
    """Of the feature, by the rest of its name."""
    return sample(f"drawbridge_anycast_ip_{name}", **labels)


def a_node(
    *taints: Taint,
    name: str = "n1",
    uid: str = "u1",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> Node:
    """With the label of nodes that need an address, unless it has others."""
    wanted = {NEED_LABEL: "true"} if labels is None else labels
    metadata = ObjectMeta(name=name, uid=uid, labels=wanted, annotations=annotations or {})
    return Node(metadata, NodeSpec(f"qcloud:///1/ins-{name}", taints))


def an_address(status: str = "BIND", **fields: Any) -> CloudAddress:
    """Of n1."""
    values = {"id": "eip-1", "ip": "1.2.3.4", "instance_id": "ins-n1", "type": "AnycastEIP"} | fields
    return CloudAddress(status=status, **values)


def original(name: str = "n1", **tags: str) -> dict[str, str]:
    """The tags that the original gives to a node's address."""
    return {
        CLUSTER_UUID: UUID,
        "aia-official-cluster-id": "cls-abc",
        "aia-node-name": name,
        "aia-node-ins-id": f"ins-{name}",
    } | tags
