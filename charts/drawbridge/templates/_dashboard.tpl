{{/* Of its pods. Not those that the Service of the metrics selects by: it has none. */}}
{{- define "drawbridge.dashboardLabels" -}}
app.kubernetes.io/name: {{ include "drawbridge.name" . }}-dashboard
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: dashboard
{{- end }}

{{- define "drawbridge.validateDashboard" -}}
{{- with .Values.dashboard }}
{{- if and .enabled (not .from) }}
{{- fail "dashboard.enabled is true, but dashboard.from is empty, and the page does not authenticate: name the pods of your authenticating proxy, as in from of a NetworkPolicy (docs/how-to/dashboard.md)" }}
{{- end }}
{{- end }}
{{- end }}
