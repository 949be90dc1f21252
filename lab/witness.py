"""An independent witness: in which order pods went and their addresses were reserved.

It follows pods and IPReservations with watches of its own. Both live in one etcd, so their resource versions
are revisions of one history and tell which came first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import msgspec

from kube.client import Client, Resource
from kube.errors import Unreachable
from kube.objects import ObjectMeta, Pod, key_of
from kube.transport import LineStream

PODS = Resource("", "v1", "pods")


class _Spec(msgspec.Struct):
    reserved: list[str] = msgspec.field(default_factory=list, name="reservedCIDRs")


class _Reservation(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


@dataclass
class Account:
    """What was seen, by revision."""

    gone: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    """Of each pod, by namespace/name/uid: the revision of its end and the addresses that it had."""
    reserved: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)
    """Of each CIDR: the revisions from which and, once it is over, until which it stood in some reservation."""
    _standing: dict[str, frozenset[str]] = field(default_factory=dict)

    def see_pod(self, event: _Event) -> None:
        pod = msgspec.json.decode(event.object, type=Pod)
        if event.type == "DELETED":
            key = f"{key_of(pod.metadata)}/{pod.metadata.uid}"
            self.gone[key] = (int(pod.metadata.resource_version), pod.status.addresses)

    def see_reservation(self, event: _Event) -> None:
        seen = msgspec.json.decode(event.object, type=_Reservation)
        revision = int(seen.metadata.resource_version)
        before = self._all()
        self._standing[seen.metadata.name] = frozenset(seen.spec.reserved if event.type != "DELETED" else ())
        after = self._all()
        for cidr in after - before:
            self.reserved.setdefault(cidr, []).append((revision, None))
        for cidr in before - after:
            begin, _ = self.reserved[cidr].pop()
            self.reserved[cidr].append((begin, revision))

    def unreserved_at_their_end(self) -> list[str]:
        """The pods whose object was gone when an address of theirs was not reserved."""
        return sorted(
            key
            for key, (end, addresses) in self.gone.items()
            if not addresses or not all(self._stood(_cidr(address), end) for address in addresses)
        )

    def _stood(self, cidr: str, revision: int) -> bool:
        return any(
            begin < revision and (until is None or revision < until)
            for begin, until in self.reserved.get(cidr, [])
        )

    def _all(self) -> frozenset[str]:
        return frozenset().union(*self._standing.values())


@contextmanager
def witness(client: Client, reservations: Resource, namespace: str) -> Iterator[Account]:
    """Watch the pods of *namespace* and all *reservations* from now until the end of the block."""
    account = Account()
    with ExitStack() as watches:
        watches.enter_context(_watching(client, PODS, namespace, account.see_pod))
        watches.enter_context(_watching(client, reservations, None, account.see_reservation))
        yield account


@contextmanager
def _watching(
    client: Client, resource: Resource, namespace: str | None, see: Callable[[_Event], None]
) -> Iterator[None]:
    listed = client.list(resource, namespace)
    for each in listed.items:
        see(_Event("ADDED", msgspec.Raw(msgspec.json.encode(each))))
    stream = client.watch(
        resource, namespace, resource_version=listed.resource_version, duration=3600, read_timeout=600.0
    )
    reader = threading.Thread(target=_read, args=(stream, see), daemon=True)
    reader.start()
    try:
        yield
    finally:
        stream.interrupt()
        reader.join(5)


def _read(stream: LineStream, see: Callable[[_Event], None]) -> None:
    with stream, suppress(Unreachable):  # interrupted: the block is over
        for line in stream:
            event = msgspec.json.decode(line, type=_Event)
            if event.type != "BOOKMARK":
                see(event)


def _cidr(address: str) -> str:
    return f"{address}/128" if ":" in address else f"{address}/32"
