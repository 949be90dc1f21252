"""IngressDaemonSets in `status` and `doctor`: which rollouts are in progress, and which have stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from api.ingress_daemonset import API_VERSION, GROUP, INGRESS_DAEMONSETS, KIND, NODE_LABEL
from cli.health import PROBE_NAME, Health, Overview, Probe, Problem, probe_object, probe_pod
from cli.ingress_daemonset.rollouts import Rollout, StoredResource, rollout_of
from cli.installation import CONTROLLERS, WEBHOOK, Needs, needs_of
from cli.inventory import Inventory
from cli.output import Cell, Part, Table, bad, fields_of, warning
from settings import Settings

SHOWN = [
    "namespace",
    "name",
    "state",
    "desiredNodes",
    "updatedNodes",
    "readyNodes",
    "detachedNodes",
    "message",
]
"""Fields of a rollout."""


class Rollouts(Overview, frozen=True):
    rollouts: tuple[Rollout, ...]

    @property
    def content(self) -> Any:
        """What a glance needs of each."""
        whole = [fields_of(each) | {"message": each.message} for each in self.rollouts]
        return [{name: value for name, value in each.items() if name in SHOWN} for each in whole]

    def state(self, now: datetime) -> Cell:
        moving = sum(each.moves for each in self.rollouts)
        return (
            f"{len(self.rollouts)}, {moving} of them with a rollout in progress" if self.rollouts else "none"
        )

    def parts(self, now: datetime) -> Iterator[Part]:
        rows = [
            (
                each.place,
                bad(each.state) if each.failure else warning(each.state),
                f"{each.updated_nodes}/{each.desired_nodes}",
                str(each.detached_nodes),
                each.message,
            )
            for each in self.rollouts
            if each.moves
        ]
        if rows:
            yield Table(("ROLLOUT", "STATE", "UPDATED", "DETACHED", "MESSAGE"), rows)


def look(inventory: Inventory) -> tuple[Rollouts, Iterable[Problem]]:
    rollouts, problems = tuple(map(rollout_of, inventory.list(INGRESS_DAEMONSETS, StoredResource))), []
    for each in rollouts:
        if each.failure:
            way_out = f"{each.shown_by}; then correct the template, or restore the former one"
            problems.append(Problem(each.failure, way_out))
    for each in rollouts:
        degraded = each.condition("Degraded")
        if degraded.status == "True":
            what = f"IngressDaemonSet {each.place}: {degraded.message}"
            problems.append(Problem(what, "docs/reference/ingressdaemonset.md#when-it-waits"))
    return Rollouts(rollouts), problems


def needs(_: Settings) -> Needs:
    yield from needs_of(WEBHOOK, "list", "ingressdaemonsets", GROUP)
    yield from needs_of(CONTROLLERS, "watch", "ingressdaemonsets", GROUP)
    yield from needs_of(CONTROLLERS, "patch", "ingressdaemonsets/status", GROUP)
    yield from needs_of(CONTROLLERS, "watch create patch delete", "deployments", "apps")


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
    "IngressDaemonSets", "ingressDaemonSet", "ingressDaemonSets", "IngressDaemonSets", look, needs, probe
)
