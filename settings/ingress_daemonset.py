"""The settings of ingress_daemonset."""

from typing import Annotated, Literal

from settings.values import URL, File, Image, Matching, Model, Name, Period, Resources


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


class AllowedLoadBalancer(Model):
    """IngressDaemonSets in *namespaces*, all of them when there are none, may detach nodes from it."""

    id: Annotated[
        str, Matching("lb-[0-9a-z]{1,32}", "is not the id of a load balancer; write for example lb-ab12cd34")
    ]
    namespaces: tuple[Name, ...] = ()


class CLBSettings(Model):
    """Detachment at Tencent CLB, by weights."""

    enabled: bool = False
    load_balancers: tuple[AllowedLoadBalancer, ...] = ()

    def refusal(self, load_balancer: str, namespace: str) -> str | None:
        """Why those of *namespace* may not change weights of *load_balancer*, and the way out; None when they may."""
        if not self.enabled:
            off = "ingressDaemonSet.clb.enabled is false in Drawbridge's values"
            return f"weights of {load_balancer} cannot be set: {off}"
        found = (each for each in self.load_balancers if each.id == load_balancer)
        if any(not each.namespaces or namespace in each.namespaces for each in found):
            return None
        return (
            f"{load_balancer} is not for namespace {namespace}; have it added to ingressDaemonSet.clb.loadBalancers in"
            " Drawbridge's values"
        )


class IngressDaemonSetSettings(Model):
    enabled: bool = False
    health_checker: HealthChecker = HealthChecker()
    detachment_reminder: Period = 600.0
    """How long the timestamp of a detachment may be missing before an Event says so."""
    resync_period: Period = 300.0
    prometheus: Prometheus = Prometheus()
    clb: CLBSettings = CLBSettings()
