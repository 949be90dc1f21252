"""What a StatefulSet's pod was promised: the addresses of its predecessor, and for how long it asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from api.same_address import Promise
from calico.segment import IPReservation, Record
from cli.output import Document, duration, moment
from controllers.ip_reservation.promises import Ending, Promises, open_promise, plan, promises_of
from kube.types import Pod, key_of
from settings import IPReservationSettings


class Promised(Document, frozen=True):
    """A pod without an address, which asks Calico for *ips*; *until* is None where that is past, or does not end.

    The leader counts from when it has seen the pod, or its node: this is the earliest time.
    """

    pod: str
    node: str
    ips: tuple[str, ...]
    until: datetime | None
    ends: str


def promised(pods: Iterable[Pod], settings: IPReservationSettings, now: datetime) -> Iterator[Promised]:
    for pod in pods:
        if promise := open_promise(pod):
            until = _until(pod, promise, settings, now)
            ends = _ends(pod, until, settings)
            yield Promised(key_of(pod.metadata), pod.spec.node_name, promise.addresses, until, ends)


def promises_to(
    pods: Sequence[Pod], segments: Iterable[IPReservation], settings: IPReservationSettings
) -> Promises:
    """As the leader finds them: which of the records in *segments* wait for one of *pods*, or have ended by it."""
    if not settings.same_address.enabled:
        return Promises()
    records = [record for each in segments if each.ours for record in each.records]
    return promises_of(records, lambda record: [each for each in pods if _has_place_of(record, each)])


def lines(found: Iterable[Promised]) -> Iterator[str]:
    for each in found:
        where = f" on node {each.node}" if each.node else ""
        yield f"Promised to pod {each.pod}{where}: {' and '.join(each.ips)}, of its predecessor. {each.ends}"


def _has_place_of(record: Record, pod: Pod) -> bool:
    return (record.namespace, record.pod) == (pod.metadata.namespace, pod.metadata.name)


def _until(pod: Pod, promise: Promise, settings: IPReservationSettings, now: datetime) -> datetime | None:
    if not settings.same_address.enabled:
        return None
    waited = now - (_since(pod) or now)
    step = plan(pod, promise, waited.total_seconds(), settings)
    return None if isinstance(step, Ending) else now + timedelta(seconds=step)


def _since(pod: Pod) -> datetime | None:
    """When it got its node, or was created."""
    if not pod.spec.node_name:
        return pod.metadata.creation_timestamp
    scheduled = [
        each for each in pod.status.conditions if (each.type, each.status) == ("PodScheduled", "True")
    ]
    return scheduled[0].last_transition_time if scheduled else pod.metadata.creation_timestamp


def _ends(pod: Pod, until: datetime | None, settings: IPReservationSettings) -> str:
    if not settings.same_address.enabled:
        return "ipReservation.sameAddress is off: the pod asks for it until you remove its annotation"
    if until is None:
        return "Its time is over: the leader ends it in its next run, and Calico then gives the pod any IP"
    after = (
        f"{duration(settings.same_address.timeout)} after it got its node"
        if pod.spec.node_name
        else f"{duration(settings.ip_reserve_time)} without a node"
    )
    return f"It asks Calico for it until {moment(until)}, {after}, or a little later: then it gets any IP"
