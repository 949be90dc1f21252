"""Which setting each value of the chart becomes, and other names of values, as the originals' charts have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from settings import Settings
from settings.values import Model

RENAMED = {
    "config.leaderElectionEnable": "leaderElection.leaderElect",
    "config.healthProbeBindAddress": "health.healthProbeBindAddress",
    "config.webhookPort": "webhook.port",
    "config.metricsBindAddress": "metrics.bindAddress",
    "config.ipReserveMaxCount": "ipReservation.ipReserveMaxCount",
    "config.ipReserveTime": "ipReservation.ipReserveTime",
    "config.ipReleasePeriod": "ipReservation.ipReleasePeriod",
    "config.labelSelector.matchLabels": "ipReservation.labelSelector.matchLabels",
    "config.labelSelector.matchExpressions": "ipReservation.labelSelector.matchExpressions",
    "cloud.subnets": "elasticity.subnets",
}
"""Values of the chart that become a setting of another name."""
COMPUTED = {
    *("apiVersion", "kind", "webhook.certDir", "cloud.caFile", "cloud.credentialsDir"),
    *("leaderElection.resourceName", "leaderElection.resourceNamespace"),
    *("certs.secretName", "certs.serviceName", "certs.configurationName"),
    *("elasticity.openGates", "elasticity.region", "ingressDaemonSet.healthChecker.clusterRole"),
}
"""Settings that no value sets alone: the chart knows or computes them."""


def _settings(model: type[Model], path: str = "") -> Iterator[str]:
    """All that have no section below them."""
    for name, field in model.model_fields.items():
        below, kind = f"{path}.{field.alias or name}".lstrip("."), field.annotation
        if isinstance(kind, type) and issubclass(kind, Model):
            yield from _settings(kind, below)
        else:
            yield below


SETTINGS = RENAMED | {
    name: name for name in _settings(Settings) if name not in {*RENAMED.values(), *COMPUTED}
}
"""Which setting each value of the chart becomes; most have its name."""
OTHER_NAMES = {
    "config.region.longName": "cloud.region",
    "cloud.regionLong": "cloud.region",
    "cloud.apiDomain": "cloud.rootDomain",
    "credential.clusterID": "anycastIP.clusterID",
    "config.node.labels": "anycastIP.nodeLabels",
    "config.aia.addressType": "anycastIP.addressType",
    "config.aia.anycastZone": "anycastIP.anycastZone",
    "config.aia.bandwidth": "anycastIP.bandwidth",
    "config.aia.tags": "anycastIP.tags",
}
"""Values that are set under one of two names; empty ones have no effect."""
MAPS = (
    "config.labelSelector.matchLabels",
    "anycastIP.nodeLabels",
    "anycastIP.tags",
    "anycastIP.pool.adopt",
    "ingressDaemonSet.healthChecker.resources",
)
"""Values that are maps themselves: Helm merges them, and null removes a key."""
_OTHERS: Mapping[str, str] = {
    "": (
        "global nameOverride fullnameOverride commonLabels replicaCount imagePullSecrets bindHost "
        "priorityClassName podSecurityContext securityContext podAnnotations podLabels nodeSelector "
        "tolerations affinity topologySpreadConstraints extraVolumes extraVolumeMounts extraEnv "
        "controller scheduler rbacImage namespace service resources"
    ),
    "config.region": "shortName",
    "ipReservation": "timeoutSeconds",
    "anycastIP.allowList.http": "from",
    "anycastIP": "timeoutSeconds",
    "elasticity": "timeoutSeconds openGates",
    "ingressDaemonSet": "timeoutSeconds namespaces attachNodes",
    "cloud": "regionShort uniqueID appID ownerUIN vpcID caBundle secretID secretKey token existingSecret",
    "certs": "existingSecret caBundle",
    "certs.certManager": "issuerRef caSecret duration renewBefore caDuration",
    "webhook": (
        "preStopSleepSeconds terminationGracePeriodSeconds configurationAnnotations hostNetwork "
        "nodeSelector tolerations affinity resources"
    ),
    "autoscaling": "enabled minReplicas maxReplicas targetCPUUtilizationPercentage",
    "image": "registry repository tag digest pullPolicy pullSecrets",
    "controllers": (
        "replicaCount terminationGracePeriodSeconds resources serviceAccountAnnotations hostNetwork "
        "nodeSelector tolerations affinity"
    ),
    "crds": "install keep",
    "flowSchema": "enabled",
    "admission": "mutations",
    "admissionPolicies": "enabled",
    "networkPolicy": "enabled apiServers nodes metricsFrom egress",
    "dashboard": "enabled from allowedHosts nodeSelector tolerations affinity resources",
    "monitoring.serviceMonitor": "enabled interval labels",
    "monitoring.prometheusRule": (
        "enabled labels alertLabels runbookBaseURL reservedShare certificateDays quotaLeft"
    ),
    "monitoring.dashboards": "enabled labels annotations",
    "resourceQuota": "enabled",
    "credential": "appID secretID secretKey",
    "eklet": "enabled replicaCount waitSandboxRunningTimeout podUsedApiserver nodeSelector resources",
    "eklet.image": "ref pullPolicy",
    "eklet.service": "type",
    "eksAdmission": "autoScaleEKS replicaCount image nodeSelector resources",
}
"""The other values of the chart, which become no setting, by the map that they are in."""
NO_SETTINGS = frozenset(
    f"{parent}.{name}".lstrip(".") for parent, names in _OTHERS.items() for name in names.split()
)
"""Of those that are maps, what is in them is not the chart's to know."""
