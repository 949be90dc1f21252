{{/* The section "cloud" of the configuration. */}}
{{- define "drawbridge.cloud" -}}
{{- $names := include "drawbridge.names" . | fromJson -}}
region: {{ get $names "cloud.region" | quote }}
endpoint: {{ .Values.cloud.endpoint | quote }}
rootDomain: {{ get $names "cloud.rootDomain" | quote }}
proxy: {{ .Values.cloud.proxy | quote }}
caFile: {{ empty .Values.cloud.caBundle | ternary "" "/etc/drawbridge/config/cloud-ca.crt" | quote }}
credentials: {{ .Values.cloud.credentials }}
credentialsDir: {{ and (include "drawbridge.cloudSecret" .) "/etc/drawbridge/cloud" | quote }}
cvmRole: {{ .Values.cloud.cvmRole | quote }}
rateShare: {{ .Values.cloud.rateShare | quote }}
{{- end }}

{{/* Whether the controllers set weights at load balancers, or nothing. */}}
{{- define "drawbridge.setsWeights" -}}
{{- if and .Values.ingressDaemonSet.enabled .Values.ingressDaemonSet.clb.enabled }}true{{ end }}
{{- end }}

{{/* Whether the controllers call the cloud, or nothing. */}}
{{- define "drawbridge.callsCloud" -}}
{{- if or .Values.anycastIP.enabled (include "drawbridge.setsWeights" .) }}true{{ end }}
{{- end }}

{{/* The Secret that the controllers find their keys in, or nothing. */}}
{{- define "drawbridge.cloudSecret" -}}
{{- if include "drawbridge.callsCloud" . }}
{{- $id := get (include "drawbridge.names" . | fromJson) "cloud.secretID" }}
{{- or .Values.cloud.existingSecret (and $id (printf "%s-cloud" (include "drawbridge.fullname" .))) }}
{{- end }}
{{- end }}

{{/* Not empty when the controllers serve the allow-list over HTTP. */}}
{{- define "drawbridge.servesAllowList" -}}
{{- with .Values.anycastIP }}{{ if and .enabled .allowList.enabled .allowList.http.enabled }}true{{ end }}{{ end }}
{{- end }}

{{- define "drawbridge.validateAnycastIP" -}}
{{- with .Values.anycastIP }}
{{- if and (include "drawbridge.servesAllowList" $) .allowList.http.from (ne (include "drawbridge.networkPolicy" $) "true") }}
{{- fail "anycastIP.allowList.http.from is set, but networkPolicy is off, and any source could connect: set networkPolicy.enabled to true, or leave from out" }}
{{- end }}
{{- if and .egressCheck.enabled (not .egressCheck.url) }}
{{- fail "anycastIP.egressCheck.enabled is true, but anycastIP.egressCheck.url is empty: give the URL of a service of yours that answers with its caller's address, or set enabled to false" }}
{{- end }}
{{- if not (has .reverseReconcile.mode (list "report" "release")) }}
{{- fail "anycastIP.reverseReconcile.mode is off: to search for no orphans, set anycastIP.reverseReconcile.enabled to false" }}
{{- end }}
{{- end }}
{{- $names := include "drawbridge.names" . | fromJson }}
{{- $zone := get $names "anycastIP.anycastZone" }}
{{- $type := get $names "anycastIP.addressType" }}
{{- if and $zone (ne $type "AnycastEIP") }}
{{- fail (printf "anycastIP.anycastZone is %s, but anycastIP.addressType is %s: only an AnycastEIP has a zone; leave anycastZone empty" $zone $type) }}
{{- end }}
{{- if not (get $names "anycastIP.nodeLabels") }}
{{- fail "anycastIP.nodeLabels is empty, and every node would get an address: name a label, for example tke.cloud.tencent.com/need-aia-ip: \"true\"" }}
{{- end }}
{{- if hasKey (get $names "anycastIP.nodeLabels") "drawbridge.io/anycast-ip" }}
{{- fail "anycastIP.nodeLabels has drawbridge.io/anycast-ip, which Drawbridge writes itself: name another label" }}
{{- end }}
{{- include "drawbridge.validateAddresses" (list .Values.anycastIP $type (get $names "anycastIP.bandwidth") (get $names "anycastIP.nodeLabels")) }}
{{- if contains "@" .Values.cloud.proxy }}
{{- fail "cloud.proxy has a user or a password, and a ConfigMap is no place for it: leave it empty, and give the URL as HTTPS_PROXY in extraEnv, from a Secret" }}
{{- end }}
{{- if .Values.anycastIP.enabled }}
{{- if not (get $names "anycastIP.clusterID") }}
{{- fail "anycastIP.clusterID is empty: with anycastIP.enabled, give the id of the TKE cluster, cls-..., by which its addresses are tagged" }}
{{- end }}
{{- if not (get $names "cloud.region") }}
{{- fail "cloud.region is empty: with anycastIP.enabled, give the long name of the cluster's region, for example ap-singapore" }}
{{- end }}
{{- end }}
{{- if and (include "drawbridge.setsWeights" .) (not (get $names "cloud.region")) }}
{{- fail "cloud.region is empty: with ingressDaemonSet.clb.enabled, give the long name of the load balancers' region, for example ap-singapore" }}
{{- end }}
{{- if include "drawbridge.callsCloud" . }}
{{- include "drawbridge.validateKeys" (list . (get $names "cloud.secretID") (get $names "cloud.secretKey")) }}
{{- end }}
{{- end }}

