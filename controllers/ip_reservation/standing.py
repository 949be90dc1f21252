"""Reserve the addresses of living selected pods ahead, and mark the pods whose deletion needs no review then.

The order is the promise: records are durable before their pod is marked, and a pod's mark is gone before its records
are released (`Claims`). A pool bears no more of them than it has free addresses: all pods of a cluster that lost its
power find new ones, also while no leader releases any.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import structlog
from msgspec.structs import replace

from api.ip_reservation import ended_by_itself, records_of, reserves_finished, unselected
from api.standing import (
    RESERVED,
    STANDING,
    epoch_in,
    epoch_of,
    is_markable,
    keys_of,
    mark_of,
    owner_of,
    with_epoch,
)
from calico.pools import Pool, Range, overlap, range_of
from calico.reservations import NotServed, Reservations, new_name
from calico.segment import NO_KEYS, IPReservation, Keys, Record, pages
from controllers.controller import Clock, Controller, Watch
from controllers.ip_reservation.caches import Caches
from controllers.ip_reservation.calls import PAUSES
from controllers.ip_reservation.late_reservations import taken_out
from controllers.ip_reservation.reporter import Reporter
from controllers.workqueue import PENDING, WorkQueue
from kube.client import Client
from kube.errors import Backoff, Conflict, KubeError, NotFound
from kube.resources import PODS, VALIDATING_WEBHOOKS
from kube.transport import METADATA, STRATEGIC_PATCH, Typed
from kube.types import Namespace, OwnerReference, Pod, key_of
from runtime import secrets, threading
from settings import IPReservationSettings
from telemetry.logs import SparingLogger

EPOCH = "epoch"
PERIOD = 5.0
"""Seconds within which a configuration that was created again gets its condition."""
PROPAGATION = 10.0
"""Seconds until each API server goes by a webhook configuration that was changed."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Epoch:
    """*owner* is the webhook configuration that has it."""

    value: str
    owner: OwnerReference


class EpochReconciler:
    """Keep the match condition by which the API server does not ask for the deletion of marked pods.

    The condition has the epoch of the marks that count. One that is missing is written with a new epoch: with a webhook
    configuration that was deleted, reservations went, too. While standing reservations are off, it is removed, which
    makes all marks void at once.

    *current* is the epoch in which marks are written; None while none is known to be in force.
    """

    def __init__(
        self, client: Client, name: str, caches: Caches, is_enabled: Callable[[], bool], clock: Clock
    ) -> None:
        self._client, self._name, self._is_enabled, self.clock = client, name, is_enabled, clock
        self.caches = caches
        self._void_since = math.inf
        self.current: Epoch | None = None
        self.known: dict[str, OwnerReference] = {}
        """Epochs that this installation has had, as far as this process knows, and the configuration of each."""
        self._queue = WorkQueue("ip_reservation_epoch", pauses=PAUSES)

    def look(self) -> None:
        """Now: what the configuration owns has gone."""
        self._queue.add(EPOCH)

    def controller(self) -> Controller:
        watch = Watch(self.caches.pods, self.observe)
        return Controller(self._queue, self.reconcile, watch, first=[EPOCH])

    def observe(self, old: Pod | None, new: Pod | None) -> Iterable[str]:
        """Its reservations are relied on, also when another leader wrote the mark.

        While standing reservations are off, no other controller sees its end; its mark may still be in force.
        """
        claims, pod = self.caches.claims, new or old
        if new and not new.finished and claims.has_mark_in_force(new):
            claims.found_marked(new.metadata.uid, keys_of(new))
        elif pod and (pod.finished or new is None) and not self._is_enabled():
            claims.ended(pod.metadata.uid)
        return ()

    def reconcile(self, _key: str) -> float:
        """Raises KubeError when it is to be tried again."""
        found = self._client.find(VALIDATING_WEBHOOKS, self._name)
        if found is None:
            self._found(None)
            return PERIOD
        epoch, owner = epoch_in(found), owner_of(found)
        if epoch and self.known.get(epoch, owner) != owner:
            epoch = None  # it was copied from a configuration that is gone, and so are its reservations
        epoch = epoch or secrets.token_hex(8) if self._is_enabled() else None
        wanted = with_epoch(found, epoch)
        if wanted != found:
            found = self._client.replace(VALIDATING_WEBHOOKS, self._name, wanted)
            log.info("match condition written", name=self._name, epoch=epoch or "")
        self._found(Epoch(epoch, owner) if epoch and epoch_in(found) == epoch else None)
        return PERIOD

    def _found(self, epoch: Epoch | None) -> None:
        self.current, claims = epoch, self.caches.claims
        if epoch is not None:
            self._void_since = math.inf
            self.known[epoch.value] = epoch.owner
            claims.begin(epoch.value, epoch.owner)
            return
        now = self.clock.monotonic()
        self._void_since = min(self._void_since, now)
        if now - self._void_since >= PROPAGATION:
            claims.end()


