{{- define "drawbridge.validateDashboard" -}}
{{- with .Values.dashboard }}
{{- if and .enabled (not .from) }}
{{- fail "dashboard.enabled is true, but dashboard.from is empty, and the page does not authenticate: name the pods of your authenticating proxy, as in from of a NetworkPolicy (docs/how-to/dashboard.md)" }}
{{- end }}
{{- if and (not .enabled) (or .from .allowedHosts) }}
{{- fail "dashboard.from or dashboard.allowedHosts is set, but dashboard.enabled is false: enable it, or leave them out" }}
{{- end }}
{{- end }}
{{- end }}
