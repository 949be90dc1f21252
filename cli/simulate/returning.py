"""What the next pod of a removed one of a StatefulSet gets: its address again, or another one, by admission itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from api.ip_reservation import SAME_ADDRESS_PATH
from api.same_address import IP_ADDRS, SAME_ADDRESS_FROM, promise_of, stateful_set_of
from calico.segment import MANAGED_BY, MANAGER, IPReservation, Record, body
from cli.explain import requests
from cli.explain.foresight import Answer, Foresight, foresee
from cli.explain.reservations import ip_of
from cli.explain.snapshot import Snapshot
from cli.output import Document, Part, Table, good
from kube.resources import PODS
from kube.types import ObjectMeta

Raw = Mapping[str, Any]
NAME = "simulated"
"""Of the segment with what is only reserved in a simulation."""


class Returning(Document, frozen=True):
    """A pod of the name of one that goes: whether it is promised *ips*, which the former has, and else *why* not."""

    pod: str
    ips: tuple[str, ...]
    promised: bool
    why: str


def returning(gone: Sequence[tuple[Raw, Foresight]], snapshot: Snapshot) -> tuple[Returning, ...]:
    """Of StatefulSets' pods that are reserved, were they created again at once; none where same addresses are off."""
    if not snapshot.settings.ip_reservation.same_address.enabled:
        return ()
    records = [record for _, ahead in gone for record in ahead.records]
    after = replace(snapshot, segments=[*snapshot.segments, _segment(records)])
    return tuple(
        _returning(pod, ahead.records, after) for pod, ahead in gone if ahead.records and _returns(pod)
    )


def parts(found: Sequence[Returning]) -> Iterator[Part]:
    if found:
        rows = [
            (each.pod, " ".join(each.ips), good("its own") if each.promised else "any", each.why)
            for each in found
        ]
        yield Table(("COMES BACK", "HAD", "GETS", "BECAUSE"), rows)


def kept_ips(found: Iterable[Returning]) -> frozenset[str]:
    """Those for which no other address is needed."""
    return frozenset(ip for each in found if each.promised for ip in each.ips)


def _returning(pod: Raw, records: Sequence[Record], after: Snapshot) -> Returning:
    metadata = pod["metadata"]
    answer = _answer(foresee(requests.creation(PODS, _without_promise(pod)), after))
    is_promised = bool(answer and answer.decision and "promised" in answer.decision.audit)
    return Returning(
        pod=f"{metadata['namespace']}/{metadata['name']}",
        ips=tuple(ip_of(each.cidr) for each in records),
        promised=is_promised,
        why="it is promised to it" if is_promised else _why(answer),
    )


def _answer(ahead: Foresight) -> Answer | None:
    """Of the webhook that promises: of one that is called, if any is."""
    asked = [each for each in ahead.answers if each.verdict.webhook.path == SAME_ADDRESS_PATH]
    return next((each for each in (*(each for each in asked if each.decision), *asked)), None)


def _why(answer: Answer | None) -> str:
    if answer is None:
        return "the webhook that promises is not installed"
    skipped = answer.decision.audit.get("skipped") if answer.decision else None
    return skipped or answer.effect


def _returns(pod: Raw) -> bool:
    return stateful_set_of(msgspec.convert(pod["metadata"], ObjectMeta)) is not None


def _without_promise(pod: Raw) -> Raw:
    """As its template makes it: without the promise that *pod* itself got."""
    annotations = pod["metadata"].get("annotations") or {}
    ours = (SAME_ADDRESS_FROM, IP_ADDRS) if promise_of(annotations) else (SAME_ADDRESS_FROM,)
    left = {name: value for name, value in annotations.items() if name not in ours}
    return {**pod, "metadata": {**pod["metadata"], "annotations": left}}


def _segment(records: Iterable[Record]) -> IPReservation:
    made = body(records)
    made["metadata"] |= {"name": NAME, "labels": {MANAGED_BY: MANAGER}}
    return msgspec.convert(made, IPReservation)
