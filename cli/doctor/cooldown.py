"""What Calico's own cooldown makes of reservations: a function of both times."""

from __future__ import annotations

from collections.abc import Iterator

from calico.ipam_config import COOLDOWN
from cli.doctor.types import Finding, Verdict
from cli.errors import unreadable
from cli.output import duration
from kube.errors import KubeError
from settings import IPReservationSettings

CHECK = "Calico's cooldown"
PAGE = "docs/explanation/ip-reservation.md#calicos-cooldown"


def of_cooldown(settings: IPReservationSettings, cooldown: int | KubeError) -> Iterator[Finding]:
    """*cooldown* in seconds, 0 for none."""
    if not settings.enabled:
        return
    if isinstance(cooldown, KubeError):
        failure = unreadable(cooldown)
        yield Finding(CHECK, Verdict.SKIPPED, f"not read: {failure.message}", failure.way_out)
        return
    yield _of_reservations(settings, cooldown)
    if cooldown and settings.same_address.enabled:
        yield Finding(
            CHECK,
            Verdict.WARNING,
            f"Calico refuses an IP for {duration(cooldown)} after its release ({COOLDOWN}), also to its own pod that"
            " comes back: with ipReservation.sameAddress, StatefulSets' pods that come back earlier get other IPs",
            f"lower {COOLDOWN}, or switch ipReservation.sameAddress off; what each of them covers: {PAGE}",
        )


def _of_reservations(settings: IPReservationSettings, cooldown: int) -> Finding:
    if not cooldown:
        return Finding(CHECK, Verdict.OK, f"none ({COOLDOWN} is not set): only reservations keep IPs")
    if cooldown < settings.ip_reserve_time:
        message = (
            f"Calico keeps every IP for {duration(cooldown)} after its release; reservations last longer"
        )
        return Finding(CHECK, Verdict.OK, f"{message}: {duration(settings.ip_reserve_time)}")
    reserved = duration(settings.ip_reserve_time)
    return Finding(
        CHECK,
        Verdict.WARNING,
        f"Calico keeps every IP for {duration(cooldown)} after its release ({COOLDOWN}), and ipReserveTime is"
        f" {reserved}: reservations add little",
        f"raise config.ipReserveTime, or lower {COOLDOWN}; what each of them covers: {PAGE}",
    )
