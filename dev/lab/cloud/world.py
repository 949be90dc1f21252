"""The state of the emulated cloud, advanced by its clock; no HTTP."""

from __future__ import annotations

import string
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from itertools import count
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from dev.lab.cloud.config import Knobs
from dev.lab.cloud.history import History
from dev.lab.cloud.tasks import Tasks, begun, ended
from dev.lab.cloud.values import (
    BOUND,
    WAN_IP,
    Address,
    Answered,
    Call,
    Instance,
    Kind,
    Session,
    Target,
    Task,
    Weighing,
)

REGION = "ap-singapore"
LETTERS = string.ascii_lowercase + string.digits
PUBLIC = IPv4Address("198.18.0.0")
"""With /15 it is for benchmarks of networks, and is assigned to no host."""
KEPT = 200_000
"""Calls of the log."""


class World:
    """*clock* returns UNIX seconds."""

    def __init__(self, knobs: Knobs, clock: Callable[[], float] = time.time) -> None:
        self.knobs = knobs
        self.clock = clock
        self.dice = Random(knobs.seed)  # noqa: S311 - dice, not secrets
        self._numbers = count(1)
        self.lock = threading.RLock()
        self.history: History[Address] = History()
        self.fleet: dict[str, Instance] = {}
        self.ended_instances: set[str] = set()
        self.made_tags: dict[tuple[str, str], float] = {}
        """When each was created."""
        self.tasks = Tasks()
        self.applied: Counter[tuple[str, str]] = Counter()
        """Addresses applied for, by region and UTC day."""
        self.load_balancers: dict[str, dict[str, Target]] = {}
        """Their targets, by keys."""
        self.weighings: list[Weighing] = []
        self.answered: dict[tuple[str, str], Answered] = {}
        """By region and ClientToken."""
        self.sessions: dict[str, Session] = {}
        self.log: deque[Call] = deque(maxlen=KEPT)

    def new_id(self, prefix: str) -> str:
        return f"{prefix}-{''.join(self.dice.choices(LETTERS, k=8))}"

    def new_ip(self) -> str:
        return str(PUBLIC + next(self._numbers))

    @contextmanager
    def advanced(self) -> Iterator[float]:
        """Lock the world and end the tasks that are due; yields the time."""
        with self.lock:
            now = self.clock()
            for task in self.tasks.take_due(now):
                self._end(task)
            self._end_weighings(now)
            yield now

    def begin(self, kind: Kind, addresses: Iterable[Address], seconds: float, **how: Any) -> Task:
        """Start a task on these addresses, and set their status until it ends."""
        now = self.clock()
        changed = [begun(kind, address) for address in addresses]
        for address in changed:
            self.history.put(address.id, address, now)
        return self.tasks.start(kind, [address.id for address in changed], now + seconds, **how)

    def weigh(self, load_balancer: str, targets: Iterable[Target]) -> None:
        """Start a task that gives these targets their weights."""
        due = self.clock() + self.knobs.weight_seconds
        self.weighings.append(Weighing(name=load_balancer, targets=tuple(targets), due=due))

    def _end_weighings(self, now: float) -> None:
        for each in [each for each in self.weighings if each.due <= now]:
            self.weighings.remove(each)
            known = self.load_balancers.get(each.name, {})
            for target in each.targets:
                if target.key in known:
                    known[target.key] = replace(known[target.key], weight=target.weight)

    def put_load_balancer(self, load_balancer: str, targets: Iterable[Target]) -> None:
        """A new one, or one with other targets, as another user would."""
        with self.advanced():
            self.load_balancers[load_balancer] = {each.key: each for each in targets}

    def weights(self, load_balancer: str) -> dict[str, int]:
        """By keys of targets."""
        with self.advanced():
            return {key: each.weight for key, each in self.load_balancers[load_balancer].items()}

    def _end(self, task: Task) -> None:
        well = not task.fails
        for before in filter(None, map(self.history.get, task.addresses)):
            well = well and (task.kind != "bind" or self._may_be_bound(before))
            after = ended(task.kind, before, well)
            if after is None:
                self.history.end(before.id, task.due)
            else:
                self.history.put(before.id, after, task.due)
        task.result = "SUCCESS" if well else "FAILED"

    def _may_be_bound(self, address: Address) -> bool:
        instance = address.instance_id
        if instance in self.ended_instances:
            return False
        return not instance or not any(self._is_bound_to(other, instance) for other in self.history.all())

    def _is_bound_to(self, address: Address, instance_id: str) -> bool:
        return address.instance_id == instance_id and address.status in BOUND and address.type != WAN_IP

    def instance(self, instance_id: str) -> Instance | None:
        """Also one that was not added, when the knobs say that such instances exist."""
        found = self.fleet.get(instance_id)
        if found is None and self.knobs.instances_exist and instance_id not in self.ended_instances:
            return Instance(id=instance_id, state="RUNNING" if self.knobs.instances_run else "STOPPING")
        return found

    def add_instance(self, instance_id: str, state: str = "RUNNING") -> Instance:
        """One more, or the same one in another state."""
        with self.advanced():
            self.ended_instances.discard(instance_id)
            self.fleet[instance_id] = instance = Instance(id=instance_id, state=state)
        return instance

    def end_instance(self, instance_id: str) -> None:
        """As its termination does: its ordinary address goes with it, its elastic one is unbound."""
        with self.advanced() as now:
            self.fleet.pop(instance_id, None)
            self.ended_instances.add(instance_id)
            for address in list(self.history.all()):
                if address.type == WAN_IP and address.instance_id == instance_id:
                    self.history.end(address.id, now)
                elif self._is_bound_to(address, instance_id) and self.knobs.instance_end_unbinds:
                    self.history.put(address.id, replace(address, status="UNBIND"), now)

    def add_address(self, **how: Any) -> Address:
        """Add an address as another user would; *how* are fields of an Address."""
        with self.advanced() as now:
            fresh = {"id": self.new_id("eip"), "ip": self.new_ip(), "region": REGION}
            address = msgspec.convert({**fresh, "created": now, **how}, Address)
            for pair in address.tags.items():
                self.made_tags.setdefault(pair, now)
            self.history.put(address.id, address, now)
        return address

    def alter(self, address_id: str, **changes: Any) -> None:
        """Change an address as another user would: unbound, blocked. KeyError when it does not exist."""
        with self.advanced() as now:
            address = self.history.get(address_id)
            if address is None:
                raise KeyError(address_id)
            self.history.put(address_id, replace(address, **changes), now)

    @property
    def addresses(self) -> dict[str, Address]:
        """All that there are now, ordinary ones of instances too, by their ids."""
        with self.advanced():
            return {address.id: address for address in self.history.all()}

    @property
    def instances(self) -> dict[str, Instance]:
        with self.lock:
            return dict(self.fleet)

    @property
    def tags(self) -> set[tuple[str, str]]:
        """All pairs that exist, on an address or not."""
        with self.lock:
            return set(self.made_tags)

    @property
    def calls(self) -> list[Call]:
        with self.lock:
            return list(self.log)

    def count(self) -> dict[str, dict[str, int]]:
        """Calls by action and outcome, as ``{"AllocateAddresses": {"OK": 3}}``."""
        table: dict[str, dict[str, int]] = {}
        for (action, outcome), number in Counter((each.action, each.outcome) for each in self.calls).items():
            table.setdefault(action, {})[outcome] = number
        return table