{{/* As the settings do. Takes a list of the values of anycastIP, the type, the bandwidth and the labels. */}}
{{- define "drawbridge.validateAddresses" -}}
{{- $all := index . 0 }}
{{- $type := index . 1 }}
{{- $bandwidth := index . 2 }}
{{- $labels := index . 3 }}
{{- range $index, $each := $all.addresses }}
{{- $path := printf "anycastIP.addresses[%d]" $index }}
{{- if not (or $each.bandwidth $each.internetChargeType $each.bandwidthPackageID) }}
{{- fail (printf "%s sets nothing: give bandwidth, internetChargeType or bandwidthPackageID" $path) }}
{{- end }}
{{- if hasKey $each.nodeSelector "drawbridge.io/anycast-ip" }}
{{- fail (printf "%s.nodeSelector has drawbridge.io/anycast-ip, which Drawbridge writes itself: name another label" $path) }}
{{- end }}
{{- range $before := slice $all.addresses 0 $index }}
{{- $selects := true }}
{{- range $label, $value := $before.nodeSelector }}
{{- if not (and (hasKey $each.nodeSelector $label) (eq (toString $value) (toString (get $each.nodeSelector $label)))) }}
{{- $selects = false }}
{{- end }}
{{- end }}
{{- if $selects }}
{{- fail (printf "%s.nodeSelector selects only nodes that an entry before it selects: write the narrower one first" $path) }}
{{- end }}
{{- end }}
{{- range $label, $value := $each.nodeSelector }}
{{- if and (hasKey $labels $label) (ne (toString $value) (toString (get $labels $label))) }}
{{- fail (printf "%s.nodeSelector wants another value of %s than anycastIP.nodeLabels: no node has both" $path $label) }}
{{- end }}
{{- end }}
{{- $charge := default $all.internetChargeType $each.internetChargeType }}
{{- if and $each.bandwidthPackageID (ne $charge "BANDWIDTH_PACKAGE") }}
{{- fail (printf "%s.bandwidthPackageID is %s: it needs internetChargeType BANDWIDTH_PACKAGE" $path $each.bandwidthPackageID) }}
{{- end }}
{{- $width := default $bandwidth $each.bandwidth | int }}
{{- if and (ne $type "AnycastEIP") (hasSuffix "BY_HOUR" $charge) (gt $width 100) }}
{{- fail (printf "%s.bandwidth is %d, but %s allows 100 at most for an %s" $path $width $charge $type) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "drawbridge.validateKeys" -}}
{{- $id := index . 1 }}
{{- $key := index . 2 }}
{{- with (index . 0).Values }}
{{- if ne (empty $id) (empty $key) }}
{{- fail "of cloud.secretID and cloud.secretKey, one is set without the other: give both, or neither and an existingSecret" }}
{{- end }}
{{- if and $id (not .cloud.keysInValues) }}
{{- fail "cloud.secretID and cloud.secretKey (or credential.*) are set, and all who may read the release's Secrets would see them: keep them in a Secret of yours, and name it in cloud.existingSecret; or set cloud.keysInValues to true" }}
{{- end }}
{{- if and .cloud.existingSecret $id }}
{{- fail "cloud.existingSecret and cloud.secretID are both set: keep the keys in that Secret, and leave secretID and secretKey out" }}
{{- end }}
{{- $given := or .cloud.existingSecret $id }}
{{- if and $given (has .cloud.credentials (list "cvm-role" "tke-oidc")) }}
{{- fail (printf "cloud.credentials is %s, and the keys of a Secret would not be used: set it to static, or leave the Secret and the keys out" .cloud.credentials) }}
{{- end }}
{{- if and (not $given) (eq .cloud.credentials "static") (not (contains "TENCENTCLOUD_SECRET_ID" (toJson .extraEnv))) }}
{{- fail "cloud.credentials is static, but there are no keys: give cloud.existingSecret, or cloud.secretID and cloud.secretKey" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether egress is checked by pods. */}}
{{- define "drawbridge.checksEgress" -}}
{{- with .Values.anycastIP }}{{ and .enabled .egressCheck.enabled }}{{ end }}
{{- end }}

