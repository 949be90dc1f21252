"""An external load balancer: it probes a port of each of its nodes every 2 s, and uses those that answered well.

It leaves out nodes that bear the label for that, after as long; one that is as MetalLB does not probe.

Two refusals in a row take a node off, two good answers bring it back: the defaults of Tencent's CLB are 3 and 3 with
5 s, those of HAProxy 3 and 2 with 2 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dev.judge.edge import EXCLUDED
from dev.judge.observation import labels
from dev.simulator.objects import INGRESS_LABEL

Raw = dict[str, Any]
PERIOD = 2.0
FALLS, RISES = 2, 2


class LoadBalancer:
    """*probe* gives the status that each node's health check answers; *uses* are the nodes that get traffic.

    *excluded* gives the nodes that bear the label.
    """

    def __init__(
        self, probe: Callable[[], Mapping[str, int]], excluded: Callable[[], set[str]] = set
    ) -> None:
        self._probe, self._excluded = probe, excluded
        self.is_metallb = False
        self.uses: set[str] = set()
        self.answers: Mapping[str, int] = {}
        """The last answer of each node's health check."""
        self._in_a_row: dict[str, int] = {}
        """Answers that speak for a change, one after the other."""

    def poll(self) -> None:
        self.answers, excluded = self._probe(), self._excluded()
        self.uses &= self.answers.keys()
        for name, status in self.answers.items():
            is_used, is_good = name in self.uses, name not in excluded and (self.is_metallb or status == 200)
            self._in_a_row[name] = self._in_a_row.get(name, 0) + 1 if is_good != is_used else 0
            if self._in_a_row[name] >= (FALLS if is_used else RISES):
                self._in_a_row[name] = 0
                self.uses ^= {name}


def is_target(node: Raw) -> bool:
    return INGRESS_LABEL in labels(node)


def is_excluded(node: Raw) -> bool:
    return EXCLUDED in labels(node)
