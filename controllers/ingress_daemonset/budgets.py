"""How many nodes may be off the load balancer, or short of pods, at a time."""

from __future__ import annotations

from webhook.ingress_daemonset.int_or_percent import Share, amount
from webhook.ingress_daemonset.types import RollingUpdate


def share(value: Share, whole: int) -> int:
    """*value*, or that percentage of *whole*: rounded up, at least 1 unless it is 0%; ValueError for neither."""
    number = amount(value)
    if isinstance(value, int):
        return number
    return max(1, -(-number * whole // 100)) if number else 0


def limit(rolling: RollingUpdate, nodes: int) -> int:
    """Of nodes at a time, out of *nodes*: that may be detached where nodes are detached, else that may be degraded."""
    return share(rolling.max_unavailable_nodes if rolling.detaches else rolling.max_degraded_nodes, nodes)
