"""Bring a lab up, and always take it down."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dev.lab import binaries, cluster, install, owner, teardown
from dev.lab.session import Lab


@contextmanager
def running(
    name: str | None = None,
    *,
    values: Mapping[str, Any] | None = None,
    chart: bool = True,
    calico: str | None = "projectcalico.org/v3",
    nodes: int = 3,
    kwok_nodes: int = 3,
    cloud: Mapping[str, Any] | None = None,
    policy: bool = False,
    tied: bool = True,
    progress: Callable[[str], None] = lambda _text: None,
) -> Iterator[Lab]:
    """A lab that is ready for the length of a ``with`` block, and gone after it, or soon after its caller.

    *values* are Helm values merged over the lab's own, *calico* the API version that serves IPReservation
    ("projectcalico.org/v3", "crd.projectcalico.org/v1", "both" or None), *nodes* run the chart's pods as
    processes, *kwok_nodes* hold pods that only seem to run. With *cloud*, knobs over
    those of ``dev.lab.cloud.fixture``, an emulated cloud runs as long as the lab, and the chart gets its addresses
    there. With *policy*, a policy engine changes all workloads, pods and nodes. A lab that is not *tied* is
    left running. *progress* is called with each step.
    """
    lab = Lab(name or f"run-{os.getpid()}-{secrets.token_hex(3)}")
    teardown.sweep()
    progress("looking for the programs of the control plane")
    # Here, where its own progress is seen: the first time it may build them.
    binaries.ensure(*cluster.BINARIES)
    daemon = owner.start(lab.name, nodes=nodes, kwok_nodes=kwok_nodes, cloud=cloud, policy=policy)
    stays = False
    try:
        daemon.await_ready(progress)
        _equip(lab, values or {}, chart, calico, progress)
        if not tied:
            daemon.keep()
            stays = True
        yield lab
    finally:
        lab.close()
        daemon.close(wait=not stays)


def _equip(
    lab: Lab,
    values: Mapping[str, Any],
    chart: bool,
    calico: str | None,
    progress: Callable[[str], None],
) -> None:
    if calico is not None:
        progress(f"installing Calico's IPReservation ({calico})")
        install.install_crds(lab.client, calico)
    if chart:
        progress("installing charts/drawbridge")
        install.install_chart(lab, values)
