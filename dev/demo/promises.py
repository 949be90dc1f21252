"""Whether what was promised came true, judged from the history alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from dev.lab.history import History, Hold, addresses, names
from kube.types import Pod


@dataclass(frozen=True)
class Promise:
    """One promise, whether it was kept, and the evidence."""

    text: str
    kept: bool
    evidence: str


@dataclass(frozen=True)
class Death:
    """One of our programs was killed: nothing after *revision* was its work; *restarts* came of it."""

    program: str
    revision: int
    restarts: int


Judge = Callable[[History], Sequence[Promise]]
"""Judges a step by all that was seen so far: right after the step, and again at the end of the demo."""


def reserved_before_gone(history: History, pods: Sequence[Pod]) -> Promise:
    """Each address stood in an IPReservation, put there by admission, before its pod object was gone."""
    faults = [fault for pod in pods if (fault := _fault(history, pod))]
    leads = [
        history.departures[pod.metadata.uid].revision - hold.since
        for pod in pods
        if pod.metadata.uid in history.departures
        for hold in history.holds_of(pod)
    ]
    proof = f"{len(pods)} of {len(pods)}, {span(leads)} revisions ahead"
    return judged(_subject(pods, "IP is reserved before its pod is gone"), faults, proof)


def never_reserved(history: History, pod: Pod) -> Promise:
    """A pod that went without a hold; only what came after its end proves that there was none."""
    departure = history.departures.get(pod.metadata.uid)
    if departure is None:
        faults = [f"{_name(pod)} is still there"]
    elif any(hold.record.cidr in addresses(pod) for hold in history.holds):
        faults = [f"{_name(pod)} had its IP reserved"]
    elif history.reserved_up_to < departure.revision:
        faults = ["nothing was heard of the reservations since"]
    else:
        faults = []
    text = f'{_name(pod)}, annotated reserve-ip: "false", goes without a reservation'
    return judged(text, faults, "its IP stood in no IPReservation at any time")


def held_for_their_time(history: History, holds: Sequence[Hold], seconds: float) -> Promise:
    """Each hold is over, and lasted *seconds* from the end of its pod, which was not noted too early."""
    faults = [f"{_what(hold)} {fault}" for hold in holds if (fault := _shortcoming(history, hold, seconds))]
    lasted = [duration for hold in holds if (duration := time_held(hold)) is not None]
    text = f"each IP is held for {seconds:g} s after its pod's end, then released"
    return judged(
        text, faults or none_of(holds), f"{len(holds)} of {len(holds)} IPs, held for {span(lasted)} s"
    )


def oldest_released_first(holds: Sequence[Hold], count: int) -> Promise:
    """Of *holds*, in the order of their reservations, only the last *count* are not over."""
    ordered = sorted(holds, key=lambda hold: hold.record.at)
    wrong = [f"{_what(hold)} is held" for hold in ordered[:-count] if hold.until is None]
    wrong += [f"{_what(hold)} was released" for hold in ordered[-count:] if hold.until is not None]
    text = f"of {len(ordered)} IPs the oldest are released at once, the newest {count} stay"
    kept = ", ".join(hold.record.pod for hold in ordered[-count:])
    return judged(text, wrong or none_of(ordered), f"still held: {kept}")


def died_in_between(history: History, deaths: Sequence[Death], pods: Sequence[Pod]) -> Promise:
    """A program was killed and started again after the first of *pods* had its IP reserved and before the last went."""
    faults = [fault for death in deaths if (fault := _untimely(history, death, pods))]
    proof = "; ".join(
        f"{death.program} was killed with {_left_at(history, death, pods)} of {len(pods)} pods to go, and restarted"
        for death in deaths
    )
    return judged("a replica of the webhook dies in the middle", faults or none_of(deaths), proof)


def not_restarted(before: Collection[str], after: Collection[str]) -> Promise:
    """*before* and *after* name the programs' pods with their uids and restarts."""
    changed = sorted(set(before) ^ set(after))
    text = "a changed configuration is applied without a restart"
    return judged(text, changed or none_of(before), f"{len(before)} programs run on as they were")


def time_held(hold: Hold) -> float | None:
    """Seconds from the noted end of its pod to its release; None for what is not over, or has no end noted."""
    if hold.released is None or hold.record.ended is None:
        return None
    return (hold.released - hold.record.ended) / timedelta(seconds=1)


def _fault(history: History, pod: Pod) -> str:
    departure = history.departures.get(pod.metadata.uid)
    if departure is None:
        return f"{_name(pod)} is still there"
    holds = [hold for hold in history.holds_of(pod) if hold.covers(departure.revision)]
    if missing := addresses(pod) - {hold.record.cidr for hold in holds}:
        return f"{_name(pod)} was gone before {', '.join(sorted(missing))} was reserved"
    if any(hold.record.late for hold in holds):
        return f"{_name(pod)} was reserved late, not by admission"
    return "" if holds else f"{_name(pod)} had no IP"


def _untimely(history: History, death: Death, pods: Sequence[Pod]) -> str:
    if not death.restarts:
        return f"{death.program} was not restarted"
    # It may have been killed before anything else happened.
    if not any(hold.since <= death.revision for pod in pods for hold in history.holds_of(pod)):
        return f"{death.program} died before any IP was reserved"
    left = _left_at(history, death, pods)
    return "" if left else f"{death.program} died when all pods were gone"


def _left_at(history: History, death: Death, pods: Sequence[Pod]) -> int:
    ends = (history.departures.get(pod.metadata.uid) for pod in pods)
    return sum(end is None or end.revision > death.revision for end in ends)


def _shortcoming(history: History, hold: Hold, seconds: float) -> str:
    if hold.until is None:
        return "is still held"
    lasted, departure = time_held(hold), history.departures.get(hold.record.uid)
    if lasted is None or hold.noted is None:
        return "was released before its pod's end was noted"
    if departure is None or hold.noted < departure.revision:
        return "counts from a time before its pod's end"
    return f"was released after {lasted:.1f} s" if lasted < seconds else ""


def judged(text: str, faults: Sequence[str], proof: str) -> Promise:
    """Kept unless there are *faults*, which are the evidence then."""
    return Promise(text, not faults, "; ".join(faults) or proof)


def none_of(things: Collection[object]) -> list[str]:
    return [] if things else ["there was nothing to judge by"]


def _subject(pods: Sequence[Pod], predicate: str) -> str:
    return f"the {predicate}" if len(pods) == 1 else f"each {predicate}"


def span(numbers: Sequence[float]) -> str:
    if not numbers:
        return "no"
    low, high = f"{min(numbers):.3g}", f"{max(numbers):.3g}"
    return low if low == high else f"{low} to {high}"


def _name(pod: Pod) -> str:
    return names([pod])[0]


def _what(hold: Hold) -> str:
    return f"{hold.record.cidr} of {hold.record.namespace}/{hold.record.pod}"
