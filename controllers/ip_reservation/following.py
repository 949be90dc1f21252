"""Copies of all that the leader decides on: complete before it begins, and never older than it says."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from calico.segment import IPReservation
from controllers.ip_reservation.held import held_in
from controllers.workqueue import StaleInformer
from kube.client import Client, Resource
from kube.informer import Informer
from kube.types import Namespace, Pod
from webhook.ip_reservation import NAMESPACE_LABEL, NAMESPACE_LABEL_VALUES

PODS = Resource("", "v1", "pods")
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)

LONGEST_SILENCE = 300.0
"""Seconds without a LIST or a watch that succeeded. A quiet watch is opened anew after little more than a minute."""


@dataclass(frozen=True)
class Copies:
    segments: Informer[IPReservation]
    namespaces: Informer[Namespace]
    pods: Informer[Pod]

    def check(self) -> None:
        """Raise StaleInformer when one of them has been silent too long.

        That is a kind that is served no more, in another version, or not to us. A new process finds out anew what
        is served, and waits for it without an end; so it does while the API server as a whole is away, which costs
        us the lease before this.
        """
        silence, kind = max(
            (self.segments.silence, "ipreservations"),
            (self.namespaces.silence, "namespaces"),
            (self.pods.silence, "pods"),
        )
        if silence > LONGEST_SILENCE:
            raise StaleInformer(f"nothing was heard of {kind} for {silence:.0f} s")

    def wait_synced(self, stop: threading.Event) -> None:
        """Return when all are complete, or when *stop* is set."""
        for each in (self.segments, self.namespaces, self.pods):
            while not each.wait_synced(0.1) and not stop.is_set():
                self.check()


@contextmanager
def followed(client: Client, reservations: Resource, stop: threading.Event) -> Iterator[Copies]:
    """Complete copies, unless *stop* is set; segments indexed by "held", pods by "uid"."""
    copies = Copies(
        Informer(client, reservations, IPReservation),
        Informer(client, NAMESPACES, Namespace, label_selector=selected()),
        Informer(client, PODS, Pod),
    )
    copies.segments.add_index("held", held_in)
    copies.pods.add_index("uid", lambda pod: (pod.metadata.uid,))
    with ExitStack() as following:
        for each in (copies.segments, copies.namespaces, copies.pods):
            following.callback(each.stop)
            each.start()
        copies.wait_synced(stop)
        yield copies


def selected() -> str:
    """The namespaces that the webhook is registered for: our own pods go as they like."""
    enabled = f"{NAMESPACE_LABEL} in ({','.join(NAMESPACE_LABEL_VALUES)})"
    own = os.environ.get("POD_NAMESPACE")
    return f"{enabled},kubernetes.io/metadata.name notin ({own})" if own else enabled
