{{/* A Job that Helm runs before it changes anything, with permissions for as long: dict root, component, hook, rules, program, args. */}}
{{- define "drawbridge.hookJob" -}}
{{- $name := printf "%s-%s" (include "drawbridge.fullname" .root) .component }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace | quote }}
  {{- include "drawbridge.hookMetadata" (merge (dict "weight" -10) .) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  {{- include "drawbridge.hookMetadata" (merge (dict "weight" -10) .) | nindent 2 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  {{- include "drawbridge.hookMetadata" (merge (dict "weight" -10) .) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ .root.Release.Namespace | quote }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace | quote }}
  {{- include "drawbridge.hookMetadata" (merge (dict "weight" 0) .) | nindent 2 }}
spec:
  backoffLimit: 2
  # Less than Helm's default timeout, so that the pod reports the reason.
  activeDeadlineSeconds: 240
  template:
    metadata:
      # Not those that Services and budgets select by.
      labels:
        app.kubernetes.io/name: {{ include "drawbridge.name" .root }}-{{ .component }}
        app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
        {{- with .root.Values.commonLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .root.Values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ $name }}
      {{- include "drawbridge.podPlacement" (list .root .component) | nindent 6 }}
      containers:
        - name: {{ .component }}
          image: {{ include "drawbridge.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          command: [python, -m, {{ .program }}]
          args:
            {{- .args | nindent 12 }}
          terminationMessagePolicy: FallbackToLogsOnError
          resources:
            requests: {cpu: 50m, memory: 64Mi}
            limits: {memory: 256Mi}
          securityContext:
            {{- toYaml .root.Values.securityContext | nindent 12 }}
{{- end }}

{{/* Takes dict root, component, hook, weight. */}}
{{- define "drawbridge.hookMetadata" -}}
labels:
  {{- include "drawbridge.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
annotations:
  helm.sh/hook: {{ .hook }}
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* When Helm runs such a Job: before the release is uninstalled, and before the feature is switched off; else empty. Takes dict root, mode, enabled, feature, webhook. */}}
{{- define "drawbridge.leavingHook" -}}
{{- if .enabled -}}
{{- /* Rendered without a cluster it may be applied by another tool than Helm, and would run at once. */ -}}
{{- if or (eq .mode "always") (and (eq .mode "auto") (lookup "v1" "Namespace" "" "kube-system")) -}}
pre-delete
{{- end -}}
{{- else if or (eq .mode "always") (and (eq .mode "auto") (include "drawbridge.featureIsInstalled" .)) -}}
pre-upgrade,pre-rollback
{{- end -}}
{{- end }}

{{/* Whether the cluster still has the feature, by the configuration or by the webhook: an upgrade may have failed halfway. */}}
{{- define "drawbridge.featureIsInstalled" -}}
{{- $name := include "drawbridge.fullname" .root -}}
{{- if eq (include "drawbridge.deployedSetting" (list .root .feature "enabled")) "true" -}}
true
{{- else -}}
{{- $webhook := .webhook -}}
{{- range dig "webhooks" list (lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" $name) -}}
{{- if eq .name $webhook }}true{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}
