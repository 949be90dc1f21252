{{/* Not those that Services and budgets select by. */}}
{{- define "drawbridge.testLabels" -}}
app.kubernetes.io/name: {{ include "drawbridge.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Of a pod of `helm test`: takes a list of the root context, and the end of its name. */}}
{{- define "drawbridge.testMetadata" -}}
{{- $root := index . 0 -}}
name: {{ include "drawbridge.fullname" $root }}-{{ index . 1 }}
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "drawbridge.testLabels" $root | nindent 2 }}
  {{- with $root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  helm.sh/hook: test
  # A failed one stays, for its log.
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
  {{- with $root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The paths of all enabled features, as a JSON list. */}}
{{- define "drawbridge.testPaths" -}}
{{- $paths := list }}
{{- if .Values.ipReservation.enabled }}{{ $paths = append $paths "/validate/pods/ip-reservation" }}{{ end }}
{{- if and .Values.ipReservation.enabled .Values.ipReservation.sameAddress.enabled }}{{ $paths = append $paths "/mutate/pods/same-address" }}{{ end }}
{{- if .Values.anycastIP.enabled }}{{ $paths = append $paths "/mutate/nodes/anycast-ip" }}{{ end }}
{{- if include "drawbridge.givesPodAddress" . }}{{ $paths = concat $paths (list "/mutate/bindings/anycast-ip" "/mutate/bindings/anycast-ip-wait") }}{{ end }}
{{- if .Values.elasticity.enabled }}{{ $paths = concat $paths (list "/mutate/pods/elasticity" "/mutate/daemonsets/elasticity") }}{{ end }}
{{- if .Values.ingressDaemonSet.enabled }}{{ $paths = concat $paths (list "/mutate/ingressdaemonsets" "/validate/ingressdaemonsets" "/validate/evictions/ingress-daemonset") }}{{ end }}
{{- toJson $paths }}
{{- end }}
