"""Metrics, Events and log messages of reservations."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence

import structlog
from prometheus_client import Counter, Gauge

from api.ip_reservation import FINISHED, GONE, KUBELET_EVICTED, RESERVE, TERMINATING
from api.same_address import Ending, Promise
from calico.pools import Pool
from calico.segment import KIND, RELEASE, IPReservation, Record
from controllers.ip_reservation.release_planner import EARLY, Cause, Compaction, was_asked
from controllers.ip_reservation.snapshot import Snapshot
from kube.client import Resource
from kube.errors import KubeError
from kube.event_recorder import EventRecorder, Regarding
from kube.types import Pod
from settings import IPReservationSettings

RESERVED = Gauge(
    "ip_reserve_count", "Reserved addresses of pods that are gone; ipReservation.maxCount limits them."
)
OF_FINISHED = Gauge(
    "drawbridge_finished_reservations",
    "Reserved addresses of pods that ended by themselves; ipReservation.maxFinished limits them.",
)
RESERVED_MAX = Gauge(
    "ip_reserve_count_max", "ipReservation.maxCount: how many addresses of gone pods may be reserved."
)
# A gauge that only grows: the original's name has no _total, which a counter would get.
EVICTED = Gauge(
    "ip_reserve_evictions_count",
    "Addresses released early because more than ipReservation.maxCount were reserved.",
)
RELEASED = Counter("drawbridge_reservations_released", "Addresses released, by cause.", ["cause"])
for _cause in (*EARLY, Cause.FORGED):
    RELEASED.labels(_cause)  # from zero on: a scraper cannot tell a first one from a new series
IN_USE = Gauge("drawbridge_reserved_addresses_in_use", "Reserved addresses that their pods still have.")
STANDING = Gauge(
    "drawbridge_standing_pods",
    "Running pods whose addresses are reserved ahead: their deletion costs no call.",
)
NOT_AHEAD = Gauge(
    "drawbridge_pods_not_reserved_ahead",
    "Selected running pods whose addresses are reserved when they go: too many, or too new.",
)
UNCONFIRMED = Gauge(
    "drawbridge_unconfirmed_reservations", "Reservations for pods that the leader has not seen yet."
)
SEGMENTS = Gauge("drawbridge_reservation_segments", "IPReservation objects of ours.")
COMPACTIONS = Counter(
    "drawbridge_reservation_compactions", "Large segments created from the records of small ones."
)
MALFORMED = Gauge("drawbridge_malformed_reservations", "Entries in IPReservations that Calico cannot parse.")
LATE = Counter(
    "drawbridge_late_reservations",
    "Pods whose addresses were reserved when they were seen going, and not before.",
    ["reason"],
)
for _reason in (TERMINATING, GONE, KUBELET_EVICTED, FINISHED):
    LATE.labels(_reason)
RESTORED = Counter(
    "drawbridge_restored_reservations",
    "Addresses reserved again that another client had taken out of a segment.",
)
COPIED = Counter(
    "drawbridge_copied_annotations",
    "Annotations of workloads copied to pods, and copies removed.",
    ["action"],
)
for _action in ("copied", "removed"):
    COPIED.labels(_action)
SWAPPED = Counter(
    "drawbridge_swapped_addresses",
    "Pods that came up with an address of another pod, whose clients may still use it.",
    ["hold"],
)
SWAPS = {
    "reserved": "which is reserved for",
    "released-early": "which was released before ipReservation.duration, and had been of",
}
"""What was broken: a reservation that is there, or one that was released before its time."""
for _hold in SWAPS:
    SWAPPED.labels(_hold)
PROMISED = Counter(
    "drawbridge_same_address_promises",
    "Promises of the address of their predecessor to pods of StatefulSets, by how they ended.",
    ["ending"],
)
for _ending in Ending:
    PROMISED.labels(_ending)
POOL_ADDRESSES = Gauge("drawbridge_pool_addresses", "Addresses of an IPPool that is not disabled.", ["pool"])
POOL_ASSIGNED = Gauge(
    "drawbridge_pool_assigned_addresses", "Addresses of an IPPool that are assigned.", ["pool"]
)
POOL_RESERVED = Gauge(
    "drawbridge_pool_reserved_addresses",
    "Addresses of an IPPool that are not assigned, and kept back by any IPReservation.",
    ["pool"],
)
POOL_FREE = Gauge(
    "drawbridge_pool_free_addresses",
    "Addresses of an IPPool that are neither assigned nor reserved: new pods get them.",
    ["pool"],
)
POOL_GAUGES = (POOL_ADDRESSES, POOL_ASSIGNED, POOL_RESERVED, POOL_FREE)

TOO_MANY = {
    Cause.NAMESPACE: "their namespace has more than maxPerNamespace",
    Cause.POOL: "their pool runs low: they were more than maxPoolShare of what is not assigned",
    Cause.FINISHED: "more than ipReservation.maxFinished are of pods that finished",
    Cause.COUNT: "more than ipReservation.maxCount are reserved",
}

log = structlog.get_logger(__name__)


class Reporter:
    """Shows no figure of a pool that is not known any more."""

    def __init__(self, recorder: EventRecorder, resource: Callable[[], Resource]) -> None:
        self._recorder, self._resource = recorder, resource
        self._pools: set[str] = set()

    def inventory(self, snapshot: Snapshot, settings: IPReservationSettings) -> None:
        """Count what is reserved, and report entries that Calico or the leader cannot use."""
        everything, ours, unconfirmed = snapshot.everything, snapshot.ours, snapshot.pods.unconfirmed
        records = [record for segment in ours for record in segment.records]
        reserved = {record.cidr for record in records if record.ended}
        in_use = {record.cidr for record in records if record.key not in unconfirmed}
        finished = {record.cidr for record in records if record.ended and record.reason == FINISHED}
        RESERVED.set(len(reserved - finished))
        OF_FINISHED.set(len(finished))
        IN_USE.set(len(in_use - reserved) + sum(len(segment.cidrs) for segment in snapshot.settled))
        UNCONFIRMED.set(len(unconfirmed))
        RESERVED_MAX.set(settings.max_count)
        SEGMENTS.set(len(ours) + len(snapshot.settled))
        self.inventory_of_pools(snapshot.pools)
        MALFORMED.set(sum(len(segment.malformed) for segment in everything))
        for segment in everything:
            for entry in segment.malformed:
                message = "is not a CIDR: most Calico versions then give no pod an address; remove it"
                self._warn(segment, "MalformedReservation", f"Entry {entry!r} {message}")
        for segment in ours:
            self._not_releasable(segment)

    def standing(self, claimed: int, candidates: int) -> None:
        STANDING.set(claimed)
        NOT_AHEAD.set(max(0, candidates - claimed))

    def inventory_of_pools(self, pools: Sequence[Pool]) -> None:
        names = {pool.name for pool in pools}
        for name in self._pools - names:
            for gauge in POOL_GAUGES:
                gauge.remove(name)
        for pool in pools:
            for gauge, value in zip(POOL_GAUGES, pool.usage.figures, strict=True):
                gauge.labels(pool.name).set(value)
        self._pools = names

    def _not_releasable(self, segment: IPReservation) -> None:
        reserved = {record.cidr for record in segment.records}
        for entry, cidr in segment.to_be_released.items():
            if cidr not in reserved:
                message = (
                    f"Annotation {RELEASE} names {entry!r}, which is not in spec.reservedCIDRs of this object:"
                    " correct it, or annotate the object that has the address"
                )
                self._warn(segment, "ReleaseNotPossible", message)

    def compacted(self, compaction: Compaction) -> None:
        COMPACTIONS.inc()
        log.info("segments compacted", segments=len(compaction.sources), records=len(compaction.records))

    def released(self, segment: IPReservation, released: Sequence[tuple[Record, Cause]]) -> None:
        for record, cause in released:
            RELEASED.labels(cause).inc()
            if cause is Cause.FORGED:
                continue  # many at once: there is one message below
            log.info("address released", address=record.cidr, cause=cause, **_pod_of(record))
            if cause is Cause.GIVEN_BACK and record.ended is None and was_asked(record):
                self._recorder.event(
                    Regarding.pod(**_pod_of(record)),
                    "IPGivenBack",
                    "The pod still runs, its deletion was refused: its address is no longer reserved",
                )
        tally = Tally(cause for _, cause in released)
        EVICTED.inc(tally[Cause.COUNT])
        for cause, why in TOO_MANY.items():
            if tally[cause]:
                why = f"Addresses are released before ipReservation.duration because {why}"
                self._warn(segment, "IPReleasedEarly", why)
        if forged := [record for record, cause in released if cause is Cause.FORGED]:
            self._forged(segment, forged)

    def _forged(self, segment: IPReservation, records: Sequence[Record]) -> None:
        example = records[0]
        count, address = len(records), example.cidr
        log.warning("forged reservations dropped", count=count, address=address, **_pod_of(example))
        self._warn(
            segment,
            "ForgedReservation",
            "Addresses were reserved for pods that never existed, or never had them; they are dropped. A client other"
            " than the API server sends reviews to the webhook servers: require its client certificate"
            " (webhook.clientCA), or restrict their port (networkPolicy.apiServers)",
        )

    def reserved_late(self, pod: Pod, reason: str, segment: IPReservation) -> None:
        at = pod.metadata
        LATE.labels(reason).inc()
        if reason == FINISHED:
            log.info("address reserved late", reason=reason, **at.about)
            return
        log.warning("address reserved late", reason=reason, **at.about)
        self._recorder.event(
            Regarding.pod(**at.about),
            "IPReservedLate",
            f"Pod {at.namespace}/{at.name} never passed admission ({reason}): its address, reserved now, may have"
            " been free for a moment",
            type="Warning",
            instead=Regarding.of(segment, self._resource(), KIND),
        )

    def restored(self, name: str, records: Sequence[Record], segment: IPReservation) -> None:
        RESTORED.inc(len(records))
        log.warning("addresses reserved again", name=name, count=len(records))
        self._warn(
            segment,
            "IPReservationRestored",
            f"Another client took addresses out of IPReservation {name}; they are reserved again because their pods"
            " terminate, or their time is not over. To release one, annotate its IPReservation"
            f" {RELEASE}=ADDRESS",
        )

    def followed(self, pod: Pod, workload: str, changes: Mapping[str, str | None]) -> None:
        action = "copied" if changes.get(RESERVE) else "removed"
        if RESERVE in changes:  # else only its mark
            COPIED.labels(action).inc()
            log.info(f"annotation {action}", **pod.metadata.about, workload=workload)

    def not_followed(self, pod: Pod, workload: str, error: KubeError) -> None:
        message = f"Annotation {RESERVE} of {workload} does not decide about this pod yet: {error}; retrying"
        self._warn_pod(pod, "ReserveIPNotCopied", message)

    def swapped(self, pod: Pod, record: Record, hold: str) -> None:
        """*hold* is one of SWAPS."""
        former, address = f"{record.namespace}/{record.pod}", record.cidr.partition("/")[0]
        SWAPPED.labels(hold).inc()
        log.warning("address swapped", address=record.cidr, hold=hold, former=former, **pod.metadata.about)
        message = f"The pod has {address}, {SWAPS[hold]} pod {former}: clients of that one may reach this pod"
        self._warn_pod(pod, "AddressSwapped", message)

    def promise_ended(self, pod: Pod, promise: Promise, ending: Ending) -> None:
        addresses, node = " and ".join(promise.addresses), pod.spec.node_name
        PROMISED.labels(ending).inc()
        log.info(
            "promised address", ending=ending, address=addresses, former=promise.former, **pod.metadata.about
        )
        where = f" on node {node}" if node else ", which no node runs yet,"
        message = {
            Ending.KEPT: f"The pod has the address of its predecessor, {addresses}: it is no longer reserved",
            Ending.OTHER_ADDRESS: f"The pod was promised {addresses}, the address of its predecessor, and came up with"
            " another one",
            Ending.DROPPED: f"The pod{where} did not get {addresses}, the address of its predecessor, in time: from now"
            " on Calico gives it any address",
        }[ending]
        if ending is Ending.KEPT:
            self._recorder.event(Regarding.pod(**pod.metadata.about), "SameAddress", message)
        else:
            self._warn_pod(pod, "SameAddressDropped", message)

    def promise_not_ended(self, pod: Pod, promise: Promise, error: KubeError) -> None:
        addresses = " and ".join(promise.addresses)
        message = f"The pod still asks Calico for {addresses}, which is due to end: {error}; retrying"
        self._warn_pod(pod, "SameAddressNotEnded", message)

    def _warn(self, reservation: IPReservation, reason: str, message: str) -> None:
        about = Regarding.of(reservation, self._resource(), KIND)
        self._recorder.event(about, reason, message, type="Warning")

    def _warn_pod(self, pod: Pod, reason: str, message: str) -> None:
        self._recorder.event(Regarding.pod(**pod.metadata.about), reason, message, type="Warning")


def _pod_of(record: Record) -> dict[str, str]:
    return {"namespace": record.namespace, "name": record.pod, "uid": record.uid}
