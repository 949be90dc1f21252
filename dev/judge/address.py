"""Addresses in the cloud: what nodes depend on, and what the bill shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from dev.judge.judge import Invariant, Since
from dev.judge.observation import (
    ADDRESS_ID,
    ADDRESS_READY,
    BOUND,
    NODE_ADDRESS,
    SHOWN_ADDRESS,
    CloudAddress,
    Observation,
    Raw,
    bound_instances,
    condition,
    instance,
    is_missed,
    is_open,
    is_open_without,
    is_ready,
    is_terminating,
    name,
    needs_address,
    notes,
)

SETTLED = 30.0
"""Seconds for which a node has needed its address before we answer for it."""
OTHER_KEYS = 120.0
"""Seconds for which we may have keys of another account, and what follows."""
HOUR, FEW = 3600.0, 3
"""The brake: so many addresses are unbound in an hour without an operator's word."""
CHANGES = 4
"""Of the bill."""
OPEN_FOR = 60.0
"""Seconds after which a node that came open has been closed, if it has to be."""
NONE_BOUND = 900.0
"""Seconds more until an address counts as gone while none of the cluster is listed as bound: documented."""
TERMS = 4
"""So many leaders may end, each after `leaseDuration`, before one sees nodes that admission was not asked about."""
EXHAUSTED, BY_CLOCKS = 600.0, 60.0
"""Seconds for which a quota refuses a node, until it opens without an address; by how much leaders' clocks differ."""
SAID = 180.0
"""Seconds until a condition follows, and new settings are in force everywhere: a leader may end meanwhile."""
LATE = 60.0
"""Seconds in which an order arrives that was sent before etcd was restored."""
OPEN = 380.0
"""Seconds: until a resync, the documented minute for which an address must be missing, and what it takes."""


class BoundStaysBound(Invariant):
    name = "address: no bound address of a living node is unbound or released"
    sees = ("nodes", "addresses")

    def __init__(self, settled: float = SETTLED) -> None:
        self._settled = settled
        self._needing = Since()
        self._before: Mapping[str, CloudAddress] = {}

    def look(self, seen: Observation) -> Iterator[str]:
        living = {
            instance(node): node
            for node in seen.nodes.values()
            if needs_address(node) and not is_terminating(node)
        }
        since = self._needing.of(living, seen.at)
        before, self._before = self._before, seen.addresses
        for old in before.values():
            if not old.is_ours or old.status not in BOUND or since.get(old.instance, 0.0) < self._settled:
                continue
            now = seen.addresses.get(old.id)
            if now is not None and now.status in BOUND and now.instance == old.instance:
                continue
            if not seen.disturbances.within(SETTLED, seen.at, old.id, old.instance):
                state = now.status if now else "gone"
                yield f"{old.id} of {name(living[old.instance])} ({old.instance}) is {state}"


class RunningKeepTheirs(Invariant):
    name = f"address: at most {FEW} addresses of instances that run are unbound in an hour"

    def __init__(self) -> None:
        self._before: Mapping[str, CloudAddress] = {}
        self._unbound: dict[str, float] = {}
        """When, by address."""

    def look(self, seen: Observation) -> Iterator[str]:
        before, self._before = self._before, seen.addresses
        for old in before.values():
            now = seen.addresses.get(old.id)
            is_bound = now is not None and now.status in BOUND and now.instance == old.instance
            if not old.is_ours or old.status not in BOUND or is_bound or old.instance not in seen.running:
                continue
            if not seen.disturbances.within(SETTLED, seen.at, old.id, old.instance):
                self._unbound[old.id] = seen.at
        self._unbound = {each: at for each, at in self._unbound.items() if seen.at - at <= HOUR}
        if len(self._unbound) > FEW:
            yield f"{len(self._unbound)}: {', '.join(self._unbound)}"


