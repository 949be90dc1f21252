{{/* Made of the settings' models by `make manifests`: change those, or dev/lab/values_schema.yaml, instead. */}}
{{- define "drawbridge.originals" -}}
[["health.healthProbeBindAddress", "config.healthProbeBindAddress", ":8081"], ["webhook.port", "config.webhookPort", 9443], ["metrics.bindAddress", "config.metricsBindAddress", ":8080"], ["ipReservation.maxCount", "config.ipReserveMaxCount", 300], ["ipReservation.duration", "config.ipReserveTime", "40m"], ["ipReservation.advanced.releasePeriod", "config.ipReleasePeriod", "5s"], ["cloud.region", "config.region.longName", ""], ["cloud.region", "cloud.regionLong", ""], ["cloud.rootDomain", "cloud.apiDomain", "tencentcloudapi.com"], ["cloud.secretID", "credential.secretID", ""], ["cloud.secretKey", "credential.secretKey", ""], ["anycastIP.clusterID", "credential.clusterID", ""], ["anycastIP.nodeLabels", "config.node.labels", {"tke.cloud.tencent.com/need-aia-ip": "true"}], ["anycastIP.addressType", "config.aia.addressType", "AnycastEIP"], ["anycastIP.anycastZone", "config.aia.anycastZone", ""], ["anycastIP.bandwidth", "config.aia.bandwidth", 100], ["anycastIP.tags", "config.aia.tags", {}]]
{{- end }}

{{- define "drawbridge.validateSettings" -}}
{{- include "drawbridge.inOrder" (list . "shorter than" "certs.selfManaged.overlap" "certs.selfManaged.renewBefore" "certs.selfManaged.leafValidity" "certs.selfManaged.caValidity") }}
{{- include "drawbridge.notZero" (list . "ipReservation.maxPerNamespace" "null is no limit; to reserve nothing in a namespace, remove its label ip-reserve") }}
{{- include "drawbridge.valuesOfOperators" (list . "ipReservation.labelSelector.matchExpressions" "In" "NotIn") }}
{{- include "drawbridge.notZero" (list . "anycastIP.bandwidth" "null is no limit; to allocate no addresses, leave anycastIP.enabled off") }}
{{- include "drawbridge.notZero" (list . "anycastIP.pool.retain.count" "to keep none, set enabled to false") }}
{{- include "drawbridge.notZero" (list . "elasticity.maxSuperPods.total" "null is no limit; to forbid super nodes, add an entry with maxPods: 0 to budgets") }}
{{- include "drawbridge.notZero" (list . "elasticity.maxSuperPods.perNamespace" "null is no limit; to forbid super nodes, add an entry with maxPods: 0 to budgets") }}
{{- end }}

{{- define "drawbridge.validateRefused" -}}
{{- include "drawbridge.refuse" (list . "controller" "is of AIA-IP-Controller: set controllers, webhook and image instead (docs/how-to/migrate-from-aia-ip-controller.md)" "scheduler" "is of TKE Resilience: the cluster's own scheduler is used; leave it out (docs/how-to/migrate-from-tke-resilience.md)" "eksAdmission.replicaCount" "is of TKE Resilience: set replicaCount and controllers.replicaCount instead" "eksAdmission.image" "is of TKE Resilience, whose image has none of our programs: set image instead" "eksAdmission.nodeSelector" "is of TKE Resilience: set nodeSelector instead" "eksAdmission.resources" "is of TKE Resilience: set webhook.resources and controllers.resources instead" "image.pullSecrets" "is of Capo: set imagePullSecrets instead, and image to an image of Drawbridge (docs/how-to/migrate-from-capo.md)" "rbacImage" "is of Capo: there is no proxy before the metrics; see metrics.authentication, and leave it out" "namespace" "is of Capo: give the namespace to Helm, by --namespace, and leave it out" "service" "is of Capo: the Service is always a ClusterIP on port 443; leave it out" "resources" "is of Capo: set webhook.resources and controllers.resources instead") }}
{{- end }}
