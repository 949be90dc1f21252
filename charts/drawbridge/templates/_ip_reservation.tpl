{{/* "true" where it is known who had which IP. */}}
{{- define "drawbridge.keepsHistory" -}}
{{- with .Values.ipReservation }}
{{- if and .enabled .pools.enabled (gt (include "drawbridge.microseconds" .pools.history | float64) 0.0) }}true{{ end }}
{{- end }}
{{- end }}

{{/* Takes a list of the root context and one of its audiences. */}}
{{- define "drawbridge.ipReservationWebhook" -}}
{{- $root := index . 0 -}}
{{- $audience := index . 1 -}}
- name: {{ $audience.name }}.drawbridge.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "drawbridge.fullname" $root }}-webhook
      namespace: {{ $root.Release.Namespace | quote }}
      path: /validate/pods/ip-reservation
      port: 443
    {{- include "drawbridge.trust" $root | nindent 4 }}
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
  timeoutSeconds: {{ $root.Values.ipReservation.timeoutSeconds }}
  namespaceSelector:
    matchExpressions:
      - {key: ip-reserve, operator: In, values: [enabled, enable]}
      - {{ toJson $audience.namespaces }}
  # Pods that need no reservation cost no call. An eviction has no oldObject: the webhook reads its pod.
  matchConditions:
    - name: not-a-dry-run
      expression: "!has(request.dryRun) || !request.dryRun"
    - name: not-a-dry-run-of-an-eviction
      expression: >-
        request.operation != 'CREATE' || !has(object.deleteOptions) || !has(object.deleteOptions.dryRun)
        || object.deleteOptions.dryRun.size() == 0
    # Its first DELETE, or its eviction, was handled; the kubelet's final DELETEs are thousands in a drain.
    - name: pod-not-yet-being-deleted
      expression: request.operation != 'DELETE' || !has(oldObject.metadata.deletionTimestamp)
    - name: pod-has-an-ip
      expression: >-
        request.operation != 'DELETE' || has(oldObject.status) && has(oldObject.status.podIP)
        && oldObject.status.podIP != ''
    - name: pod-not-on-the-host-network
      expression: >-
        request.operation != 'DELETE' || !has(oldObject.spec) || !has(oldObject.spec.hostNetwork)
        || !oldObject.spec.hostNetwork
    # Its static pod keeps running, with the IP.
    - name: pod-not-a-mirror
      expression: >-
        request.operation != 'DELETE' || !has(oldObject.metadata.annotations)
        || !('kubernetes.io/config.mirror' in oldObject.metadata.annotations)
    # Kubernetes marks a pod of a lost node Failed just before it deletes it; a kubelet marks evicted pods so, and
    # their workload deletes them at once or later. The webhook checks how long ago: CEL has no clock.
    # A pod with restartPolicy Always never fails by itself.
    - name: pod-not-finished-by-itself
      expression: >-
        request.operation != 'DELETE' || !has(oldObject.status) || !has(oldObject.status.phase)
        || !(oldObject.status.phase in ['Succeeded', 'Failed'])
        || has(oldObject.status.conditions) && oldObject.status.conditions.exists(c, c.type == 'DisruptionTarget'
        && c.status == 'True')
        || oldObject.status.phase == 'Failed' && has(oldObject.status.reason) && oldObject.status.reason in
        ['Evicted', 'NodeShutdown', 'Terminated', 'Shutdown', 'Preempting', 'NodeLost']
        || oldObject.status.phase == 'Failed' && has(oldObject.spec) && has(oldObject.spec.restartPolicy)
        && oldObject.spec.restartPolicy == 'Always'
{{- end }}

{{- define "drawbridge.sameAddressWebhook" -}}
- name: same-address.drawbridge.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      name: {{ include "drawbridge.fullname" . }}-webhook
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate/pods/same-address
      port: 443
    {{- include "drawbridge.trust" . | nindent 4 }}
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
    - name: pod-of-a-statefulset
      expression: >-
        object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false)
        && o.kind == "StatefulSet" && o.apiVersion == "apps/v1")
    - name: pod-not-on-the-host-network
      expression: "!object.spec.?hostNetwork.orValue(false)"
    - name: pod-asks-for-no-address
      expression: >-
        !["ipAddrs", "ipAddrsNoIpam", "ipv4pools", "ipv6pools"].exists(each,
        ("cni.projectcalico.org/" + each) in object.metadata.?annotations.orValue({}))
    - name: pod-did-not-opt-out
      expression: >-
        object.metadata.?annotations[?"drawbridge.io/same-address"].orValue("") != "false"
{{- end }}