class FewChanges(Invariant):
    """Each time that a node begins to need an address, one is ordered, resized and released again at most.

    Spares are ordered for no node: all nodes together are the reason for them. *terms* are those of an order.
    """

    name = f"address: at most {CHANGES} orders, resizes and releases for a node in an hour, each time that it needs one"
    sees = ("nodes", "addresses")

    def __init__(self, terms: str = "") -> None:
        self.terms = terms
        self._before: Mapping[str, CloudAddress] | None = None
        self._needing: set[str] = set()
        self._begun: list[tuple[float, str]] = []
        """When, and which instance."""
        self._changes: list[tuple[float, str]] = []

    def look(self, seen: Observation) -> Iterator[str]:
        needing = {instance(node) for node in seen.nodes.values() if needs_address(node)}
        self._begun += [(seen.at, each) for each in sorted(needing - self._needing)]
        self._needing = needing
        before, self._before = self._before, seen.addresses
        self._changes += [(seen.at, each) for each in _changed(before, seen.addresses)]
        changes = Counter(each for at, each in self._changes if seen.at - at <= HOUR)
        begun = Counter(each for at, each in self._begun if seen.at - at <= HOUR)
        for each, count in changes.items():
            if count > CHANGES * max(1, begun.get(each) or begun.total()):
                yield f"{count} for {each}"


def _changed(before: Mapping[str, CloudAddress] | None, now: Mapping[str, CloudAddress]) -> Iterator[str]:
    """The nodes of our addresses that were ordered, released, or got another bandwidth."""
    if before is None:
        return
    for key in {**before, **now}:
        old, new = before.get(key), now.get(key)
        about = new or old
        if about and about.is_ours and (not old or not new or old.bandwidth != new.bandwidth):
            yield about.ordered_for


class BoundOnce(Invariant):
    name = "address: no instance has two of our addresses"
    sees = ("addresses",)

    def look(self, seen: Observation) -> Iterator[str]:
        for at, ids in bound_instances(seen).items():
            if len(ids) > 1:
                yield f"{at} has {', '.join(sorted(ids))}"


class OpenWithAddress(Invariant):
    """With `whenExhausted: release`, but for nodes that say by label and condition that they have none."""

    def __init__(self, most: float = OPEN, *, release: bool = False) -> None:
        self._release = release
        self.name = (
            f"address: no node is open without its address for more than {most:.0f} s, and none at rest"
        )
        self._most, self._open, self._proven = most, Since(), Since()

    def look(self, seen: Observation) -> Iterator[str]:
        without = self._without(seen)
        # Another that is bound is what shows that the missing one is gone.
        proven = self._proven.of(without if bound_instances(seen) else (), seen.at)
        for node, seconds in self._open.of(without, seen.at).items():
            if proven.get(node, 0.0) > self._most or seconds > self._most + NONE_BOUND:
                yield f"{node} for {seconds:.0f} s"

    def rest(self, seen: Observation) -> Iterator[str]:
        for node in self._without(seen):
            yield f"{node} at rest"

    def _without(self, seen: Observation) -> list[str]:
        bound = bound_instances(seen)
        return [
            name(node)
            for node in seen.nodes.values()
            if needs_address(node) and is_open(node) and is_ready(node) and instance(node) not in bound
            if not (self._release and _says_without(node))
        ]


def _says_without(node: Raw) -> bool:
    """Whatever the reason: with the quota used up, something else may be in the way, too."""
    return is_open_without(node) and condition(node, ADDRESS_READY).get("status") == "False"


class OpenedWithoutInTime(Invariant):
    """A label `none` is from an opening; new settings take a while."""

    name = f"address: a node is opened without one only if set so, after {EXHAUSTED:.0f} s, and says so"

    def __init__(self, *, release: bool) -> None:
        self._release = release
        self._closed, self._silent, self._promised = Since(), Since(), Since()
        self._waited: dict[str, float] = {}
        self._before: set[str] | None = None

    def look(self, seen: Observation) -> Iterator[str]:
        needing = {each: node for each, node in seen.nodes.items() if needs_address(node)}
        without = {each for each, node in needing.items() if is_open_without(node)}
        (age,) = self._promised.of(["all"], seen.at).values()
        opened = without - (without if self._before is None else self._before)
        for each in sorted(opened if age > SAID else ()):
            waited = self._waited.get(each, 0.0)
            if not self._release or waited < EXHAUSTED - BY_CLOCKS:
                yield f"{each} after {waited:.0f} s"
        self._before = without
        self._waited = self._closed.of([each for each, node in needing.items() if not is_open(node)], seen.at)
        silent = [each for each in sorted(without) if not _says_without(needing[each])]
        for each, seconds in self._silent.of(silent, seen.at).items():
            if seconds > SAID:
                yield f"{each} does not say so"


