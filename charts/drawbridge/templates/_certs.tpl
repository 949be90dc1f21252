{{/* The Secret with the serving certificate. */}}
{{- define "drawbridge.tlsSecret" -}}
{{- eq .Values.certs.mode "files" | ternary .Values.certs.existingSecret (printf "%s-webhook-tls" (include "drawbridge.fullname" .)) }}
{{- end }}

{{/* The Secret with what API servers trust, in ca.crt; not with files. */}}
{{- define "drawbridge.caSecret" -}}
{{- $named := and (eq .Values.certs.mode "cert-manager") .Values.certs.certManager.caSecret }}
{{- $named | default (include "drawbridge.tlsSecret" .) }}
{{- end }}

{{/* PEM in base64; the value may be either. */}}
{{- define "drawbridge.caBundle" -}}
{{- $bundle := trim .Values.certs.caBundle }}
{{- hasPrefix "-----BEGIN" $bundle | ternary ($bundle | b64enc) $bundle }}
{{- end }}

{{/* The server of a webhook, and what is trusted of it: takes a list of the root context, and the path. In the other modes caBundle belongs to
another client: an upgrade must not change it. */}}
{{- define "drawbridge.webhookClient" -}}
{{- $root := index . 0 -}}
admissionReviewVersions: [v1]
clientConfig:
  service:
    name: {{ include "drawbridge.fullname" $root }}-webhook
    namespace: {{ $root.Release.Namespace | quote }}
    path: {{ index . 1 }}
    port: 443
  {{- if eq $root.Values.certs.mode "files" }}
  caBundle: {{ include "drawbridge.caBundle" $root | quote }}
  {{- end }}
{{- end }}

{{/* For the metadata of a webhook configuration. */}}
{{- define "drawbridge.caInjection" -}}
{{- if eq .Values.certs.mode "cert-manager" -}}
annotations:
  {{- with .Values.certs.certManager.caSecret }}
  cert-manager.io/inject-ca-from-secret: {{ printf "%s/%s" $.Release.Namespace . | quote }}
  {{- else }}
  cert-manager.io/inject-ca-from: {{ printf "%s/%s-webhook" .Release.Namespace (include "drawbridge.fullname" .) | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "drawbridge.certs" -}}
mode: {{ .Values.certs.mode }}
secretName: {{ include "drawbridge.tlsSecret" . | quote }}
serviceName: {{ include "drawbridge.fullname" . }}-webhook
configurationName: {{ include "drawbridge.fullname" . }}
selfManaged:
  {{- toYaml .Values.certs.selfManaged | nindent 2 }}
{{- end }}

{{- define "drawbridge.validateCerts" -}}
{{- with .Values.certs }}
{{- if ne .mode "files" }}
{{- range $name := list "existingSecret" "caBundle" }}
{{- if get $.Values.certs $name }}
{{- fail (printf "certs.%s is set, but certs.mode is %s: set certs.mode to files, or leave certs.%s empty" $name $.Values.certs.mode $name) }}
{{- end }}
{{- end }}
{{- else if not .existingSecret }}
{{- fail (printf "certs.existingSecret is empty: with certs.mode files, name the TLS Secret (tls.crt, tls.key) for %s-webhook.%s.svc in it" (include "drawbridge.fullname" $) $.Release.Namespace) }}
{{- else if not .caBundle }}
{{- fail "certs.caBundle is empty: with certs.mode files, give the CA of the serving certificate, for example with --set-file certs.caBundle=ca.crt" }}
{{- end }}
{{- if and .certManager.issuerRef (not .certManager.issuerRef.name) }}
{{- fail "certs.certManager.issuerRef has no name: name the Issuer or ClusterIssuer that is to sign, and its kind" }}
{{- end }}
{{- end }}
{{- range $name := list "certs.caBundle" "cloud.caBundle" "webhook.clientCA" }}
{{- if contains "PRIVATE KEY" (include "drawbridge.valueAt" (list $ $name)) }}
{{- fail (printf "%s has a private key, which does not belong there: give the certificates alone" $name) }}
{{- end }}
{{- end }}
{{- include "drawbridge.inOrder" (list . "shorter than" "certs.certManager.renewBefore" "certs.certManager.duration") }}
{{- if ge (include "drawbridge.microseconds" .Values.certs.certManager.duration | float64) (include "drawbridge.microseconds" "43800h" | float64) }}
{{- fail (printf "certs.certManager.duration (%s) must be shorter than the lifetime of the release's CA (43800h)" .Values.certs.certManager.duration) }}
{{- end }}
{{- end }}
