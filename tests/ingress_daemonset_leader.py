"""All parts of the leader of IngressDaemonSets, on a fake clock, against the fake API server, with faults."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from api.ingress_daemonset import FINALIZER
from api.ingress_daemonset.types import IngressDaemonSet
from controllers.controller import Clock
from controllers.informers import Informers
from controllers.ingress_daemonset.children import Kind
from controllers.ingress_daemonset.controller import Reconciler
from controllers.ingress_daemonset.detachment import BackendsByNode, Reading
from controllers.ingress_daemonset.object_cache import DECODERS, LABELS, RESOURCES, ObjectCache
from controllers.ingress_daemonset.readers import (
    PERIOD,
    Announcements,
    Ask,
    Checker,
    Reader,
    Readers,
    measure,
)
from controllers.ingress_daemonset.reporter import Reporter
from controllers.ingress_daemonset.writer import RetryState, Writer
from controllers.manager import Context
from dev.fake_api import FakeAPI, Reply, Request, connection_to, refusal
from dev.fake_api import Kind as FakeKind
from dev.fake_api.calls import target_of
from dev.fake_api.storage import Change
from kube.client import Client
from kube.informer import Identity, Informer, ListWatch
from kube.leader_election import LeadershipLost
from settings import IngressDaemonSetSettings
from tests.factories import NOW
from tests.fakes import FakeClock, FakeRecorder
from tests.ingress_daemonset_world import DETACHED, complete, raw_node, raw_resource, state_of

Raw = dict[str, Any]
OURS = "drawbridge"
UNKNOWN = "terminationGracePeriodSecond"
"""Stands for all fields that the API server does not know, and prunes."""
VERBS = {"GET": "get", "POST": "create", "PATCH": "change", "PUT": "change", "DELETE": "delete"}
WORKLOADS: tuple[Kind, ...] = ("Deployment", "DaemonSet")
KINDS = {resource: kind for kind, resource in RESOURCES.items()}
KEY = "edge/web"
DETACHING = {
    "maxUnavailableNodes": 1,
    "annotateNodeToDetach": {"key": DETACHED, "value": "true", "gracePeriodSeconds": 10},
}


class Api(Client):
    """The fake API server, whose watches wait until they are delivered.

    *fault* says what becomes of a request, *mutate* is an admission webhook for all kinds, and a change in which
    *refused* stands is not allowed.
    """

    def __init__(self) -> None:
        self.defaults: Callable[[Raw], None] = default
        self.fake = FakeAPI(*(self._kind(each) for each in FakeAPI().kinds))
        super().__init__(connection_to(self.fake, OURS))
        self.informers = self.empty_informers()
        self.writes: list[str] = []
        self.refused: str | None = None
        self.fault: Callable[[str, Kind, str], str] = lambda verb, kind, name: ""
        self.mutate: Callable[[Kind, Raw], None] = lambda kind, raw: None
        self._delivered, self._after = 0, ""
        self.fake.fault, self.fake.after = self._asked, self._answered
        for kind, resource in RESOURCES.items():
            self.fake.mutate(resource, partial(self._mutated, kind))

    def empty_informers(self) -> dict[Kind, Informer[Any]]:
        return {
            kind: Informer(ListWatch(self, resource), DECODERS[kind]) for kind, resource in RESOURCES.items()
        }

    def _kind(self, kind: FakeKind) -> FakeKind:
        """With the defaults of the moment."""
        if kind.kind not in WORKLOADS:
            return kind

        def filled(raw: Raw) -> None:
            kind.default(raw)
            self.defaults(raw)

        return replace(kind, default=filled)

    def _mutated(self, kind: Kind, raw: Raw) -> Raw:
        self.mutate(kind, raw)
        return raw

    @property
    def objects(self) -> dict[tuple[Kind, str], Raw]:
        """Copies of all."""
        found = {}
        for kind, resource in RESOURCES.items():
            for raw in self.fake.list(resource):
                for name, none in (("annotations", {}), ("finalizers", [])):
                    raw["metadata"].setdefault(name, none)
                key = Identity(raw["metadata"]["name"], raw["metadata"].get("namespace", "")).key
                found[kind, key] = raw
        return found

    @property
    def news(self) -> list[Change]:
        """What the watches have not brought yet."""
        return [each for each in self.fake.changes(self._delivered) if each.key[0] in KINDS]

    def put(self, kind: Kind, raw: Raw) -> None:
        """Without admission, as the status is written."""
        self.fake.put(RESOURCES[kind], raw)

    def remove(self, kind: Kind, key: str) -> None:
        namespace, name = _split(key)
        self.fake.remove(RESOURCES[kind], name, namespace)

    def edit(self, kind: Kind, key: str, patch: Raw, manager: str = "kubectl-edit") -> None:
        """As another client would."""
        namespace, name = _split(key)
        client = self.fake.client(manager)
        client.patch(RESOURCES[kind], name, patch, namespace)
        if "status" in patch:
            client.patch(RESOURCES[kind].sub("status"), name, {"status": patch["status"]}, namespace)

    def change(self, kind: Kind, key: str, patch: Raw) -> None:
        """As another client would, and delivered."""
        self.edit(kind, key, patch)
        self.deliver()

    def end(self, kind: Kind, key: str) -> None:
        """Delete it as another client would: finalizers hold it."""
        namespace, name = _split(key)
        self.fake.client("kubectl").delete(RESOURCES[kind], name, namespace)

    def upgrade(self, defaults: Callable[[Raw], None]) -> None:
        """To a version that has other *defaults*: what is stored is read otherwise."""
        self.defaults = defaults
        for (kind, _), raw in self.objects.items():
            if kind in WORKLOADS:
                self.put(kind, raw)

    def deliver(self) -> None:
        """All that the watches have to tell."""
        news, self._delivered = self.news, self.fake.version
        for each in news:
            self._deliver(KINDS[each.key[0]], each)

    def _deliver(self, kind: Kind, change: Change) -> None:
        label, stored = LABELS.get(kind), change.new or change.old
        assert stored is not None
        _, namespace, name = change.key
        follows = change.new and (label is None or label in stored.raw["metadata"].get("labels", {}))
        identity = Identity(name, namespace, str(change.version))
        self.informers[kind].apply("MODIFIED" if follows else "DELETED", identity, stored.encoded)  # type: ignore[arg-type]

    def _asked(self, call: Request) -> Reply | None:
        what = _request(call) if call.headers["user-agent"] == OURS else None
        fault = self.fault(*what) if what else ""
        self._after = fault
        if self.refused and what and what[0] == "change" and self.refused in str(call.body):
            return refusal(403, "Forbidden", f"{self.refused} is not allowed")
        if fault == "forbidden":
            return refusal(403, "Forbidden", "not you")
        if fault == "not found":
            return refusal(404, "NotFound", "no such thing")
        if fault and fault not in ("lost", "garbled"):
            raise ConnectionResetError("timed out")
        return None

    def _answered(self, call: Request, reply: Reply) -> Reply | None:
        what = _request(call) if call.headers["user-agent"] == OURS else None
        if what is None or call.method == "GET" or reply.status >= 400:
            return None
        self.writes.append(" ".join(what))
        if self._after == "lost":
            raise ConnectionResetError("no answer came")
        return Reply(reply.status, b'{"metadata": []}') if self._after == "garbled" else None


def default(raw: Raw) -> None:
    """What this version of the API server fills in, and earlier ones did not: nothing."""


def with_nodes(*names: str, **spec: Any) -> Api:
    """An IngressDaemonSet edge/web, and nodes."""
    api = Api()
    api.put("IngressDaemonSet", raw_resource(**spec))
    for name in names:
        api.put("Node", raw_node(name))
    api.deliver()
    return api


def _request(call: Request) -> tuple[str, Kind, str] | None:
    """Verb, kind and name of a request for one object of ours."""
    target = target_of(call.path)
    for kind, resource in RESOURCES.items():
        if target and (resource.root, resource.plural) == (target.root, target.plural):
            verb = "status" if target.subresource else VERBS[call.method]
            name = call.body["metadata"]["name"] if call.method == "POST" else target.name
            return (verb, kind, name) if name else None
    return None


def _split(key: str) -> tuple[str, str]:
    namespace, _, name = key.rpartition("/")
    return namespace, name


def unasked(query: str) -> float:
    """There is no Prometheus."""
    raise ConnectionRefusedError(f"no one answers {query}")


def _run(work: Callable[[], None]) -> None:
    work()


class Leader:
    """All parts of one leader, in the caller's thread."""

    def __init__(self, api: Api, before: Leader | None = None) -> None:
        """On the clock of the one *before*, if there was one."""
        self.api, self.recorder = api, FakeRecorder()
        self.clock = before.clock if before else FakeClock()
        self.began = before.began if before else self.clock()
        self.leads = True
        self.unread: set[str] = set()
        """The nodes whose health checkers cannot be read."""
        self.connections: dict[str, int | None] = {}
        """By the names of nodes: how many are open, as their health checkers say."""
        self.settings = IngressDaemonSetSettings.model_validate(
            {"enabled": True, "detachmentReminder": "10m", "healthChecker": {"image": "drawbridge:1"}}
        )
        stop, clock, reporter = threading.Event(), Clock(self.now, self.clock), Reporter(self.recorder)  # type: ignore[arg-type]
        client = api.fenced(self._check, math.inf)
        context = Context(client, Informers(api), self.recorder, self._check, stop)  # type: ignore[arg-type]
        self.cache = ObjectCache(client, api.informers, self.clock)
        writer = Writer(context, self.cache, RetryState(clock), reporter, lambda work: work())
        self.announced: Announcements = {}
        """By MetalLB."""
        self.ask: Ask = unasked
        """What Prometheus has for a query, at once."""
        measuring = partial(measure, lambda query: self.ask(query), clock)
        readers = Readers(
            Reader(_run, stop, self.read, lambda _: PERIOD, self.clock),
            Reader(_run, stop, lambda _: self.announced, lambda _: PERIOD, self.clock),
            Reader(_run, stop, measuring, lambda query: query.interval, self.clock),
            self.backends,
        )
        self.reconciler = Reconciler(self.cache, writer, readers, reporter, lambda: self.settings, clock)

    def read(self, checker: Checker) -> Reading:
        """A health checker that sees each write at once."""
        if checker.node in self.unread:
            return Reading(checker.address, checker.port, error="connection refused")
        held = self.api.objects["Deployment", f"edge/web-{checker.node}"]
        state = msgspec.structs.replace(
            state_of(held, self.now()), connections=self.connections.get(checker.node)
        )
        return Reading(checker.address, checker.port, state)

    def backends(self, resource: IngressDaemonSet, names: Sequence[str]) -> BackendsByNode:
        """What load balancers have of the nodes: nothing here."""
        return {}

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.clock() - self.began)

    def _check(self) -> None:
        if not self.leads:
            raise LeadershipLost("another leads")

    def look(self) -> float | None:
        return self.reconciler.reconcile(KEY)

    def settle(self, *, until: Callable[[], bool] = lambda: False) -> None:
        """Reconcile whenever due, while pods start at once and the watches tell all, until nothing is left."""
        for _ in range(200):
            if until():
                return
            before = len(self.api.writes)
            due = self.look()
            self.run_pods()
            quiet = not self.api.news and len(self.api.writes) == before
            self.api.deliver()
            if quiet and (due is None or due > 3600):
                return
            self.clock.advance(due if due is not None else 1.0)
        raise AssertionError("it does not come to rest")

    def steps(self, seconds: int) -> None:
        """A reconcile per second, while pods start at once and the watches tell all."""
        for _ in range(seconds):
            self.look()
            self.run_pods()
            self.api.deliver()
            self.clock.advance(1.0)

    def looks(self, seconds: float, *keys: str) -> int:
        """How often *keys* are reconciled in that time, as the work queue would: when due, and not before."""
        began, count = self.clock(), 0
        due = dict.fromkeys(keys or (KEY,), began)
        while due and min(due.values()) < began + seconds:
            key = min(due, key=lambda each: due[each])
            self.clock.advance(max(0.0, due.pop(key) - self.clock()))
            count += 1
            if (again := self.reconciler.reconcile(key)) is not None:
                due[key] = self.clock() + again
        self.clock.advance(max(0.0, began + seconds - self.clock()))
        return count

    @contextmanager
    def fault(self, fault: Callable[[str, Kind, str], str]) -> Iterator[None]:
        self.api.fault = fault
        yield
        self.api.fault = lambda verb, kind, name: ""

    def run_pods(self) -> None:
        """As the Deployment controller and the kubelets would."""
        for held in self.api.fake.list(RESOURCES["Deployment"]):
            if held.get("status", {}).get("observedGeneration") != held["metadata"].get("generation"):
                complete(held)
                self.api.put("Deployment", held)

    def retemplate(self, image: str, key: str = KEY) -> None:
        """The finalizer, which is the first write of any rollout, is there already."""
        template = self.api.objects["IngressDaemonSet", key]["spec"]["template"]
        template["spec"]["containers"][0]["image"] = image
        change = {"metadata": {"finalizers": [FINALIZER]}, "spec": {"template": template}}
        self.api.change("IngressDaemonSet", key, change)

    def off(self) -> set[str]:
        return {
            key
            for (kind, key), raw in self.api.objects.items()
            if kind == "Node" and DETACHED in raw["metadata"]["annotations"]
        }

    @property
    def status(self) -> Raw:
        """That is stored."""
        status: Raw = self.api.objects["IngressDaemonSet", KEY].get("status", {})
        return status

    def conditions(self) -> dict[str, Raw]:
        return {each["type"]: each for each in self.status["conditions"]}

    def images(self) -> set[str]:
        return {*self.image_by_node().values()}

    def image_by_node(self) -> dict[str, str]:
        pods = [raw["spec"]["template"]["spec"] for raw in self.api.fake.peek(RESOURCES["Deployment"])]
        return {pod["nodeName"]: pod["containers"][0]["image"] for pod in pods}


def settled(*nodes: str, **spec: Any) -> Leader:
    here = Leader(with_nodes(*nodes, **spec))
    here.settle()
    return here


def outdated(*nodes: str, **spec: Any) -> Leader:
    """At rest, before another template is rolled out."""
    here = settled(*nodes, **spec)
    here.retemplate("proxy:2")
    return here
