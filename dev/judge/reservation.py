"""Addresses of pods: what Calico's allocator gives away, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dev.judge.judge import Always
from dev.judge.observation import Observation, is_terminating, labels, name

Raw = dict[str, Any]
SELECTING = {"statefulset.kubernetes.io/pod-name", "brokerId"}
SLACK = 3.0
"""Seconds that a pass of releases may be early: ends are stored in whole seconds."""
AS_SEEN = 20.0
"""Seconds in which a pod that went without admission is seen: a kubelet's or a node's doing."""


@dataclass(frozen=True)
class Gone:
    """A pod that had *address* until then."""

    address: str
    pod: str
    at: float


class KeptOutOfCirculation(Always):
    """*seconds* is the configured time, *clocks* what those of two of our replicas differ by at most.

    A time that one replica stores is compared with the clock of another one: a documented limit.
    """

    name = "ip: the address of a selected pod that is gone is not free before its time is over"

    def __init__(self, seconds: float, clocks: float = 0.0) -> None:
        self._seconds = seconds - clocks - SLACK
        self._living: dict[str, tuple[str, str]] = {}
        """Address and name of each selected pod that has one, by uid."""
        self._gone: dict[str, Gone] = {}
        """By address."""
        self._unseen: dict[str, float] = {}
        """Since when an address is free that should not be."""

    def look(self, seen: Observation) -> Iterator[str]:
        self._follow(seen)
        for address, gone in list(self._gone.items()):
            if seen.at > gone.at + self._seconds:
                del self._gone[address]
            elif address in seen.assigned:
                del self._gone[address]
                yield f"{address} of {gone.pod} was given away {seen.at - gone.at:.1f} s after its end"
            elif address not in seen.reserved and not self._is_late(gone, seen):
                yield f"{address} of {gone.pod} is free {seen.at - gone.at:.1f} s after its end"

    def _is_late(self, gone: Gone, seen: Observation) -> bool:
        """Whether it went without admission, and there was no time yet to see it."""
        return seen.at - gone.at <= AS_SEEN and seen.disturbances.within(AS_SEEN, seen.at, gone.pod)

    def _follow(self, seen: Observation) -> None:
        living = {}
        for uid, pod in seen.pods.items():
            address = (pod.get("status") or {}).get("podIP", "")
            if address and SELECTING & labels(pod).keys() and seen.assigned.get(address) == uid:
                living[uid] = address, name(pod)
        for uid, (address, of) in self._living.items():
            if (
                seen.assigned.get(address) == uid
            ):  # also of a pod that was deleted by force, until its sandbox goes
                living[uid] = address, of
            elif uid not in living and not _lives(seen.pods.get(uid)):
                self._gone[address] = Gone(address, of, seen.at)
        self._living = living


def _lives(pod: Raw | None) -> bool:
    """A pod that goes on with another address was not deleted: a new sandbox, as after a reboot."""
    return pod is not None and not is_terminating(pod) and pod["status"].get("phase") == "Running"


class ReservationsEnd(Always):
    name = "ip: each reservation ends"

    def rest(self, seen: Observation) -> Iterator[str]:
        if seen.reserved:
            yield f"still reserved: {', '.join(sorted(seen.reserved))}"