class JoinsClosed(Invariant):
    """Where no webhook server answers, the API server lets a node be open until a leader closes it: documented."""

    def __init__(self, lease: float = 15.0) -> None:
        self._within = TERMS * lease
        self.name = (
            f"address: a node that needs one is closed at first, or {self._within:.0f} s later if no webhook "
            "server answered"
        )
        self._needing: set[str] | None = None
        self._bare = Since()

    def look(self, seen: Observation) -> Iterator[str]:
        needing = {each for each, node in seen.nodes.items() if needs_address(node)}
        bare = [
            each
            for each in needing
            if is_open(seen.nodes[each])
            and ADDRESS_ID not in notes(seen.nodes[each])
            and not is_open_without(seen.nodes[each])
        ]
        begun = needing - (needing if self._needing is None else self._needing)
        self._needing = needing
        for each, seconds in self._bare.of(sorted(bare), seen.at).items():
            if seconds > self._within or (each in begun and not is_missed(seen.nodes[each], seen)):
                yield f"{each} for {seconds:.0f} s"


class OpenedWithAddress(Invariant):
    """*disturbances* of "account": what other keys than ours bring is not seen in our account.

    One that is opened without an address says so, which is another promise.
    """

    name = "address: no node is opened before its address is bound"
    sees = ("nodes", "addresses")

    def __init__(self) -> None:
        self._closed: set[str] = set()

    def look(self, seen: Observation) -> Iterator[str]:
        needing = {each: node for each, node in seen.nodes.items() if needs_address(node)}
        bound, opened = bound_instances(seen), {each for each, node in needing.items() if is_open(node)}
        without = {each for each in opened if is_open_without(needing[each])}
        for each in sorted(opened & self._closed - without):
            at, excused = instance(needing[each]), seen.disturbances.within
            is_ours = not (excused(SETTLED, seen.at, each, at) or excused(OTHER_KEYS, seen.at, "account"))
            if at not in bound and is_ours:
                yield f"{each} ({at})"
        self._closed = needing.keys() - opened


class OrderedForClosed(Invariant):
    """One that is opened without an address gets the next one while it is open."""

    name = "address: a node is closed while an address is ordered for it, unless it says that it has none"
    sees = ("addresses",)

    def __init__(self) -> None:
        self._before: Mapping[str, CloudAddress] | None = None

    def look(self, seen: Observation) -> Iterator[str]:
        before, self._before = self._before, seen.addresses
        ordered = (
            {} if before is None else {each: seen.addresses[each] for each in seen.addresses.keys() - before}
        )
        instances = {each.ordered_for for each in ordered.values() if each.is_ours}
        for node in seen.nodes.values():
            is_bare = is_open(node) and not (is_open_without(node) or is_missed(node, seen))
            if needs_address(node) and instance(node) in instances and is_bare:
                yield f"{name(node)} ({instance(node)})"


class StaysOpen(Invariant):
    name = f"address: a node that has been open with its address for {OPEN_FOR:.0f} s is closed only when that goes"
    sees = ("nodes", "addresses")

    def __init__(self) -> None:
        self._open = Since()
        self._before: set[str] = set()

    def look(self, seen: Observation) -> Iterator[str]:
        bound = bound_instances(seen)
        having = {
            each: node for each, node in seen.nodes.items() if needs_address(node) and instance(node) in bound
        }
        before = self._before & having.keys()
        opened = self._open.of([each for each, node in having.items() if is_open(node)], seen.at)
        self._before = {each for each, seconds in opened.items() if seconds >= OPEN_FOR}
        for each in sorted(before - opened.keys()):
            at = instance(having[each])
            if not seen.disturbances.within(OPEN_FOR, seen.at, each, at, *bound[at]):
                yield f"{each} ({at})"


class OpensInTheEnd(Invariant):
    """Of two nodes of one instance, also when one keeps its address without the label."""

    name = "address: in the end one Ready node of each instance whose address is bound is open"

    def rest(self, seen: Observation) -> Iterator[str]:
        needing = [each for each in seen.nodes.values() if needs_address(each) and is_ready(each)]
        opened = {instance(each) for each in seen.nodes.values() if is_open(each)}
        serving = Counter(instance(each) for each in needing if is_open(each))
        for node in needing:
            if serving[instance(node)] > 1 or instance(node) in bound_instances(seen).keys() - opened:
                yield name(node)


