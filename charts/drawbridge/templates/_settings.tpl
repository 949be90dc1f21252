{{/* Made of the settings' models by `make manifests`: change those, or dev/lab/values_schema.yaml, instead. */}}
{{- define "drawbridge.validateSettings" -}}
{{- include "drawbridge.inOrder" (list . "shorter than" "leaderElection.retryPeriod" "leaderElection.renewDeadline" "leaderElection.leaseDuration") }}
{{- include "drawbridge.inOrder" (list . "shorter than" "certs.selfManaged.overlap" "certs.selfManaged.renewBefore" "certs.selfManaged.leafValidity" "certs.selfManaged.caValidity") }}
{{- include "drawbridge.inOrder" (list . "no longer than" "cloud.attemptTimeout" "cloud.callTimeout") }}
{{- include "drawbridge.valuesOfOperators" (list . "config.labelSelector.matchExpressions" "In" "NotIn") }}
{{- end }}

{{- define "drawbridge.validateRefused" -}}
{{- include "drawbridge.refuse" (list . "controller" "is of AIA-IP-Controller: set controllers, webhook and image instead (docs/how-to/migrate-from-aia-ip-controller.md)" "scheduler" "is of TKE Resilience: the cluster's own scheduler is used; leave it out (docs/how-to/migrate-from-tke-resilience.md)" "eksAdmission.replicaCount" "is of TKE Resilience: set replicaCount and controllers.replicaCount instead" "eksAdmission.image" "is of TKE Resilience, whose image has none of our programs: set image instead" "eksAdmission.nodeSelector" "is of TKE Resilience: set nodeSelector instead" "eksAdmission.resources" "is of TKE Resilience: set webhook.resources and controllers.resources instead" "image.pullSecrets" "is of Capo: set imagePullSecrets instead, and image to an image of Drawbridge (docs/how-to/migrate-from-capo.md)" "rbacImage" "is of Capo: there is no proxy before the metrics; see metrics.authentication, and leave it out" "namespace" "is of Capo: give the namespace to Helm, by --namespace, and leave it out" "service" "is of Capo: the Service is always a ClusterIP on port 443; leave it out" "resources" "is of Capo: set webhook.resources and controllers.resources instead") }}
{{- end }}
