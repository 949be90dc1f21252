{{/* Made of the settings' models by `make manifests`: change those, or lab/values_schema.yaml, instead. */}}
{{- define "drawbridge.validateSettings" -}}
{{- include "drawbridge.inOrder" (list . "shorter than" "leaderElection.retryPeriod" "leaderElection.renewDeadline" "leaderElection.leaseDuration") }}
{{- include "drawbridge.inOrder" (list . "shorter than" "certs.selfManaged.overlap" "certs.selfManaged.renewBefore" "certs.selfManaged.leafValidity" "certs.selfManaged.caValidity") }}
{{- include "drawbridge.inOrder" (list . "no longer than" "cloud.attemptTimeout" "cloud.callTimeout") }}
{{- include "drawbridge.valuesOfOperators" (list . "config.labelSelector.matchExpressions" "In" "NotIn") }}
{{- end }}
