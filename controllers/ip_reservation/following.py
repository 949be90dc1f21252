"""Copies of all that the leader decides on: complete before it begins, and never older than it says."""

from __future__ import annotations

import os
from dataclasses import dataclass

from calico.segment import IPReservation
from controllers.informers import Informers
from controllers.ip_reservation.held import held_in
from kube.client import Resource
from kube.informer import Informer
from kube.list_watch import Selection
from kube.types import Namespace, Pod
from webhook.ip_reservation import NAMESPACE_LABEL, NAMESPACE_LABEL_VALUES

PODS = Resource("", "v1", "pods")
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)


@dataclass(frozen=True)
class Copies:
    segments: Informer[IPReservation]
    namespaces: Informer[Namespace]
    pods: Informer[Pod]


def copies_of(informers: Informers, reservations: Resource) -> Copies:
    """Segments indexed by "held", pods by "uid"."""
    copies = Copies(
        informers.of(reservations, IPReservation),
        informers.of(NAMESPACES, Namespace, Selection(label_selector=selected())),
        informers.of(PODS, Pod),
    )
    copies.segments.add_index("held", held_in)
    copies.pods.add_index("uid", lambda pod: (pod.metadata.uid,))
    return copies


def selected() -> str:
    """The namespaces that the webhook is registered for: our own pods go as they like."""
    enabled = f"{NAMESPACE_LABEL} in ({','.join(NAMESPACE_LABEL_VALUES)})"
    own = os.environ.get("POD_NAMESPACE")
    return f"{enabled},kubernetes.io/metadata.name notin ({own})" if own else enabled
