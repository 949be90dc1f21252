"""An external load balancer: it probes a port of each of its nodes every 2 s, and uses those that answered well.

Two refusals in a row take a node off, two good answers bring it back: the defaults of Tencent's CLB are 3 and 3 with
5 s, those of HAProxy 3 and 2 with 2 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dev.simulator.objects import INGRESS_LABEL

Raw = dict[str, Any]
PERIOD = 2.0
FALLS, RISES = 2, 2


class LoadBalancer:
    """*probe* gives the status that each node's health check answers; *uses* are the nodes that get traffic."""

    def __init__(self, probe: Callable[[], Mapping[str, int]]) -> None:
        self._probe = probe
        self.uses: set[str] = set()
        self.answers: Mapping[str, int] = {}
        """The last answer of each node's health check."""
        self._in_a_row: dict[str, int] = {}
        """Answers that speak for a change, one after the other."""

    def poll(self) -> None:
        self.answers = self._probe()
        self.uses &= self.answers.keys()
        for name, status in self.answers.items():
            is_good, is_used = status == 200, name in self.uses
            self._in_a_row[name] = self._in_a_row.get(name, 0) + 1 if is_good != is_used else 0
            if self._in_a_row[name] >= (FALLS if is_used else RISES):
                self._in_a_row[name] = 0
                self.uses ^= {name}


def is_target(node: Raw) -> bool:
    return INGRESS_LABEL in (node["metadata"].get("labels") or {})
