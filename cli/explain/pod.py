"""Explain a pod: what would happen to it, what has happened, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from api.elasticity import GATE
from api.same_address import IP_ADDRS
from calico.segment import IPReservation
from cli.explain.answers import (
    Event,
    EventRow,
    Question,
    event_table,
    events,
    question_table,
    questions_about_pod,
)
from cli.explain.ip import (
    Promised,
    Reservation,
    lines,
    promised,
    promises_to,
    reservation_table,
    reservations,
)
from cli.explain.prediction import Snapshot
from cli.output import Document, Part, Table, title
from controllers.ip_reservation.release_planner import Life, Pods
from kube.types import Pod

Raw = Mapping[str, Any]
OURS = (
    "drawbridge.io/",
    IP_ADDRS,
    "LOCAL_REPLICAS",
    "AUTO_SCALE_EKS",
    "controller.kubernetes.io/pod-deletion-cost",
)


@dataclass(frozen=True)
class PodFacts:
    """*pod* is None when it is gone; *lives* are of the pods of records, by uid."""

    key: str
    pod: Raw | None
    snapshot: Snapshot
    segments: Sequence[IPReservation]
    lives: Mapping[str, Life]
    events: Sequence[Event]

    @property
    def present(self) -> Sequence[Pod]:
        """The pod, if it is there."""
        return () if self.pod is None else (msgspec.convert(self.pod, Pod),)


class PodExplanation(Document, frozen=True):
    pod: str
    node: str
    phase: str
    ips: tuple[str, ...]
    gated: bool
    annotations: dict[str, str]
    conditions: dict[str, str]
    now: datetime
    questions: tuple[Question, ...]
    promised: tuple[Promised, ...]
    reservations: tuple[Reservation, ...]
    events: tuple[EventRow, ...]


def explain(facts: PodFacts) -> PodExplanation:
    pod = facts.pod or {}
    spec, status = pod.get("spec", {}), pod.get("status", {})
    annotations = pod.get("metadata", {}).get("annotations") or {}
    return PodExplanation(
        pod=facts.key,
        node=spec.get("nodeName", ""),
        phase=_phase(facts.pod),
        ips=tuple(each["ip"] for each in status.get("podIPs", ())),
        gated=any(each.get("name") == GATE for each in spec.get("schedulingGates", ())),
        annotations={name: value for name, value in annotations.items() if name.startswith(OURS)},
        conditions={each["type"]: _condition(each) for each in status.get("conditions", ())},
        now=facts.snapshot.now,
        questions=tuple(questions_about_pod(facts.pod, facts.snapshot)) if facts.pod else (),
        promised=tuple(promised(facts.present, facts.snapshot.settings.ip_reservation, facts.snapshot.now)),
        reservations=tuple(_reservations(facts)),
        events=tuple(events(facts.events)),
    )


def parts(explained: PodExplanation) -> Iterator[Part]:
    where = f" on node {explained.node}" if explained.node else ""
    ips = f", {' and '.join(explained.ips)}" if explained.ips else ", no IP"
    gate = ", gated by Drawbridge" if explained.gated else ""
    yield title(f"Pod {explained.pod}: {explained.phase}{where}{ips}{gate}")
    if explained.questions:
        yield question_table(explained.questions)
    if explained.annotations:
        yield Table(("ANNOTATION", "VALUE"), sorted(explained.annotations.items()))
    yield from lines(explained.promised)
    yield reservation_table(explained.reservations)
    yield event_table(explained.events, explained.now)


def _phase(pod: Raw | None) -> str:
    if pod is None:
        return "gone"
    is_terminating = "deletionTimestamp" in pod["metadata"]
    return "Terminating" if is_terminating else str(pod.get("status", {}).get("phase", "Unknown"))


def _condition(raw: Raw) -> str:
    return ": ".join(filter(None, (raw.get("status", ""), raw.get("reason", ""))))


def _reservations(facts: PodFacts) -> Iterator[Reservation]:
    namespace, _, name = facts.key.partition("/")
    settings, now = facts.snapshot.settings.ip_reservation, facts.snapshot.now
    pods = Pods(facts.lives, {}, promises=promises_to(facts.present, facts.segments, settings))
    return reservations(
        facts.segments,
        lambda record: (record.namespace, record.pod) == (namespace, name),
        pods,
        settings,
        now,
    )
