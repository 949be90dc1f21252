"""The one configuration file: parsed, validated, and reloaded when it changes.

Each section is a frozen pydantic model with its defaults and limits; errors name fields as the file does.
Invariant: the settings in force are always valid; a file that is refused leaves the last good ones.
"""

from settings.anycast_ip import OWN_LABEL as OWN_LABEL
from settings.anycast_ip import AnycastIPSettings as AnycastIPSettings
from settings.elasticity import ElasticitySettings as ElasticitySettings
from settings.ingress_daemonset import CLBSettings as CLBSettings
from settings.ingress_daemonset import IngressDaemonSetSettings as IngressDaemonSetSettings
from settings.ip_reservation import IPReservationSettings as IPReservationSettings
from settings.ip_reservation import LabelSelector as LabelSelector
from settings.load import SettingsError as SettingsError
from settings.load import config_path as config_path
from settings.load import load as load
from settings.load import parse as parse
from settings.models import CertsSettings as CertsSettings
from settings.models import CloudSettings as CloudSettings
from settings.models import LeaderElection as LeaderElection
from settings.models import Settings as Settings
