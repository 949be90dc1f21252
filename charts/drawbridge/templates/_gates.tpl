{{/* When Helm opens the gates of pods: before the release is uninstalled, and before the feature is switched off; else empty. */}}
{{- define "drawbridge.gatesHook" -}}
{{- $mode := .Values.elasticity.openGates -}}
{{- if .Values.elasticity.enabled -}}
{{- /* Rendered without a cluster it may be applied by another tool than Helm, and would run at once. */ -}}
{{- if or (eq $mode "always") (and (eq $mode "auto") (lookup "v1" "Namespace" "" "kube-system")) -}}
pre-delete
{{- end -}}
{{- else if or (eq $mode "always") (and (eq $mode "auto") (include "drawbridge.elasticityIsInstalled" .)) -}}
pre-upgrade,pre-rollback
{{- end -}}
{{- end }}

{{/* Whether the cluster still has the feature, by the configuration or by the webhook: an upgrade may have failed halfway. */}}
{{- define "drawbridge.elasticityIsInstalled" -}}
{{- $name := include "drawbridge.fullname" . -}}
{{- $config := lookup "v1" "ConfigMap" .Release.Namespace (printf "%s-config" $name) -}}
{{- $settings := dig "data" "config.yaml" "" $config | fromYaml -}}
{{- if dig "elasticity" "enabled" false $settings -}}
true
{{- else -}}
{{- range dig "webhooks" list (lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" $name) -}}
{{- if eq .name "elasticity.drawbridge.io" }}true{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Takes a list of the root context, the hook, and its weight. */}}
{{- define "drawbridge.gatesMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- include "drawbridge.labels" $root | nindent 2 }}
  app.kubernetes.io/component: gates
annotations:
  helm.sh/hook: {{ index . 1 }}
  helm.sh/hook-weight: {{ index . 2 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
