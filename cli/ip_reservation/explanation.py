"""`drawbridge explain ip` and `explain pod`: who has an IP, and had it, whether it is reserved, why, and until when.

Of a pod, what would happen to it, what has happened, and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network

from api.same_address import IP_ADDRS, CalicoIPAM, Ending, is_kept, is_waited_for, open_promise, plan_ending
from calico.pools import BLOCKS, POOLS, IPAMBlock, IPPool, located, overlap, range_if_any, range_of
from calico.segment import IPReservation, Record, canonical
from cli.cluster import attempt
from cli.errors import Failure, unreadable
from cli.explain.kinds import (
    Event,
    Kind,
    budgets_of,
    event_table,
    events_about,
    events_of,
    latest,
    snapshot_of,
)
from cli.explain.prediction import (
    Make,
    Prediction,
    RecordingLedger,
    Snapshot,
    epoch,
    question_table,
    questions_about_pod,
)
from cli.inventory import SECONDS, Inventory
from cli.ip_reservation.reservations import (
    Stored,
    Unmanaged,
    address_of,
    held_name,
    is_held_by_hand,
    release_at,
    segments_if_any,
    stored_in,
)
from cli.output import Document, Part, Report, Table, duration, left, moment, title
from cli.pods import Pod, PodStatus, Raw, StoredPod
from controllers.ip_reservation.release_planner import (
    Life,
    Pods,
    has_left,
    is_over,
    life_of,
    note_end,
    was_asked,
)
from kube.errors import KubeError
from kube.resources import Selection
from settings import IPReservationSettings
from webhook.admission import Webhook
from webhook.ip_reservation.reads import calico_ipam
from webhook.ip_reservation.same_address_webhook import SameAddressWebhook
from webhook.ip_reservation.webhook import IPReservationWebhook

SIZES = {4: 26, 6: 122}
"""Calico's default lengths of the blocks of a pool."""
NOT_STORED = "the leader has not stored the end of its pod yet, or drops it if there never was such a pod"
OURS = (
    "drawbridge.io/",
    IP_ADDRS,
    "LOCAL_REPLICAS",
    "AUTO_SCALE_EKS",
    "controller.kubernetes.io/pod-deletion-cost",
)
"""How the names of annotations begin that are shown."""


class Assignment(Document, frozen=True):
    """What Calico noted when it assigned the IP, and when it *released* it for its cooldown; empty where nothing."""

    pod: str
    node: str
    since: str
    handle: str
    released: str


def in_calico(inventory: Inventory, address: str) -> tuple[str, Assignment | None, int]:
    """Its pool, empty for none; what the pool's block says of it; and Calico's cooldown in seconds. KubeError.

    The cooldown is 0 for none, and for one that is not known.
    """
    pools = inventory.of_calico(POOLS, IPPool) or ()
    pool = next((each for each in pools if each.has(address)), None)
    if pool is None:
        return "", None, 0
    cooldown = attempt(inventory.cooldown)
    known = 0 if isinstance(cooldown, KubeError) else cooldown
    return pool.metadata.name, _assignment(inventory, pool, address), known


def _assignment(inventory: Inventory, pool: IPPool, address: str) -> Assignment | None:
    resource = located(inventory.client, BLOCKS)
    if resource is None:
        return None
    size = pool.spec.block_size or SIZES[ip_address(address).version]
    try:
        network = ip_network(f"{address}/{size}", strict=False)
    except ValueError:  # another client has written a size that is none
        return None
    name = re.sub(r"[.:/]", "-", str(network))
    if (block := inventory.find(resource, name, None, IPAMBlock)) is None:  # no node has it yet
        return None
    whole = range_if_any(block.spec.cidr)
    found = overlap(whole, range_of(address)) if whole else None
    noted = block.spec.attribute_of(found[1] - whole[1]) if whole and found else None
    if noted is None:
        return None
    about = noted.secondary or {}
    return Assignment(
        pod="/".join(filter(None, (about.get("namespace"), about.get("pod")))),
        node=about.get("node", ""),
        since=about.get("timestamp", ""),
        handle=noted.handle_id or "",
        released=noted.released_at or "",
    )


class Reservation(Document, frozen=True):
    """*expires_at* is None while its time has not begun; *release* says when and why the *record* is released."""

    record: Record
    expires_at: datetime | None
    release: str
    segments: tuple[str, ...]

    @property
    def pod(self) -> str:
        return f"{self.record.namespace}/{self.record.pod}" if self.record.pod else ""


