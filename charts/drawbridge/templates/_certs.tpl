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

{{/* For a clientConfig. In the other modes the field belongs to another client: an upgrade must not change it. */}}
{{- define "drawbridge.trust" -}}
{{- if eq .Values.certs.mode "files" -}}
caBundle: {{ include "drawbridge.caBundle" . | quote }}
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
{{- include "drawbridge.inOrder" (list "certs.selfManaged" .selfManaged "overlap" "renewBefore" "leafValidity" "caValidity") }}
{{- include "drawbridge.inOrder" (list "certs.certManager" .certManager "renewBefore" "duration" "caDuration") }}
{{- end }}
{{- end }}

{{/* Takes the path of a mapping, the mapping, and names of durations in it: each must be shorter than the next. */}}
{{- define "drawbridge.inOrder" -}}
{{- $where := index . 0 }}
{{- $held := index . 1 }}
{{- $names := slice . 2 }}
{{- range $at, $limit := rest $names }}
{{- $name := index $names $at }}
{{- if ge (include "drawbridge.seconds" (get $held $name) | float64) (include "drawbridge.seconds" (get $held $limit) | float64) }}
{{- fail (printf "%s.%s (%s) must be shorter than %s.%s (%s)" $where $name (get $held $name) $where $limit (get $held $limit)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Of a duration as Go writes it. */}}
{{- define "drawbridge.seconds" -}}
{{- $seconds := 0.0 }}
{{- range regexFindAll "[0-9.]+[a-zµμ]+" . -1 }}
{{- $unit := regexFind "[a-zµμ]+" . }}
{{- $worth := dict "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 0.001 | dig $unit 0.0 }}
{{- $seconds = addf $seconds (mulf (trimSuffix $unit . | float64) $worth) }}
{{- end }}
{{- $seconds }}
{{- end }}
