"""What the objects say: a person with kubectl finds out there why something waits."""

from __future__ import annotations

from collections.abc import Iterator

from dev.judge.judge import Always
from dev.judge.observation import Observation, condition, is_open, is_ready, name, needs_address, notes
from dev.judge.placement import REASON, is_gated

READY, UNEXPLAINED = "AnycastIPReady", "AnycastIpPending"


class WaitsSayWhy(Always):
    name = "truth: each closed node and each gated pod says what it waits for"

    def rest(self, seen: Observation) -> Iterator[str]:
        for node in seen.nodes.values():
            said = condition(node, READY)
            says = said.get("status") == "False" and said.get("reason") != UNEXPLAINED
            if needs_address(node) and is_ready(node) and not is_open(node) and not says:
                yield f"{name(node)} is closed"
        for pod in seen.pods.values():
            if is_gated(pod) and not notes(pod).get(REASON):
                yield f"{name(pod)} is gated"
