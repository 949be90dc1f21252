{{/* The section "ingressDaemonSet" of the configuration. Health checkers are of our own image, which holds their program. */}}
{{- define "drawbridge.ingressDaemonSet" -}}
{{- with .Values.ingressDaemonSet -}}
enabled: {{ .enabled }}
healthChecker:
  image: {{ default (include "drawbridge.image" $) .healthChecker.image | quote }}
  imagePullPolicy: {{ default $.Values.image.pullPolicy .healthChecker.imagePullPolicy }}
  resources: {{ default dict .healthChecker.resources | toJson }}
detachmentReminder: {{ .detachmentReminder | quote }}
resyncPeriod: {{ .resyncPeriod | quote }}
{{- end }}
{{- end }}

{{/* What both registrations say. Takes a list of the root context, the name of the webhook, and its path. */}}
{{- define "drawbridge.ingressDaemonSetWebhook" -}}
{{- $root := index . 0 -}}
- name: {{ index . 1 }}.drawbridge.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "drawbridge.fullname" $root }}-webhook
      namespace: {{ $root.Release.Namespace | quote }}
      path: {{ index . 2 }}
      port: 443
    {{- include "drawbridge.trust" $root | nindent 4 }}
  rules:
    - apiGroups: [ingressdaemonsets.mumoshu.github.io]
      apiVersions: [v1alpha1]
      resources: [ingressdaemonsets]
      operations: [CREATE, UPDATE]
      scope: Namespaced
  matchPolicy: Equivalent
  # What is stored is acted upon, on every node that it matches; there is no hurry to store it.
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: {{ $root.Values.ingressDaemonSet.timeoutSeconds }}
  namespaceSelector:
    matchExpressions:
      - {key: kubernetes.io/metadata.name, operator: NotIn, values: [{{ $root.Release.Namespace | quote }}]}
  # The server decides by the same rules. Our finalizer comes and goes without it.
  matchConditions:
    - name: not-being-deleted
      expression: "!has(object.metadata.deletionTimestamp)"
    - name: spec-is-new
      expression: request.operation == "CREATE" || object.?spec != oldObject.?spec
{{- end }}
