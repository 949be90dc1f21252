{{/* Whether objects of the Prometheus operator are installed. Takes a list of the root context, a value of monitoring, and a kind. */}}
{{- define "drawbridge.monitors" -}}
{{- $enabled := (get (first .).Values.monitoring (index . 1)).enabled -}}
{{- $served := (first .).Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 2)) -}}
{{- eq (toString $enabled) "auto" | ternary $served $enabled }}
{{- end }}

{{/* Which groups of files/alerts.yaml, and which of files/dashboards, apply to the enabled features. */}}
{{- define "drawbridge.monitored" -}}
platform: true
leader: {{ include "drawbridge.electsLeader" . }}
ip-reservation: {{ .Values.ipReservation.enabled }}
anycast-ip: {{ .Values.anycastIP.enabled }}
cloud: {{ not (empty (include "drawbridge.callsCloud" .)) }}
elasticity: {{ include "drawbridge.controllersOpenGates" . }}
ingress-daemonset: {{ .Values.ingressDaemonSet.enabled }}
{{- end }}

{{/* files/alerts.yaml with values where @names@ stand: it contains templates of Prometheus, which Helm must not render. */}}
{{- define "drawbridge.alerts" -}}
{{- $text := .Files.Get "files/alerts.yaml" }}
{{- $values := dict
  "namespace" .Release.Namespace
  "job" (printf "%s-metrics" (include "drawbridge.fullname" .))
  "webhookReplicas" (include "drawbridge.webhookReplicas" .)
  "controllersReplicas" .Values.controllers.replicaCount
  "certificateLeft" (divf (include "drawbridge.microseconds" .Values.monitoring.prometheusRule.certificateLeft | float64) 1000000.0 | int64)
}}
{{- range $name, $value := $values }}
{{- $text = replace (printf "@%s@" $name) (toString $value) $text }}
{{- end }}
{{- $text }}
{{- end }}
