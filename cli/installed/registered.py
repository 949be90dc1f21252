"""Which webhooks the API server must call for the settings in force."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from api import anycast_ip, elasticity, ingress_daemonset, ip_reservation
from settings import Settings


def unregistered(settings: Settings, registered: Collection[str]) -> list[str]:
    """Paths of the webhook servers that the enabled features need, and no webhook configuration has."""
    return [each for each in needed(settings) if each not in registered]


def needed(settings: Settings) -> Iterator[str]:
    if settings.ip_reservation.enabled:
        yield ip_reservation.PATH
        if settings.ip_reservation.same_address.enabled:
            yield ip_reservation.SAME_ADDRESS_PATH
    if settings.anycast_ip.enabled:
        yield anycast_ip.PATH
    if settings.elasticity.enabled:
        yield elasticity.PATH
        if settings.elasticity.patch_daemon_sets:
            yield elasticity.DAEMON_SETS_PATH
    if settings.ingress_daemonset.enabled:
        yield from (*ingress_daemonset.PATHS, ingress_daemonset.EVICTIONS_PATH)


def kind_of(path: str) -> str:
    """Of the webhook configuration that has it."""
    return "mutating" if path.startswith("/mutate/") else "validating"
