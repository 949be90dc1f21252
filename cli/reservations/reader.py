"""Read all IPReservations, and the settings that say when they end."""

from __future__ import annotations

from dataclasses import dataclass

from calico import reservations as calico
from calico.segment import IPReservation
from cli.cluster import Cluster
from cli.errors import Unreadable
from cli.installed.reader import installed
from kube.client import Resource
from settings import IPReservationSettings


@dataclass(frozen=True)
class Found:
    resource: Resource
    segments: list[IPReservation]
    settings: IPReservationSettings


def read(cluster: Cluster) -> Found:
    """Raises KubeError, or Failure when Drawbridge or Calico is not installed."""
    settings = installed(cluster).in_force.ip_reservation
    reservations = calico.Reservations(cluster.client, settings.calico_api_version)
    try:
        return Found(reservations.resource(), reservations.list(), settings)
    except calico.NotServed as error:
        raise Unreadable(str(error), "kubectl api-resources --api-group=crd.projectcalico.org") from error
