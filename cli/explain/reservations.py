"""What is reserved, for what, and until when: by the rules by which the leader releases it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network

from msgspec.structs import replace

from calico.segment import IPReservation, Record
from cli.output import Document, duration
from cli.reservations.records import kept_by, unmanaged_entries
from controllers.ip_reservation.copies import Copy, by_identity, merged
from controllers.ip_reservation.release_planner import Life, Pods, is_over, note_end
from settings import IPReservationSettings

NOT_STORED = "the leader has not stored the end of its pod yet, or drops it if there never was such a pod"


class Reservation(Document, frozen=True):
    """*expires_at* is None while its time has not begun; *release* says when and why it is released."""

    ip: str
    namespace: str
    pod: str
    node: str
    owner: str
    reason: str
    reserved_at: datetime
    pod_ended: datetime | None
    expires_at: datetime | None
    release: str
    segments: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.pod}" if self.pod else ""


def reservations(
    segments: Sequence[IPReservation],
    chosen: Callable[[Record], bool],
    pods: Pods,
    settings: IPReservationSettings,
    now: datetime,
) -> Iterator[Reservation]:
    """Of the records that are *chosen*; of *pods*, lives and promises count."""
    others = unmanaged_entries(segments)
    for copies in by_identity([each for each in segments if each.ours]).values():
        stored = merged(copies)
        if chosen(stored):
            found = _reservation(copies, stored, pods, settings, now)
            kept = kept_by(stored.cidr, others)
            then = f"; {kept}, which Drawbridge does not manage, keeps it reserved then" if kept else ""
            yield replace(found, release=found.release + then)


def unmanaged(segments: Iterable[IPReservation], ip: str) -> Iterator[str]:
    """The names of IPReservations of others that contain *ip*."""
    address = ip_address(ip)
    for each in segments:
        entries = [] if each.ours else each.spec.reserved_cidrs
        if any(
            entry not in each.malformed and address in ip_network(entry, strict=False) for entry in entries
        ):
            yield each.metadata.name


def _reservation(
    copies: Sequence[Copy], stored: Record, pods: Pods, settings: IPReservationSettings, now: datetime
) -> Reservation:
    noted = note_end(stored, pods, now)
    by_hand = any(stored.cidr in each.segment.to_be_released.values() for each in copies)
    return Reservation(
        ip=ip_of(stored.cidr),
        namespace=stored.namespace,
        pod=stored.pod,
        node=stored.node,
        owner=stored.owner,
        reason=stored.reason,
        reserved_at=stored.at,
        pod_ended=stored.ended,
        expires_at=noted.ended and noted.ended + timedelta(seconds=settings.ip_reserve_time),
        release=_promised(stored, pods)
        or _release(stored, noted, pods.life_of(stored), settings, now, by_hand=by_hand),
        segments=tuple(sorted(each.segment.metadata.name for each in copies)),
    )


def _promised(record: Record, pods: Pods) -> str:
    if record.key in pods.promises.kept:
        return "the pod that took the place of its pod has it: the leader ends it in its next run"
    if record.key in pods.promises.waiting:
        return "it waits for the pod that takes the place of its pod, which was promised this address"
    return ""


def _release(
    stored: Record,
    noted: Record,
    life: Life,
    settings: IPReservationSettings,
    now: datetime,
    *,
    by_hand: bool,
) -> str:
    if life is Life.RUNNING:
        after = duration(settings.give_back_after)
        return (
            f"its pod still runs: it is given back {after} after the leader saw that the deletion was refused"
        )
    if noted.ended is None:
        return f"its pod is terminating: its {duration(settings.ip_reserve_time)} begin when it is gone"
    if by_hand:
        return "an operator asked for its release: the leader releases it in its next run"
    if is_over(noted, settings, now):
        return "its time is over: the leader releases it in its next run"
    left = (noted.ended - now).total_seconds() + settings.ip_reserve_time
    not_stored = "" if stored.ended else f"; {NOT_STORED}"
    return f"in {duration(left)}, {duration(settings.ip_reserve_time)} after its pod ended{not_stored}"


def ip_of(cidr: str) -> str:
    return cidr.partition("/")[0]
