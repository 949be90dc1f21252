"""Addresses of pods: what Calico's allocator gives away, and when."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

from dev.judge.judge import Invariant, Since
from dev.judge.observation import Observation, is_terminating, labels, name, notes

Raw = dict[str, Any]
SELECTING = {"statefulset.kubernetes.io/pod-name", "brokerId"}
CHOICE = "drawbridge.io/reserve-ip"
MARK = "drawbridge.io/reserved"
FINISHED = "drawbridge.io/reserve-finished"
CONFIGURATION = "webhook configuration"
"""What is disturbed when a person deletes it."""
UNSTORED = 30.0
"""Seconds until the end of a pod is stored apart from the webhook configuration; without a leader, longer."""
RESTORED = 5.0
"""Seconds in which a leader restores what was deleted with its owner."""
GIVEN_BACK = 160.0
"""Seconds: giveBackAfter, and what it takes."""
LEFT = 310.0
"""Seconds, if the pod has the address no more: the next leader cannot know what one that is gone did not ask for."""
OF_EPOCH = re.compile(r"'([0-9a-f]{16})/'")
SLACK = 3.0
"""Seconds that a pass of releases may be early: ends are stored in whole seconds."""
AS_SEEN = 20.0
"""Seconds in which a pod that went without admission is seen: a kubelet's or a node's doing."""
FREED, WORKS = 60.0, 30.0
"""Seconds that a release takes; and in which a leader is at work again after trouble."""
NO_LEADER = "no leader"
"""What is disturbed while none works, or requests of ours are lost."""
TAKEN_AWAY = 60.0
"""Seconds in which a leader, or the next one, decides about a pod that finished by what its namespace says by then."""


@dataclass(frozen=True)
class Gone:
    """A pod that had *address* until then. One that finished was of a *namespace* that asks for such ones."""

    address: str
    pod: str
    at: float
    namespace: str = ""


class KeptOutOfCirculation(Invariant):
    """*seconds* is the configured time, *clocks* what those of two of our replicas differ by at most.

    A time that one replica stores is compared with the clock of another one: a documented limit. Of more than *most*
    the oldest are free earlier: another one. A pod that finishes by itself counts where its namespace asks for it, and
    if it was reserved ahead.
    """

    name = "ip: the address of a selected pod that is gone is not free before its time is over"

    def __init__(self, seconds: float, clocks: float = 0.0, most: int | None = None) -> None:
        self._seconds, self._most = seconds - clocks - SLACK, most
        self._living: dict[str, tuple[str, str]] = {}
        """Address and name of each selected pod that has one, by uid."""
        self._deleted: dict[str, float] = {}
        """When those went whose sandbox is still there, by uid: their time begins with that."""
        self._gone: dict[str, Gone] = {}
        """By address."""
        self._asking = Since()
        """Namespaces."""
        self._ahead: dict[str, str] = {}
        """The address of each pod that had one which was reserved, by uid."""
        self._finished: set[str] = set()
        """Uids."""

    def look(self, seen: Observation) -> Iterator[str]:
        asking = self._asking.of(
            {name(each) for each in seen.namespaces if notes(each).get(FINISHED) == "true"}, seen.at
        )
        self._follow(seen)
        self._follow_finished(seen, asking)
        for address, gone in list(self._gone.items()):
            is_undecided = gone.namespace and seen.at - gone.at <= TAKEN_AWAY
            if seen.at > gone.at + self._seconds or (is_undecided and gone.namespace not in asking):
                del self._gone[address]
            elif seen.disturbances.within(seen.at, seen.at, f"release of {address}"):
                del self._gone[address]  # by a person's order
            elif (pod := seen.pods.get(seen.assigned.get(address, ""))) and name(pod) == gone.pod:
                del self._gone[address]  # it comes back in its place
            elif address in seen.assigned:
                del self._gone[address]
                yield f"{address} of {gone.pod} was given away {seen.at - gone.at:.1f} s after its end"
            elif address not in seen.reserved:
                if self._is_lost(gone, seen):
                    del self._gone[address]
                elif not (self._is_late(gone, seen) or self._are_many(seen)):
                    yield f"{address} of {gone.pod} is free {seen.at - gone.at:.1f} s after its end"

    def _is_lost(self, gone: Gone, seen: Observation) -> bool:
        """Whether its end was not stored yet when the webhook configuration was deleted: documented."""
        since, within = seen.at - gone.at, seen.disturbances.within
        return within(since, seen.at, CONFIGURATION) and not within(since - UNSTORED, seen.at, CONFIGURATION)

    def _is_late(self, gone: Gone, seen: Observation) -> bool:
        """Whether there was no time yet to see that it went without admission, or to restore its reservation."""
        if seen.disturbances.within(RESTORED, seen.at, CONFIGURATION):
            return True
        since, within = seen.at - gone.at, seen.disturbances.within
        is_seen = since > AS_SEEN and not within(AS_SEEN, seen.at, NO_LEADER)
        return not is_seen and within(AS_SEEN + since, seen.at, gone.pod)

    def _are_many(self, seen: Observation) -> bool:
        return self._most is not None and len(seen.reserved - seen.assigned.keys()) >= self._most

    def _follow(self, seen: Observation) -> None:
        living = {}
        for uid, pod in seen.pods.items():
            address = (pod.get("status") or {}).get("podIP", "")
            if address and is_selected(pod) and seen.assigned.get(address) == uid:
                living[uid] = address, name(pod)
        deleted = self._living.keys() - seen.pods.keys()
        self._deleted = {uid: self._deleted.get(uid, seen.at) for uid in deleted}
        for uid, (address, of) in self._living.items():
            is_out = uid in seen.pods and not is_selected(seen.pods[uid])
            if seen.assigned.get(address) == uid and not is_out:
                living[uid] = address, of  # also of a pod that was deleted by force, until its sandbox goes
            elif uid not in living and not (_lives(seen.pods.get(uid)) or _has_finished(seen.pods.get(uid))):
                self._gone[address] = Gone(address, of, self._deleted.get(uid, seen.at))
        self._living = living

    def _follow_finished(self, seen: Observation, asking: Mapping[str, float]) -> None:
        for uid, pod in seen.pods.items():
            if not _has_finished(pod):
                address = (pod.get("status") or {}).get("podIP", "")
                if seen.assigned.get(address) == uid:
                    self._ahead[uid] = address if address in seen.reserved and is_selected(pod) else ""
            elif uid not in self._finished:
                self._finished.add(uid)
                address, namespace = self._ahead.pop(uid, ""), pod["metadata"].get("namespace", "")
                if address and is_selected(pod) and asking.get(namespace, 0.0) > AS_SEEN:
                    self._gone[address] = Gone(address, name(pod), seen.at, namespace)


def _has_finished(pod: Raw | None) -> bool:
    """By itself, as nothing but its program does it."""
    return pod is not None and pod["status"].get("phase") == "Succeeded" and not is_terminating(pod)


def _lives(pod: Raw | None) -> bool:
    """A pod that goes on with another address was not deleted: a new sandbox, as after a reboot."""
    return pod is not None and not is_terminating(pod) and pod["status"].get("phase") == "Running"


def is_selected(pod: Raw) -> bool:
    """Its own choice wins, which it may have from its workload."""
    choice = notes(pod).get(CHOICE)
    return choice == "true" or (choice is None and bool(SELECTING & labels(pod).keys()))


class OnlySelected(Invariant):
    """Or not any more: what is reserved ahead is given back in a while."""

    name = "ip: no address is reserved of a pod that did not ask for it"

    def __init__(self) -> None:
        self._others: dict[str, str] = {}
        """The last pod of each address that one had which is not selected."""
        self._asked: set[str] = set()
        """Uids of pods that asked for it once."""
        self._reserved = Since()
        self._is_first = True

    def look(self, seen: Observation) -> Iterator[str]:
        if self._is_first:  # the product may have been on before
            self._asked |= {uid for address, uid in seen.assigned.items() if address in seen.reserved}
            self._is_first = False
        for uid, pod in seen.pods.items():
            address = (pod.get("status") or {}).get("podIP", "")
            if seen.assigned.get(address) == uid and not is_terminating(pod):
                before = self._others.pop(address, None)
                is_predecessors = before != uid and address in seen.reserved  # which waits for it
                if is_selected(pod) or is_predecessors:
                    self._asked.add(uid)
                if not is_selected(pod):
                    self._others[address] = uid
        reserved = self._reserved.of(seen.reserved & self._others.keys(), seen.at)
        for address, seconds in reserved.items():
            uid = self._others[address]
            longest = GIVEN_BACK if seen.assigned.get(address) == uid else LEFT
            if seconds > longest or uid not in self._asked:
                yield f"{address} of {uid}"


class MarkedAreReserved(Invariant):
    """What the API server does not ask about is reserved already, unless Calico took it from the pod."""

    name = "ip: the addresses of a pod whose deletion is not reviewed are reserved"

    def look(self, seen: Observation) -> Iterator[str]:
        epochs = epochs_in(seen.webhook_configurations)
        for uid, pod in seen.pods.items() if epochs else ():
            for address in _unreviewed(pod, epochs):
                if seen.assigned.get(address) == uid and address not in seen.reserved:
                    yield f"{address} of {name(pod)}"


def epochs_in(configurations: Sequence[Raw]) -> frozenset[str]:
    """In which a mark counts: all webhooks for deletions of pods must have a condition for it."""
    found = [
        {
            match[1]
            for each in webhook.get("matchConditions") or ()
            if (match := OF_EPOCH.search(each["expression"]))
        }
        for configuration in configurations
        for webhook in configuration.get("webhooks") or ()
        if "ip-reservation" in webhook["name"]
    ]
    return frozenset(set.intersection(*found)) if found else frozenset()


def _unreviewed(pod: Raw, epochs: Collection[str]) -> Sequence[str]:
    """Its addresses, if its mark is of one of *epochs*, and says them."""
    addresses = [each["ip"] for each in (pod.get("status") or {}).get("podIPs") or ()]
    epoch, _, rest = notes(pod).get(MARK, "").partition("/")
    return addresses if epoch in epochs and rest == f"{pod['metadata']['uid']}/{','.join(addresses)}" else ()


class ReservationsEnd(Invariant):
    """*ahead* are how many addresses of selected pods that live are reserved in the end."""

    name = "ip: each reservation ends"

    def __init__(self, *, ahead: int = 0) -> None:
        self._ahead = ahead

    def rest(self, seen: Observation) -> Iterator[str]:
        pods = {address: seen.pods.get(uid) for address, uid in seen.assigned.items()}
        living = {address: pod for address, pod in pods.items() if pod and is_selected(pod)}
        epochs = epochs_in(seen.webhook_configurations)
        marked = {address for address, pod in living.items() if address in _unreviewed(pod, epochs)}
        if left := {*seen.reserved} - marked:
            yield f"still reserved: {', '.join(sorted(left))}"
        if len(marked) != (most := min(self._ahead, len(living))):
            yield f"{len(marked)} pods of {most} are reserved ahead"


class FreeInTime(Invariant):
    """After as many *seconds* in which a leader works; *clocks* differ by at most as much."""

    name = "ip: the address of a pod that is gone is free when its time is over"

    def __init__(self, seconds: float, clocks: float = 0.0) -> None:
        self._most, self._at = seconds + clocks + FREED, 0.0
        self._kept: dict[str, float] = {}

    def look(self, seen: Observation) -> Iterator[str]:
        passed = 0.0 if seen.disturbances.within(WORKS, seen.at, NO_LEADER) else seen.at - self._at
        gone = set(seen.reserved) - seen.assigned.keys()
        self._at, self._kept = (
            seen.at,
            {each: self._kept.get(each, -passed) + passed for each in sorted(gone)},
        )
        for address, seconds in self._kept.items():
            if seconds > self._most:
                yield f"{address} is reserved for {seconds:.0f} s"


class OfItsPool(Invariant):
    """While nodes keep the labels by which pools select them."""

    name = "ip: no pod gets an address of an IPPool that does not select its node"

    def look(self, seen: Observation) -> Iterator[str]:
        for pool in seen.pools:
            cidr, selector = ip_network(pool["spec"]["cidr"]), pool["spec"].get("nodeSelector", "")
            for address, uid in seen.assigned.items():
                pod = seen.pods.get(uid, {"spec": {}})
                node = seen.nodes.get(pod["spec"].get("nodeName", ""))
                if node and ip_address(address) in cidr and not selects(selector, node):
                    yield f"{name(pod)} on {name(node)} has {address}, which is for {selector}"


def selects(selector: str, node: Raw) -> bool:
    """Of Calico's selectors, those of all nodes, and those that compare one label."""
    key, _, value = selector.partition(" == ")
    return selector in ("", "all()") or labels(node).get(key) == value.strip("'")