KEY = "standing"
"""The one key: a total limits all pods together."""
GATHER = 0.5
"""Seconds in which pods that get addresses share a write."""
RESYNC = 5.0
"""Seconds after which the pools are looked at again."""
MARKERS = 2
"""Workers; each of them waits for one write. More would slow down the creations of the pods that they mark."""
MARK_PAUSES = Backoff(base=0.1, cap=1000.0)
"""Another webhook may refuse the marks of thousands of pods, and no address waits for a mark."""
MOST_REPLACED = 50_000
"""Pods whose marks of another installation were replaced; that of one that is forgotten is so once more."""
SPARE = 0.9
"""Up to which share of what its pool can bear another pod is reserved ahead: so that few are withdrawn at once."""
TIMEOUT = 5.0

ReadPools = Callable[[], Sequence[Pool] | None]


Candidates = Mapping[str, Keys]
"""Selected pods that live, by uid, and the keys of their records."""


@dataclass(frozen=True)
class Plan:
    """Uids of pods whose addresses are to be *reserved* ahead, and of those for which this ends."""

    reserved: Sequence[str]
    withdrawn: Sequence[str]


def plan(
    candidates: Candidates,
    claimed: Container[str],
    pools: Sequence[Pool],
    most: int,
    released: Keys = NO_KEYS,
) -> Plan:
    """For *most* addresses in all, and in each of *pools* for as many as it has free ones for any node.

    Those that are reserved ahead come first. An address that Calico has *released* is its pod's no more: its
    reservation is one of a pod that is gone.
    """
    free = {pool.range: pool.usage.free for pool in pools if not pool.is_strict}
    ranges, taken, left = tuple(free), Counter[Range | None](), most

    def is_taken(uid: str, share: float) -> bool:
        """Whether there is room for it, and no more than *share* of it is taken then."""
        nonlocal left
        keys = candidates[uid]
        if len(keys) > left or not keys.isdisjoint(released):
            return False
        found = [pool_of(key.partition(" ")[0], ranges) for key in keys]
        taken.update(found)
        if any(taken[pool] > (free[pool] * share if pool else 0) for pool in found):
            taken.subtract(found)
            return False
        left -= len(found)
        return True

    withdrawn = [uid for uid in candidates if uid in claimed and not is_taken(uid, 1.0)]
    reserved = [uid for uid in candidates if uid not in claimed and is_taken(uid, SPARE)]
    return Plan(reserved, withdrawn)


# Each plan asks for all candidates.
@lru_cache(maxsize=65536)
def pool_of(cidr: str, pools: Sequence[Range]) -> Range | None:
    wanted = range_of(cidr)
    return next((pool for pool in pools if overlap(pool, wanted)), None)


