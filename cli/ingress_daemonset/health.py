"""IngressDaemonSets in `status` and `doctor`: which rollouts are in progress, and which have stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from api.ingress_daemonset import API_VERSION, GROUP, INGRESS_DAEMONSETS, KIND, NODE_LABEL
from api.ingress_daemonset.status import Progressing
from cli.health import PROBE_NAME, Health, Needs, Overview, Probe, Problem, probe_object, probe_pod
from cli.ingress_daemonset.rollouts import STOPPED, UNKNOWN, StoredResource
from cli.installation import CONTROLLERS, WEBHOOK, access
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
    rollouts, problems = [], []
    for resource in stored:
        status, metadata = resource.reported, resource.metadata
        progressing = status.condition("Progressing")
        state, message = progressing.reason or UNKNOWN, progressing.message
        nodes = status.desired_nodes, status.updated_nodes, status.ready_nodes, status.detached_nodes
        rollouts.append(RolloutState(metadata.namespace, metadata.name, state, *nodes, message))
        if state in STOPPED:
            what = f"the rollout of {key_of(metadata)} {WHAT_STOPPED[state]}: {message}"
            way_out = f"drawbridge rollout get {metadata.name} -n {metadata.namespace};"
            problems.append(Problem(what, f"{way_out} then correct the template, or restore the former one"))
    for resource in stored:
        degraded = resource.reported.condition("Degraded")
        if degraded.status == "True":
            what = f"IngressDaemonSet {key_of(resource.metadata)}: {degraded.message}"
            problems.append(Problem(what, "docs/reference/ingressdaemonset.md#when-it-waits"))
    return Rollouts(tuple(rollouts)), problems


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
    # The selector is made of the template's labels, which no schema can do.
    return Probe(
        "dry run of an IngressDaemonSet",
        INGRESS_DAEMONSETS,
        resource,
        lambda answer: bool(answer.get("spec", {}).get("selector")),
    )


HEALTH = Health(
    "IngressDaemonSets",
    "ingressDaemonSet",
    "ingressDaemonSets",
    "IngressDaemonSets",
    look,
    needs,
    probe,
)
