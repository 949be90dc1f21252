{{/* The section "elasticity" of the configuration. Our own pods are local: the API server has to reach them. */}}
{{- define "drawbridge.elasticity" -}}
{{- with .Values.elasticity -}}
enabled: {{ .enabled }}
openGates: {{ include "drawbridge.controllersOpenGates" $ }}
switch:
  default: {{ include "drawbridge.switchDefault" $ }}
localOptOut: {{ .localOptOut }}
localReplicas: {{ if kindIs "invalid" .localReplicas }}null{{ else if kindIs "string" .localReplicas }}{{ .localReplicas | quote }}{{ else }}{{ int .localReplicas }}{{ end }}
percentages: {{ .percentages }}
placement: {{ .placement }}
schedulerName: {{ .schedulerName | quote }}
excludedNamespaces: {{ include "drawbridge.excludedNamespaces" $ }}
maxSuperPods:
  total: {{ toJson .maxSuperPods.total }}
  perNamespace: {{ toJson .maxSuperPods.perNamespace }}
  budgets: {{ toJson .maxSuperPods.budgets }}
scaleInOrder: {{ .scaleInOrder }}
homeFailover:
  enabled: {{ .homeFailover.enabled }}
  homeAfter: {{ .homeFailover.homeAfter | quote }}
returnHome:
  enabled: {{ .returnHome.enabled }}
  after: {{ .returnHome.after | quote }}
  interval: {{ .returnHome.interval | quote }}
  maxAtOnce: {{ .returnHome.maxAtOnce | int }}
subnets: {{ toJson $.Values.cloud.subnets }}
region: {{ get (include "drawbridge.names" $ | fromJson) "cloud.region" | quote }}
resolvConf: {{ .resolvConf | quote }}
{{- end }}
{{- end }}

{{/* Whether the controllers may open gates while the feature is off: with it on, for a ConfigMap that is edited by hand. */}}
{{- define "drawbridge.controllersOpenGates" -}}
{{- or .Values.elasticity.enabled (eq .Values.elasticity.advanced.openGates "controllers") }}
{{- end }}

{{/* As JSON. */}}
{{- define "drawbridge.excludedNamespaces" -}}
{{- append .Values.elasticity.excludedNamespaces .Release.Namespace | uniq | toJson }}
{{- end }}

{{/* By both names. The original's default has quotes within its quotes. */}}
{{- define "drawbridge.switchDefault" -}}
{{- include "drawbridge.autoScaleEKS" . | default (toString .Values.elasticity.switch.default) }}
{{- end }}

{{- define "drawbridge.autoScaleEKS" -}}
{{- kindIs "invalid" .Values.eksAdmission.autoScaleEKS | ternary "" (toString .Values.eksAdmission.autoScaleEKS) | trimAll "\"" }}
{{- end }}

{{- define "drawbridge.validateElasticity" -}}
{{- $ids := list }}
{{- range .Values.cloud.subnets }}
{{- if has .id $ids }}
{{- fail (printf "cloud.subnets has %s more than once: each subnet has one super node; leave one of them out" .id) }}
{{- end }}
{{- $ids = append $ids .id }}
{{- end }}
{{- if and (contains "%" (toString .Values.elasticity.localReplicas)) (not .Values.elasticity.percentages) }}
{{- fail (printf "elasticity.localReplicas is %s: set elasticity.percentages to true, or write a number" .Values.elasticity.localReplicas) }}
{{- end }}
{{- $said := include "drawbridge.autoScaleEKS" . }}
{{- if and $said (not .Values.elasticity.enabled) }}
{{- fail "eksAdmission.autoScaleEKS is set, but elasticity.enabled is false: set that to true, or leave autoScaleEKS out" }}
{{- end }}
{{- if and (eq $said "true") (not .Values.elasticity.switch.default) }}
{{- fail "eksAdmission.autoScaleEKS is true and elasticity.switch.default is false: they are two names of one value; leave one of them out" }}
{{- end }}
{{- end }}

{{/* CEL: the pod is one of a DaemonSet. */}}
{{- define "drawbridge.celOfDaemonSet" -}}
object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && o.kind == "DaemonSet")
{{- end }}

{{/* CEL: the pod waits for its placement. */}}
{{- define "drawbridge.celWaitsForPlacement" -}}
!({{ include "drawbridge.celOfDaemonSet" . }})
&& !(request.namespace in {{ include "drawbridge.excludedNamespaces" . }})
&& object.spec.?nodeName.orValue("") == ""
&& !object.spec.?schedulingGates.orValue([]).exists(g, g.name == "drawbridge.io/placement")
&& ({{ include "drawbridge.celReachesSuperNodes" "object.spec" }}
&& !({{ include "drawbridge.celIgnoresRules" . }})
|| object.metadata.?annotations[?"LOCAL_REPLICAS"].hasValue()
{{- if not (kindIs "invalid" .Values.elasticity.localReplicas) }}
|| object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false))
{{- end }})
{{- end }}

{{/* CEL: the pod is a copy of one that was placed. */}}
{{- define "drawbridge.celWasPlaced" -}}
object.metadata.?annotations[?"drawbridge.io/placement"].hasValue()
|| object.metadata.?annotations[?"drawbridge.io/burst"].hasValue()
{{- end }}