class StandingReconciler:
    """Keep standing reservations, with one key for all pods: a write reserves those of many."""

    def __init__(
        self,
        caches: Caches,
        reservations: Reservations,
        epochs: EpochReconciler,
        pools: ReadPools,
        settings: Callable[[], IPReservationSettings],
        reporter: Reporter,
    ) -> None:
        self._caches, self._claims, self._reservations = caches, caches.claims, reservations
        self._term = secrets.token_hex(8)
        self._epochs, self._pools, self._settings, self._reporter = epochs, pools, settings, reporter
        self._queue = WorkQueue("ip_reservation_standing", pauses=PAUSES)
        self.marking = WorkQueue("ip_reservation_marking", pauses=MARK_PAUSES)
        self._lock = threading.Lock()
        self._changed: dict[str, None] = {}
        self._candidates: dict[str, Keys] = {}
        self._known: tuple[IPReservationSettings, Epoch] | None = None
        self._planned_for: Sequence[Pool] | None = None
        self._to_mark: dict[str, None] = {}
        """Uids of pods, also of a run that failed."""
        self._adoptions, self._confirmed = 0, -1
        """Pods that came to another owner, and how many of them `_confirm` has seen."""

    def controller(self) -> Controller:
        pods, namespaces = self._caches.pods, self._caches.namespaces
        of_pods, of_namespaces = Watch(pods, self.observe), Watch(namespaces, self.observe_namespace)
        of_segments = Watch(self._caches.segments, self.observe_segment)
        return Controller(self._queue, self.reconcile, of_pods, of_namespaces, of_segments, first=[KEY])

    def observe(self, old: Pod | None, new: Pod | None) -> Iterable[str]:
        """Changes are gathered: no key."""
        pod = new or old
        if pod is None:
            return ()
        at = pod.metadata
        if new is None:
            self._claims.ended(at.uid)
        elif old and old.metadata.controller != at.controller:
            self._adoptions += 1
        namespace = self._caches.namespaces.get(at.namespace)
        if namespace is None and at.uid not in self._candidates and RESERVED not in at.annotations:
            return ()
        if new is not None and ended_by_itself(new):  # it may be deleted before it is judged
            is_kept = namespace is not None and reserves_finished(namespace.metadata.annotations)
            self._claims.decide(at.uid, stays=is_kept)
        self._note([at.uid])
        return ()

    def observe_namespace(self, old: Namespace | None, new: Namespace | None) -> Iterable[str]:
        if namespace := new or old:
            self._note(pod.metadata.uid for pod in self._caches.pods_of(namespace))
        return ()

    def observe_segment(self, old: IPReservation | None, new: IPReservation | None) -> Iterable[str]:
        """What another client has taken out is reserved again."""
        lost = taken_out(old, new) if old and old.ours else ()
        claimed = [record for record in lost if record.key in self._claims.of(record.uid)]
        if gone := {record.uid for record in claimed if not self._caches.is_reserved(record)}:
            self._claims.withdraw(gone)
            self._epochs.look()
            self._note(gone)
        return ()

    def _note(self, uids: Iterable[str]) -> None:
        with self._lock:
            was_empty = not self._changed
            self._changed |= dict.fromkeys(uids)
        if was_empty and self._changed:
            self._queue.add_after(KEY, GATHER)

    def reconcile(self, _key: str) -> float:
        """Raises KubeError when it is to be tried again."""
        settings, epoch = self._settings(), self._epochs.current
        if epoch is None:
            self._forget()
            return RESYNC
        if self._known != (settings, epoch):
            self._known, self._planned_for = (settings, epoch), None
            self._note(pod.metadata.uid for pod in self._caches.pods.list())
        with self._lock:
            changed, self._changed = self._changed, {}
        self._to_mark |= changed
        for uid in changed:
            self._judge(uid, settings)
        self._confirm(epoch.owner, settings)
        planned = self._planned(changed, settings)
        self._claims.withdraw(planned.withdrawn)
        self._reserve(planned.reserved, epoch.owner, settings)
        for pod in self._pods_of((*self._to_mark, *planned.withdrawn, *planned.reserved)):
            if not self._is_marked(pod, epoch):
                self.marking.add(key_of(pod.metadata))
        self._to_mark.clear()
        self._reporter.standing(len(self._claims), len(self._candidates))
        return RESYNC

    def _planned(self, changed: Iterable[str], settings: IPReservationSettings) -> Plan:
        """Pods that go, which most changes say, make nothing due: the next look gives to others what they leave."""
        pools, before = self._pools(), self._planned_for
        is_due = pools is not before or any(
            uid in self._candidates and uid not in self._claims for uid in changed
        )
        if pools is None or not is_due:
            return Plan((), ())
        self._planned_for = pools
        return plan(self._candidates, self._claims, pools, settings.standing.max, self._claims.released)

    def _is_marked(self, pod: Pod, epoch: Epoch) -> bool:
        """As it is claimed: then no worker has to wake up for it. What goes needs no mark any more."""
        if pod.terminating or pod.finished:
            return True
        uid, mark = pod.metadata.uid, pod.metadata.annotations.get(RESERVED)
        if not (claimed := self._claims.of(uid)):
            return mark is None and not self._claims.marked_of(uid)
        return claimed == self._claims.marked_of(uid) == keys_of(pod) and mark == mark_of(epoch.value, pod)

    def _forget(self) -> None:
        """All pods are looked at again when there is an epoch."""
        with self._lock:
            self._changed = {}
        self._candidates.clear()
        self._known = None
        self._reporter.standing(len(self._claims), 0)

    def _pods_of(self, uids: Iterable[str]) -> Iterable[Pod]:
        """Those that are there."""
        return filter(None, map(self._caches.pod, uids))

    def _judge(self, uid: str, settings: IPReservationSettings) -> None:
        """Whether it is a candidate."""
        pod = self._caches.pod(uid)
        if pod is None or pod.finished:
            self._candidates.pop(uid, None)
            self._claims.ended(uid)
        elif pod.terminating:
            if uid not in self._claims:
                self._candidates.pop(uid, None)
        elif not self._is_wanted(pod, settings):
            self._candidates.pop(uid, None)
            self._claims.withdraw([uid])
        else:
            self._candidates[uid] = keys_of(pod)
            if self._claims.of(uid) != keys_of(pod):
                self._claims.withdraw([uid])

    def _is_wanted(self, pod: Pod, settings: IPReservationSettings) -> bool:
        namespace = self._caches.namespaces.get(pod.metadata.namespace)
        return (
            namespace is not None
            and is_markable(pod)
            and not unselected(pod, namespace.metadata.annotations, settings)
        )

    def _confirm(self, owner: OwnerReference, settings: IPReservationSettings) -> None:
        """Once in a term, write each segment: what a former leader sends later is refused. KubeError.

        Since records were made, same addresses may have been switched on, and StatefulSets have adopted pods.
        """
        if self._confirmed == (adoptions := self._adoptions):
            return
        wanted, confirmed = {each.key: each for each in self._records(self._candidates, settings)}, NO_KEYS
        for segment in self._caches.segments.list():
            if segment.is_owned_by(owner.uid) and not segment.keys.isdisjoint(wanted):
                found = [(each, wanted.get(each.key, each)) for each in segment.records]
                records = [
                    replace(each, owner_uid=now.owner_uid, addresses=now.addresses) for each, now in found
                ]
                # After a conflict another client has written, and its pods are reserved again.
                expected = (Conflict, NotFound) if self._confirmed < 0 else ()
                if not expected and records == [*segment.records]:
                    continue
                with suppress(*expected):
                    made = self._reservations.write(segment, records, term=self._term, timeout=TIMEOUT)
                    confirmed |= made.keys
        # A pass may have given back what was confirmed first.
        there = (key for key in confirmed if self._caches.segments.by_index("keys", key))
        self._claim(self._candidates, frozenset(there), owner)
        self._confirmed = adoptions

    def _records(self, uids: Iterable[str], settings: IPReservationSettings) -> Iterator[Record]:
        now = self._epochs.clock.now()
        for pod in self._pods_of(uids):
            yield from records_of(pod, settings, reason=STANDING, at=now)

    def _reserve(self, uids: Sequence[str], owner: OwnerReference, settings: IPReservationSettings) -> None:
        """What cannot be written is left out; a write that was late makes a copy."""
        reserved = NO_KEYS
        for page in pages(self._records(uids, settings)):
            try:
                made = self._reservations.create(new_name("standing"), page, owner=owner, timeout=TIMEOUT)
            except (KubeError, NotServed) as error:
                log.warning("standing reservations not written", error=str(error))
                break
            reserved |= made.keys
            # At once: a pass gives back what is not claimed for long, and all pages may take longer than that.
            self._claim(dict.fromkeys(record.uid for record in page), reserved, owner)

    def _claim(self, uids: Iterable[str], reserved: Keys, owner: OwnerReference) -> None:
        found = {uid: self._candidates[uid] for uid in uids}
        self._claims.claim({uid: keys for uid, keys in found.items() if keys <= reserved}, owner)
        self._caches.end_claims_of_gone(found)