class PodsKnowTheirs(Invariant):
    """A node that lost its address may be open for as long as `OpenWithAddress` allows.

    Pods that are there at the first look were bound before it, and what nodes show by then may just have gone.
    *disturbances* of "account": what other keys than ours bind is not seen in our account.
    """

    name = "address: what a pod has as its node's address when it is bound is that"
    sees = ("nodes", "addresses", "pods")

    def __init__(self, most: float = OPEN) -> None:
        self._most = most
        self._bound: set[tuple[str, str]] = set()
        self._until: dict[tuple[str, str], float] = {}
        self._looked_at: set[str] | None = None

    def look(self, seen: Observation) -> Iterator[str]:
        bound = {(each.instance, each.ip) for each in seen.addresses.values() if each.status in BOUND}
        if self._looked_at is None:
            self._looked_at = {uid for uid, pod in seen.pods.items() if pod["spec"].get("nodeName")}
            shown = ((instance(each), notes(each).get(SHOWN_ADDRESS, "")) for each in seen.nodes.values())
            self._until = dict.fromkeys(shown, seen.at)
        self._until |= dict.fromkeys(self._bound - bound, seen.at)
        self._bound = bound
        for uid, pod in seen.pods.items():
            node = seen.nodes.get(pod["spec"].get("nodeName", ""))
            if node is None or uid in self._looked_at:
                continue
            self._looked_at.add(uid)
            ip = notes(pod).get(NODE_ADDRESS, "")
            has = instance(node), ip
            is_late = has not in bound and seen.at - self._until.get(has, float("-inf")) > self._most
            if ip and is_late and not seen.disturbances.within(self._most, seen.at, "account"):
                yield f"{name(pod)} has {ip} of {name(node)}"


class CloudIsWhatNodesNeed(Invariant):
    """After "etcd" was restored, those that no claim has are a person's to release: documented. What is ordered later
    has a claim.

    *idle* is how many addresses without a node may be kept; nodes whose label is gone may *keep* theirs.

    Once a few were unbound within an hour, the next ones of instances that run wait for an operator: documented.
    """

    name = (
        "address: in the end the cloud has one address for each node that needs one, and no more than is kept"
    )
    sees = ("addresses",)

    def __init__(self, idle: int = 0, *, keep: bool = False) -> None:
        self._idle, self._keep = idle, keep
        self._ordered: dict[str, float] | None = None
        """When each address was; what is there at the first look, long before."""
        self._bound: set[str] = set()
        self._unbound: list[float] = []

    def look(self, seen: Observation) -> Iterator[str]:
        since = seen.at - HOUR if self._ordered is None else seen.at
        self._ordered = {each: (self._ordered or {}).get(each, since) for each in seen.addresses}
        bound = {each.id for each in seen.addresses.values() if each.is_ours and each.status in BOUND}
        self._unbound += [seen.at] * len(self._bound - bound)
        self._bound = bound
        yield from ()

    def rest(self, seen: Observation) -> Iterator[str]:
        bound, nodes = bound_instances(seen), seen.nodes.values()
        wanted = {instance(node) for node in nodes if needs_address(node)}
        if missing := wanted - bound.keys():
            yield f"without one: {', '.join(sorted(missing))}"
        kept = {instance(node) for node in nodes} if self._keep else wanted
        ours = [
            each for each in seen.addresses.values() if each.is_ours and not self._has_lost_claim(each, seen)
        ]
        more = {each.instance for each in ours if each.status in BOUND} - wanted - kept
        if len([at for at in self._unbound if seen.at - at <= HOUR]) >= FEW:
            more -= set(seen.running)
        if more:
            yield f"still bound to {', '.join(sorted(more))}"
        idle = [
            each.id
            for each in ours
            if each.status not in BOUND
            and not (self._keep and (kept - bound.keys()) & {each.instance, each.ordered_for})
        ]
        borne = {each.ordered_for for each in seen.addresses.values()}
        left = set(seen.tagged) - borne - {instance(node) for node in nodes}
        # Of an address that a person has moved, the tags are that person's; some came when their claim was gone.
        excused = seen.disturbances.within
        if untagged := [each for each in sorted(left) if not excused(HOUR, seen.at, each, "etcd")]:
            yield f"tags are left of {', '.join(untagged)}"
        if len(idle) > self._idle:
            yield f"{len(idle)} addresses of no node, {self._idle} are to be kept: {', '.join(idle)}"

    def _has_lost_claim(self, address: CloudAddress, seen: Observation) -> bool:
        """Whether it may have been ordered before etcd was restored."""
        ordered = (self._ordered or {}).get(address.id, seen.at)
        return seen.disturbances.within(seen.at - ordered + LATE, seen.at, "etcd")
