"""Which nodes wait for the window of an IngressDaemonSet to open, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from api.ingress_daemonset import UPDATE_NOW
from api.ingress_daemonset.pacing import Window
from api.ingress_daemonset.types import IngressDaemonSet
from controllers.ingress_daemonset.desired import applied_digest, is_current
from controllers.ingress_daemonset.drift import Drift
from controllers.ingress_daemonset.node_rollout import NodeRollout, Phase
from kube.types import rfc3339
from settings.windows import closes_at, opens_at, zone_of


@dataclass(frozen=True)
class ClosedWindow:
    """*opens_at* is None for one that never opens."""

    window: Window
    returns: bool
    opens_at: datetime | None

    def withholds(self, rollout: NodeRollout) -> bool:
        """Whether its update may not begin. The way back to the template that all nodes had waits for no window.

        A node that was detached while it was closed, as to be drained, has not begun.
        """
        if self.returns and rollout.drift is Drift.OUTDATED:
            return False
        if rollout.untouched:
            return closes_at(self.window, rollout.marked_at) is None
        return rollout.phase is Phase.OUTDATED

    def standstill(self, rollouts: Sequence[NodeRollout]) -> str:
        """What is waited for; empty while nodes are under way, or none is to be updated."""
        under_way = any(each.in_flight and not each.draining for each in rollouts)
        if under_way or not any(map(self.withholds, rollouts)):
            return ""
        if self.opens_at:
            return f"the window opens at {rfc3339(self.opens_at)}"
        known = (
            f"its time zone {self.window.time_zone} is not known"
            if zone_of(self.window) is None
            else "see window"
        )
        return f"the window never opens: {known}"


def window_of(resource: IngressDaemonSet) -> Window | None:
    """The one in force; None where updates may begin at any time, or must not wait for this template."""
    window = resource.spec.update_strategy.rolling_update.window
    urgent = resource.metadata.annotations.get(UPDATE_NOW) if window else None
    return None if urgent and urgent == applied_digest(resource) else window


def closed_window_of(resource: IngressDaemonSet, now: datetime) -> ClosedWindow | None:
    """None while updates may begin."""
    window = window_of(resource)
    if window is None or closes_at(window, now):
        return None
    return ClosedWindow(window, is_current(resource), opens_at(window, now))
