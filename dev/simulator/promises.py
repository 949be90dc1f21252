"""Which invariants hold for a release, in the terms of its values. A feature that is off promises less."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dev.judge import Promise, address, certificates, edge, placement, reservation, truth
from dev.simulator.models import load_balancer

Raw = dict[str, Any]
SHORT_SKEW = 15.0
"""Seconds by which clocks differ at most where reservations, which last two minutes, are compared with them."""


def promises(values: Raw, *, changed: bool = True, restored: bool = False) -> list[Promise]:
    """*changed*: settings were others before; *restored*: etcd is that of an earlier time."""
    return [
        *_reservation(values),
        *_address(values),
        *_placement(values, changed=changed),
        *_edge(restored=restored),
        *_truth(),
        *_certificates(values),
    ]


def _reservation(values: Raw) -> Iterator[Promise]:
    if values["ipReservation"]["enabled"]:
        seconds = float(values["ipReservation"].get("duration", "2m").removesuffix("m")) * 60
        if (
            not values["ipReservation"].get("pools", {}).get("enabled")
        ):  # whose share ends reservations early: documented
            limits = (
                values["ipReservation"].get(each) for each in ("maxCount", "maxFinished", "maxPerNamespace")
            )
            most = min(filter(None, limits), default=None)
            yield Promise.of(
                reservation.KeptOutOfCirculation, seconds=seconds, clocks=2 * SHORT_SKEW, most=most
            )
        yield Promise.of(reservation.FreeInTime, seconds=seconds, clocks=2 * SHORT_SKEW)
        yield Promise.of(reservation.OnlySelected)
        yield Promise.of(reservation.OfItsPool)
        yield Promise.of(reservation.MarkedAreReserved)
        standing = values["ipReservation"].get("standing", {})
        ahead = standing.get("max", 10_000) if standing.get("enabled") else 0
        yield Promise.of(reservation.ReservationsEnd, ahead=ahead)


def _address(values: Raw) -> Iterator[Promise]:
    section = values["anycastIP"]
    pool = section.get("pool", {})
    retain = pool.get("retain", {})
    retained = retain.get("count", 10) if retain.get("enabled") else 0
    idle = retained + pool.get("minIdle", 0)
    yield Promise.of(address.BoundStaysBound)
    yield Promise.of(address.BoundOnce)
    yield Promise.of(address.FewChanges, terms=str(section))
    yield Promise.of(
        address.CloudIsWhatNodesNeed,
        idle=idle,
        keep=not section.get("releaseOnLabelRemoval", False),
    )
    yield Promise.of(address.OpensInTheEnd)
    if section["enabled"]:
        yield Promise.of(address.RunningKeepTheirs)
        lease = values.get("controllers", {}).get("leaseDuration", "15s")
        yield Promise.of(address.JoinsClosed, lease=float(lease.removesuffix("s")))
        release = section.get("whenExhausted") == "release"
        yield Promise.of(address.OpenWithAddress, release=release)
        yield Promise.of(address.OpenedWithoutInTime, release=release)
        yield Promise.of(address.OpenedWithAddress)
        yield Promise.of(address.OrderedForClosed)
        yield Promise.of(address.StaysOpen)
        yield Promise.of(address.PodsKnowTheirs)


def _placement(values: Raw, *, changed: bool) -> Iterator[Promise]:
    section = values["elasticity"]
    cap = section.get("maxSuperPods", {}).get("total") or None
    if section["enabled"]:
        if not section.get("homeFailover", {}).get(
            "enabled"
        ):  # by which more than N may be local: documented
            yield Promise.of(placement.NeverMoreThanNLocal, cap=cap)
        yield Promise.of(placement.TheFirstStayHome)
        yield Promise.of(placement.NoneWaitsForRoom, cap=cap)
        yield Promise.of(placement.NeverMoreThanTheCap, cap=cap, lowered=changed)
    yield Promise.of(placement.NoneWaitsBehindAGate, cap=cap)
    yield Promise.of(placement.RolloutsOfWorkloadsEnd, cap=cap)


def _certificates(values: Raw) -> Iterator[Promise]:
    if values["certs"]["mode"] == "self-managed":
        yield Promise.of(certificates.ServedIsTrusted)


def _edge(*, restored: bool) -> Iterator[Promise]:
    yield Promise.of(edge.EdgeServes)
    if not restored:  # what is detached then was so before
        yield Promise.of(edge.DetachedWithinTheBudget)
    yield Promise.of(edge.StoppedOnlyDetached, needs=load_balancer.PERIOD * load_balancer.FALLS)
    yield Promise.of(edge.HaltedStays)
    yield Promise.of(edge.AttachedInTheEnd)
    yield Promise.of(edge.RolloutsEnd)
    yield Promise.of(edge.CompleteIsTrue)
    yield Promise.of(edge.CompleteIsCurrent)


def _truth() -> Iterator[Promise]:
    yield Promise.of(truth.WaitsSayWhy)
    yield Promise.of(truth.WaitingIsTrue)
    yield Promise.of(truth.StatusIsTrue)
    yield Promise.of(truth.MetricsAreTrue)
