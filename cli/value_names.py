"""Which setting each value of the chart becomes, and other names of values, as the originals' charts have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from settings import Settings
from settings.values import Model

RENAMED = {
    "ipReservation.advanced.releasePeriod": "ipReservation.releasePeriod",
    "ipReservation.advanced.calicoApiVersion": "ipReservation.calicoApiVersion",
    "cloud.subnets": "elasticity.subnets",
    "config.leaderElectionEnable": "leaderElection.leaderElect",
    "controllers.leaseDuration": "leaderElection.leaseDuration",
}
"""Values of the chart that become a setting of another name."""
COMPUTED = {
    *("apiVersion", "kind", "webhook.certDir", "cloud.caFile", "cloud.credentialsDir"),
    *("leaderElection.resourceName", "leaderElection.resourceNamespace"),
    "ipReservation.giveBackAfter",
    *("leaderElection.renewDeadline", "leaderElection.retryPeriod"),
    *("certs.secretName", "certs.serviceName", "certs.configurationName"),
    *("elasticity.openGates", "elasticity.region", "ingressDaemonSet.healthChecker.clusterRole"),
    *("anycastIP.egressCheck.image", "anycastIP.egressCheck.imagePullPolicy"),
    *("ingressDaemonSet.healthChecker.image", "ingressDaemonSet.healthChecker.imagePullPolicy"),
}
"""Settings that no value sets alone: the chart knows or computes them."""
CONSTANT = {
    *("cloud.callTimeout", "cloud.attemptTimeout", "elasticity.switch.namespace", "elasticity.switch.name"),
    *("elasticity.gateFallbackAfter", "anycastIP.egressCheck.timeout"),
    *(f"anycastIP.reverseReconcile.{each}" for each in ("period", "grace", "maxPerRound")),
    *("anycastIP.resyncPeriod", "ingressDaemonSet.resyncPeriod", "anycastIP.allowList.http.bindAddress"),
}
"""Settings that the chart leaves at their defaults."""


def _settings(model: type[Model], path: str = "") -> Iterator[str]:
    """All that have no section below them."""
    for name, field in model.model_fields.items():
        below, kind = f"{path}.{field.alias or name}".lstrip("."), field.annotation
        if isinstance(kind, type) and issubclass(kind, Model):
            yield from _settings(kind, below)
        else:
            yield below


SETTINGS = RENAMED | {
    name: name for name in _settings(Settings) if name not in {*RENAMED.values(), *COMPUTED, *CONSTANT}
}
"""Which setting each value of the chart becomes; most have its name."""
ORIGINALS = {
    "config.healthProbeBindAddress": "health.healthProbeBindAddress",
    "config.webhookPort": "webhook.port",
    "config.metricsBindAddress": "metrics.bindAddress",
    "config.ipReserveMaxCount": "ipReservation.maxCount",
    "config.ipReserveTime": "ipReservation.duration",
    "config.ipReleasePeriod": "ipReservation.advanced.releasePeriod",
    "config.region.longName": "cloud.region",
    "cloud.regionLong": "cloud.region",
    "cloud.apiDomain": "cloud.rootDomain",
    "credential.secretID": "cloud.secretID",
    "credential.secretKey": "cloud.secretKey",
    "credential.clusterID": "anycastIP.clusterID",
    "config.node.labels": "anycastIP.nodeLabels",
    "config.aia.addressType": "anycastIP.addressType",
    "config.aia.anycastZone": "anycastIP.anycastZone",
    "config.aia.bandwidth": "anycastIP.bandwidth",
    "config.aia.tags": "anycastIP.tags",
}
"""Names that the originals have for values of ours; null and empty ones have no effect."""
MAPS = (
    "ipReservation.labelSelector.matchLabels",
    "anycastIP.nodeLabels",
    "anycastIP.tags",
    "anycastIP.pool.adopt",
    "ingressDaemonSet.healthChecker.resources",
)
"""Values that are maps themselves: Helm merges them, and null removes a key."""
NULLS: Mapping[str, object] = {
    "config.leaderElectionEnable": True,
    "ipReservation.labelSelector.matchLabels": {},
    "ipReservation.labelSelector.matchExpressions": [],
    "ingressDaemonSet.healthChecker.resources": {},
}
"""Values of which the chart makes another setting than null where they are null."""
_OTHERS: Mapping[str, str] = {
    "": (
        "global nameOverride fullnameOverride commonLabels replicaCount imagePullSecrets "
        "priorityClassName podSecurityContext securityContext podAnnotations nodeSelector "
        "tolerations affinity topologySpreadConstraints extraVolumes extraVolumeMounts extraEnv eklet"
    ),
    "config.region": "shortName",
    "ipReservation.advanced": "timeout",
    "anycastIP.allowList.http": "from",
    "anycastIP.egressCheck": "image",
    "anycastIP.advanced": "timeout",
    "elasticity.advanced": "timeout openGates",
    "ingressDaemonSet": "namespaces",
    "ingressDaemonSet.healthChecker": "image",
    "ingressDaemonSet.advanced": "timeout attachNodes",
    "cloud": "regionShort uniqueID appID ownerUIN vpcID caBundle keysInValues secretID secretKey existingSecret",
    "certs": "existingSecret caBundle",
    "certs.certManager": "issuerRef caSecret duration renewBefore",
    "webhook": "preStopSleep configurationAnnotations hostNetwork nodeSelector tolerations affinity resources",
    "autoscaling": "enabled minReplicas maxReplicas targetCPUUtilizationPercentage",
    "image": "registry repository tag digest pullPolicy",
    "controllers": "replicaCount resources serviceAccountAnnotations hostNetwork",
    "crds": "install keep deleteIngressDaemonSets",
    "flowSchema": "enabled",
    "admission": "mutations",
    "admissionPolicies": "enabled",
    "networkPolicy": "enabled apiServers nodes metricsFrom egress",
    "dashboard": "enabled from allowedHosts",
    "monitoring.serviceMonitor": "enabled interval labels",
    "monitoring.prometheusRule": "enabled labels alertLabels runbookBaseURL certificateLeft",
    "monitoring.dashboards": "enabled labels annotations",
    "resourceQuota": "enabled",
    "credential": "appID",
    "eksAdmission": "autoScaleEKS",
}
"""The other values of the chart, which become no setting, by the map that they are in."""
NO_SETTINGS = frozenset(
    f"{parent}.{name}".lstrip(".") for parent, names in _OTHERS.items() for name in names.split()
)
"""Of those that are maps, what is in them is not the chart's to know."""
