"""A cluster and the emulated cloud on one clock, in which the controller lives, dies and comes again."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, TypeVar

import msgspec

from cloud.answers import decoded
from cloud.apis import Api
from cloud.calls import Calls
from cloud.client import Cloud
from cloud.errors import Unavailable
from cloud.limits import Limits
from controllers.anycast_ip.book import Book
from controllers.anycast_ip.claim import CLUSTER_UUID
from controllers.anycast_ip.feature import assemble
from controllers.anycast_ip.nodes import Nodes
from kube.client import Listing, Resource
from kube.errors import AlreadyExists, Conflict, NotFound
from kube.objects import Node
from lab.cloud import Knobs, envelope, faults, products
from lab.cloud.envelope import Fault
from lab.cloud.request import Request
from lab.cloud.values import Address, Call
from lab.cloud.world import World
from settings import AnycastIPSettings
from settings.anycast_ip import NEED_LABEL
from tests.api_server import merged
from tests.factories import NOW
from tests.fakes import FakeClock, FakeRecorder, FakeStore
from webhook.anycast_ip import TAINT, is_proven_bound, is_tainted

T = TypeVar("T")
REGION = "ap-singapore"
UUID = "11111111-2222-4333-8444-555555555555"
SETTINGS = AnycastIPSettings(enabled=True, cluster_id="cls-abc")


class Killed(BaseException):
    """The controller's end, in the middle of whatever it was at."""


