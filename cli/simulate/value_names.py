"""Which setting each value of the chart becomes, and other names of values, as the originals' charts have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def _named(values: Mapping[str, str]) -> Iterator[str]:
    """Names in full."""
    for parent, names in values.items():
        yield from (f"{parent}.{name}".lstrip(".") for name in names.split())


_SAME: Mapping[str, str] = {
    "anycastIP": (
        "enabled clusterID addressType anycastZone bandwidth internetChargeType bandwidthPackageID "
        "addresses tags releaseOnLabelRemoval repair resyncPeriod nodeLabels"
    ),
    "anycastIP.allowList": "configMap announceBefore",
    "anycastIP.allowList.http": "enabled bindAddress",
    "anycastIP.egressCheck": "url image imagePullPolicy timeout",
    "anycastIP.pool": "minIdle adopt",
    "anycastIP.pool.retain": "count age",
    "anycastIP.reverseReconcile": "mode period grace maxPerRound",
    "certs": "mode",
    "certs.selfManaged": "caValidity leafValidity renewBefore overlap",
    "cloud": "region endpoint rootDomain proxy credentials cvmRole callTimeout attemptTimeout rateShare",
    "elasticity": (
        "enabled gateFallbackAfter patchDaemonSets localOptOut localReplicas percentages placement "
        "schedulerName excludedNamespaces scaleInOrder resolvConf"
    ),
    "elasticity.homeFailover": "enabled homeAfter",
    "elasticity.maxSuperPods": "total perNamespace budgets",
    "elasticity.returnHome": "enabled after interval maxAtOnce",
    "elasticity.switch": "namespace name",
    "ingressDaemonSet": "enabled detachmentReminder resyncPeriod",
    "ingressDaemonSet.clb": "enabled loadBalancers",
    "ingressDaemonSet.healthChecker": "image imagePullPolicy resources",
    "ingressDaemonSet.prometheus": "url tokenFile caFile",
    "ipReservation": (
        "enabled failurePolicy calicoApiVersion giveBackAfter skipWhenOwnerIsDeleted workloadOptIn "
        "maxPoolShare maxPerNamespace"
    ),
    "ipReservation.pools": "enabled history",
    "ipReservation.sameAddress": "enabled timeout",
    "leaderElection": "leaseDuration renewDeadline retryPeriod",
    "logging": "level",
    "metrics": "authentication",
    "webhook": "threads drainPeriod clientCA",
}
"""Values of the chart that become the setting of the same name, by the map that they are in."""
SETTINGS = {
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
    **{name: name for name in _named(_SAME)},
}
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
NO_SETTINGS = frozenset(_named(_OTHERS))
"""Of those that are maps, what is in them is not the chart's to know."""
