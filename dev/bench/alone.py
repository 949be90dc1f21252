"""The webhook server as it is, but with an API server in memory that answers at once."""

from __future__ import annotations

from collections.abc import Iterable

from calico.ledger import Ledger
from calico.reservations import Reservations
from calico.segment import IPReservation, Record, ReservationSpec, body
from kube.types import Namespace, ObjectMeta, OwnerReference, Pod
from runtime import utc_now
from settings import IPReservationSettings
from webhook.app import create_app
from webhook.ip_reservation.webhook import IPReservationWebhook
from webhook.worker import stopping


class Store(Reservations):
    """Encodes what a server writes, and keeps nothing."""

    def __init__(self) -> None:
        """Without an API server."""

    def create(
        self,
        name: str,
        records: Iterable[Record],
        *,
        level: int = 0,
        owner: OwnerReference | None = None,
        timeout: float,
    ) -> IPReservation:
        new = body(records)
        metadata = ObjectMeta(name=name, annotations=new["metadata"]["annotations"])
        return IPReservation(metadata, ReservationSpec(new["spec"]["reservedCIDRs"]))


class Cluster:
    """Every namespace is one without annotations; no deletion reads a pod."""

    def namespace(self, name: str, *, deadline: float) -> Namespace:
        return Namespace(ObjectMeta(name=name))

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:
        return Pod(ObjectMeta(name=name, namespace=namespace))


SETTINGS = IPReservationSettings()


def settings() -> IPReservationSettings:
    return SETTINGS


app = create_app(
    [IPReservationWebhook(Cluster(), Ledger(Store(), "alone"), settings, utc_now, believes=lambda _: True)],
    draining=stopping,
)
