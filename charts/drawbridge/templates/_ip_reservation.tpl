{{/* Takes a list of the root context and one of its audiences. */}}
{{- define "drawbridge.ipReservationWebhook" -}}
{{- $root := index . 0 -}}
{{- $audience := index . 1 -}}
- name: {{ $audience.name }}.drawbridge.io
  {{- include "drawbridge.webhookClient" (list $root "/validate/pods/ip-reservation") | nindent 2 }}
  rules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [pods]
      operations: [DELETE]
      scope: Namespaced
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [pods/eviction]
      operations: [CREATE]
      scope: Namespaced
  matchPolicy: Equivalent
  failurePolicy: {{ $audience.failurePolicy }}
  sideEffects: NoneOnDryRun
  timeoutSeconds: {{ include "drawbridge.seconds" (list $root "ipReservation.advanced.timeout") }}
  namespaceSelector:
    matchExpressions:
      - {key: ip-reserve, operator: In, values: [enabled, enable]}
      - {{ toJson $audience.namespaces }}
  # Pods that need no reservation cost no call. An eviction has no oldObject: the webhook reads its pod.
  # One condition, because each costs in each admission of a pod's end, and && ends at the first part that is false: most are of
  # pods that are being deleted, by the kubelet's final DELETEs, and their first DELETE, or their eviction, was handled.
  # The static pod of a mirror keeps running, with the IP.
  # Kubernetes marks a pod of a lost node Failed just before it deletes it; a kubelet marks evicted pods so, and
  # their workload deletes them at once or later. The webhook checks how long ago: CEL has no clock.
  # A pod with restartPolicy Always never fails by itself.
  matchConditions:
    - name: pod-needs-a-reservation
      expression: >-
        (request.operation != 'DELETE' || !has(oldObject.metadata.deletionTimestamp)
        && has(oldObject.status) && has(oldObject.status.podIP) && oldObject.status.podIP != ''
        && !oldObject.?spec.?hostNetwork.orValue(false)
        && !oldObject.metadata.?annotations[?'kubernetes.io/config.mirror'].hasValue()
        && (!(oldObject.status.?phase.orValue('') in ['Succeeded', 'Failed'])
        || oldObject.status.?conditions.orValue([]).exists(c, c.type == 'DisruptionTarget' && c.status == 'True')
        || oldObject.status.phase == 'Failed' && (oldObject.?spec.?restartPolicy.orValue('') == 'Always'
        || oldObject.status.?reason.orValue('') in
        ['Evicted', 'NodeShutdown', 'Terminated', 'Shutdown', 'Preempting', 'NodeLost'])))
        && (request.operation != 'CREATE' || object.?deleteOptions.?dryRun.orValue([]).size() == 0)
        && !request.?dryRun.orValue(false)
{{- end }}

{{- define "drawbridge.sameAddressWebhook" -}}
- name: same-address.drawbridge.io
  {{- include "drawbridge.webhookClient" (list . "/mutate/pods/same-address") | nindent 2 }}
  rules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [pods]
      operations: [CREATE]
      scope: Namespaced
  matchPolicy: Equivalent
  # A pod that bypasses it gets another address.
  failurePolicy: Ignore
  sideEffects: None
  timeoutSeconds: 2
  reinvocationPolicy: Never
  namespaceSelector:
    matchExpressions:
      - {key: ip-reserve, operator: In, values: [enabled, enable]}
      - {key: kubernetes.io/metadata.name, operator: NotIn, values: [{{ .Release.Namespace | quote }}]}
  # The server uses the same rules: a pod to which nothing can be promised costs no call.
  matchConditions:
    - name: pod-may-get-its-address-back
      expression: >-
        !object.spec.?hostNetwork.orValue(false)
        && object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false)
        && o.kind == "StatefulSet" && o.apiVersion == "apps/v1")
        && object.metadata.?annotations[?"drawbridge.io/same-address"].orValue("") != "false"
        && !["ipAddrs", "ipAddrsNoIpam", "ipv4pools", "ipv6pools"].exists(each,
        ("cni.projectcalico.org/" + each) in object.metadata.?annotations.orValue({}))
{{- end }}