def reservations(inventory: Inventory, found: Sequence[Stored], others: Unmanaged) -> Iterator[Reservation]:
    pods, settings, now = _known_of(inventory, found), inventory.settings.ip_reservation, inventory.now()
    for stored, copies in found:
        noted = note_end(stored, pods, now)
        by_hand = any(stored.cidr in each.segment.to_be_released.values() for each in copies)
        release = _release(stored, noted, pods, settings, now, by_hand=by_hand)
        if (kept := others.name(stored.cidr)) == held_name(stored.cidr):
            release += "; then it stays held by hand"
        elif kept:
            release += f"; {kept}, which Drawbridge does not manage, keeps it reserved then"
        yield Reservation(
            stored,
            expires_at=release_at(noted, settings),
            release=release,
            segments=tuple(sorted(each.segment.metadata.name for each in copies)),
        )


def _release(
    stored: Record,
    noted: Record,
    pods: Pods,
    settings: IPReservationSettings,
    now: datetime,
    *,
    by_hand: bool,
) -> str:
    lasts = duration(settings.duration)
    if stored.key in pods.kept:
        return "the pod that took the place of its pod has it: the leader ends it in its next run"
    if stored.key in pods.waiting:
        return "it waits for the pod that takes the place of its pod, which was promised this address"
    if pods.life_of(stored) is Life.RUNNING and not was_asked(stored):
        return f"it is reserved ahead: its {lasts} begin when its pod is gone"
    if pods.life_of(stored) is Life.RUNNING:
        after = duration(settings.give_back_after)
        return (
            f"its pod still runs: it is given back {after} after the leader saw that the deletion was refused"
        )
    if noted.ended is None:
        return f"its pod is terminating: its {lasts} begin when it is gone"
    if by_hand:
        return "an operator asked for its release: the leader releases it in its next run"
    if is_over(noted, settings, now):
        return "its time is over: the leader releases it in its next run"
    not_stored = "" if stored.ended else f"; {NOT_STORED}"
    return f"in {left(release_at(noted, settings), now)}, {lasts} after its pod ended{not_stored}"


def reservation_table(found: Sequence[Reservation]) -> Table:
    return Table(
        ("RESERVED", "POD", "BECAUSE IT WAS", "SINCE", "RELEASED", "EXPIRES AT", "SEGMENT"),
        [
            (
                address_of(each.record.cidr),
                each.pod,
                each.record.reason,
                f"{each.record.at:%Y-%m-%d %H:%M:%SZ}",
                each.release,
                moment(each.expires_at),
                " ".join(each.segments),
            )
            for each in found
        ],
        empty="Drawbridge has reserved nothing.",
        wide=2,
    )


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
        if (promise := open_promise(pod)) is None:
            continue
        node, until = pod.spec.node_name, None
        since = (pod.bound_at if node else None) or pod.metadata.creation_timestamp
        step = plan_ending(pod, promise, (now - (since or now)).total_seconds(), settings)
        if not settings.same_address.enabled:
            ends = "ipReservation.sameAddress is off: the pod asks for it until you remove its annotation"
        elif isinstance(step, Ending):
            ends = (
                "Its time is over: the leader ends it in its next run, and Calico then gives the pod any IP"
            )
        else:
            until = now + timedelta(seconds=step)
            after = (
                f"{duration(settings.same_address.timeout)} after it got its node"
                if node
                else f"{duration(settings.duration)} without a node"
            )
            ends = f"It asks Calico for it until {moment(until)}, {after}, or a little later: then it gets any IP"
        yield Promised(pod.key, node, promise.addresses, until, ends)


def lines(found: Iterable[Promised]) -> Iterator[str]:
    for each in found:
        where = f" on node {each.node}" if each.node else ""
        yield f"Promised to pod {each.pod}{where}: {' and '.join(each.ips)}, of its predecessor. {each.ends}"


def _known_of(inventory: Inventory, stored: Sequence[Stored]) -> Pods:
    """As the leader finds them: the lives of their pods, and what waits for a successor, or has ended by it."""
    named = ((record, inventory.pod(record.namespace, record.pod)) for record, _ in stored if record.uid)
    found = [(record, pod) for record, pod in named if pod]
    own = [(record, pod) for record, pod in found if pod.metadata.uid == record.uid]
    successors = found if inventory.settings.ip_reservation.same_address.enabled else ()
    return Pods(
        {record.uid: life_of(pod) for record, pod in own},
        waiting=frozenset(record.key for record, pod in successors if is_waited_for(record, pod)),
        kept=frozenset(record.key for record, pod in successors if is_kept(record, pod)),
        left=frozenset(record.key for record, pod in own if has_left(record, pod)),
    )


def predicted(_: Inventory) -> Make:
    """Its webhooks; what they would reserve is only recorded."""

    def webhooks(snapshot: Snapshot, ledger: RecordingLedger) -> Sequence[Webhook]:
        settings, now = lambda: snapshot.settings.ip_reservation, lambda: snapshot.now
        return (
            IPReservationWebhook(snapshot, ledger, settings, now, lambda _: True, lambda _: epoch(snapshot)),
            SameAddressWebhook(
                snapshot, lambda _: snapshot.segments, lambda _: snapshot.calico, settings, now
            ),
        )

    return webhooks


