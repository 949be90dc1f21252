"""Publish all addresses that nodes have or may get, in a ConfigMap, for allow-lists of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import structlog

from controllers.anycast_ip.claim import MANAGED_BY, MANAGER, Claim
from controllers.anycast_ip.planner import is_open
from controllers.anycast_ip.sources import Sources
from kube.client import Client
from kube.errors import KubeError, NotFound
from kube.resources import CONFIG_MAPS
from kube.types import ConfigMap, Node
from webhook.anycast_ip import ADDRESS, ADDRESS_ID

LABEL, LABEL_VALUE = "drawbridge.io/allow-list", "anycast-ip"
TEXT, JSON = "addresses.txt", "addresses.json"
PERIOD = 2.0
"""Seconds from one look at the addresses to the next."""
AGAIN = 30.0
"""Seconds after which a write that failed is repeated."""
REREAD = 300.0
"""Seconds after which the ConfigMap is read again: another client may have changed or deleted it."""

IN_USE, PROMISED, IDLE = "in use", "promised", "idle"

log = structlog.stdlib.get_logger(__name__)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """*state*: an open node uses it; or it is promised to a node that is not open yet; or it is idle in the pool."""

    address: str
    id: str
    node: str = ""
    state: str


Entries = tuple[Entry, ...]
DECODER = msgspec.json.Decoder(Entries)


def entries(claims: Iterable[Claim], nodes: Mapping[str, Node], ips: Mapping[str, str]) -> Entries:
    """One for each address, sorted; *nodes* by uid, *ips* by the ids of addresses.

    What is being released is no longer among them, nor is what has no IP that is known yet.
    """
    stay = (each for each in claims if ips.get(each.address) and not each.releasing)
    by_id = {each.address: _entry(each, nodes.get(each.uid), ips[each.address]) for each in stay}
    return tuple(sorted(by_id.values(), key=lambda each: (each.address, each.id)))


def _entry(claim: Claim, node: Node | None, ip: str) -> Entry:
    state = IN_USE if node and is_open(node) else IDLE if claim.pooled else PROMISED
    return Entry(address=ip, id=claim.address, node="" if claim.pooled else claim.node, state=state)


def shown_ips(nodes: Iterable[Node]) -> dict[str, str]:
    """By the ids that the nodes show."""
    shown = (each.metadata.annotations for each in nodes)
    return {each[ADDRESS_ID]: each[ADDRESS] for each in shown if ADDRESS_ID in each and ADDRESS in each}


def data_of(found: Entries) -> dict[str, str]:
    """One address a line, and the same as JSON."""
    lines = dict.fromkeys(each.address for each in found)
    return {
        TEXT: "".join(f"{each}\n" for each in lines),
        JSON: msgspec.json.format(msgspec.json.encode(found)).decode() + "\n",
    }


def entries_in(found: ConfigMap) -> Entries:
    """What an earlier leader wrote; none where another client has written something else."""
    try:
        return DECODER.decode(found.data.get(JSON, "[]"))
    except (msgspec.MsgspecError, ValueError):
        return ()


class AllowListStore:
    """*check* runs before each write."""

    def __init__(self, client: Client, namespace: str, check: Callable[[], None]) -> None:
        self._client, self._namespace, self._check = client, namespace, check

    def read(self, name: str) -> ConfigMap | None:
        """ValueError when it is not ours."""
        try:
            found = self._client.get(CONFIG_MAPS, name, self._namespace, type=ConfigMap)
        except NotFound:
            return None
        if LABEL not in found.metadata.labels:
            raise ValueError(
                f"ConfigMap {self._namespace}/{name} has no label {LABEL}: give another name, or label it"
                f" {LABEL}={LABEL_VALUE} to have it overwritten"
            )
        return found

    def write(self, name: str, data: Mapping[str, str], over: ConfigMap | None) -> ConfigMap:
        """Conflict or AlreadyExists when it is not as it was read."""
        self._check()
        metadata: dict[str, Any] = {"name": name, "labels": {MANAGED_BY: MANAGER, LABEL: LABEL_VALUE}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        if over is None:
            return self._client.create(CONFIG_MAPS, body, self._namespace, type=ConfigMap)
        metadata["resourceVersion"] = over.metadata.resource_version
        return self._client.replace(CONFIG_MAPS, name, body, self._namespace, type=ConfigMap)


class AllowList:
    """`turn` writes it when it changes."""

    def __init__(self, sources: Sources, store: AllowListStore) -> None:
        self._sources, self._store = sources, store
        self._clock = sources.memory.clocks.monotonic
        self._name, self._due, self._read_at = "", -math.inf, -math.inf
        self._found: ConfigMap | None = None
        self._ips: dict[str, str] = {}

    def turn(self) -> None:
        """What is due; before the cluster's addresses were read once, they are not known well enough."""
        name = self._sources.settings().allow_list.config_map
        if not name or self._clock() < self._due or self._sources.inventory.read_at is None:
            return
        self._due = self._clock() + PERIOD
        try:
            self._publish(name)
        except (KubeError, ValueError) as error:
            self._due, self._read_at = self._clock() + AGAIN, -math.inf
            log.warning("allow-list not written", name=name, error=str(error))

    def _publish(self, name: str) -> None:
        if name != self._name or self._clock() >= self._read_at + REREAD:
            self._found = self._store.read(name)
            self._name, self._read_at = name, self._clock()
        data = data_of(self._entries())
        if self._found is None or self._found.data != data:
            self._found = self._store.write(name, data, self._found)
            log.info("allow-list written", name=name, addresses=data[TEXT].count("\n"))

    def _entries(self) -> Entries:
        nodes = {each.metadata.uid: each for each in self._sources.nodes.list()}
        claims = self._sources.claims.claims.values()
        before = {each.id: each.address for each in entries_in(self._found)} if self._found else {}
        known = before | self._ips | self._sources.inventory.ips() | shown_ips(nodes.values())
        self._ips = {each.address: known[each.address] for each in claims if each.address in known}
        return entries(claims, nodes, self._ips)
