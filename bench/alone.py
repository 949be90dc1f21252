"""The webhook server as it is, but with an API server in memory that answers at once."""

from __future__ import annotations

from collections.abc import Iterable

from calico.ledger import Ledger
from calico.reservations import Reservations
from calico.segment import IPReservation, Record, ReservationSpec, body
from kube.types import Namespace, ObjectMeta, Pod
from settings import IPReservationSettings
from webhook.app import create_app
from webhook.ip_reservation.webhook import IPReservationWebhook
from webhook.worker import stopping


class Store(Reservations):
    """Keeps what was written to no segment but the last one."""

    def __init__(self) -> None:
        """Without an API server."""

    def get(self, name: str, *, timeout: float) -> IPReservation:  # noqa: ARG002 - answers at once
        return self._last

    def create(self, name: str, records: Iterable[Record], *, timeout: float) -> IPReservation:  # noqa: ARG002
        return self._keep(ObjectMeta(name=name), records)

    def write(self, segment: IPReservation, records: Iterable[Record], *, timeout: float) -> IPReservation:  # noqa: ARG002
        return self._keep(segment.metadata, records)

    def _keep(self, metadata: ObjectMeta, records: Iterable[Record]) -> IPReservation:
        said = body(records)
        metadata = ObjectMeta(name=metadata.name, annotations=said["metadata"]["annotations"])
        self._last = IPReservation(metadata, ReservationSpec(said["spec"]["reservedCIDRs"]))
        return self._last


class Cluster:
    """Every namespace is one without annotations; no deletion reads a pod."""

    def namespace(self, name: str, *, deadline: float) -> Namespace:  # noqa: ARG002
        return Namespace(ObjectMeta(name=name))

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:  # noqa: ARG002
        return Pod(ObjectMeta(name=name, namespace=namespace))


app = create_app(
    [IPReservationWebhook(Cluster(), Ledger(Store(), "alone"), IPReservationSettings)], draining=stopping
)
