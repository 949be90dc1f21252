{{- define "drawbridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimAll "-" }}
{{- end }}

{{/* Short enough for the longest suffix: -controllers. */}}
{{- define "drawbridge.fullname" -}}
{{- $name := include "drawbridge.name" . }}
{{- $default := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- default $default .Values.fullnameOverride | trunc 50 | trimAll "-" }}
{{- end }}

{{- define "drawbridge.selectorLabels" -}}
app.kubernetes.io/name: {{ include "drawbridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "drawbridge.labels" -}}
{{ include "drawbridge.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Takes a list of the root context, and labels that come before those of everything. */}}
{{- define "drawbridge.labelsWith" -}}
{{- include "drawbridge.labels" (index . 0) | fromYaml | merge (deepCopy (index . 1)) | toYaml }}
{{- end }}

{{/* Gives a role to a program's account: takes a list of the root context, the role's kind and the end of its name, the component, and the
role's namespace unless it is the release's. */}}
{{- define "drawbridge.roleBinding" -}}
{{- $root := index . 0 -}}
{{- $name := include "drawbridge.fullname" $root -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ index . 1 }}Binding
metadata:
  name: {{ $name }}-{{ index . 2 }}
  {{- if eq (index . 1) "Role" }}
  namespace: {{ slice . 4 | first | default $root.Release.Namespace | quote }}
  {{- end }}
  labels:
    {{- include "drawbridge.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ index . 3 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 1 }}
  name: {{ $name }}-{{ index . 2 }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}-{{ index . 3 }}
    namespace: {{ $root.Release.Namespace | quote }}
{{- end }}

{{- define "drawbridge.image" -}}
{{- include "drawbridge.imageOf" (list . dict) }}
{{- end }}

{{/* Takes a list of the root context, and parts of an image; what is left out is as in image. A digest belongs to its repository and tag. */}}
{{- define "drawbridge.imageOf" -}}
{{- $ours := (index . 0).Values.image }}
{{- $is_ours := not (or (index . 1).repository (index . 1).tag) }}
{{- with mergeOverwrite (dict) (omit $ours (ternary "" "digest" $is_ours)) (index . 1) }}
{{- if and .digest (contains "@" (default "" .tag)) }}
{{- fail (printf "image.digest is %s, and image.tag has a digest, too: leave one of them out" .digest) }}
{{- end }}
{{- with .registry }}{{ . }}/{{ end }}{{ .repository }}:{{ .tag | default (index $ 0).Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* Combinations of values that cannot work, each with the way out. */}}
{{- define "drawbridge.validate" -}}
{{- include "drawbridge.validateRefused" . }}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" (include "drawbridge.fullname" .)) }}
{{- fail (printf "the release is called %s, but the name of a Service begins with a letter and has no dots: set fullnameOverride" .Release.Name) }}
{{- end }}
{{- include "drawbridge.validateCapo" . }}
{{- include "drawbridge.validateCerts" . }}
{{- if and (ne (include "drawbridge.electsLeader" .) "true") (gt (int .Values.controllers.replicaCount) 1) }}
{{- fail (printf "config.leaderElectionEnable is false: %d controllers would all lead; set controllers.replicaCount to 1" (int .Values.controllers.replicaCount)) }}
{{- end }}
{{- if kindIs "invalid" .Values.ipReservation.labelSelector }}
{{- fail "ipReservation.labelSelector is null: leave it out for the default; to select annotated pods only, set its matchExpressions to []" }}
{{- end }}
{{- include "drawbridge.validateSettings" . }}
{{- include "drawbridge.validateAnycastIP" . }}
{{- include "drawbridge.validateElasticity" . }}
{{- include "drawbridge.validatePorts" . }}
{{- include "drawbridge.validateLabels" . }}
{{- include "drawbridge.validateCRDs" . }}
{{- include "drawbridge.validateQuota" . }}
{{- include "drawbridge.validateDashboard" . }}
{{- end }}

{{/* Values of Capo's chart that have the same names here, and would be wrong. */}}
{{- define "drawbridge.validateCapo" -}}
{{- if regexMatch "(^|/)(capo[^/]*|ip-reserve-delay-release)$" .Values.image.repository }}
{{- fail (printf "image.repository is %s, Capo's image, which has none of our programs: leave image out, or name an image of Drawbridge (docs/how-to/migrate-from-capo.md)" .Values.image.repository) }}
{{- end }}
{{- if contains "\"capo\"" (toJson .Values.affinity) }}
{{- fail "affinity selects pods of Capo, and would replace the default, which spreads ours: leave it out (docs/how-to/migrate-from-capo.md)" }}
{{- end }}
{{- with .Values.autoscaling }}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) }}
{{- fail (printf "autoscaling.minReplicas (%d) must be no more than autoscaling.maxReplicas (%d)" (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* How many webhook servers there are at least. */}}
{{- define "drawbridge.webhookReplicas" -}}
{{- .Values.autoscaling.enabled | ternary .Values.autoscaling.minReplicas .Values.replicaCount | int }}
{{- end }}

{{- define "drawbridge.validatePorts" -}}
{{- with include "drawbridge.named" (list . "health.healthProbeBindAddress") }}
{{- if regexMatch "^(127[.]|localhost:|\\[::1\\])" . }}
{{- fail (printf "health.healthProbeBindAddress is %s, which no kubelet reaches, and pods would never be ready: leave the host out" .) }}
{{- end }}
{{- end }}
{{- $used := dict }}
{{- $ports := list
  (list "webhook.port" (include "drawbridge.portOf" (list . "webhook.port")))
  (list "health.healthProbeBindAddress" (include "drawbridge.portOf" (list . "health.healthProbeBindAddress")))
  (list "metrics.bindAddress" (include "drawbridge.portOf" (list . "metrics.bindAddress"))) }}
{{- if include "drawbridge.servesAllowList" . }}
{{- $ports = append $ports (list "anycastIP.allowList.http" (include "drawbridge.allowListPort" .)) }}
{{- end }}
{{- range $ports }}
{{- $field := index . 0 }}
{{- $port := index . 1 }}
{{- with get $used $port }}
{{- fail (printf "%s is port %s, and so is %s: give each a separate port" $field $port .) }}
{{- end }}
{{- $_ := set $used $port $field }}
{{- end }}
{{- range $port, $field := $used }}
{{- if or $.Values.webhook.hostNetwork (and $.Values.controllers.hostNetwork (ne $field "webhook.port")) }}
{{- if lt (int $port) 1024 }}
{{- fail (printf "%s is port %s, which on the nodes' network only root may have: give it one from 1024 on, or leave hostNetwork off" $field $port) }}
{{- end }}
{{- if has $port (list "10250" "10255" "10256") }}
{{- fail (printf "%s is port %s, which on the nodes' network the kubelet or kube-proxy has: give it another one, or leave hostNetwork off" $field $port) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Labels of all objects of the release. */}}
{{- define "drawbridge.validateLabels" -}}
{{- range $label, $_ := .Values.commonLabels }}
{{- if regexMatch "^(app.kubernetes.io/(name|instance|component|version|managed-by)|helm.sh/chart)$" $label }}
{{- fail (printf "commonLabels has %s, which is the chart's own, to find its objects by: leave it out" $label) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "drawbridge.validateQuota" -}}
{{- if .Values.resourceQuota.enabled }}
{{- if not .Values.priorityClassName }}
{{- fail "resourceQuota.enabled is true, but priorityClassName is empty: name the priority class to be allowed, or disable the quota" }}
{{- end }}
{{- if eq .Release.Namespace "kube-system" }}
{{- fail "resourceQuota.enabled is true, but the release is in kube-system, and its quota would count pods of others there: leave it off, kube-system needs none" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "drawbridge.validateCRDs" -}}
{{- if and .Values.crds.install (not .Values.crds.keep) (not .Values.crds.deleteIngressDaemonSets) }}
{{- fail "crds.keep is false, and uninstalling this release would delete all IngressDaemonSets and their pods: leave it at true, or set crds.deleteIngressDaemonSets to true as well" }}
{{- end }}
{{- end }}

{{/* Seconds until the kubelet kills a webhook server: 40 s are for the longest request that the API server waits for, and the leeway of the server's own deadline. */}}
{{- define "drawbridge.webhookGrace" -}}
{{- $drain := divf (include "drawbridge.microseconds" .Values.webhook.drainPeriod | float64) 1000000.0 | ceil | int }}
{{- include "drawbridge.seconds" (list . "webhook.preStopSleep") | int | add $drain 40 }}
{{- end }}

{{- define "drawbridge.allowListPort" -}}8082{{- end }}

{{/* For the pods of both programs: takes a list of the root context, the component, what only it reads, and at its start only. */}}
{{- define "drawbridge.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $names := include "drawbridge.names" $root | fromJson -}}
{{- $common := list (get $names "health.healthProbeBindAddress") (get $names "metrics.bindAddress") $root.Values.metrics.authentication -}}
labels:
  {{- include "drawbridge.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 1 }}
annotations:
  # All other settings are applied without a restart.
  drawbridge.io/read-at-start: {{ concat $common (index . 2) | toJson | sha256sum | trunc 16 | quote }}
  {{- with $root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Takes a list of the root context, and the component; without separate values, the common ones are used. */}}
{{- define "drawbridge.podPlacement" -}}
{{- $root := index . 0 -}}
{{- $own := get $root.Values (index . 1) | default dict -}}
{{- if $own.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ toYaml . }}
{{- end }}
{{- with $root.Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.nodeSelector | default $root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations | default $root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $ours := include "drawbridge.selectorLabels" $root | fromYaml | merge (dict "app.kubernetes.io/component" (index $ 1)) }}
  {{- range . }}
  - {{ hasKey . "labelSelector" | ternary . (merge (dict "labelSelector" (dict "matchLabels" $ours)) .) | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
affinity:
  {{- with $own.affinity | default $root.Values.affinity }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  # Not topologySpreadConstraints: their scores leave out each node that lacks any one of the keys, such as a zone.
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      {{- range list (list 100 "kubernetes.io/hostname") (list 50 "topology.kubernetes.io/zone") }}
      - weight: {{ index . 0 }}
        podAffinityTerm:
          topologyKey: {{ index . 1 }}
          labelSelector:
            matchLabels:
              {{- include "drawbridge.selectorLabels" $root | nindent 14 }}
              app.kubernetes.io/component: {{ index $ 1 }}
      {{- end }}
  {{- end }}
{{- end }}

{{/* Takes the values of the component. */}}
{{- define "drawbridge.rollingUpdate" -}}
type: RollingUpdate
{{- if .hostNetwork }}
# A pod's ports on its node are free for the next one only when it is gone.
rollingUpdate: {maxUnavailable: 1, maxSurge: 0}
{{- else }}
# Never fewer than configured.
rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
{{- end }}
{{- end }}

{{- define "drawbridge.env" -}}
{{- /* POD_IP is first: the kubelet expands $(POD_IP) only from earlier variables. */ -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: DRAWBRIDGE_CONFIG
  value: /etc/drawbridge/config/config.yaml
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* For the metadata of a webhook configuration. */}}
{{- define "drawbridge.configurationAnnotations" -}}
{{- $injection := include "drawbridge.caInjection" . | fromYaml }}
{{- with merge (dict) ($injection.annotations | default dict) .Values.webhook.configurationAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "drawbridge.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 1
  timeoutSeconds: 3
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: 2
{{- end }}

{{/* The namespaces that a webhook concerns, with its failure policy in each, as JSON. Takes a list of the root context, the
webhook's name and its failure policy. Our own pods must be deletable when none of them answers; nothing in kube-system may
wait for a webhook, so there every webhook fails open. */}}
{{- define "drawbridge.audiences" -}}
{{- $release := (index . 0).Release.Namespace -}}
{{- $name := "kubernetes.io/metadata.name" -}}
{{- $exempt := eq (index . 2) "Fail" | ternary (list "kube-system" $release | uniq) (list $release) -}}
{{- $audiences := list (dict "name" (index . 1) "failurePolicy" (index . 2)
  "namespaces" (dict "key" $name "operator" "NotIn" "values" $exempt)) -}}
{{- if and (eq (index . 2) "Fail") (ne $release "kube-system") -}}
{{- $audiences = append $audiences (dict "name" (printf "%s-kube-system" (index . 1)) "failurePolicy" "Ignore"
  "namespaces" (dict "key" $name "operator" "In" "values" (list "kube-system"))) -}}
{{- end -}}
{{- toJson $audiences }}
{{- end }}

{{/* Whether NetworkPolicies are installed. */}}
{{- define "drawbridge.networkPolicy" -}}
{{- with .Values.networkPolicy -}}
{{- eq (toString .enabled) "auto" | ternary (gt (len .apiServers) 0) .enabled }}
{{- end }}
{{- end }}

{{/* A setting of the release as it is in the cluster; nothing before its installation, without a cluster, and where an edit
left no such section. Takes a list of the root context, a section, and the name in it. */}}
{{- define "drawbridge.deployedSetting" -}}
{{- $file := lookup "v1" "ConfigMap" (index . 0).Release.Namespace (printf "%s-config" (include "drawbridge.fullname" (index . 0))) | dig "data" "config.yaml" "" }}
{{- $section := get (fromYaml $file) (index . 1) }}
{{- if kindIs "map" $section }}{{ get $section (index . 2) }}{{ end }}
{{- end }}
