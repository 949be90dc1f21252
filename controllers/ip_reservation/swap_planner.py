"""Decide whether a pod has an address that is, or should still be, kept for the clients of another pod."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from msgspec.structs import replace

from api.ip_reservation import cidrs_of
from calico.segment import Record
from controllers.ip_reservation.release_planner import is_over
from kube.types import Pod
from settings import IPReservationSettings


class Hold(StrEnum):
    """What was broken: a reservation that is there, or one that was released before its time."""

    RESERVED = "reserved"
    RELEASED_EARLY = "released-early"


def gained(old: Pod | None, new: Pod | None) -> frozenset[str]:
    """The addresses, as CIDRs, with which a pod comes up; none on the host's network, whose addresses are its own."""
    if new is None or new.spec.host_network or new.finished:
        return frozenset()
    return frozenset(cidrs_of(new)) - frozenset(cidrs_of(old) if old else ())


def is_anothers(record: Record, pod: Pod) -> bool:
    """Not of the pod itself, nor of one that it replaces under the same name: its clients mean it."""
    at = pod.metadata
    same_name = (record.namespace, record.pod) == (at.namespace, at.name)
    return bool(record.uid) and record.uid != at.uid and not same_name


def in_force(
    records: Iterable[Record], pod: Pod, settings: IPReservationSettings, now: datetime
) -> Record | None:
    """The first that is of another pod and not over."""
    others = (each for each in records if is_anothers(each, pod) and not is_over(each, settings, now))
    return next(others, None)


def with_end(record: Record, ended: datetime | None) -> Record:
    return record if record.ended else replace(record, ended=ended)
