"""The settings of ingress_daemonset."""

from typing import Literal

from settings.values import URL, File, Image, Model, Name, Period, Resources


class HealthChecker(Model):
    """What health-check pods run where an IngressDaemonSet does not say otherwise."""

    image: Image = ""
    """Empty is the image that the controllers run."""
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    resources: Resources = {}
    cluster_role: Name = "drawbridge-health-checker"
    """The permissions of health checkers; the controllers may bind this ClusterRole and no other."""


class Prometheus(Model):
    """Where the metrics of canaries are asked for; authors of IngressDaemonSets choose the query alone."""

    url: URL = ""
    """Empty is none: canaries with a metric wait to be promoted by hand."""
    token_file: File = ""
    """A bearer token; read for each query."""
    ca_file: File = ""
    """Empty trusts the CAs of the system."""


class IngressDaemonSetSettings(Model):
    enabled: bool = False
    health_checker: HealthChecker = HealthChecker()
    detachment_reminder: Period = 600.0
    """How long a detachment may go unconfirmed before an Event says so."""
    resync_period: Period = 300.0
    prometheus: Prometheus = Prometheus()
