"""IngressDaemonSets in `status` and `doctor`: which rollouts are in progress, and which have stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from api.ingress_daemonset import API_VERSION, GROUP, INGRESS_DAEMONSETS, KIND, NODE_LABEL
from api.ingress_daemonset.status import Progressing
from cli.access import access
from cli.health import PROBE_NAME, Health, Needs, Overview, Probe, Problem, Raw, probe_object, probe_pod
from cli.ingress_daemonset.stored import STOPPED, UNKNOWN, StoredResource
from cli.installation import CONTROLLERS, WEBHOOK
from cli.inventory import Inventory
from cli.output import Cell, Document, Part, Table, bad, warning
from kube.types import key_of
from settings import Settings

WHAT_STOPPED: Mapping[str, str] = {
    Progressing.HALTED: "is halted",
    Progressing.CANARY_DEGRADED: "waits for its canary, which fails",
    Progressing.ROLLING_BACK: "has failed, and nodes return to the former template",
    Progressing.ROLLED_BACK: "has failed, and nodes have the former template",
}


class RolloutState(Document, frozen=True):
    namespace: str
    name: str
    state: str
    desired_nodes: int
    updated_nodes: int
    ready_nodes: int
    detached_nodes: int
    message: str

    @property
    def moves(self) -> bool:
        return self.state not in (Progressing.COMPLETE, UNKNOWN)


class Rollouts(Overview, frozen=True):
    rollouts: tuple[RolloutState, ...]

    @property
    def content(self) -> Any:
        return self.rollouts

    def state(self, now: datetime) -> Cell:
        moving = sum(each.moves for each in self.rollouts)
        return (
            f"{len(self.rollouts)}, {moving} of them with a rollout in progress" if self.rollouts else "none"
        )

    def parts(self, now: datetime) -> Iterator[Part]:
        rows = [
            (
                f"{each.namespace}/{each.name}",
                bad(each.state) if each.state in STOPPED else warning(each.state),
                f"{each.updated_nodes}/{each.desired_nodes}",
                str(each.detached_nodes),
                each.message,
            )
            for each in self.rollouts
            if each.moves
        ]
        if rows:
            yield ""
            yield Table(("ROLLOUT", "STATE", "UPDATED", "DETACHED", "MESSAGE"), rows)


def look(inventory: Inventory) -> tuple[Rollouts, Iterable[Problem]]:
    stored = inventory.list(INGRESS_DAEMONSETS, StoredResource)
    rollouts = tuple(map(_state, stored))
    return Rollouts(rollouts), [*_stopped(rollouts), *_degraded(stored)]


def _state(resource: StoredResource) -> RolloutState:
    status = resource.reported
    progressing = status.condition("Progressing")
    return RolloutState(
        resource.metadata.namespace,
        resource.metadata.name,
        progressing.reason or UNKNOWN,
        status.desired_nodes,
        status.updated_nodes,
        status.ready_nodes,
        status.detached_nodes,
        progressing.message,
    )


def _stopped(rollouts: Iterable[RolloutState]) -> Iterator[Problem]:
    for each in rollouts:
        if each.state in STOPPED:
            yield Problem(
                f"the rollout of {each.namespace}/{each.name} {WHAT_STOPPED[each.state]}: {each.message}",
                f"drawbridge rollout get {each.name} -n {each.namespace};"
                " then correct the template, or restore the former one",
            )


def _degraded(stored: Iterable[StoredResource]) -> Iterator[Problem]:
    for resource in stored:
        degraded = resource.reported.condition("Degraded")
        if degraded.status == "True":
            what = f"IngressDaemonSet {key_of(resource.metadata)}: {degraded.message}"
            yield Problem(what, "docs/reference/ingressdaemonset.md#when-it-waits")


def needs(_: Settings) -> Iterator[Needs]:
    yield {
        WEBHOOK: access("list", "ingressdaemonsets", GROUP),
        CONTROLLERS: [
            *access("watch", "ingressdaemonsets", GROUP),
            *access("patch", "ingressdaemonsets/status", GROUP),
            *access("watch create patch delete", "deployments", "apps"),
        ],
    }


def probe(_: Settings) -> Probe:
    template = {"metadata": {"labels": {"app": PROBE_NAME}}, "spec": probe_pod()}
    # No node has it: nothing would be done with it, were it stored.
    spec = {"nodeSelector": {NODE_LABEL: PROBE_NAME}, "template": template}
    resource = probe_object(API_VERSION, KIND) | {"spec": spec}
    return Probe("dry run of an IngressDaemonSet", INGRESS_DAEMONSETS, resource, _is_defaulted)


def _is_defaulted(resource: Raw) -> bool:
    """The selector is made of the template's labels, which no schema can do."""
    return bool(resource.get("spec", {}).get("selector"))


HEALTH = Health(
    "IngressDaemonSets",
    "ingressDaemonSet",
    "ingressDaemonSets",
    "IngressDaemonSets",
    look,
    needs,
    probe,
)
