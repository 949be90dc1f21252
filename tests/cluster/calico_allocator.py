"""A control plane with all definitions of Calico, whose own allocator assigns addresses to nodes without kubelets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dev.lab import binaries, install
from dev.lab.bootstrap import running
from dev.lab.nodes import NODES
from dev.lab.session import Lab


@contextmanager
def allocating(values: Mapping[str, Any], *nodes: str) -> Iterator[Lab]:
    """With Drawbridge of these *values*, and Calico 3.28's definitions."""
    with running(calico=None, chart=False) as up:
        up.kubectl("apply", "--server-side", "-f", str(binaries.calico_crds()))
        install.install_chart(up, values)
        for name in nodes:
            metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            up.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        yield up
