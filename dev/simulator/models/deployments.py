"""The controller of Deployments: ReplicaSets by revision, RollingUpdate and Recreate, proportional scaling.

https://github.com/kubernetes/kubernetes/tree/master/pkg/controller/deployment (deployment_controller.go, rolling.go,
recreate.go, sync.go, util/deployment_util.go)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from dev.fake_api.storage import Change, Key
from dev.simulator.models import deployment_status
from dev.simulator.models.cluster import DEPLOYMENTS, REPLICA_SETS, Cluster, Raw, controlled_by, controller_of
from dev.simulator.models.controller import Controller, Spawn, at_once
from dev.simulator.models.pods import created_at, hashed, is_deleted, is_ended
from dev.simulator.models.rollout import (
    DESIRED,
    HASH,
    MOST,
    REVISION,
    Rollout,
    available,
    number,
    size,
    without_hash,
)
from kube.resources import PODS

NOT_COPIED = {"kubectl.kubernetes.io/last-applied-configuration", REVISION, DESIRED, MOST}


class Deployments(Controller):
    def __init__(self, cluster: Cluster, spawn: Spawn = at_once) -> None:
        super().__init__(cluster, DEPLOYMENTS, REPLICA_SETS, spawn=spawn)

    def keys_of(self, change: Change) -> Iterator[Key]:
        yield from super().keys_of(change)
        if change.key[0] == PODS and change.old and (change.new is None or is_ended(change.new.raw)):
            owner = self.cluster.key_of(controller_of(change.old.raw))
            found = self.cluster.get(owner) if owner else None
            if found and (key := self.cluster.key_of(controller_of(found))) and key[0] == self.kind:
                yield key

    def reconcile(self, raw: Raw, now: datetime) -> datetime | None:
        rollout = self._rollout(raw)
        if is_deleted(raw):
            return self._report(rollout, now)
        if raw["spec"].get("paused"):
            self._scale(rollout)
        elif any(
            size(each) and number(each, DESIRED, rollout.replicas) != rollout.replicas
            for each in rollout.sets
        ):
            self._adopt_revision(rollout)
            self._scale(rollout)
        elif rollout.is_rolling:
            self._roll(rollout, now)
        else:
            self._recreate(rollout, now)
        return self._report(self._rollout(raw), now)

    def _rollout(self, raw: Raw) -> Rollout:
        self.cluster.look()
        raw = self.cluster.get((DEPLOYMENTS, raw["metadata"]["namespace"], raw["metadata"]["name"])) or raw
        sets = sorted(self.cluster.controlled(raw["metadata"]["uid"], REPLICA_SETS), key=created_at)
        template = without_hash(raw["spec"]["template"])
        new = next((each for each in sets if without_hash(each["spec"]["template"]) == template), None)
        return Rollout(raw, new, [each for each in sets if each is not new])

    # The two strategies.

    def _roll(self, rollout: Rollout, now: datetime) -> None:
        self._ensure_new(rollout, now)
        new, wanted = rollout.new, rollout.replicas
        assert new is not None
        total = sum(map(size, rollout.sets))
        if size(new) > wanted:
            self._resize(rollout, new, wanted)
        elif size(new) < wanted and total < wanted + rollout.max_surge:
            self._resize(
                rollout, new, size(new) + min(wanted + rollout.max_surge - total, wanted - size(new))
            )
        elif any(map(size, rollout.old)):
            self._shrink_old(rollout, new, total)
        self._clean_up(rollout)

    def _shrink_old(self, rollout: Rollout, new: Raw, total: int) -> None:
        least = rollout.replicas - rollout.max_unavailable
        room = total - least - (size(new) - available(new))
        if room <= 0:
            return
        sizes = {each["metadata"]["name"]: size(each) for each in rollout.old}
        for each in rollout.old:  # first what is not available anyway
            fewer = min(room, size(each) - available(each))
            if size(each) and fewer > 0:
                sizes[each["metadata"]["name"]] -= fewer
                room -= fewer
        room = sum(map(available, rollout.sets)) - least
        for each in rollout.old:
            fewer = max(0, min(room, sizes[each["metadata"]["name"]]))
            sizes[each["metadata"]["name"]] -= fewer
            room -= fewer
        for each in rollout.old:
            self._resize(rollout, each, sizes[each["metadata"]["name"]])

    def _recreate(self, rollout: Rollout, now: datetime) -> None:
        if any(map(size, rollout.old)):
            for each in rollout.old:
                self._resize(rollout, each, 0)
            return
        for each in rollout.old:
            if any(not is_ended(pod) for pod in self.cluster.controlled(each["metadata"]["uid"], PODS)):
                return
        self._ensure_new(rollout, now)
        assert rollout.new is not None
        self._resize(rollout, rollout.new, rollout.replicas)
        self._clean_up(rollout)

    def _scale(self, rollout: Rollout) -> None:
        """Between rollouts the one that is there; in the middle of one, all in proportion."""
        active = [each for each in rollout.sets if size(each)]
        wanted, latest = rollout.replicas, rollout.new or (rollout.old[-1] if rollout.old else None)
        if len(active) <= 1:
            if only := active[0] if active else latest:
                self._resize(rollout, only, wanted)
        elif rollout.new and size(rollout.new) == wanted == available(rollout.new):
            for each in rollout.old:
                self._resize(rollout, each, 0)
        elif rollout.is_rolling:
            self._scale_in_proportion(rollout, active)

    def _scale_in_proportion(self, rollout: Rollout, active: Sequence[Raw]) -> None:
        wanted, most = rollout.replicas, rollout.replicas + rollout.max_surge
        left = (most if wanted else 0) - sum(map(size, active))
        grows = left > 0
        # The largest first; among equals the newest when it grows, else the oldest.
        ordered = sorted(active, key=created_at, reverse=grows)
        ordered.sort(key=size, reverse=True)
        sizes = []
        for each in ordered:
            before = number(each, MOST, int(rollout.raw.get("status", {}).get("replicas", 0))) or size(each)
            share = round(size(each) * most / before) - size(each) if wanted else -size(each)
            share = max(0, min(share, left)) if grows else min(0, max(share, left))
            sizes.append(size(each) + share)
            left -= share
        sizes[0] = max(0, sizes[0] + left)
        for each, new in zip(ordered, sizes, strict=True):
            self._resize(rollout, each, new)

    # ReplicaSets.

    def _ensure_new(self, rollout: Rollout, now: datetime) -> None:
        """And give it the highest revision."""
        if rollout.new is None:
            rollout.new = self._create(rollout)
            deployment_status.note_created(self, rollout, now)
        self._adopt_revision(rollout)
        least = rollout.spec.get("minReadySeconds", 0)
        if rollout.new["spec"].get("minReadySeconds", 0) != least:
            self._change(rollout, rollout.new, {"spec": {"minReadySeconds": least}})

    def _adopt_revision(self, rollout: Rollout) -> None:
        if (new := rollout.new) is None:
            return
        revision = max(
            number(new, REVISION, 0), 1 + max((number(each, REVISION, 0) for each in rollout.old), default=0)
        )
        if number(new, REVISION, 0) != revision:
            self._change(rollout, new, {"metadata": {"annotations": {REVISION: str(revision)}}})
        if number(rollout.raw, REVISION, 0) != revision:
            change = {"metadata": {"annotations": {REVISION: str(revision)}}}
            metadata = rollout.raw["metadata"]
            self.client.patch(DEPLOYMENTS, metadata["name"], change, metadata["namespace"])

    def _create(self, rollout: Rollout) -> Raw:
        metadata, template = rollout.raw["metadata"], rollout.spec["template"]
        digest = hashed(template, rollout.raw.get("status", {}).get("collisionCount", 0))
        labels = {**template["metadata"].get("labels", {}), HASH: digest}
        room = rollout.replicas + rollout.max_surge - sum(map(size, rollout.old))
        replicas = max(0, min(room, rollout.replicas)) if rollout.is_rolling else rollout.replicas
        matched = {**(rollout.spec["selector"].get("matchLabels") or {}), HASH: digest}
        kept = {
            key: value for key, value in (metadata.get("annotations") or {}).items() if key not in NOT_COPIED
        }
        revision = 1 + max((number(each, REVISION, 0) for each in rollout.old), default=0)
        body = {
            "metadata": {
                "name": f"{metadata['name']}-{digest}",
                "labels": labels,
                "annotations": {**kept, **self._sizes(rollout), REVISION: str(revision)},
                "ownerReferences": [controlled_by(rollout.raw)],
            },
            "spec": {
                "replicas": replicas,
                "minReadySeconds": rollout.spec.get("minReadySeconds", 0),
                "selector": {**rollout.spec["selector"], "matchLabels": matched},
                "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
            },
        }
        return self.client.create(REPLICA_SETS, body, metadata["namespace"])

    def _resize(self, rollout: Rollout, raw: Raw, replicas: int) -> None:
        sizes = self._sizes(rollout)
        held = raw["metadata"].get("annotations") or {}
        if size(raw) != replicas or {name: held.get(name) for name in sizes} != sizes:
            change = {"metadata": {"annotations": sizes}, "spec": {"replicas": replicas}}
            self._change(rollout, raw, change)

    def _sizes(self, rollout: Rollout) -> dict[str, str]:
        return {DESIRED: str(rollout.replicas), MOST: str(rollout.replicas + rollout.max_surge)}

    def _change(self, rollout: Rollout, raw: Raw, change: Raw) -> None:
        metadata = raw["metadata"]
        new: Raw = self.client.patch(REPLICA_SETS, metadata["name"], change, metadata["namespace"])
        if rollout.new is raw:
            rollout.new = new

    def _clean_up(self, rollout: Rollout) -> None:
        """Old ReplicaSets without pods, beyond those that are kept for a rollback."""
        if rollout.new is None or not deployment_status.is_complete(rollout):
            return
        empty = [each for each in rollout.old if size(each) == 0 == each["status"].get("replicas", 0)]
        surplus = len(rollout.old) - rollout.spec["revisionHistoryLimit"]
        for each in sorted(empty, key=lambda each: number(each, REVISION, 0))[: max(0, surplus)]:
            self.delete(REPLICA_SETS, each)

    def _report(self, rollout: Rollout, now: datetime) -> datetime | None:
        status, due = deployment_status.status(rollout, now)
        self.set_status(rollout.raw, status)
        return due
