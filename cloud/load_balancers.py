"""The verbs for CLB: the backends of a load balancer, their health, and their weights.

`BatchModifyTargetWeight` begins a task of the cloud. What became of it is read back, not asked by the id of the task,
which ends with the process that began it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cloud import apis, responses
from cloud.caller import Caller
from cloud.responses import ListenerRow, TargetRow
from cloud.types import Backend, backend_key

RULES, TARGETS_OF_RULE, TARGETS = 100, 50, 500
"""In one call: listeners or rules, targets of each, and targets in all."""
INSTANCE = "CVM"
"""The type of targets that are called by the ids of instances; others, by their addresses."""
OFF = "Close"
"""The detail of a target whose listener has no health check."""


class LoadBalancers:
    """Safe to share between threads. Each verb returns within the call timeout per call, or raises a CloudError."""

    def __init__(self, calls: Caller) -> None:
        self._call = calls.call

    def backends(self, load_balancer: str) -> list[Backend]:
        """All of them. Gone when there is no such load balancer."""
        asked = {"LoadBalancerId": load_balancer}
        found = self._call(apis.DESCRIBE_TARGETS, asked, responses.Listeners)
        return [
            Backend(
                listener=listener.listener_id,
                location=location,
                instance=row.instance_id or "" if row.type in (None, INSTANCE) else "",
                address=next(iter(row.private_ip_addresses or ()), ""),
                port=row.port,
                weight=row.weight or 0,
            )
            for listener, location, row in _targets(found.listeners)
        ]

    def healthy(self, load_balancer: str) -> dict[str, bool]:
        """By the keys of backends; one whose listener has no health check counts as healthy."""
        asked = {"LoadBalancerIds": [load_balancer]}
        found = self._call(apis.DESCRIBE_TARGET_HEALTH, asked, responses.TargetHealth)
        ours = (each for each in found.load_balancers or () if each.load_balancer_id == load_balancer)
        targets = (target for each in ours for target in _targets(each.listeners))
        return {
            # The target's id is that of its instance, else there is only its address.
            backend_key(
                listener.listener_id,
                location,
                (row.target_id if (row.target_id or "").startswith("ins-") else row.ip) or "",
                row.port,
            ): bool(row.health_status) or row.health_status_detail == OFF
            for listener, location, row in targets
        }

    def set_weights(self, load_balancer: str, weights: Mapping[Backend, int]) -> None:
        """Begin to set them, in as few calls as the cloud allows; those before an error are begun."""
        for rules in batches(weights):
            asked = {"LoadBalancerId": load_balancer, "ModifyList": rules}
            self._call(apis.MODIFY_TARGET_WEIGHTS, asked, responses.Done)


def batches(weights: Mapping[Backend, int]) -> Iterator[list[dict[str, object]]]:
    """The lists for calls that set *weights*."""
    by_rule: dict[tuple[str, str], list[dict[str, object]]] = {}
    for backend, weight in sorted(weights.items(), key=lambda each: each[0].key):
        name = {"InstanceId": backend.instance} if backend.instance else {"EniIp": backend.address}
        target = {**name, "Port": backend.port, "Weight": weight}
        by_rule.setdefault((backend.listener, backend.location), []).append(target)
    batch: list[dict[str, object]] = []
    count = 0
    for (listener, location), all_targets in by_rule.items():
        rule = {"ListenerId": listener} | ({"LocationId": location} if location else {})
        for start in range(0, len(all_targets), TARGETS_OF_RULE):
            targets = all_targets[start : start + TARGETS_OF_RULE]
            if batch and (len(batch) == RULES or count + len(targets) > TARGETS):
                yield batch
                batch, count = [], 0
            batch.append({**rule, "Targets": targets})
            count += len(targets)
    if batch:
        yield batch


def _targets(listeners: Iterable[ListenerRow] | None) -> Iterator[tuple[ListenerRow, str, TargetRow]]:
    """With the listener, and the location if there is one."""
    for listener in listeners or ():
        yield from ((listener, "", row) for row in listener.targets or ())
        for rule in listener.rules or ():
            yield from ((listener, rule.location_id or "", row) for row in rule.targets or ())