def snapshot_with_segments(inventory: Inventory, pods: Iterable[Raw]) -> Snapshot:
    """And what decides about promises to new pods."""
    segments, settings = segments_if_any(inventory), inventory.settings.ip_reservation
    # Its defaults where it cannot be read, and where nothing depends on it.
    calico = CalicoIPAM()
    if settings.same_address.enabled:
        with suppress(KubeError):
            calico = calico_ipam(inventory.client, settings.calico_api_version, SECONDS)
    return replace(snapshot_of(inventory, pods), segments=segments, calico=calico)


class Holder(Document, frozen=True):
    """A pod that has the IP, and what its deletion and its eviction would do."""

    pod: str
    node: str
    phase: str
    questions: tuple[Prediction, ...]


class IPExplanation(Report, frozen=True):
    ip: str
    summary: str
    reservations: tuple[Reservation, ...]
    promised: tuple[Promised, ...]
    unmanaged: tuple[str, ...]
    holders: tuple[Holder, ...]
    now: datetime
    events: tuple[Event, ...]
    pool: str
    assigned: Assignment | None
    assigned_unknown: str
    cooldown: int
    held: bool

    def parts(self, now: datetime) -> Iterator[Part]:
        yield title(self.summary)
        yield from hold_lines([self.ip] if self.held else ())
        yield reservation_table(self.reservations)
        yield from lines(self.promised)
        found, pool = self.assigned, f"Calico's pool {self.pool}"
        if self.assigned_unknown:
            yield f"What Calico has assigned it to is not known: {self.assigned_unknown}"
        elif found and found.released:
            yield f"{pool} has released it at {found.released}: it is in its cooldown"
        elif found:
            holder = f"pod {found.pod}" if found.pod else found.handle or "no pod"
            since = f" since {found.since}" if found.since else ""
            yield f"{pool} has assigned it to {holder}, on node {found.node or 'unknown'}{since}"
        elif self.pool:
            yield f"{pool} has assigned it to no pod"
        if self.cooldown:
            lasts = duration(self.cooldown)
            yield f"Calico gives an IP to no pod for {lasts} after it was released (ipCooldownSeconds)"
        for each in self.holders:
            heading = f"Pod {each.pod} has it, {each.phase}, on node {each.node}"
            yield question_table(each.questions, heading)
        yield event_table(self.events, now)


def explain_ip(inventory: Inventory, _namespace: str, address: str) -> IPExplanation:
    try:
        ip = str(ip_address(address))
    except ValueError:
        raise Failure(f"{address!r} is no IP address", "write for example 10.0.0.5") from None
    segments, cidr = segments_if_any(inventory), canonical(ip)
    stored = [each for each in stored_in(segments) if each.record.cidr == cidr]
    pool, assigned, cooldown, unknown = "", None, 0, ""
    try:
        if cidr:
            pool, assigned, cooldown = in_calico(inventory, ip)
    except KubeError as error:
        unknown = str(unreadable(error))
    named = [f"{record.namespace}/{record.pod}" for record, _ in stored if record.uid]
    having = _having(inventory, ip, [*named, assigned.pod] if assigned else named)
    snapshot = snapshot_of(inventory, [each.raw for each in having])
    settings, now = snapshot.settings.ip_reservation, snapshot.now
    # Those that have taken the places of StatefulSets' pods; without same addresses no record says of any.
    places = sorted({(record.namespace, record.pod) for record, _ in stored if record.owner_uid})
    successors = [pod for place in places if (pod := inventory.pod(*place))]
    unmanaged = Unmanaged(segments)
    found = tuple(reservations(inventory, stored, unmanaged))
    others = tuple(unmanaged.names(ip))
    held = held_by_hand(segments, ip)
    holders = tuple(
        Holder(
            pod=pod.key,
            node=pod.spec.node_name,
            phase=pod.status.phase,
            questions=tuple(
                each for each in questions_about_pod(pod.raw, snapshot) if each.action != "create"
            ),
        )
        for pod in having
    )
    # On pods that it came to.
    about = events_of(inventory, None, reason="AddressSwapped") if segments else ()
    return IPExplanation(
        ip=ip,
        summary=_summary(ip, found, holders, others, held=held),
        reservations=found,
        promised=tuple(
            each for each in promised(successors, settings, now) if cidr in map(canonical, each.ips)
        ),
        unmanaged=others,
        holders=holders,
        now=now,
        events=latest([each for each in about if ip in each.message.replace(",", " ").split()]),
        pool=pool,
        assigned=assigned,
        assigned_unknown=unknown,
        cooldown=cooldown,
        held=held,
    )


