"""The webhook server's application: the features, and what they read and write through."""

import os

from calico.ledger import Ledger
from calico.reservations import Reservations
from calico.segment import Limits
from kube.client import Client
from settings import (
    AnycastIPSettings,
    ElasticitySettings,
    IngressDaemonSetSettings,
    IPReservationSettings,
    LeaderElection,
    Settings,
    SettingsFile,
    config_path,
)
from telemetry import logs
from webhook import anycast_ip, ip_reservation
from webhook.app import create_app
from webhook.elasticity import webhook as elasticity
from webhook.elasticity.daemon_sets import DaemonSets
from webhook.elasticity.leader import LeaseReader
from webhook.ingress_daemonset import webhook as ingress_daemonset
from webhook.ingress_daemonset.conflict_lookup import Cluster as Neighbourhood
from webhook.ingress_daemonset.eviction_lookup import EvictionLookup
from webhook.ingress_daemonset.evictions import Evictions
from webhook.ingress_daemonset.openapi import PodTemplates
from webhook.namespace_cache import Cluster
from webhook.worker import stopping


def follow(_old: Settings, new: Settings) -> None:
    logs.set_level(new.logging.level)


settings = SettingsFile(config_path(), on_change=follow)


def ip_reservation_settings() -> IPReservationSettings:
    return settings.current.ip_reservation


def anycast_ip_settings() -> AnycastIPSettings:
    return settings.current.anycast_ip


def elasticity_settings() -> ElasticitySettings:
    return settings.current.elasticity


def leader_election() -> LeaderElection:
    return settings.current.leader_election


def ingress_daemonset_settings() -> IngressDaemonSetSettings:
    return settings.current.ingress_daemonset


def ip_reservation_gate(client: Client) -> ip_reservation.Gate:
    ledger = Ledger(
        Reservations(client, ip_reservation_settings().calico_api_version),
        os.environ.get("POD_NAME", "webhook"),
        limits=lambda: Limits(ip_reservation_settings().segment_max_entries),
        max_age=lambda: ip_reservation_settings().segment_max_age,
    )
    return ip_reservation.Gate(Cluster(client), ledger, ip_reservation_settings)


client = Client.from_environment()
app = create_app(
    [
        ip_reservation_gate(client),
        anycast_ip.Gate(anycast_ip_settings),
        elasticity.Gate(elasticity_settings, LeaseReader(client, leader_election).absence),
        DaemonSets(elasticity_settings),
        ingress_daemonset.Defaults(ingress_daemonset_settings),
        ingress_daemonset.Rules(ingress_daemonset_settings, Neighbourhood(client), PodTemplates(client)),
        Evictions(ingress_daemonset_settings, EvictionLookup(client)),
    ],
    max_in_flight=settings.current.webhook.threads,
    draining=stopping,
)
