"""`drawbridge explain node`: whether it needs an anycast IP and is open, and what admission does to a change of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from api.anycast_ip import (
    BOUND,
    CONDITION,
    HISTORY,
    TAINT,
    Transition,
    is_open_without,
    is_ours,
    is_proven_bound,
    is_tainted,
    transitions_of,
    wanted,
)
from cli.explain.kinds import Event, Kind, event_table, events_about, latest, snapshot_of
from cli.explain.prediction import Prediction, Snapshot, change_of, creation_of, predict, question_table
from cli.inventory import Inventory
from cli.output import Part, Report, Table, age, moment, title
from controllers.anycast_ip.claim import terms_for
from kube.resources import NODES
from kube.types import Node, Taint, converted, is_super
from settings import AnycastIPSettings

Raw = dict[str, Any]
OURS = ("drawbridge.io/", "tke.cloud.tencent.com/")


class NodeExplanation(Report, frozen=True):
    """*anycast_ip* says whether the node needs one, and whether it is open; *address_terms* how wide
    it is, and how it is paid, where nodes differ in that.

    *condition* is what its AnycastIPReady says, *transitions* when it was opened and closed, the latest first.
    """

    node: str
    anycast_ip: str
    address_terms: str
    taints: tuple[str, ...]
    condition: str
    transitions: tuple[Transition, ...]
    annotations: dict[str, str]
    questions: tuple[Prediction, ...]
    now: datetime
    events: tuple[Event, ...]

    def parts(self, now: datetime) -> Iterator[Part]:
        yield title(f"Node {self.node}")
        yield f"Anycast IP: {self.anycast_ip}"
        if self.address_terms:
            yield f"Its address: {self.address_terms}"
        if self.condition:
            yield f"Condition {CONDITION}: {self.condition}"
        if self.transitions:
            changed = [
                (moment(each.at), age(each.at, now), each.to, each.address) for each in self.transitions
            ]
            yield Table(("CHANGED", "AGE", "TO", "ADDRESS"), changed)
        yield question_table(self.questions)
        if self.annotations:
            yield Table(("ANNOTATION", "VALUE"), sorted(self.annotations.items()))
        yield f"Which IPs its drain reserves: drawbridge simulate drain {self.node}"
        yield event_table(self.events, now)


def explain(inventory: Inventory, _namespace: str, name: str) -> NodeExplanation:
    raw = inventory.get(NODES, name, None, Raw)
    found = events_about(inventory, "Node", None, name)
    snapshot = snapshot_of(inventory)
    settings, node = snapshot.settings.anycast_ip, converted(raw, Node)
    annotations = node.metadata.annotations
    return NodeExplanation(
        node=node.metadata.name,
        anycast_ip=standing(node, settings),
        address_terms=terms_in_words(node, settings),
        taints=taints_in_words(node),
        condition=_condition(node),
        transitions=transitions_of(node),
        annotations={
            name: value for name, value in annotations.items() if name.startswith(OURS) and name != HISTORY
        },
        questions=questions(raw, snapshot),
        now=snapshot.now,
        events=latest(found),
    )


def standing(node: Node, settings: AnycastIPSettings) -> str:
    if not settings.enabled:
        return "the feature is off"
    if is_super(node):
        return "not needed: a super node has no instance"
    if not wanted(node, settings):
        missing = sorted(settings.node_labels.items() - node.metadata.labels.items())
        return f"not needed: it is not labelled {', '.join(map('='.join, missing))}"
    if is_tainted(node):
        proven = "the address is proven bound" if is_proven_bound(node) else "no address is proven bound"
        opens = f"; it opens {when}" if (when := opens_when(settings)) else ""
        return f"needed, and closed by taint {TAINT.key}: {proven}{opens}"
    if is_open_without(node):
        return "needed, and open without one: its condition says why"
    if is_proven_bound(node):
        return f"needed, bound and open: {node.metadata.annotations[BOUND]}"
    return "needed, and open without proof of an address: the controllers look at it and close it, if it has none"


def taints_in_words(node: Node) -> tuple[str, ...]:
    return tuple(f"{each.key}={each.value}:{each.effect}" for each in node.spec.taints)


def opens_when(settings: AnycastIPSettings) -> str:
    """What a node that is bound waits for, too."""
    check = settings.egress_check
    return f"when {check.url} sees its address" if check.enabled else ""


def terms_in_words(node: Node, settings: AnycastIPSettings) -> str:
    """Empty where all nodes have the same, and for nodes that need no address."""
    if not settings.enabled or not settings.addresses or not wanted(node, settings):
        return ""
    terms = terms_for(node, settings)
    width = f"{terms.bandwidth} Mbps" if terms.bandwidth else "the bandwidth that the cloud gives"
    paid = " ".join(filter(None, (terms.charge_type, terms.bandwidth_package))) or "paid as the account is"
    return f"{width}, {paid}"


def questions(node: Raw, snapshot: Snapshot) -> tuple[Prediction, ...]:
    untainted = change_of(NODES, node, _without_taint(node))
    return (
        predict(creation_of(NODES, node), snapshot, "create"),
        predict(untainted, snapshot, "remove the taint"),
    )


def _condition(node: Node) -> str:
    ours = (each for each in node.status.conditions if each.type == CONDITION)
    return next((f"{each.status}, {each.reason}: {each.message}" for each in ours), "")


def _without_taint(node: Raw) -> Raw:
    spec = node.get("spec", {})
    kept = [each for each in spec.get("taints", ()) if not is_ours(msgspec.convert(each, Taint))]
    return {**node, "spec": {**spec, "taints": kept}}


NODE = Kind(
    "Explain whether a node needs an anycast IP, whether it is open, and what admission does to it.",
    explain,
    namespaced=False,
)