class Kube:
    """Nodes and ConfigMaps behind as much of a client as is needed; *before* and *after* writes may raise."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.before: Callable[[str], None] = lambda verb: None
        self.after: Callable[[str], None] = lambda verb: None
        self.writes = 0
        self._version = 0

    def get(self, resource: Resource, name: str, namespace: str | None = None, *, type: Any = dict) -> Any:  # noqa: A002
        return msgspec.convert(self._existing(resource, name), type)

    def list(self, resource: Resource, namespace: str | None = None, *, type: Any = dict, **_: Any) -> Any:  # noqa: A002
        self.before("list")
        found = [
            msgspec.convert(each, type)
            for (plural, _), each in self.objects.items()
            if plural == resource.plural
        ]
        return Listing(found, str(self._version))

    def create(self, resource: Resource, body: Any, namespace: str | None = None, *, type: Any = dict) -> Any:  # noqa: A002
        if (resource.plural, body["metadata"]["name"]) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", body["metadata"]["name"])
        return self._write(resource, body["metadata"]["name"], body, type)

    def replace(
        self,
        resource: Resource,
        name: str,
        body: Any,
        namespace: str | None = None,
        *,
        type: Any = dict,  # noqa: A002
    ) -> Any:
        self._check_version(self._existing(resource, name), body)
        return self._write(resource, name, body, type)

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        type: Any = dict,  # noqa: A002
    ) -> Any:
        held = self._existing(resource, name)
        self._check_version(held, patch)
        return self._write(resource, name, merged(held, patch), type)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        resource_version: str | None = None,
    ) -> None:
        given = {"resourceVersion": resource_version} if resource_version else {}
        self._check_version(self._existing(resource, name), {"metadata": given})
        self.before("delete")
        del self.objects[resource.plural, name]
        self.after("delete")

    def place(self, plural: str, body: dict[str, Any]) -> None:
        """As somebody else would, unseen by *before* and *after*."""
        self._version += 1
        stored = merged(copy.deepcopy(body), {"metadata": {"resourceVersion": str(self._version)}})
        self.objects[plural, body["metadata"]["name"]] = stored

    def _write(self, resource: Resource, name: str, body: Any, type: Any) -> Any:  # noqa: A002
        self.before("write")
        self.writes += 1
        self.place(resource.plural, json.loads(msgspec.json.encode(body)))
        written = self.objects[resource.plural, name]
        self.after("write")
        return msgspec.convert(written, type)

    def _existing(self, resource: Resource, name: str) -> dict[str, Any]:
        if (resource.plural, name) not in self.objects:
            raise NotFound(404, "NotFound", name)
        return self.objects[resource.plural, name]

    def _check_version(self, held: dict[str, Any], body: Any) -> None:
        wanted = body["metadata"].get("resourceVersion", held["metadata"]["resourceVersion"])
        if wanted != held["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", held["metadata"]["name"])


class Sender:
    """The emulator without a socket; *before* and *after* each call may raise."""

    def __init__(self, world: World) -> None:
        self._world, self._dice = world, Random(7)  # noqa: S311 - dice, not secrets
        self.before: Callable[[str], None] = lambda action: None
        self.after: Callable[[str], None] = lambda action: None

    def call(self, api: Api, params: Mapping[str, object], type: type[T], timeout: float) -> T:  # noqa: A002
        self.before(api.action)
        strike = faults.strike(self._world.knobs, api.action, self._dice)
        body, outcome = self._answer(api, params) if not strike.kind else (b"", strike.kind)
        self._world.log.append(
            Call(
                at=self._world.clock(),
                action=api.action,
                region=REGION,
                outcome=outcome,
                delivered=not (strike.kind or strike.lost),
                params=dict(params),
                request_id="r",
            )
        )
        self.after(api.action)
        if strike.lost or strike.kind.startswith("HT"):
            raise Unavailable("Lost", "no answer", action=api.action)
        return decoded(body or envelope.failure(Fault(strike.kind, ""), "r"), 200, type, api.action)

    def _answer(self, api: Api, params: Mapping[str, object]) -> tuple[bytes, str]:
        knobs, service = self._world.knobs, api.service
        try:
            if api.action in knobs.denied:
                raise Fault("UnauthorizedOperation", f"the policy denies {api.action}")
            action = products.find(service.name, service.version, api.action, REGION)
            read = Request("POST", "/", "", {}, msgspec.json.encode(params)).read(action.params)
            with self._world.moved_on():
                return envelope.success(action.run(self._world, read, REGION), "r"), "OK"
        except Fault as fault:
            return envelope.failure(fault, "r"), fault.code


@dataclass
class Lab:
    """*turn* for turn; time passes between them, and in calls that wait."""

    knobs: Knobs = field(default_factory=lambda: Knobs(quota_total=5000, tag_keys=100000, tag_values=100000))
    settings: AnycastIPSettings = SETTINGS
    cluster: str = ""

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.world = World(self.knobs, self.clock)
        self.kube, self.sender = Kube(), Sender(self.world)
        self.recorder = FakeRecorder()
        self.may_write: Callable[[], object] = lambda: None
        self.shown: Callable[[], list[Node]] = self.nodes
        self.born, self.woken = 0, False
        self.start()

    def start(self) -> None:
        """A controller that knows nothing, as after a crash."""
        kube: Any = self.kube
        followed: Any = FakeStore(lambda: self.shown())
        book = Book(kube, "drawbridge", lambda: self.may_write() and None)
        book.load(self.cluster)
        self.book = book
        calls = Calls(
            self.sender,
            Limits(1, clock=self.clock, sleep=self.clock.advance),
            timeout=30,
            attempt_timeout=10,
            may_write=lambda: self.may_write(),
            clock=self.clock,
            sleep=self.clock.advance,
        )
        recorder: Any = self.recorder
        self.rounds = assemble(
            Nodes(kube, followed, lambda: self.may_write() and None),
            Cloud(calls),
            book,
            UUID,
            lambda: self.settings,
            recorder,
            hand_out=lambda work: work(),
            done=self.wake,
            clock=self.clock,
            now=lambda: NOW + timedelta(seconds=self.clock()),
        )

    def wake(self) -> None:
        self.woken = True

    def run(self, until: Callable[[], bool], seconds: float = 600.0, what: str = "") -> None:
        """Turn after turn until it is so; AssertionError when it is not in time, on the clock."""
        deadline = self.clock() + seconds
        while not until():
            assert self.clock() < deadline, f"not in {seconds} s: {what}; {self.describe()}"
            self.woken = False
            due = self.rounds.turn()
            self.clock.advance(0.1 if self.woken else min(5.0, max(0.1, due - self.clock())))

    def run_for(self, seconds: float) -> None:
        end = self.clock() + seconds
        self.run(lambda: self.clock() >= end, seconds + 60)

    def describe(self) -> str:
        nodes = {each.metadata.name: self.is_open(each.metadata.name) for each in self.nodes()}
        return f"nodes {nodes}, addresses {list(self.world.addresses.values())}, claims {self.book.claims}"

    def nodes(self) -> list[Node]:
        return [
            msgspec.convert(each, Node)
            for (plural, _), each in self.kube.objects.items()
            if plural == "nodes"
        ]

    def join(self, name: str = "n1", instance: str = "", *, gated: bool = True, **labels: str) -> Node:
        """As the API server has it after admission; its uid is new each time."""
        self.born += 1
        instance = f"ins-{name}" if instance == "" else instance.removeprefix("none")
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

    def leave(self, name: str = "n1") -> None:
        del self.kube.objects["nodes", name]

    def node(self, name: str = "n1") -> Node:
        return msgspec.convert(self.kube.objects["nodes", name], Node)

    def edit(self, name: str, change: dict[str, Any]) -> None:
        self.kube.place("nodes", merged(self.kube.objects["nodes", name], change))

    def is_open(self, name: str = "n1") -> bool:
        node = self.node(name)
        return not is_tainted(node) and is_proven_bound(node)

    def all_open(self) -> bool:
        return all(self.is_open(each.metadata.name) for each in self.nodes())

    def is_clean(self) -> bool:
        """Whether nothing is left of nodes that are gone, neither here nor there."""
        names = {each.metadata.name for each in self.nodes()}
        claims = {claim.node for claim in self.book.claims.values()}
        return claims <= names and len(self.elastic()) == len(claims)

    def elastic(self) -> list[Address]:
        return [each for each in self.world.addresses.values() if each.type != "WanIP"]

    def on(self, name: str = "n1") -> list[Address]:
        instance = f"ins-{name}"
        return [each for each in self.elastic() if each.instance_id == instance and each.status == "BIND"]

    def tag_values(self, key: str) -> set[str]:
        return {value for made, value in self.world.tags if made == key}

    def count(self, *actions: str) -> int:
        return sum(call.action in actions for call in self.world.calls)

    def foreign(self, instance: str, **fields: Any) -> str:
        """An address that somebody else has bound there."""
        address_id = self.world.names.new_id("eip")
        values = {"type": "AnycastEIP", "status": "BIND", "instance_id": instance} | fields
        address = Address(
            id=address_id, ip=self.world.names.new_ip(), region=REGION, created=self.clock(), **values
        )
        with self.world.moved_on() as now:
            self.world.book.put(address_id, address, now)
        return address_id


def original(name: str = "n1", **tags: str) -> dict[str, str]:
    """The tags that the original gives to a node's address."""
    return {
        CLUSTER_UUID: UUID,
        "aia-official-cluster-id": "cls-abc",
        "aia-node-name": name,
        "aia-node-ins-id": f"ins-{name}",
    } | tags
