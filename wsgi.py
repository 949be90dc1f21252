"""The WSGI application of the webhook server: the webhooks of all features, behind one set of settings."""

import os

from features import FEATURES
from kube.client import Client
from settings import config_path
from settings.file import SettingsFile
from telemetry import logs
from webhook.app import create_app
from webhook.replica import Replica
from webhook.worker import stopping

settings = SettingsFile(config_path(), on_change=lambda new: logs.set_level(new.logging.level))
client = Client.from_environment()
replica = Replica(client, lambda: settings.current, os.environ.get("POD_NAME", "webhook"))
app = create_app(
    replica.webhooks(FEATURES), max_in_flight=settings.current.webhook.threads, draining=stopping
)
