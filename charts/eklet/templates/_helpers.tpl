{{- define "eklet.fullname" -}}
{{- contains "eklet" .Release.Name | ternary .Release.Name (printf "%s-eklet" .Release.Name) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "eklet.selectorLabels" -}}
app.kubernetes.io/name: eklet
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "eklet.labels" -}}
{{ include "eklet.selectorLabels" . }}
app.kubernetes.io/component: eklet
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The Secret that eklet finds its keys in. */}}
{{- define "eklet.secret" -}}
{{- default "eks-secret" .Values.cloud.existingSecret }}
{{- end }}

{{- define "eklet.image" -}}
{{- with .Values.eklet.image }}
{{- if .ref }}{{ .ref }}{{ else if .repository -}}
{{ with .registry }}{{ . }}/{{ end }}{{ .repository }}{{ with .tag }}:{{ . }}{{ end }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Under either name; the first is the original's. */}}
{{- define "eklet.region" -}}
{{- include "eklet.oneOf" (list .Values.cloud "cloud." "regionLong" "region") }}
{{- end }}

{{- define "eklet.domain" -}}
{{- include "eklet.oneOf" (list .Values.cloud "cloud." "apiDomain" "rootDomain") | default "tencentcloudapi.com" }}
{{- end }}

{{- define "eklet.apiServer" -}}
{{- include "eklet.oneOf" (list .Values.eklet "eklet." "PodUsedApiserver" "podUsedApiserver") }}
{{- end }}

{{/* What a section has under one of two names: takes the section, its path, and the names. */}}
{{- define "eklet.oneOf" -}}
{{- $one := get (index . 0) (index . 2) }}
{{- $other := get (index . 0) (index . 3) }}
{{- if and $one $other (ne $one $other) }}
{{- fail (printf "%s%s and %s%s are both set, and differ: they are two names of one value; leave one of them out" (index . 1) (index . 2) (index . 1) (index . 3)) }}
{{- end }}
{{- $one | default $other | default "" }}
{{- end }}

{{/* An id that may be written as a number, without the exponent that Helm would give it. */}}
{{- define "eklet.digits" -}}
{{- kindIs "string" . | ternary . (int64 . | toString) }}
{{- end }}

{{- define "eklet.validate" -}}
{{- $needed := dict
  "cloud.appID" .Values.cloud.appID
  "cloud.ownerUIN" .Values.cloud.ownerUIN
  "cloud.vpcID" .Values.cloud.vpcID
  "cloud.regionShort" .Values.cloud.regionShort
  "cloud.regionLong" (include "eklet.region" .)
  "eklet.image.repository" (include "eklet.image" .)
  "eklet.podUsedApiserver" (include "eklet.apiServer" .) }}
{{- range $name, $value := $needed }}
{{- if not $value }}
{{- fail (printf "%s is empty: give it as TKE Resilience's chart had it" $name) }}
{{- end }}
{{- end }}
{{- if and .Values.eklet.image.ref .Values.eklet.image.repository }}
{{- fail "eklet.image.ref and eklet.image.repository are both set: the first is the whole image; leave one of them out" }}
{{- end }}
{{- with .Values.cloud }}
{{- if and .existingSecret .secretID }}
{{- fail "cloud.existingSecret and cloud.secretID are both set: keep the keys in that Secret, and leave secretID and secretKey out" }}
{{- end }}
{{- if not (or .existingSecret (and .secretID .secretKey)) }}
{{- fail "eklet needs keys: give cloud.existingSecret, or cloud.secretID and cloud.secretKey" }}
{{- end }}
{{- if and .secretID (not .keysInValues) }}
{{- fail "cloud.secretID and cloud.secretKey are set, and all who may read the release's Secrets would see them: keep them in a Secret of yours, and name it in cloud.existingSecret; or set cloud.keysInValues to true" }}
{{- end }}
{{- end }}
{{- end }}
