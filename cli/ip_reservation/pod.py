"""`drawbridge explain pod`: what would happen to it, what has happened, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from api.elasticity import GATE
from api.same_address import IP_ADDRS
from calico.segment import Record
from cli.errors import Failure
from cli.explain.kinds import EventRow, Kind, budgets_of, event_table, events, events_about, objects_about
from cli.explain.prediction import Question, question_table, questions_about_pod
from cli.inventory import Inventory
from cli.ip_reservation.ip import (
    Promised,
    Reservation,
    lines,
    promised,
    promises_to,
    reservation_table,
    reservations,
)
from cli.ip_reservation.reservations import segments_if_any
from cli.ip_reservation.webhooks import lives_of, pod_of, records_of, snapshot_with_segments
from cli.output import Part, Report, Table, title
from controllers.ip_reservation.release_planner import Pods
from kube.types import Pod

Raw = dict[str, Any]
OURS = (
    "drawbridge.io/",
    IP_ADDRS,
    "LOCAL_REPLICAS",
    "AUTO_SCALE_EKS",
    "controller.kubernetes.io/pod-deletion-cost",
)


class PodExplanation(Report, frozen=True):
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
        yield reservation_table(self.reservations)
        yield event_table(self.events, now)


def explain(inventory: Inventory, namespace: str, name: str) -> PodExplanation:
    """Failure when there is no such pod, no reservation for it and no Event about it."""

    def is_of(record: Record) -> bool:
        return (record.namespace, record.pod) == (namespace, name)

    segments, found = segments_if_any(inventory), events_about(inventory, "Pod", namespace, name)
    records = [each for each in records_of(segments) if is_of(each)]
    raw = pod_of(inventory, namespace, name)
    if raw is None and not records and not found:
        raise Failure(
            f"there is no pod {namespace}/{name}, no reservation for it and no Event about it",
            "check its name and its namespace (-n); of its IP, see drawbridge explain ip IP",
        )
    objects = replace(
        objects_about(inventory, [raw] if raw else []), budgets=budgets_of(inventory, namespace)
    )
    snapshot = snapshot_with_segments(inventory, objects)
    settings, now = snapshot.settings.ip_reservation, snapshot.now
    present = [msgspec.convert(raw, Pod)] if raw else []
    pods = Pods(lives_of(inventory, records), {}, promises=promises_to(present, segments, settings))
    pod = raw or {}
    spec, status = pod.get("spec", {}), pod.get("status", {})
    annotations = pod.get("metadata", {}).get("annotations") or {}
    return PodExplanation(
        pod=f"{namespace}/{name}",
        node=spec.get("nodeName", ""),
        phase=_phase(raw),
        ips=tuple(each["ip"] for each in status.get("podIPs", ())),
        gated=any(each.get("name") == GATE for each in spec.get("schedulingGates", ())),
        annotations={key: value for key, value in annotations.items() if key.startswith(OURS)},
        conditions={each["type"]: _condition(each) for each in status.get("conditions", ())},
        now=now,
        questions=tuple(questions_about_pod(raw, snapshot)) if raw else (),
        promised=tuple(promised(present, settings, now)),
        reservations=tuple(reservations(segments, is_of, pods, settings, now)),
        events=tuple(events(found)),
    )


def _phase(pod: Raw | None) -> str:
    if pod is None:
        return "gone"
    is_terminating = "deletionTimestamp" in pod["metadata"]
    return "Terminating" if is_terminating else str(pod.get("status", {}).get("phase", "Unknown"))


def _condition(raw: Raw) -> str:
    return ": ".join(filter(None, (raw.get("status", ""), raw.get("reason", ""))))


POD = Kind(
    "Which webhooks concern a pod, what its deletion, eviction or creation would do, and why.", explain
)
