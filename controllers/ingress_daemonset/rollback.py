"""Return to the last template that all nodes had, when those with a new one fail.

The spec is never written, so to apply it again, by hand or from Git, has no effect. The status
says that the spec's template has failed, and that holds until the template changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from api.ingress_daemonset.types import IngressDaemonSet
from controllers.ingress_daemonset.canary import Canary
from controllers.ingress_daemonset.desired import revision_of
from controllers.ingress_daemonset.revisions import Revision, of
from kube.types import rfc3339

Raw = Mapping[str, Any]
SHOWN = 5
"""Nodes that a reason names at most."""


@dataclass(frozen=True)
class Rollback:
    """*stored* is as in the status, while it is in force; *is_possible* is whether the template before is kept.

    *former* is that template, the last one that all nodes had, while another one is rolled out.
    """

    stored: Raw | None = None
    is_possible: bool = False
    former: Raw | None = None


NO_ROLLBACK = Rollback()


def resolved(resource: IngressDaemonSet, held: Sequence[Revision]) -> tuple[IngressDaemonSet, Rollback]:
    """*resource* with the template that nodes are to have.

    When that is the former one, and not kept any more, the rollout is paused: there is nothing to give to nodes.
    """
    revision, current = revision_of(resource), resource.current_revision
    if revision == current:
        return resource, NO_ROLLBACK
    if not resource.spec.update_strategy.rolling_update.auto_rollback:
        return resource, Rollback(former=_template(resource, held, current))
    stored: Raw = resource.status.get("rollback") or {}
    in_force = stored.get("revision") == revision
    wanted = stored["toRevision"] if in_force else current
    template = _template(resource, held, wanted)
    if not in_force:
        return resource, Rollback(None, template is not None, template)
    if template is None:
        return replace(resource, spec=replace(resource.spec, paused=True)), Rollback(stored)
    return replace(resource, spec=replace(resource.spec, template=template)), Rollback(stored, True)


def rollback_status(
    resource: IngressDaemonSet,
    halting: Mapping[str, str],
    canary: Canary | None,
    rollback: Rollback,
    now: datetime,
) -> dict[str, Any]:
    """The field of the status; empty while nothing has failed."""
    if rollback.stored:
        return {"rollback": dict(rollback.stored)}
    if not rollback.is_possible or resource.spec.paused:
        return {}
    if not (reason := _failure(halting, canary, now)):
        return {}
    revisions = {"revision": revision_of(resource), "toRevision": resource.current_revision}
    return {"rollback": revisions | {"at": rfc3339(now), "reason": reason}}


def _template(resource: IngressDaemonSet, held: Sequence[Revision], revision: str) -> dict[str, Any] | None:
    ours = of(resource.metadata.uid, held)
    return next((each.template for each in ours if each.digest == revision), None)


def _failure(halting: Mapping[str, str], canary: Canary | None, now: datetime) -> str:
    if halting:
        reason = next(iter(halting.values()))
        names = [name for name, each in halting.items() if each == reason]
        return f"{', '.join(names[:SHOWN])}: {reason}"
    if canary and canary.failure:
        return f"the canary failed: {canary.failure}"
    fails_at = canary.fails_at if canary else None
    if canary and fails_at and fails_at <= now:
        return f"the canary failed for progressDeadlineSeconds: {canary.refusing[0]}"
    return ""
