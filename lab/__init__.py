"""The lab: a real Kubernetes control plane on this machine's loopback, with Drawbridge installed on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.session import Lab


def running(
    name: str | None = None,
    *,
    values: Mapping[str, Any] | None = None,
    install: bool = True,
    calico: str | None = "projectcalico.org/v3",
    nodes: int = 3,
    kwok_nodes: int = 3,
    tied: bool = True,
    progress: Callable[[str], None] = lambda _text: None,
) -> AbstractContextManager[Lab]:
    """A lab that is ready for the length of a ``with`` block, and gone after it, or soon after its caller.

    *values* are Helm values merged over the lab's own, *calico* the API version that serves IPReservation
    ("projectcalico.org/v3", "crd.projectcalico.org/v1", "both" or None), *nodes* run the chart's pods as
    processes, *kwok_nodes* hold pods that only seem to run. A lab that is not *tied* is left running.
    *progress* is told each step.
    """
    from lab.session import (
        running as session,
    )  # here, so that `python -m lab.kubelet` loads only what it needs

    return session(
        name,
        values=values,
        install=install,
        calico=calico,
        nodes=nodes,
        kwok_nodes=kwok_nodes,
        tied=tied,
        progress=progress,
    )
