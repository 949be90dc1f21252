"""Attach all nodes, before the feature is switched off and before the release goes: nothing would do it afterwards.

``python -m controllers.ingress_daemonset.attach_nodes`` runs as a Job of Helm's, before anything else changes. It
suspends every IngressDaemonSet, so that the leader attaches what it has not updated yet, and completes the rest. What
is detached after *leader* seconds, as without a leader, the Job attaches itself. It ends when no node has been detached
for *settle* seconds, in which a write that the leader had decided on arrives.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from api.ingress_daemonset import FINALIZER, INGRESS_DAEMONSETS, KIND, NODE_LABEL, PAUSED_UNTIL
from api.ingress_daemonset.types import suspended_until
from controllers.ingress_daemonset.children import Child
from controllers.ingress_daemonset.detachment import NodeChanges, attach_deployment, attach_node_for_all
from kube.client import Client
from kube.errors import KubeError, NotFound
from kube.resources import DEPLOYMENTS, NODES, Resource
from kube.types import ObjectMeta, key_of, rfc3339
from runtime import time, utc_now
from settings.values import seconds
from telemetry import logs

LOOK = 1.0
CALL_TIMEOUT = 4.0
"""Seconds; another attempt follows."""
NAMED = 10
"""As many nodes are named of those that are left."""
HOLD = timedelta(minutes=15)
"""How long a suspension lasts: longer than Helm takes for the rest, and not for long after an upgrade that failed."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Patience:
    """In seconds: how long nothing must be detached, how long the leader has, and how long all may take."""

    settle: float = 10.0
    leader: float = 120.0
    all: float = 180.0


@dataclass(frozen=True)
class Detached:
    """An object with our marks, and the annotations and labels that attach it."""

    resource: Resource
    held: ObjectMeta
    changes: NodeChanges


def attach_all(
    client: Client,
    patience: Patience,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], datetime] = utc_now,
) -> str:
    """Nothing when no node is detached any more, and none will be; else what is left. KubeError is tried again."""
    began = quiet_since = clock()
    problem = ""
    while clock() - began < patience.all:
        try:
            if not suspend_all(client, now()):
                return ""
            if left := detached(client):
                quiet_since, problem = clock(), _named(left)
            elif clock() - quiet_since >= patience.settle:
                release_all(client)
                return ""
            if clock() - began >= patience.leader:
                attach(client, left)
        except KubeError as error:
            problem = str(error)
            log.warning("nodes not attached yet", error=problem)
        sleep(LOOK)
    return problem or "nodes are still being detached"


def suspend_all(client: Client, now: datetime) -> bool:
    """Whether there is any IngressDaemonSet. KubeError."""
    found = _ingress_daemonsets(client)
    for each in found:
        until = suspended_until(each, now)
        if until is None or until - now < HOLD / 2:
            suspended = {PAUSED_UNTIL: rfc3339(now + HOLD)}
            _patch(client, INGRESS_DAEMONSETS, each.metadata, annotations=suspended)
    return bool(found)


def detached(client: Client) -> list[Detached]:
    """KubeError."""
    found = list[Detached]()
    for each in client.list(DEPLOYMENTS, type=Child, label_selector=NODE_LABEL).items:
        owner, changes = each.metadata.controller, attach_deployment(each.metadata.annotations)
        if owner and owner.kind == KIND and changes:
            found.append(Detached(DEPLOYMENTS, each.metadata, {"annotations": changes}))
    for each in client.list(NODES, type=Child).items:
        if on_node := attach_node_for_all(each.metadata):
            found.append(Detached(NODES, each.metadata, on_node))
    return found


def attach(client: Client, left: Sequence[Detached]) -> None:
    """Try all of them once."""
    for each in left:
        said = {"kind": each.resource.plural, "name": key_of(each.held)}
        try:
            _patch(client, each.resource, each.held, **each.changes)
        except KubeError as error:
            log.warning("node not attached yet", **said, error=str(error))
        else:
            log.info("node attached without the leader", **said)


def release_all(client: Client) -> None:
    """Without Drawbridge, nothing would remove the finalizer of those that are deleted later. KubeError."""
    for each in _ingress_daemonsets(client):
        if FINALIZER in each.metadata.finalizers:
            others = [name for name in each.metadata.finalizers if name != FINALIZER]
            _patch(client, INGRESS_DAEMONSETS, each.metadata, finalizers=others)


def _ingress_daemonsets(client: Client) -> list[Child]:
    """None where their CRD is not installed."""
    try:
        return client.list(INGRESS_DAEMONSETS, type=Child).items
    except NotFound:
        return []


def _patch(client: Client, resource: Resource, held: ObjectMeta, **metadata: object) -> None:
    body = {"metadata": {**held.guard, **metadata}}
    client.patch(resource, held.name, body, held.namespace or None, timeout=CALL_TIMEOUT)


def _named(left: Sequence[Detached]) -> str:
    names = [f"{each.resource.plural} {key_of(each.held)}" for each in left]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"still detached: {', '.join(names[:NAMED])}{more}"


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    logs.configure("info")
    patience = Patience(seconds(given.settle), seconds(given.leader), seconds(given.within))
    if not (left := attach_all(Client.from_environment(), patience)):
        log.info("no node is detached")
        return 0
    print(
        f"nodes were not all attached within {timedelta(seconds=patience.all)}: {left}\n"
        "docs/how-to/break-glass.md has the commands that attach them by hand; --no-hooks lets Helm go on without.",
        file=sys.stderr,
    )
    return 1


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m controllers.ingress_daemonset.attach_nodes", description=__doc__
    )
    parser.add_argument("--settle", default="10s", help="how long no node must have been detached")
    parser.add_argument("--leader", default="120s", help="how long the leader has to attach nodes")
    parser.add_argument("--within", default="180s", help="how long all may take")
    return parser


if __name__ == "__main__":
    sys.exit(main())
