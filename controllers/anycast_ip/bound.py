"""Plan for a node whose address is bound: check its egress if that is configured, open it, correct the bandwidth."""

from __future__ import annotations

from api.anycast_ip import ADDRESS, ADDRESS_ID, BOUND, is_proven_bound, is_tainted, proof
from cloud.types import BIND, BIND_ENI, Address
from controllers.anycast_ip.claim import Claim
from controllers.anycast_ip.snapshot import Checked, Do, Egress, Note, Step
from controllers.anycast_ip.terms import wanted_bandwidth
from kube.types import Node
from settings import AnycastIPSettings

NOTHING = Step(Do.NOTHING)


def is_open(node: Node) -> bool:
    return is_proven_bound(node) and not is_tainted(node)


def serves(address: Address, instance: str) -> bool:
    """By its status, not by its instance id alone, which shows while it is still being bound."""
    bound = address.status in (BIND, BIND_ENI) and address.instance_id == instance != ""
    return bound and not address.blocked and not address.arrears


def shows(node: Node, address: Address) -> bool:
    """Whether *node* is open and says that it has *address*."""
    return (
        not is_tainted(node) and bound_annotations(node, address).items() <= node.metadata.annotations.items()
    )


def bound_annotations(node: Node, address: Address) -> dict[str, str]:
    return {ADDRESS_ID: address.id, ADDRESS: address.ip, BOUND: proof(node, address.id)}


def stopped(seen: Address) -> Note:
    why = "blocked" if seen.blocked else "in arrears"
    return Note(
        "AnycastIpNotServing", f"{seen.id} is {why} at Tencent Cloud; the node opens when that is over"
    )


def plan_when_bound(
    seen: Address, node: Node, claim: Claim, egress: Egress, settings: AnycastIPSettings
) -> Step:
    """*seen* is bound to the instance of *claim*."""
    if not serves(seen, claim.instance):
        return Step(Do.WATCH, stopped(seen))
    if shows(node, seen):
        return plan_bandwidth(seen, node, claim, settings)
    # A node that is open just shows something else by mistake.
    url = settings.egress_check.url
    if is_tainted(node) and url and egress.passed != Checked(seen.id, seen.ip, url):
        return Step(Do.CHECK, _closed_by(egress, seen), address=seen)
    return Step(Do.OPEN, address=seen)


def plan_bandwidth(seen: Address, node: Node, claim: Claim, settings: AnycastIPSettings) -> Step:
    """After the opening, which a refusal must not delay. What is not ours stays as it is."""
    wanted = wanted_bandwidth(node, settings)
    if claim.ours and wanted and seen.bandwidth not in (0, wanted):
        return Step(Do.RESIZE, address=seen)
    return NOTHING


def _closed_by(egress: Egress, seen: Address) -> Note | None:
    if not egress.trouble:
        return None
    return Note(
        "AnycastIpEgressFailed",
        f"{seen.id} is bound, but the check of the node's egress failed: {egress.trouble}; it is repeated, and the node"
        f" opens when the service sees {seen.ip}",
    )
