"""`drawbridge simulate rollout`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from api.ingress_daemonset import INGRESS_DAEMONSETS, NODE_LABEL
from api.ingress_daemonset.node_matching import FollowedNode
from cli.errors import Failure
from cli.inventory import Inventory
from cli.session import Command, Session, pass_session
from cli.simulate.rollout import RolledBack, Rollout, RolloutFacts, UnknownContainer, rollout_parts, simulated
from controllers.ingress_daemonset.children import Workload
from kube.resources import DEPLOYMENTS, NODES, Selection

Raw = dict[str, Any]


@click.command("rollout", cls=Command)
@click.argument("name", metavar="INGRESSDAEMONSET")
@click.option(
    "--image", "images", metavar="[CONTAINER=]IMAGE", multiple=True, help="A new image; may be repeated."
)
@pass_session
def rollout_command(session: Session, name: str, images: tuple[str, ...]) -> None:
    """Which nodes an IngressDaemonSet's rollout would take in which order, and when it would end.

    Without --image, of the rollout that is under way; if none is, of a restart of all pods.
    """
    found = simulate_rollout(Inventory(session.cluster), session.namespace, name, images)
    session.output.show(found, rollout_parts)


def simulate_rollout(inventory: Inventory, namespace: str, name: str, images: Sequence[str]) -> Rollout:
    """KubeError; Failure for what cannot be simulated."""
    facts = RolloutFacts(
        inventory.get(INGRESS_DAEMONSETS, name, namespace, Raw),
        inventory.list(NODES, FollowedNode),
        inventory.list(DEPLOYMENTS, Workload, Selection(namespace, label_selector=NODE_LABEL)),
        inventory.settings.ingress_daemonset.health_checker,
        inventory.now(),
    )
    try:
        return simulated(facts, images)
    except RolledBack as error:
        raise Failure(str(error), "write --image to see another template") from None
    except UnknownContainer as error:
        raise Failure(
            f"the template of {namespace}/{name} has no such container", f"write CONTAINER=IMAGE: {error}"
        ) from None
    except msgspec.ValidationError as error:
        raise Failure(
            f"IngressDaemonSet {namespace}/{name} cannot be read, and the controllers ignore it: {error}",
            "correct that field; it is older than the schema of the CRD",
        ) from None