{{/* CEL: a node, which is called object or oldObject, is to have an address. Takes that name, and the labels. */}}
{{- define "drawbridge.celWantsAddress" -}}
{{- $node := index . 0 -}}
{{ $node }}.metadata.?labels[?"node.kubernetes.io/instance-type"] != optional.of("eklet")
{{- range $key, $value := index . 1 }}
&& {{ $node }}.metadata.?labels[?{{ toJson $key }}] == optional.of({{ toJson $value }})
{{- end }}
{{- end }}

{{/* CEL: a node, by that name, has our taint. */}}
{{- define "drawbridge.celIsTainted" -}}
{{ . }}.?spec.?taints.orValue([]).exists(t, t.key == "tke.cloud.tencent.com/no-aia-ip" && t.effect == "NoSchedule")
{{- end }}

{{/* Which requests the webhook and the policy are for. */}}
{{- define "drawbridge.taintRules" -}}
# Without nodes/status: the frequent reports of kubelets cost nothing.
- apiGroups: [""]
  apiVersions: [v1]
  resources: [nodes]
  operations: [CREATE, UPDATE]
  scope: Cluster
{{- end }}

{{/* Takes the labels. Match conditions of both; the server uses the same rules, so a node that it would not change costs no call. */}}
{{- define "drawbridge.taintConditions" -}}
- name: node-wants-an-address
  expression: >-
    {{- include "drawbridge.celWantsAddress" (list "object" .) | nindent 4 }}
- name: node-is-not-tainted
  expression: >-
    !{{ include "drawbridge.celIsTainted" "object" }}
# A node that is being created has no uid yet.
- name: node-is-not-proven-bound
  expression: >-
    request.operation == "CREATE" || !object.metadata.?annotations[?"drawbridge.io/anycast-ip-bound"].orValue("")
    .matches("^" + oldObject.metadata.uid + "/.")
- name: node-was-not-open-before
  expression: >-
    request.operation == "CREATE" || {{ include "drawbridge.celIsTainted" "oldObject" }}
    || !({{ include "drawbridge.celWantsAddress" (list "oldObject" .) | indent 4 | trim }})
{{- end }}

{{/* Whether pods get the address of their node. */}}
{{- define "drawbridge.givesPodAddress" -}}
{{- with .Values.anycastIP }}{{ if and .enabled .podAddress.enabled }}true{{ end }}{{ end }}
{{- end }}

{{/* One webhook for each value of the namespaces' label. */}}
{{- define "drawbridge.podAddressWebhooks" -}}
{{- range list
  (dict "name" "pod-address" "path" "anycast-ip" "value" "copy" "failurePolicy" "Ignore" "exempt" (list .Release.Namespace))
  (dict "name" "pod-address-wait" "path" "anycast-ip-wait" "value" "wait" "failurePolicy" "Fail" "exempt" (list "kube-system" .Release.Namespace | uniq)) }}
- name: {{ .name }}.drawbridge.io
  {{- include "drawbridge.webhookClient" (list $ (printf "/mutate/bindings/%s" .path)) | nindent 2 }}
  rules:
    # The second is the older way of schedulers.
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [pods/binding, bindings]
      operations: [CREATE]
      scope: Namespaced
  matchPolicy: Equivalent
  failurePolicy: {{ .failurePolicy }}
  sideEffects: None
  timeoutSeconds: {{ include "drawbridge.seconds" (list $ "anycastIP.advanced.timeout") }}
  reinvocationPolicy: Never
  # Our own pods, and those of kube-system, wait for no webhook.
  namespaceSelector:
    matchExpressions:
      - {key: drawbridge.io/node-anycast-ip, operator: In, values: [{{ .value }}]}
      - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ toJson .exempt }}}
{{- end }}
{{- end }}
