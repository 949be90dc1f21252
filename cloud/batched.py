"""The cloud as one caller sees it: each verb is awaited, and shares its calls with those of other callers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from cloud.batcher import Batcher, Pending, Shape, Turns
from cloud.circuit_breaker import CircuitBreaker
from cloud.client import FILTER_VALUES, PAGE, RELEASES, TAGS, Cloud
from cloud.errors import CloudError, StateConflict, TagMissing
from cloud.types import Address, Order, Tag
from runtime import threading, time

K = TypeVar("K")
V = TypeVar("V")
AT_A_TIME, SENDERS = 24, 12
"""Callers of an API without batches that decide and act at a time, and calls: enough that no turn at its rate is
missed, and few, so that no decision is older than its place in that line."""

Refused = Mapping[Tag, CloudError]


class BatchedCloud:
    """Safe to share between threads; *closed* is called when callers that were refused may try at once.

    A verb raises RetryAfter when it is refused by a policy or a limit, else a CloudError.
    """

    def __init__(
        self,
        cloud: Cloud,
        closed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cloud, self._closed, self._clock = cloud, closed, clock
        self._existing: set[Tag] = set()
        self._tagging = threading.Lock()
        self.batchers: list[Batcher[Any, Any]] = []
        self.allocating, self.binding, self.unbinding = (Turns(AT_A_TIME) for _ in range(3))
        alone = Shape(senders=SENDERS)
        self._quota = CircuitBreaker(clock, closed)
        self._addresses = self._batcher("addresses", self._read_addresses, Shape(PAGE, distance=0.7))
        self._instance_addresses = self._batcher(
            "addresses-on", self._read_instance_addresses, Shape(FILTER_VALUES, distance=0.3)
        )
        self._instances = self._batcher("instances", self._read_instances, Shape(PAGE, distance=1.0))
        self._carriers = self._batcher("carriers", self._read_carriers, Shape(FILTER_VALUES, distance=1.0))
        self._names = self._batcher("names", _each(cloud.addresses_named), Shape())
        self._allocations = self._batcher("allocate", _each(self._allocate), alone, self._quota)
        self._binds = self._batcher("associate", _each(self._associate), alone)
        self._unbinds = self._batcher("disassociate", _each(cloud.disassociate), alone)
        self._releases = self._batcher("release", self._release, Shape(RELEASES, distance=1.2))
        self._bandwidths = self._batcher("bandwidth", self._set_bandwidths, Shape(RELEASES, distance=1.2))
        # Each node has two tags.
        self._new_tags = self._batcher("create-tags", self._create_tags, Shape(5 * TAGS, distance=0.4))
        self._old_tags = self._batcher("delete-tags", self._delete_tags, Shape(5 * TAGS, distance=1.0))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send calls for the length of the block."""
        for each in self.batchers:
            each.start()
        try:
            yield
        finally:
            for each in self.batchers:
                each.close()

    def address(self, address_id: str) -> Pending[Address | None]:
        """None when the cloud does not list it."""
        return self._addresses.submit(address_id, address_id)

    def addresses_on(self, instance: str) -> Pending[tuple[Address, ...]]:
        """All addresses of the instance, of any type."""
        return self._instance_addresses.submit(instance, instance)

    def instance_state(self, instance: str) -> Pending[str | None]:
        """None when the cloud does not list it."""
        return self._instances.submit(instance, instance)

    def named(self, name: str) -> Pending[list[Address]]:
        return self._names.submit(name, name)

    def carriers(self, tag: Tag) -> Pending[Sequence[Address]]:
        """By an index that may lag behind."""
        return self._carriers.submit(str(tag), tag)

    def allocate(self, order: Order) -> Pending[str]:
        """The id of this token's address, as `Cloud.allocate`."""
        return self._allocations.submit(order.name, order)

    def associate(self, address_id: str, instance: str) -> Pending[None]:
        return self._binds.submit(instance, (address_id, instance))

    def disassociate(self, address_id: str) -> Pending[None]:
        return self._unbinds.submit(address_id, address_id)

    def release(self, address_id: str) -> Pending[None]:
        """Gone also for an address of another account or region."""
        return self._releases.submit(address_id, address_id)

    def set_bandwidth(self, address_id: str, bandwidth: int) -> Pending[None]:
        """In Mbps."""
        return self._bandwidths.submit(address_id, (address_id, bandwidth))

    def has_tags(self, tags: Collection[Tag]) -> bool:
        """Whether this process has created them all; the cloud may have others."""
        with self._tagging:
            return self._existing.issuperset(tags)

    def create_tags(self, key: str, tags: Collection[Tag]) -> Pending[None]:
        return self._new_tags.submit(key, tags)

    def delete_tags(self, key: str, tags: Collection[Tag]) -> Pending[Refused]:
        """Those that are in use, and why; any other refusal is raised."""
        return self._old_tags.submit(key, tags)

    def _batcher(
        self,
        name: str,
        call: Callable[[Sequence[K]], Sequence[V | Exception]],
        shape: Shape,
        breaker: CircuitBreaker | None = None,
    ) -> Batcher[K, V]:
        breaker = breaker or CircuitBreaker(self._clock, self._closed)
        made = Batcher(f"cloud-{name}", call, shape, breaker, self._clock)
        self.batchers.append(made)
        return made

    def _read_addresses(self, ids: Sequence[str]) -> Sequence[Address | None]:
        found = {each.id: each for each in self._cloud.addresses(ids)}
        return [found.get(each) for each in ids]

    def _read_instance_addresses(self, instances: Sequence[str]) -> Sequence[tuple[Address, ...]]:
        found = self._cloud.addresses_on(instances)
        return [tuple(each for each in found if each.instance_id == instance) for instance in instances]

    def _read_instances(self, ids: Sequence[str]) -> Sequence[str | None]:
        found = self._cloud.instances(ids)
        return [found.get(each) for each in ids]

    def _read_carriers(self, tags: Sequence[Tag]) -> Sequence[Sequence[Address]]:
        found: dict[Tag, list[Address]] = {tag: [] for tag in tags}
        for key in {key for key, _ in tags}:
            values = {value for each, value in tags if each == key}
            for address in self._cloud.addresses_tagged(key, values):
                found.get((key, address.tags.get(key, "")), []).append(address)
        return [found[tag] for tag in tags]

    def _allocate(self, order: Order) -> str:
        try:
            return self._cloud.allocate(order)
        except TagMissing:
            with self._tagging:
                self._existing.difference_update(order.tags.items())
            raise

    def _associate(self, pair: tuple[str, str]) -> None:
        self._cloud.associate(*pair)

    def _release(self, ids: Sequence[str]) -> Sequence[CloudError | None]:
        refused = self._cloud.release(ids)
        if len(refused) < len(set(ids)):
            self._quota.try_again()  # what was given back may be had again
        return [refused.get(each) for each in ids]

    def _set_bandwidths(self, wanted: Sequence[tuple[str, int]]) -> Sequence[CloudError | None]:
        """One call for all that get the same."""
        refused: dict[str, CloudError] = {}
        for bandwidth in sorted({each for _, each in wanted}):
            ids = [address_id for address_id, each in wanted if each == bandwidth]
            refused |= self._cloud.set_bandwidth(ids, bandwidth)
        return [refused.get(address_id) for address_id, _ in wanted]

    def _create_tags(self, wanted: Sequence[Collection[Tag]]) -> Sequence[CloudError | None]:
        tags = {tag for each in wanted for tag in each}
        refused = self._cloud.create_tags(sorted(tags - self._existing))
        with self._tagging:
            self._existing |= tags - refused.keys()
        return [next((refused[tag] for tag in tags if tag in refused), None) for tags in wanted]

    def _delete_tags(self, unwanted: Sequence[Collection[Tag]]) -> Sequence[Refused | CloudError]:
        tags = {tag for each in unwanted for tag in each}
        with self._tagging:
            self._existing -= tags
        refused = self._cloud.delete_tags(tags)
        return [_of_caller(tags, refused) for tags in unwanted]


def _of_caller(tags: Collection[Tag], refused: Refused) -> Refused | CloudError:
    mine = {tag: refused[tag] for tag in tags if tag in refused}
    return next((error for error in mine.values() if not isinstance(error, StateConflict)), mine)


def _each(call: Callable[[K], V]) -> Callable[[Sequence[K]], Sequence[V]]:
    return lambda items: [call(each) for each in items]
