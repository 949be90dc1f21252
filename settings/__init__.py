"""The one configuration file: parsed, validated, and reloaded when it changes.

Each section is a frozen pydantic model with its defaults and limits; errors name fields as the file does.
Invariant: the settings in force are always valid; a file that is refused leaves the last good ones.
"""

from settings.anycast_ip import AnycastIPSettings
from settings.cloud import CloudSettings
from settings.elasticity import ElasticitySettings
from settings.ingress_daemonset import CLBSettings, IngressDaemonSetSettings
from settings.ip_reservation import IPReservationSettings, LabelSelector, Requirement
from settings.load import SettingsError, config_path, load, parse
from settings.models import CertsSettings, LeaderElection, Logging, Settings, Webhook

__all__ = [
    "AnycastIPSettings",
    "CLBSettings",
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
    "Webhook",
    "config_path",
    "load",
    "parse",
]
