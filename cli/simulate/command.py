"""`drawbridge simulate`."""

from __future__ import annotations

from pathlib import Path

import click

from cli.errors import WRONG
from cli.explain.ip import counted
from cli.explain.reader import Reader
from cli.pools.reader import pools_of
from cli.session import Commands, Session, pass_session
from cli.simulate import join as of_join
from cli.simulate import removal
from cli.simulate import rollout as of_rollout
from cli.simulate import scale as of_scale
from cli.simulate import scale_in as of_scale_in
from cli.simulate import values as of_values
from cli.simulate.reader import simulate_join, simulate_rollout, simulate_scale, simulate_values
from cli.simulate.scale_in import ScaleIn
from kube.resources import NODES, PODS


@click.group(cls=Commands)
def simulate() -> None:
    """What would happen, decided as Drawbridge decides. Nothing is written."""


@simulate.command("drain")
@click.argument("node")
@pass_session
def drain(session: Session, node: str) -> None:
    """Which IPs the drain of a node would reserve, and why not the others."""
    client = session.cluster.client
    client.get(NODES, node)
    reader = Reader(session.cluster)
    pods = client.list(PODS, field_selector=f"spec.nodeName={node}").items
    segments = reader.segments()
    snapshot = reader.snapshot_with(segments, reader.objects(pods))
    found = removal.drain(node, pods, snapshot, counted(segments))
    session.output.show(removal.with_pools(found, pools_of(session.cluster, segments)), removal.parts)


@simulate.command("delete")
@click.argument("names", metavar="POD...", nargs=-1, required=True)
@pass_session
def delete(session: Session, names: tuple[str, ...]) -> None:
    """Which IPs the deletion of these pods would reserve, and why not the others."""
    client, reader = session.cluster.client, Reader(session.cluster)
    pods = [client.get(PODS, name, session.namespace) for name in names]
    segments = reader.segments()
    snapshot = reader.snapshot_with(segments, reader.objects(pods))
    found = removal.deletion(pods, snapshot, counted(segments))
    session.output.show(removal.with_pools(found, pools_of(session.cluster, segments)), removal.parts)


@simulate.command("scale")
@click.argument("workload")
@click.argument("replicas", type=click.IntRange(min=0))
@pass_session
def scale(session: Session, workload: str, replicas: int) -> None:
    """Where new replicas would be placed, or which pods would go: deployment/NAME or sts/NAME.

    With fewer replicas, also which IPs would be reserved.
    """
    found = simulate_scale(Reader(session.cluster), session.namespace, workload, replicas)
    if isinstance(found, ScaleIn):
        session.output.show(found, of_scale_in.parts)
    else:
        session.output.show(found, of_scale.parts)


@simulate.command("rollout")
@click.argument("name", metavar="INGRESSDAEMONSET")
@click.option(
    "--image", "images", metavar="[CONTAINER=]IMAGE", multiple=True, help="A new image; may be repeated."
)
@pass_session
def rollout(session: Session, name: str, images: tuple[str, ...]) -> None:
    """Which nodes an IngressDaemonSet's rollout would take in which order, and when it would end.

    Without --image, of the rollout that is under way; if none is, of a restart of all pods.
    """
    found = simulate_rollout(Reader(session.cluster), session.namespace, name, images)
    session.output.show(found, of_rollout.parts)


@simulate.command("join")
@click.argument("count", metavar="N", type=click.IntRange(min=1))
@click.option("--like", metavar="NODE", default="", help="The new nodes have its labels and taints.")
@pass_session
def join(session: Session, count: int, like: str) -> None:
    """Which addresses N more nodes need, for how long they wait, and which pods start there.

    Without --like they are like the newest node that needs an anycast IP.
    """
    found = simulate_join(Reader(session.cluster), count, like)
    session.output.show(found, of_join.parts)


@simulate.command("values")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@pass_session
def values(session: Session, file: Path) -> None:
    """What a change of the chart's values would bring.

    As helm upgrade --reset-then-reuse-values -f FILE. Ends with 1 when a value is refused, or unknown to the chart.
    """
    found = simulate_values(Reader(session.cluster), file.read_text())
    session.output.show(found, of_values.parts)
    if found.refused:
        raise SystemExit(WRONG)
