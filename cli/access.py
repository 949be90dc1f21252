"""What our ServiceAccounts, and the user, must be allowed.

Of each feature the permissions without which it does nothing; docs/explanation/security.md has all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from api.ingress_daemonset import GROUP
from api.ip_history import NAME as HISTORY_NAME
from cli.installation import CONTROLLERS, WEBHOOK
from settings import Settings

OWN = "own"
"""In place of a namespace: that of the installation."""
CALICO = "calico"
"""In place of a group: that which is served."""


class Access(NamedTuple):
    """*namespace* is empty for the whole cluster."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}{where}"


ALWAYS = {CONTROLLERS: (Access("create", "events"), Access("create", "leases", "coordination.k8s.io", OWN))}
BY_FEATURE: Mapping[str, Mapping[str, tuple[Access, ...]]] = {
    "ip_reservation": {
        WEBHOOK: (
            Access("get", "pods"),
            Access("get", "namespaces"),
            Access("create", "ipreservations", CALICO),
        ),
        CONTROLLERS: (
            Access("watch", "pods"),
            Access("watch", "namespaces"),
            *(
                Access(verb, "ipreservations", CALICO)
                for verb in ("list", "watch", "create", "patch", "delete")
            ),
        ),
    },
    "anycast_ip": {
        CONTROLLERS: (
            Access("watch", "nodes"),
            Access("patch", "nodes"),
            *(Access(verb, "configmaps", "", OWN) for verb in ("list", "create", "update", "delete")),
        )
    },
    "elasticity": {
        WEBHOOK: (Access("get", "leases", "coordination.k8s.io", OWN, "drawbridge"),),
        CONTROLLERS: (
            Access("watch", "pods"),
            Access("patch", "pods"),
            Access("watch", "nodes"),
            Access("watch", "statefulsets", "apps"),
        ),
    },
    "ingress_daemonset": {
        WEBHOOK: (Access("list", "ingressdaemonsets", GROUP),),
        CONTROLLERS: (
            Access("watch", "ingressdaemonsets", GROUP),
            Access("patch", "ingressdaemonsets/status", GROUP),
            *(Access(verb, "deployments", "apps") for verb in ("watch", "create", "patch", "delete")),
        ),
    },
}
OPT_IN = {
    CONTROLLERS: (
        Access("patch", "pods"),
        Access("watch", "deployments", "apps"),
        Access("watch", "statefulsets", "apps"),
    )
}
"""Of workloads, for IP reservation."""
SAME_ADDRESS = {
    WEBHOOK: (Access("list", "ipreservations", CALICO), Access("list", "ippools", CALICO)),
    CONTROLLERS: (Access("patch", "pods"),),
}
"""Of a StatefulSet's pod that comes back."""
POOLS = {
    CONTROLLERS: (
        Access("watch", "ippools", CALICO),
        Access("watch", "ipamblocks", "crd.projectcalico.org"),
    )
}
"""Calico's own API server has no blocks."""
HISTORY = {
    CONTROLLERS: (
        Access("create", "configmaps", "", OWN),
        *(Access(verb, "configmaps", "", OWN, HISTORY_NAME) for verb in ("get", "update")),
    )
}
EGRESS = {CONTROLLERS: tuple(Access(verb, "pods", "", OWN) for verb in ("list", "create", "delete"))}
"""Pods of checks, for anycast IP."""
OF_USER = (
    Access("get", "secrets", "", OWN),
    Access("list", "nodes"),
    Access("list", "pods"),
    Access("list", "ipreservations", CALICO),
    Access("patch", "ipreservations", CALICO),
    Access("create", "pods/eviction"),
    Access("patch", "ingressdaemonsets", GROUP),
)


def needed(settings: Settings, namespace: str, calico: str) -> Iterator[tuple[str, Access]]:
    """Each with the program that needs it."""
    rules = [ALWAYS, *(rows for feature, rows in BY_FEATURE.items() if getattr(settings, feature).enabled)]
    if settings.ip_reservation.enabled and settings.ip_reservation.workload_opt_in:
        rules.append(OPT_IN)
    if settings.ip_reservation.enabled and settings.ip_reservation.same_address.enabled:
        rules.append(SAME_ADDRESS)
    if settings.ip_reservation.enabled and settings.ip_reservation.pools.enabled:
        rules.append(POOLS)
    if settings.ip_reservation.enabled and settings.ip_reservation.pools.keeps_history:
        rules.append(HISTORY)
    if settings.anycast_ip.enabled and settings.anycast_ip.egress_check.url:
        rules.append(EGRESS)
    for rows in rules:
        for program, accesses in rows.items():
            yield from ((program, located(each, namespace, calico)) for each in accesses)


def located(access: Access, namespace: str, calico: str) -> Access:
    group = calico if access.group == CALICO else access.group
    return access._replace(group=group, namespace=namespace if access.namespace == OWN else "")


def attributes(access: Access) -> dict[str, Any]:
    """As a review of access has them."""
    resource, _, subresource = access.resource.partition("/")
    found = {"verb": access.verb, "group": access.group, "resource": resource, "subresource": subresource}
    return {**found, "namespace": access.namespace, "name": access.name}
