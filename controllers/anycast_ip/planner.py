"""Plan the next action for a node: from a snapshot, one action that can be repeated.

The address of a node that is gone is unbound. If the pool has a place for it, it stays there for the next node.
Else it is released, then its tags are deleted, and only then its claim.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from api.anycast_ip import (
    ADDRESS,
    ADDRESS_ID,
    BOUND,
    HAS_ONE,
    LABEL,
    NONE,
    TAINT,
    is_open,
    is_open_without,
    is_proven_bound,
    is_tainted,
    proof,
    wanted,
)
from cloud.types import BIND, BIND_ENI, UNBIND, UNBINDING, Address
from controllers.anycast_ip.brake import CONFIRMED, MOST
from controllers.anycast_ip.claim import (
    CLUSTER_UUID,
    HOLDING,
    INSTANCE_LABEL,
    NAMESPACE,
    Claim,
    bound_to,
    instance_of,
    is_current,
    is_offered,
    is_usable,
    wanted_bandwidth,
)
from controllers.anycast_ip.snapshot import (
    GONE,
    UNKNOWN,
    Action,
    Check,
    Checked,
    Note,
    Snapshot,
    Step,
)
from kube.types import Node, is_super, rfc3339
from settings import AnycastIPSettings

ANNOUNCED, HELD = "AnycastIpAnnounced", "AnycastIpReleaseHeld"
SLOW = 150.0
"""Seconds that an address may be on its way before an Event says so."""
SURE = 600.0
"""Seconds after which an order is looked up by its name before it is repeated. How long the cloud remembers a
ClientToken, and how far its index of names lags behind, is not documented; it is taken to be less than this."""

EXHAUSTED = timedelta(minutes=10)
"""For so long each order of a node is refused because of a quota, until the node opens without an address."""


def plan(snapshot: Snapshot, settings: AnycastIPSettings) -> Step:
    node, claim = snapshot.node, snapshot.claim
    if claim and is_leaving(node, claim, settings):
        return _before_leaving(node, settings) or _plan_release(snapshot, claim, settings)
    if node is None:
        return NOTHING
    if not wanted(node, settings):
        return _plan_when_unwanted(snapshot, node, settings)
    if must_be_closed(snapshot, node, settings):
        return Step(Action.CLOSE)
    if claim is None:
        return _plan_without_claim(snapshot, node, settings)
    return _plan_with_claim(snapshot, node, claim, settings)


def is_leaving(node: Node | None, claim: Claim, settings: AnycastIPSettings) -> bool:
    """Whether the address of *claim* has to go; a node that names no instance for a moment keeps its own.

    A release that has begun ends, whatever the settings say by then: its tags would be left.
    """
    if node is None or instance_of(node) not in ("", claim.instance):
        return True
    if claim.releasing and not wanted(node, settings):
        return True
    # Other labels in the settings take nothing away: a slip there must not cost a whole cluster its addresses.
    has_lost_labels = not wanted(node, settings) and not claim.labels.items() <= node.metadata.labels.items()
    return settings.release_on_label_removal and has_lost_labels


def has_left(node: Node | None, claim: Claim, settings: AnycastIPSettings) -> bool:
    """Whether *claim* may pass to another node: its own is gone, or is to lose the address and shows it no more."""
    return is_leaving(node, claim, settings) and _before_leaving(node, settings) is None


def _before_leaving(node: Node | None, settings: AnycastIPSettings) -> Step | None:
    """What a node that stays must not show any more, before its address is taken away."""
    if node is None:
        return None
    if wanted(node, settings):
        return Step(Action.CLOSE) if not is_tainted(node) or BOUND in node.metadata.annotations else None
    marked = {ADDRESS_ID, ADDRESS, BOUND} & node.metadata.annotations.keys()
    return Step(Action.STRIP) if marked or is_tainted(node) else None


def _plan_when_unwanted(snapshot: Snapshot, node: Node, settings: AnycastIPSettings) -> Step:
    """The address stays. The taint goes if it was for an address of ours: some nodes have it before their label."""
    if is_open_without(node):
        return Step(Action.STRIP)
    if is_tainted(node) and (snapshot.claim or snapshot.related.was_wanted):
        return Step(Action.FREE)
    if snapshot.claim is None and snapshot.related.found is not None:
        return Step(Action.ADOPT, address=snapshot.related.found)
    if settings.repair and snapshot.claim and BOUND in node.metadata.annotations:  # which pods may copy
        seen = snapshot.seen.address
        if seen is UNKNOWN and snapshot.claim.address:
            return Step(Action.WATCH)
        has_it = isinstance(seen, Address) and bound_to(seen) == snapshot.claim.instance
        return NOTHING if has_it else Step(Action.STRIP)
    if not is_tainted(node) or is_super(node):
        return NOTHING
    labels = ", ".join(f"{key}={value}" for key, value in settings.node_labels.items())
    text = f"The node has taint {TAINT.key}, but is not labelled {labels}: add the label, or remove the taint"
    return Step(Action.NOTHING, Note("AnycastIpDelayed", text, "Normal"))


def must_be_closed(snapshot: Snapshot, node: Node, settings: AnycastIPSettings) -> bool:
    """Whether the node is open without an address, or without a proof that it has one.

    A node that carries the id of an address without our proof comes from the original: its address is read first.
    """
    if is_tainted(node):
        return False
    if is_open_without(node):
        return not may_be_without(snapshot.claim, settings)
    if is_proven_bound(node):
        return settings.repair and _is_known_bad(snapshot, node)
    return ADDRESS_ID not in node.metadata.annotations or _is_known_bad(snapshot, node)


def may_be_without(claim: Claim | None, settings: AnycastIPSettings) -> bool:
    """Whether its node may be open without an address: the claim says so, which no kubelet can write."""
    return settings.when_exhausted == "release" and claim is not None and claim.refused is not None


def _is_known_bad(snapshot: Snapshot, node: Node) -> bool:
    if snapshot.claim is None:
        if snapshot.related.rival:
            return True
        looked_at = snapshot.seen.on_instance
        return looked_at is not None and not any(serves(each, instance_of(node)) for each in looked_at)
    seen = snapshot.seen.address
    if not snapshot.claim.address or seen is GONE:
        return True
    return isinstance(seen, Address) and not serves(seen, snapshot.claim.instance)


def _plan_without_claim(snapshot: Snapshot, node: Node, settings: AnycastIPSettings) -> Step:
    if not instance_of(node):
        provider = f"providerID {node.spec.provider_id!r}"
        text = (
            f"Neither label {INSTANCE_LABEL} nor {provider} names an instance ins-...: there is"
            " nothing to bind an address to"
        )
        return Step(Action.NOTHING, Note("NoInstanceID", text))
    if rival := snapshot.related.rival:
        return _wait_for(rival)
    if snapshot.related.predecessor:
        return Step(Action.INHERIT)
    if snapshot.seen.on_instance is None:
        return Step(Action.LOOK)
    return _from_look(snapshot, snapshot.seen.on_instance, settings)


def _wait_for(rival: Claim) -> Step:
    address = rival.address or "the address that is ordered for it"
    text = (
        f"Node {rival.node} also names instance {rival.instance}, and has {address}: this node stays closed until"
        " that one is deleted, or names its own instance"
    )
    return Step(Action.NOTHING, Note("DuplicateInstanceID", text))


def _from_look(snapshot: Snapshot, present: tuple[Address, ...], settings: AnycastIPSettings) -> Step:
    if owner := snapshot.seen.owner:
        text = f"The instance has the address of node {owner}: it is adopted when that node has another"
        return Step(Action.LOOK, Note("AnycastIpDelayed", text))
    bound = [each for each in present if each.status in HOLDING]
    found = snapshot.related.found.id if snapshot.related.found else ""
    if mine := [each for each in bound if each.type == settings.address_type or each.id == found]:
        best = min(mine, key=lambda each: (each.id != found, each.status not in (BIND, BIND_ENI), each.id))
        return Step(Action.LOOK) if best.status == UNBINDING else Step(Action.ADOPT, address=best)
    if bound:
        kind, what = bound[0].type, f"{bound[0].type} {bound[0].ip or bound[0].id}"
        text = (
            f"The instance already has {what}, so no {settings.address_type} can be bound to it: return that"
            " one, or remove the label from the node"
        )
        return Step(
            Action.LOOK, Note("AlreadyHasPublicIp" if kind == "WanIP" else "AlreadyHasAnycastIp", text)
        )
    if snapshot.related.found:
        return Step(Action.ADOPT, address=snapshot.related.found)
    return Step(Action.TAKE if snapshot.pool.offer else Action.CLAIM)


def _plan_with_claim(snapshot: Snapshot, node: Node, claim: Claim, settings: AnycastIPSettings) -> Step:
    seen = snapshot.seen.address
    if claim.labels != settings.node_labels:
        return Step(Action.RECORD_LABELS)
    if is_open_without(node) and node.metadata.labels.get(LABEL) != NONE:
        return Step(Action.OPEN_WITHOUT)
    if not claim.address:
        step = _plan_order(snapshot)
        if step.action is not Action.ALLOCATE:
            return step
        # What was refused for long enough may count no more, if the node could not be opened at once.
        if snapshot.order.exhausted and may_be_without(claim, settings) and is_tainted(node):
            return Step(Action.OPEN_WITHOUT)
        return _unless_replaced(step, snapshot) if snapshot.order.put_off else step
    if seen is UNKNOWN:
        return Step(Action.WATCH)
    is_serving = isinstance(seen, Address) and serves(seen, claim.instance)
    if not settings.repair and is_open(node) and not is_serving:
        return NOTHING
    if seen is GONE:
        return _another(snapshot, claim)
    if seen.status in (BIND, BIND_ENI):
        if seen.instance_id != claim.instance:
            return _another(snapshot, claim, _moved(seen, "it stays there, and the node gets another"))
        return plan_when_bound(seen, node, claim, snapshot.egress, settings)
    return _plan_when_unbound(seen, snapshot, claim)


def _another(snapshot: Snapshot, claim: Claim, note: Note | None = None) -> Step:
    """None is ordered while the instance has one: a claim from a backup may be older than that."""
    present = snapshot.seen.on_instance
    if not claim.is_managed or any(map(bound_to, present or ())):
        return Step(Action.FORGET, note)
    return Step(Action.LOOK) if present is None else Step(Action.RENEW, note)


def _plan_when_unbound(seen: Address, snapshot: Snapshot, claim: Claim) -> Step:
    if seen.status != UNBIND:
        slow = Note("AnycastIpDelayed", f"{seen.id} has been {seen.status} at Tencent Cloud for minutes")
        return Step(Action.WATCH, slow if snapshot.seen.seconds >= SLOW else None)
    if not claim.is_managed or snapshot.seen.is_replaced:
        return Step(Action.FORGET)
    if snapshot.seen.resists and snapshot.seen.on_instance is None:
        return Step(Action.LOOK)
    if seen.blocked or seen.arrears:
        return Step(Action.WATCH, stopped(seen))
    if not (announcement := snapshot.announcement):
        return Step(Action.BIND, address=seen)
    if announcement.problem:
        text = f"{seen.id} must be in the allow-list first: {announcement.problem}"
        return Step(Action.ANNOUNCE, Note("AnycastIpDelayed", text))
    if announcement.since is None or announcement.until is None:
        return Step(Action.ANNOUNCE)  # it is about to be listed
    since, until = rfc3339(announcement.since), rfc3339(announcement.until)
    text = f"{seen.ip} ({seen.id}) is in the allow-list since {since}, and is bound at {until}"
    return Step(Action.ANNOUNCE, Note(ANNOUNCED, text, "Normal"))


def _plan_order(snapshot: Snapshot) -> Step:
    """Order an address, once it is known what became of the order before.

    Whether an old order, or one that the cloud refuses to repeat, brought an address is looked up by its name. One
    look is enough before it is repeated; before it is given up, or renewed, nothing must be found for long.
    """
    order, rival = snapshot.order, snapshot.related.rival
    offer = snapshot.node and not rival and snapshot.pool.offer
    if order.found:
        return Step(Action.RECORD, address=order.found)
    if offer and order.is_void:
        return Step(Action.TAKE)
    if order.refused or (order.outdated and not order.in_doubt):
        return Step(Action.RENEW if order.is_void else Action.FIND)
    if rival:
        return _wait_for(rival) if order.is_void else Step(Action.FIND)
    is_looked_up = order.nothing_for is not None and snapshot.node and not offer
    if order.age >= SURE and not is_looked_up and not order.is_void:
        return Step(Action.FIND)
    return Step(Action.ALLOCATE if order.tagged else Action.TAG)


def _unless_replaced(step: Step, snapshot: Snapshot) -> Step:
    """*step*, which repeats an order that was refused, unless a user has bound an address meanwhile."""
    order, seen = snapshot.order, snapshot.seen
    if seen.on_instance is None:
        return Step(Action.LOOK)
    if not seen.is_replaced:
        return step
    return Step(Action.UNTAG if order.is_void else Action.FIND)


def refused_since(
    claim: Claim, node: Node | None, *, by_quota: bool, settings: AnycastIPSettings, now: datetime
) -> datetime | None:
    """What *claim* has to say after an order was not accepted. Any other answer than that of a quota begins again."""
    if node is None or is_open_without(node):
        return claim.refused
    return (claim.refused or now) if by_quota and settings.when_exhausted == "release" else None


def _plan_release(snapshot: Snapshot, claim: Claim, settings: AnycastIPSettings) -> Step:
    if snapshot.related.elsewhere:
        return Step(Action.FORGET)
    if snapshot.related.heir:
        return Step(Action.NOTHING)  # it takes the claim over
    if not claim.is_managed:
        return Step(Action.FORGET)
    if not claim.address:
        # With the same token, an order in doubt that is repeated brings the address that has to be released.
        is_over = snapshot.order.is_void and not snapshot.pool.has_place
        return Step(Action.UNTAG) if is_over else _plan_order(snapshot)
    seen = snapshot.seen.address
    if seen is UNKNOWN:
        return Step(Action.WATCH)
    if seen is GONE:
        return Step(Action.UNTAG)
    # An address of the user goes back when it loses the tags.
    is_ours_to_keep = not claim.lent or is_offered(seen, settings.pool)
    if seen.status == UNBIND and snapshot.pool.has_place and is_ours_to_keep:
        if claim.pooled and (is_current(seen, claim, settings) or snapshot.pool.stays_anyway):
            # Also while it is blocked: another would be ordered in its place.
            return NOTHING if claim.ip == seen.ip else Step(Action.RECORD, address=seen)
        if not claim.pooled and is_usable(seen, settings):
            return Step(Action.KEEP, address=seen)
    return _with_address(seen, claim, snapshot)


def _with_address(seen: Address, claim: Claim, snapshot: Snapshot) -> Step:
    if seen.status == UNBIND and claim.lent:
        return Step(Action.UNTAG if claim.tags else Action.FORGET)
    if seen.status == UNBIND:
        return Step(Action.RELEASE, address=seen)
    if seen.status not in (BIND, BIND_ENI):
        return Step(Action.WATCH)
    if seen.instance_id != claim.instance:
        return Step(Action.FORGET, _moved(seen, "it stays there and is not released"))
    if snapshot.runs is None:
        return Step(Action.EXAMINE)
    if snapshot.runs and snapshot.is_braked:
        text = (
            f"{seen.id} stays bound for now: {seen.instance_id} still runs, or its state cannot be read, and {MOST}"
            " such addresses were unbound within an hour. If no other control plane serves these nodes, confirm it:"
            f" kubectl -n {NAMESPACE} annotate --overwrite configmap {CLUSTER_UUID}"
            f" {CONFIRMED}=$(date -u +%Y-%m-%dT%H:%M:%SZ)"
        )
        return Step(Action.EXAMINE, Note(HELD, text))
    return Step(Action.UNBIND, address=seen)


def _moved(seen: Address, then: str) -> Note:
    where = seen.instance_id or seen.network_interface_id
    return Note("AnycastIpMoved", f"{seen.id} was bound to {where} by another user: {then}")


NOTHING = Step(Action.NOTHING)


def serves(address: Address, instance: str) -> bool:
    """By its status, not by its instance id alone, which shows while it is still being bound."""
    bound = address.status in (BIND, BIND_ENI) and address.instance_id == instance != ""
    return bound and not address.blocked and not address.arrears


def bound_annotations(node: Node, address: Address) -> dict[str, str]:
    return {ADDRESS_ID: address.id, ADDRESS: address.ip, BOUND: proof(node, address.id)}


def stopped(seen: Address) -> Note:
    why = "blocked" if seen.blocked else "in arrears"
    return Note(
        "AnycastIpNotServing", f"{seen.id} is {why} at Tencent Cloud; the node opens when that is over"
    )


def plan_when_bound(
    seen: Address, node: Node, claim: Claim, check: Check | None, settings: AnycastIPSettings
) -> Step:
    """*seen* is bound to the instance of *claim*."""
    if not serves(seen, claim.instance):
        return Step(Action.WATCH, stopped(seen))
    shown = node.metadata.annotations.items()
    is_labelled = node.metadata.labels.get(LABEL) == HAS_ONE
    if not is_tainted(node) and is_labelled and bound_annotations(node, seen).items() <= shown:
        return plan_bandwidth(seen, node, claim, settings)
    # A node that is open just shows something else by mistake.
    egress = settings.egress_check
    is_checked = check and check.passed and check.of == Checked(seen.id, seen.ip, egress.url)
    if is_tainted(node) and egress.enabled and not is_checked:
        if not check or not check.trouble:
            return Step(Action.CHECK, address=seen)
        text = (
            f"{seen.id} is bound, but the check of the node's egress failed: {check.trouble}; it is repeated, and the"
            f" node opens when the service sees {seen.ip}"
        )
        return Step(Action.CHECK, Note("AnycastIpEgressFailed", text), seen)
    return Step(Action.OPEN, address=seen)


def plan_bandwidth(seen: Address, node: Node, claim: Claim, settings: AnycastIPSettings) -> Step:
    """After the opening, which a refusal must not delay. What is not ours stays as it is."""
    wanted = wanted_bandwidth(node, settings)
    if claim.ours and wanted and seen.terms.bandwidth not in (0, wanted):
        return Step(Action.RESIZE)
    return NOTHING
