"""What Calico's own cooldown makes of reservations: a function of both times."""

from __future__ import annotations

from collections.abc import Iterator

from calico.cooldown import FIELD
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
    elif not cooldown:
        yield Finding(CHECK, Verdict.OK, f"none ({FIELD} is not set): only reservations keep IPs")
    elif cooldown < settings.ip_reserve_time:
        message = (
            f"Calico keeps every IP for {duration(cooldown)} after its release; reservations last longer"
        )
        yield Finding(CHECK, Verdict.OK, f"{message}: {duration(settings.ip_reserve_time)}")
    else:
        reserved = duration(settings.ip_reserve_time)
        yield Finding(
            CHECK,
            Verdict.WARNING,
            f"Calico keeps every IP for {duration(cooldown)} after its release ({FIELD}), and ipReserveTime is"
            f" {reserved}: reservations add little",
            f"raise config.ipReserveTime, or lower {FIELD}; what each of them covers: {PAGE}",
        )