class MarkReconciler:
    """Set or remove the mark of one pod, by its key.

    It needs no guard against changes of the pod: the mark says nothing of another pod or address.
    """

    def __init__(self, caches: Caches, client: Client, epochs: EpochReconciler, queue: WorkQueue) -> None:
        self._caches, self._claims, self._client = caches, caches.claims, client
        self._epochs, self._queue = epochs, queue
        self._replaced: dict[str, None] = {}
        self._log = SparingLogger(log, epochs.clock.monotonic)

    def controller(self) -> Controller:
        return Controller(self._queue, self.reconcile, workers=MARKERS)

    def reconcile(self, key: str) -> float | None:
        pod, epoch = self._caches.pods.get(key), self._epochs.current
        if pod is None or pod.terminating or pod.finished or epoch is None:
            return None
        uid, keys, of = pod.metadata.uid, keys_of(pod), epoch_of(pod)
        is_others = of is not None and of not in self._epochs.known
        if is_others and uid in self._replaced:
            return None  # of another installation, which would replace it again
        is_claimed = self._claims.begin_marking(uid, keys)
        before = pod.metadata.annotations.get(RESERVED, "")
        is_ours = before.startswith(f"{epoch.value}/") or bool(self._claims.marked_of(uid))
        wanted = mark_of(epoch.value, pod) if is_claimed else None
        if wanted != before and (wanted or is_ours):
            # The API server does less for this kind of patch, and for this form of the answer, which is not read.
            patch = Typed(STRATEGIC_PATCH, {"metadata": {"annotations": {RESERVED: wanted}}})
            try:
                self._client.patch(
                    PODS, pod.metadata.name, patch, pod.metadata.namespace, type=msgspec.Raw, accept=METADATA
                )
            except NotFound:
                pass
            except KubeError as error:  # as a rule of all pods, or of many
                pause = self._queue.retry(key, error)
                self._log.warning("pod not marked", **pod.metadata.about, error=str(error), pause=pause)
                return PENDING
            if is_others:
                self._replaced[uid] = None
                if len(self._replaced) > MOST_REPLACED:
                    self._replaced.pop(next(iter(self._replaced)), None)  # another worker may be faster
        self._claims.marked(uid, keys if is_claimed else NO_KEYS)
        self._caches.end_claims_of_gone([uid])
        return None
