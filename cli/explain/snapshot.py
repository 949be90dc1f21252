"""What is read for a look ahead, and how the webhooks find it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from api.ingress_daemonset.types import IngressDaemonSet
from api.same_address import OfCalico
from calico.segment import IPReservation, Record
from cli.explain.budgets import Budget
from cli.explain.webhook_configurations import RegisteredWebhook
from kube.errors import NotFound
from kube.types import Namespace, Pod
from settings import Settings
from webhook.admission import Webhook
from webhook.anycast_ip.webhook import AnycastIPWebhook
from webhook.elasticity.daemon_sets import DaemonSetWebhook
from webhook.elasticity.webhook import PlacementWebhook
from webhook.ingress_daemonset.evictions import EvictionWebhook
from webhook.ingress_daemonset.webhook import (
    DefaultingWebhook,
    PortUsers,
    TemplateProblems,
    ValidatingWebhook,
)
from webhook.ip_reservation.same_address_webhook import SameAddressWebhook
from webhook.ip_reservation.webhook import IPReservationWebhook

Raw = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Objects:
    """Raw *pods* by namespace/name, raw *namespaces* by name, and the IngressDaemonSets of these namespaces.

    *budgets* are theirs, too, where evictions are foreseen; None when they may not be read.
    """

    pods: Mapping[str, Raw] = field(default_factory=dict)
    namespaces: Mapping[str, Raw] = field(default_factory=dict)
    ingress_daemonsets: Sequence[IngressDaemonSet] = ()
    budgets: Sequence[Budget] | None = ()

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        return self.namespaces.get(namespace, {}).get("metadata", {}).get("labels") or {}


@dataclass(frozen=True)
class Lookups:
    """What the rules for an IngressDaemonSet read in the cluster, when one is judged; by default they find nothing."""

    port_users: PortUsers = lambda _new, _deadline: ()
    template_problems: TemplateProblems = lambda _template, _deadline: ()


@dataclass(frozen=True)
class Snapshot:
    """*leader_absence* are the seconds for which the controllers have had no leader.

    All *segments*, and the configuration of Calico, decide what is promised to a new pod.
    """

    settings: Settings
    webhooks: Sequence[RegisteredWebhook]
    objects: Objects
    now: datetime
    leader_absence: float = 0.0
    lookups: Lookups = Lookups()
    segments: Sequence[IPReservation] = ()
    calico: OfCalico = field(default_factory=OfCalico)


class ReadFromSnapshot:
    """The reads of the webhooks, from *objects*; the drain requests that they would write are dropped."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:  # noqa: ARG002 - nothing waits
        return _found(self._objects.pods, f"{namespace}/{name}", Pod)

    def namespace(self, name: str, *, deadline: float) -> Namespace:  # noqa: ARG002
        return _found(self._objects.namespaces, name, Namespace)

    def ingress_daemonsets(
        self,
        namespace: str,
        *,
        deadline: float,  # noqa: ARG002
    ) -> Iterator[IngressDaemonSet]:
        return (each for each in self._objects.ingress_daemonsets if each.metadata.namespace == namespace)

    def request_drain(self, resource: IngressDaemonSet, node: str, at: str, *, deadline: float) -> None:
        pass


@dataclass(frozen=True)
class ReservationsOfSnapshot:
    """The reads about a new pod."""

    snapshot: Snapshot

    def segments(self, deadline: float) -> Sequence[IPReservation]:  # noqa: ARG002 - nothing waits
        return self.snapshot.segments

    def of_calico(self, deadline: float) -> OfCalico:  # noqa: ARG002
        return self.snapshot.calico


class Remembered:
    """In the place of the ledger: remembers what would be reserved."""

    def __init__(self) -> None:
        self.records: tuple[Record, ...] = ()

    def reserve(self, records: Sequence[Record], deadline: float) -> None:  # noqa: ARG002
        self.records += tuple(records)


def webhooks_of(snapshot: Snapshot, ledger: Remembered) -> Mapping[str, Webhook]:
    """Drawbridge's webhooks by path, as the server builds them; none of these can write."""
    settings, cluster = snapshot.settings, ReadFromSnapshot(snapshot.objects)

    def now() -> datetime:
        return snapshot.now

    all_of_them: list[Webhook] = [
        IPReservationWebhook(
            cluster, ledger, lambda: settings.ip_reservation, now, knows_clients=lambda: True
        ),
        SameAddressWebhook(cluster, ReservationsOfSnapshot(snapshot), lambda: settings.ip_reservation, now),
        EvictionWebhook(lambda: settings.ingress_daemonset, cluster, now),
        AnycastIPWebhook(lambda: settings.anycast_ip),
        PlacementWebhook(lambda: settings.elasticity, lambda _deadline: snapshot.leader_absence),
        DaemonSetWebhook(lambda: settings.elasticity),
        DefaultingWebhook(lambda: settings.ingress_daemonset),
        ValidatingWebhook(
            lambda: settings.ingress_daemonset,
            snapshot.lookups.port_users,
            snapshot.lookups.template_problems,
        ),
    ]
    return {each.path: each for each in all_of_them}


def _found(objects: Mapping[str, Raw], key: str, kind: type[T]) -> T:
    if key not in objects:
        raise NotFound(404, "NotFound", f"there is no {kind.__name__.lower()} {key}")
    return msgspec.json.decode(msgspec.json.encode(objects[key]), type=kind)
