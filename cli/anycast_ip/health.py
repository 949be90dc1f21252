"""Anycast IPs in `status` and `doctor`: which nodes wait for theirs, and which quotas of the cloud are low."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import msgspec
from rich.text import Text

from api.anycast_ip import (
    DAILY,
    TAINT,
    TOTAL,
    QuotasRead,
    closed_since,
    is_open_without,
    is_tainted,
    quotas_in,
    transitions_of,
    wanted,
)
from cli.health import Health, Overview, Probe, Problem, named, probe_object
from cli.installation import CONTROLLERS, OWN, WEBHOOK, Needs, needs_of
from cli.inventory import Inventory
from cli.output import Cell, Document, warning
from kube.errors import KubeError
from kube.resources import NODES
from kube.types import Node
from settings import Settings

QUOTAS = "docs/how-to/runbooks/platform.md#drawbridgecloudquotalow"
MINUTE = timedelta(minutes=1)
TAINTED = 10 * MINUTE
"""How long a node usually waits for its address, at most, beside the time for which that is announced."""


class AnycastIP(Overview, frozen=True):
    """Nodes that need an anycast IP: *tainted* ones wait for it, as do those that are open *without* one."""

    nodes: int
    open: int
    tainted: tuple[str, ...]
    without: tuple[str, ...] = ()

    def state(self, now: datetime) -> Cell:
        if not self.nodes:
            return "no node needs an address"
        text = Text(f"{self.open} of {self.nodes} nodes open")
        for found, what in ((self.tainted, "tainted"), (self.without, "without an address")):
            if found:
                names = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
                text += warning(f"; {len(found)} {what}: {names}")
        return text


def look(inventory: Inventory) -> tuple[AnycastIP, Iterable[Problem]]:
    settings = inventory.installed.settings_or_defaults.anycast_ip
    labels = ",".join(f"{key}={value}" for key, value in settings.node_labels.items())
    selected = [node for node in inventory.nodes(labels) if wanted(node, settings)]
    tainted = [node for node in selected if is_tainted(node)]
    usual = TAINTED + timedelta(seconds=settings.allow_list.wait)
    problems, latest = [*_quota_problems(inventory)], inventory.now() - usual
    since = {
        each.metadata.name: closed_since(transitions_of(each), each.metadata.creation_timestamp)
        for each in tainted
    }
    if blocked := sorted(name for name, at in since.items() if at and at < latest):
        nodes = named(blocked, "still has", "still have")
        way_out = f"drawbridge explain node {blocked[0]}; docs/reference/names.md#events-anycast-ip"
        problems.append(Problem(f"{nodes} the taint {TAINT.key} after {usual / MINUTE:.0f} minutes", way_out))
    names = tuple(sorted(since))
    without = tuple(sorted(node.metadata.name for node in selected if is_open_without(node)))
    return AnycastIP(len(selected), len(selected) - len(names), names, without), problems


class QuotaLeft(Document, frozen=True):
    """As the leader last read it."""

    quota: str
    used: int
    limit: int
    left: int

    @property
    def is_low(self) -> bool:
        """Less than a tenth is left."""
        return self.left * 10 < self.limit


def left_of(found: QuotasRead | None) -> tuple[QuotaLeft, ...]:
    quotas = found.quotas if found else ()
    return tuple(QuotaLeft(each.id, each.current, each.limit, each.limit - each.current) for each in quotas)


def quotas_read(inventory: Inventory) -> QuotasRead | None:
    """None without an election, before the first read, and where the Lease may not be read."""
    try:
        return quotas_in(inventory.lease().metadata.annotations)
    except KubeError:
        return None


def _quota_problems(inventory: Inventory) -> Iterator[Problem]:
    for each in left_of(quotas_read(inventory)):
        if each.quota in (TOTAL, DAILY) and each.is_low:
            what = f"{each.left} of {each.limit} left in quota {each.quota}: new nodes may get no address"
            yield Problem(what, f"have it raised, or release orphaned addresses: {QUOTAS}")


def needs(settings: Settings) -> Needs:
    yield from needs_of(CONTROLLERS, "watch patch", "nodes")
    yield from needs_of(CONTROLLERS, "list create update delete", "configmaps", "", OWN)
    if settings.anycast_ip.egress_check.enabled:
        yield from needs_of(CONTROLLERS, "list create delete", "pods", "", OWN)
    if settings.anycast_ip.pod_address.enabled:
        yield from needs_of(WEBHOOK, "get", "nodes")


def probe(settings: Settings) -> Probe:
    node = probe_object("v1", "Node", labels=settings.anycast_ip.node_labels)
    return Probe("dry run of a Node", NODES, node, lambda stored: is_tainted(msgspec.convert(stored, Node)))


HEALTH = Health("anycast IP", "anycastIP", "anycastIp", "nodes", look, needs, probe)
