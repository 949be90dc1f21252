{{/* Head of an admission policy and its binding for requests of the given components: dict root, name, components. */}}
{{- define "drawbridge.policyMetadata" -}}
metadata:
  name: {{ include "drawbridge.fullname" .root }}-{{ .name }}
  labels:
    {{- include "drawbridge.labels" .root | nindent 4 }}
{{- end }}

{{/* Who changes objects at admission: "webhook" or "policy". What is rendered without a cluster knows no API server. */}}
{{- define "drawbridge.mutations" -}}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- eq .Values.admission.mutations "auto" | ternary ($served | ternary "policy" "webhook") .Values.admission.mutations }}
{{- end }}

{{/*
A policy must never stop the requests of others, so it concerns our ServiceAccounts alone. What follows it may go on
with the expression: the API server converts an object once for all conditions, and three times more for validations.
*/}}
{{- define "drawbridge.policyUsers" -}}
matchConditions:
  - name: requests-of-drawbridge
    expression: >-
      request.userInfo.username in [
      {{- range $i, $component := .components }}{{ if $i }}, {{ end -}}
      'system:serviceaccount:{{ $.root.Release.Namespace }}:{{ include "drawbridge.fullname" $.root }}-{{ $component }}'
      {{- end }}]
{{- end }}

{{- define "drawbridge.policyBinding" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
{{ include "drawbridge.policyMetadata" . }}
spec:
  policyName: {{ include "drawbridge.fullname" .root }}-{{ .name }}
  validationActions: [Deny]
{{- end }}

{{/* Whether what exists, and what it becomes, is controlled by an IngressDaemonSet. */}}
{{- define "drawbridge.policyOwned" -}}
[object, oldObject].filter(each, each != null).all(each, each.metadata.?ownerReferences.orValue([]).exists(owner,
owner.kind == 'IngressDaemonSet' && owner.apiVersion.startsWith('ingressdaemonsets.mumoshu.github.io/')
&& owner.?controller.orValue(false)))
{{- end }}

{{/* Which ConfigMaps the controllers write: what they contain, and by what they are recognized. */}}
{{- define "drawbridge.policyConfigMaps" -}}
{{- if .Values.anycastIP.enabled }}
- content: address claims
  is: each.metadata.?labels[?'drawbridge.io/claim'].hasValue()
{{- with .Values.anycastIP.allowList }}
{{- if .enabled }}
- content: the allow-list
  is: >-
    each.metadata.?labels[?'drawbridge.io/allow-list'].hasValue() && request.operation != 'DELETE'
    && each.metadata.name == {{ .configMap | squote }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.elasticity.enabled .Values.elasticity.returnHome.enabled }}
- content: failed returns
  is: >-
    each.metadata.?labels[?'drawbridge.io/returns'].hasValue() && request.operation != 'DELETE'
    && each.metadata.name == 'drawbridge-returns'
{{- end }}
{{- if include "drawbridge.setsWeights" . }}
- content: former weights
  is: each.metadata.?labels[?'drawbridge.io/weights-of'].hasValue()
{{- end }}
{{- if .Values.anycastIP.enabled }}
- content: the cluster's uuid
  is: each.metadata.namespace == 'kube-system' && each.metadata.name == 'aia-official-cluster-uuid'
{{- end }}
{{- end }}
