"""The one configuration file: read, checked, explained when wrong, and followed when it changes."""

from settings.anycast_ip import AnycastIPSettings
from settings.certs import CertsSettings
from settings.cloud import CloudSettings
from settings.elasticity import ElasticitySettings
from settings.file import SettingsFile
from settings.ingress_daemonset import IngressDaemonSetSettings
from settings.load import SettingsError, config_path, load, parse
from settings.models import IPReservationSettings, LeaderElection, Logging, Settings, Webhook
from settings.selector import LabelSelector, Requirement

__all__ = [
    "AnycastIPSettings",
    "CertsSettings",
    "CloudSettings",
    "ElasticitySettings",
    "IPReservationSettings",
    "IngressDaemonSetSettings",
    "LabelSelector",
    "LeaderElection",
    "Logging",
    "Requirement",
    "Settings",
    "SettingsError",
    "SettingsFile",
    "Webhook",
    "config_path",
    "load",
    "parse",
]