{{/* CEL: the pod is exempt from rules and caps. */}}
{{- define "drawbridge.celIgnoresRules" -}}
object.metadata.?annotations[?"drawbridge.io/ignore-rules"].orValue("") == "true"
{{- end }}

{{/* CEL: pods of the spec at this path tolerate super nodes, and are not kept off them. */}}
{{- define "drawbridge.celReachesSuperNodes" -}}
{{ . }}.?tolerations.orValue([]).exists(t, t.?effect.orValue("") in ["", "NoSchedule"]
&& (t.?key.orValue("") == "eks.tke.cloud.tencent.com/eklet"
&& (t.?operator.orValue("") == "Exists" || t.?operator.orValue("") in ["", "Equal"] && t.?value.orValue("") == "")
|| t.?key.orValue("") == "" && t.?operator.orValue("") == "Exists"))
&& (!{{ . }}.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.hasValue()
|| {{ . }}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([])
.exists(t, (t.?matchExpressions.orValue([]).size() > 0 || t.?matchFields.orValue([]).size() > 0)
&& !t.?matchExpressions.orValue([]).exists(e, e.key == "node.kubernetes.io/instance-type" && e.operator == "NotIn"
&& e.?values.orValue([]) == ["eklet"])))
{{- end }}

{{/* CEL: the provider is to inject pods with the metadata at this path beside those of super nodes. */}}
{{- define "drawbridge.celIsInjected" -}}
{{ . }}.?annotations[?"eks.tke.cloud.tencent.com/ds-injection"].orValue("") == "true"
|| {{ . }}.?labels[?"eks.tke.cloud.tencent.com/ds-injection"].orValue("") == "true"
{{- end }}

{{/* CEL: the pod could run on super nodes, and never may. */}}
{{- define "drawbridge.celMayLeaveHome" -}}
{{ include "drawbridge.celReachesSuperNodes" "object.spec" }}
&& ({{ include "drawbridge.celOfDaemonSet" . }}
&& !({{ include "drawbridge.celIsInjected" "object.metadata" }})
|| request.namespace in {{ include "drawbridge.excludedNamespaces" . }}
&& object.spec.?nodeName.orValue("") == ""
&& !({{ include "drawbridge.celIgnoresRules" . }}))
{{- end }}

{{- define "drawbridge.elasticityWebhook" -}}
- name: elasticity.drawbridge.io
  {{- include "drawbridge.webhookClient" (list . "/mutate/pods/elasticity") | nindent 2 }}
  rules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [pods]
      operations: [CREATE]
      scope: Namespaced
  matchPolicy: Equivalent
  # A pod that bypasses it runs locally, and is counted there.
  failurePolicy: Ignore
  sideEffects: None
  timeoutSeconds: {{ include "drawbridge.seconds" (list . "elasticity.advanced.timeout") }}
  # The conditions apply again to changes of other webhooks; our own changes do not match them.
  reinvocationPolicy: IfNeeded
  # kube-system is included: pods of its DaemonSets are kept off super nodes, too.
  namespaceSelector:
    matchExpressions:
      - {key: kubernetes.io/metadata.name, operator: NotIn, values: [{{ .Release.Namespace | quote }}]}
  # The server uses the same rules: a pod that it would not change costs no call.
  matchConditions:
    # A static pod runs whatever is stored.
    - name: pod-not-a-mirror
      expression: "!object.metadata.?annotations[?\"kubernetes.io/config.mirror\"].hasValue()"
    - name: pod-is-to-be-changed
      expression: >-
        {{- include "drawbridge.celWaitsForPlacement" . | nindent 8 }}
        {{- if ne .Values.elasticity.schedulerName "tke-scheduler" }}
        || object.spec.?schedulerName.orValue("") == "tke-scheduler"
        {{- end }}
        || {{ include "drawbridge.celWasPlaced" . | indent 8 | trim }}
        || {{ include "drawbridge.celMayLeaveHome" . | indent 8 | trim }}
- name: elasticity-daemonsets.drawbridge.io
  {{- include "drawbridge.webhookClient" (list . "/mutate/daemonsets/elasticity") | nindent 2 }}
  rules:
    - apiGroups: [apps]
      apiVersions: [v1]
      resources: [daemonsets]
      operations: [CREATE, UPDATE]
      scope: Namespaced
  matchPolicy: Equivalent
  # The leader corrects a DaemonSet that bypasses it.
  failurePolicy: Ignore
  sideEffects: None
  timeoutSeconds: {{ include "drawbridge.seconds" (list . "elasticity.advanced.timeout") }}
  reinvocationPolicy: IfNeeded
  namespaceSelector:
    matchExpressions:
      - {key: kubernetes.io/metadata.name, operator: NotIn, values: [{{ .Release.Namespace | quote }}]}
  matchConditions:
    # Any other change of a template would replace its pods.
    - name: template-is-new
      expression: request.operation == "CREATE" || object.spec.template != oldObject.spec.template
    - name: template-reaches-super-nodes
      expression: >-
        {{- include "drawbridge.celReachesSuperNodes" "object.spec.template.spec" | nindent 8 }}
        && !({{ include "drawbridge.celIsInjected" "object.spec.template.metadata" | indent 8 | trim }})
{{- end }}
