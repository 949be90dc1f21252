"""What anycast IPs add to `explain` and `simulate`: how their webhook answers, and nodes."""

from __future__ import annotations

from typing import Any

from cli.commands.explain import Kind, events_of, snapshot_of
from cli.explain import node
from cli.explain.prediction import Make, Objects
from cli.inventory import Inventory
from kube.resources import NODES
from webhook.anycast_ip.webhook import AnycastIPWebhook

Raw = dict[str, Any]


def predicted(_: Inventory) -> Make:
    """Its webhook."""
    return lambda snapshot, _: [AnycastIPWebhook(lambda: snapshot.settings.anycast_ip)]


def facts_of_node(inventory: Inventory, _namespace: str, name: str) -> node.NodeFacts:
    found = inventory.get(NODES, name, None, Raw)
    events = events_of(inventory, None, f"involvedObject.kind=Node,involvedObject.name={name}")
    return node.NodeFacts(found, snapshot_of(inventory, Objects()), events)


NODE = Kind(
    "Whether a node needs an anycast IP and is open, and what admission does to a change of it.",
    facts_of_node,
    node.explain,
    node.parts,
    namespaced=False,
)
