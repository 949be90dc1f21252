"""`drawbridge simulate drain|delete`, and what a scale-in removes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click
import msgspec

from cli.commands.explain import objects_about, segments_of, snapshot_of
from cli.explain.ip import counted
from cli.explain.prediction import Snapshot
from cli.features.ip_reservation import snapshot_with_segments
from cli.inventory import Inventory
from cli.session import Command, Session, pass_session
from cli.simulate.removal import (
    Removal,
    ScaleInFacts,
    deletion_of_pods,
    drain_of,
    removal_parts,
    scale_in,
    scale_in_parts,
    with_pools,
)
from kube.resources import NODES, PODS, Selection

Raw = dict[str, Any]
Remove = Callable[[Sequence[Raw], Snapshot, int], Removal]
"""What becomes of pods that go, beside so many IPs of pods that are gone."""


@click.command("drain", cls=Command)
@click.argument("node")
@pass_session
def drain_command(session: Session, node: str) -> None:
    """Which IPs the drain of a node would reserve, and why not the others."""
    inventory = Inventory(session.cluster)
    inventory.get(NODES, node, None, Raw)
    pods = inventory.list(PODS, Raw, Selection(field_selector=f"spec.nodeName={node}"))
    _show_removal(session, inventory, pods, partial(drain_of, node))


@click.command("delete", cls=Command)
@click.argument("names", metavar="POD...", nargs=-1, required=True)
@pass_session
def delete_command(session: Session, names: tuple[str, ...]) -> None:
    """Which IPs the deletion of these pods would reserve, and why not the others."""
    inventory = Inventory(session.cluster)
    pods = [inventory.get(PODS, name, session.namespace, Raw) for name in names]
    _show_removal(session, inventory, pods, deletion_of_pods)


def _show_removal(session: Session, inventory: Inventory, pods: Sequence[Raw], remove: Remove) -> None:
    snapshot = snapshot_with_segments(inventory, objects_about(inventory, pods))
    found = remove(pods, snapshot, counted(snapshot.segments))
    session.output.show(with_pools(found, inventory.pools(snapshot.segments)), removal_parts)


def show_scale_in(
    session: Session, inventory: Inventory, scaled: tuple[Raw, Raw, int | None], replicas: int
) -> None:
    """Of a workload that has an owner of its pods, and a first ordinal if it is a StatefulSet."""
    workload, owner, first = scaled
    metadata, before = workload["metadata"], workload["spec"].get("replicas", 1)
    pods = [
        each
        for each in inventory.list(PODS, Raw, Selection(metadata["namespace"]))
        if any(of["uid"] == owner["metadata"]["uid"] for of in each["metadata"].get("ownerReferences", ()))
    ]
    segments = segments_of(inventory)
    found = scale_in(
        ScaleInFacts(
            workload=f"{metadata['namespace']}/{metadata['name']}",
            replicas=(before, replicas),
            pods=pods,
            first_ordinal=first,
            snapshot=snapshot_of(inventory, objects_about(inventory, pods)),
            counted=counted(segments),
        )
    )
    pools = inventory.pools(segments)
    with_headroom = with_pools(found.removal, pools)
    session.output.show(msgspec.structs.replace(found, removal=with_headroom), scale_in_parts)
