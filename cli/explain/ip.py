"""Explain an IP: who has it, and had it, whether it is reserved, why, and until when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from calico.segment import IPReservation, canonical
from cli.explain.answers import Question, rows
from cli.explain.events import Event, EventRow, events, table
from cli.explain.pod import questions, reserved
from cli.explain.promises import Promised, lines, promised, promises_to
from cli.explain.reservations import Reservation, reservations, unmanaged
from cli.explain.snapshot import Snapshot
from cli.output import Document, Part, Table, duration, title
from cli.pools import history
from cli.pools.assignment import Assigned, Assignment
from cli.pools.history import Past
from controllers.ip_reservation.copies import by_identity, merged
from controllers.ip_reservation.release_planner import Life, Pods
from kube.types import Pod

Raw = Mapping[str, Any]


@dataclass(frozen=True)
class IPFacts:
    """*pods* have the IP now, finished ones included; *lives* are of the pods of its records, by uid.

    *successors* have the names of StatefulSets' pods for which it is reserved.
    """

    assigned: Assigned
    pods: Sequence[Raw]
    snapshot: Snapshot
    segments: Sequence[IPReservation]
    lives: Mapping[str, Life]
    events: Sequence[Event]
    successors: Sequence[Pod] = ()

    @property
    def ip(self) -> str:
        return self.assigned.ip


class Holder(Document, frozen=True):
    """A pod that has the IP, and what would become of it."""

    pod: str
    node: str
    phase: str
    questions: tuple[Question, ...]


class IPExplanation(Document, frozen=True):
    """*counted* of *most* reservations are of pods that are gone: beyond that, the oldest is released first."""

    ip: str
    summary: str
    reservations: tuple[Reservation, ...]
    promised: tuple[Promised, ...]
    unmanaged: tuple[str, ...]
    holders: tuple[Holder, ...]
    counted: int
    most: int
    now: datetime
    events: tuple[EventRow, ...]
    pool: str
    assigned: Assignment | None
    assigned_unknown: str
    past: Past
    cooldown: int


def explain(facts: IPFacts) -> IPExplanation:
    settings, now = facts.snapshot.settings.ip_reservation, facts.snapshot.now
    cidr = canonical(facts.ip)
    pods = Pods(facts.lives, {}, promises=promises_to(facts.successors, facts.segments, settings))
    found = tuple(reservations(facts.segments, lambda record: record.cidr == cidr, pods, settings, now))
    of_successors = promised(facts.successors, settings, now)
    others = tuple(unmanaged(facts.segments, facts.ip))
    holders = tuple(_holder(each, facts.snapshot) for each in facts.pods)
    return IPExplanation(
        ip=facts.ip,
        summary=_summary(facts.ip, found, others, holders),
        reservations=found,
        promised=tuple(each for each in of_successors if cidr in map(canonical, each.ips)),
        unmanaged=others,
        holders=holders,
        counted=counted(facts.segments),
        most=settings.ip_reserve_max_count,
        now=now,
        events=tuple(events(facts.events)),
        pool=facts.assigned.pool,
        assigned=facts.assigned.found,
        assigned_unknown=facts.assigned.unknown,
        past=facts.assigned.past,
        cooldown=facts.assigned.cooldown,
    )


def counted(segments: Sequence[IPReservation]) -> int:
    """Addresses whose time runs."""
    records = map(merged, by_identity([each for each in segments if each.ours]).values())
    return len({each.cidr for each in records if each.ended})


def parts(explained: IPExplanation) -> Iterator[Part]:
    yield title(explained.summary)
    yield reserved(explained.reservations)
    yield from lines(explained.promised)
    if explained.reservations:
        counted_of = f"{explained.counted} of at most {explained.most}"
        yield f"{counted_of} IPs are reserved for pods that are gone; beyond that, the oldest is released first."
    yield from _of_calico(explained)
    yield from history.parts(explained.past)
    for holder in explained.holders:
        heading = f"Pod {holder.pod} has it, {holder.phase}, on node {holder.node}"
        asked = [row for each in holder.questions for row in rows(each)]
        yield Table(("IF IT IS REQUESTED NOW", "", "WHAT HAPPENS"), asked, title=heading)
    yield table(explained.events, explained.now)


def _of_calico(explained: IPExplanation) -> Iterator[Part]:
    found = explained.assigned
    if explained.assigned_unknown:
        yield f"What Calico has assigned it to is not known: {explained.assigned_unknown}"
    elif found and found.released:
        yield f"Calico's pool {found.pool} has released it at {found.released}: it is in its cooldown"
    elif found:
        holder = f"pod {found.pod}" if found.pod else found.handle or "no pod"
        since = f" since {found.since}" if found.since else ""
        yield f"Calico's pool {found.pool} has assigned it to {holder}, on node {found.node or 'unknown'}{since}"
    elif explained.pool:
        yield f"Calico's pool {explained.pool} has assigned it to no pod"
    if explained.cooldown:
        lasts = duration(explained.cooldown)
        yield f"Calico gives an IP to no pod for {lasts} after it was released (ipCooldownSeconds)"


def _holder(pod: Raw, snapshot: Snapshot) -> Holder:
    metadata = pod["metadata"]
    asked = tuple(each for each in questions(pod, snapshot) if each.action != "create")
    return Holder(
        pod=f"{metadata['namespace']}/{metadata['name']}",
        node=pod.get("spec", {}).get("nodeName", ""),
        phase=pod.get("status", {}).get("phase", ""),
        questions=asked,
    )


def _summary(ip: str, found: Sequence[Reservation], others: Sequence[str], holders: Sequence[Holder]) -> str:
    if found:
        whose = ", ".join(dict.fromkeys(each.key or "no pod" for each in found))
        return f"{ip} is reserved for {whose}: {found[-1].release}"
    if others:
        return f"{ip} is reserved by {', '.join(others)}, not managed by Drawbridge"
    if not holders:
        return f"{ip} is not reserved, and no pod has it"
    return f"{ip} is not reserved: pod {' and '.join(each.pod for each in holders)} has it"