def _having(inventory: Inventory, ip: str, named: Iterable[str]) -> Sequence[StoredPod]:
    """By the first address, as the API server selects pods; by the second one, those of *named*.

    One that has finished still shows what it had.
    """
    second = (inventory.pod(*each.split("/", 1)) for each in dict.fromkeys(named) if "/" in each)
    found = inventory.pods(Selection(field_selector=f"status.podIP={ip}")) or filter(None, second)
    return [pod for pod in found if ip in pod.status.addresses and not pod.finished]


def held_by_hand(segments: Sequence[IPReservation], address: str) -> bool:
    cidr = canonical(address)
    return cidr is not None and any(is_held_by_hand(each, cidr) for each in segments)


def hold_lines(addresses: Iterable[str]) -> Iterator[str]:
    for each in addresses:
        way_out = f"drawbridge reservations release {each}"
        yield f"{each} is held by hand: Calico assigns it to no new pod until you release it with {way_out}."


def _summary(
    ip: str, found: Sequence[Reservation], holders: Sequence[Holder], others: Sequence[str], *, held: bool
) -> str:
    """*held* by hand, or by *others*, is how it is kept without us."""
    if found:
        whose = ", ".join(dict.fromkeys(each.pod or "no pod" for each in found))
        return f"{ip} is reserved for {whose}"
    had = f"pod {' and '.join(each.pod for each in holders)} has it" if holders else "no pod has it"
    if held:
        return f"{ip} is held by hand; {had}"
    if others:
        return f"{ip} is reserved by {', '.join(others)}, not managed by Drawbridge; {had}"
    return f"{ip} is not reserved: {had}" if holders else f"{ip} is not reserved, and {had}"


class PodExplanation(Report, frozen=True):
    pod: str
    node: str
    phase: str
    ips: tuple[str, ...]
    gated: bool
    annotations: dict[str, str]
    now: datetime
    questions: tuple[Prediction, ...]
    promised: tuple[Promised, ...]
    reservations: tuple[Reservation, ...]
    events: tuple[Event, ...]
    held: tuple[str, ...]

    def parts(self, now: datetime) -> Iterator[Part]:
        where = f" on node {self.node}" if self.node else ""
        ips = f", {' and '.join(self.ips)}" if self.ips else ", no IP"
        gate = ", gated by Drawbridge" if self.gated else ""
        yield title(f"Pod {self.pod}: {self.phase}{where}{ips}{gate}")
        if self.questions:
            yield question_table(self.questions)
        if self.annotations:
            yield Table(("ANNOTATION", "VALUE"), sorted(self.annotations.items()))
        yield from lines(self.promised)
        yield from hold_lines(self.held)
        yield reservation_table(self.reservations)
        yield event_table(self.events, now)


def explain_pod(inventory: Inventory, namespace: str, name: str) -> PodExplanation:
    """Failure when there is no such pod, no reservation for it and no Event about it."""
    segments, found = segments_if_any(inventory), events_about(inventory, "Pod", namespace, name)
    stored = [
        each for each in stored_in(segments) if (each.record.namespace, each.record.pod) == (namespace, name)
    ]
    present = inventory.pod(namespace, name)
    if present is None and not stored and not found:
        raise Failure(
            f"there is no pod {namespace}/{name}, no reservation for it and no Event about it",
            "check its name and its namespace (-n); of its IP, see drawbridge explain ip IP",
        )
    snapshot = snapshot_with_segments(inventory, [present.raw] if present else [])
    snapshot = replace(snapshot, budgets=budgets_of(inventory, namespace))
    settings, now = snapshot.settings.ip_reservation, snapshot.now
    pod = present or Pod(status=PodStatus(phase="gone"))
    addresses = pod.status.addresses
    return PodExplanation(
        pod=f"{namespace}/{name}",
        node=pod.spec.node_name,
        phase="Terminating" if pod.terminating else pod.status.phase or "Unknown",
        ips=addresses,
        gated=pod.is_gated,
        annotations={key: value for key, value in pod.metadata.annotations.items() if key.startswith(OURS)},
        now=now,
        questions=tuple(questions_about_pod(present.raw, snapshot)) if present else (),
        promised=tuple(promised([present] if present else [], settings, now)),
        reservations=tuple(reservations(inventory, stored, Unmanaged(segments))),
        events=latest(found),
        held=tuple(each for each in addresses if held_by_hand(segments, each)),
    )


POD = Kind(
    "Explain which webhooks apply to a pod, and what deleting, evicting or creating it would do.", explain_pod
)
IP = Kind(
    "Explain who has an IP, whether it is reserved, why, and until when.",
    explain_ip,
    namespaced=False,
    argument="ADDRESS",
)
