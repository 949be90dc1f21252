{{/* The section "ingressDaemonSet" of the configuration. Health checkers use the image of the release. */}}
{{- define "drawbridge.ingressDaemonSet" -}}
{{- with .Values.ingressDaemonSet -}}
enabled: {{ .enabled }}
healthChecker:
  image: {{ include "drawbridge.imageOf" (list $ .healthChecker.image) | quote }}
  imagePullPolicy: {{ .healthChecker.image.pullPolicy | default $.Values.image.pullPolicy | default "" | quote }}
  resources: {{ default dict .healthChecker.resources | toJson }}
  clusterRole: {{ include "drawbridge.fullname" $ }}-health-checker
detachmentReminder: {{ .detachmentReminder | quote }}
prometheus:
  url: {{ .prometheus.url | quote }}
  tokenFile: {{ .prometheus.tokenFile | quote }}
  caFile: {{ .prometheus.caFile | quote }}
clb:
  enabled: {{ .clb.enabled }}
  loadBalancers: {{ toJson .clb.loadBalancers }}
{{- end }}
{{- end }}

{{/* Common to both webhooks. Takes a list of the root context, one of the webhook's audiences, and its path. */}}
{{- define "drawbridge.ingressDaemonSetWebhook" -}}
{{- $root := index . 0 -}}
{{- $audience := index . 1 -}}
- name: {{ $audience.name }}.drawbridge.io
  {{- include "drawbridge.webhookClient" (list $root (index . 2)) | nindent 2 }}
  rules:
    - apiGroups: [ingressdaemonsets.mumoshu.github.io]
      apiVersions: [v1alpha1]
      resources: [ingressdaemonsets]
      operations: [CREATE, UPDATE]
      scope: Namespaced
  matchPolicy: Equivalent
  # A stored object takes effect on every node that it matches, so it must be valid.
  failurePolicy: {{ $audience.failurePolicy }}
  sideEffects: None
  timeoutSeconds: {{ include "drawbridge.seconds" (list $root "ingressDaemonSet.advanced.timeout") }}
  namespaceSelector:
    matchExpressions:
      - {{ toJson $audience.namespaces }}
  # The server uses the same rules. Changes of our finalizer match none of them.
  matchConditions:
    - name: not-being-deleted
      expression: "!has(object.metadata.deletionTimestamp)"
    - name: spec-is-new
      expression: request.operation == "CREATE" || object.?spec != oldObject.?spec
{{- end }}
