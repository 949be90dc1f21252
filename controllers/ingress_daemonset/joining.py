"""Which template the first pods of a node get.

Nodes join whenever an autoscaler wants it, and all of them would have a bad template at once. So they get the last one
that all nodes had, and the new one in their turn, until that has replaced pods somewhere and nothing holds it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from api.ingress_daemonset.node_matching import matches, where_of
from controllers.ingress_daemonset.node_rollout import NodeRollout, Phase


def with_former(rollout: NodeRollout, former: Mapping[str, Any]) -> NodeRollout:
    """*rollout* of a new node, with the template *former*, if its pods may run there."""
    spec = msgspec.structs.replace(rollout.resource.spec, template=dict(former))
    resource = msgspec.structs.replace(rollout.resource, spec=spec)
    if not matches(where_of(resource), rollout.node, runs=False):
        return rollout
    return replace(rollout, resource=resource)


def has_shown_itself(rollouts: Iterable[NodeRollout], now: datetime) -> bool:
    """Whether the desired template has replaced pods, and no Ready node that has it lacks any."""
    having = [each for each in rollouts if each.node.ready and not each.absent and not each.needs_template]
    if any(each.phase is Phase.DEGRADED or each.is_stuck(now) for each in having):
        return False
    return any(each.phase is Phase.CURRENT and not each.joined for each in having)
