{{/*
As JSON: our values that the originals' charts know by other names, by ours. What has one of those names comes before our
default; labels and tags are added to it, as Helm adds them. No message says what a value is.
*/}}
{{- define "drawbridge.names" -}}
{{- $found := dict }}
{{- range include "drawbridge.originals" . | fromJsonArray }}
{{- $name := index . 0 }}
{{- $other := index . 1 }}
{{- $default := index . 2 }}
{{- $ours := (include "drawbridge.valueAt" (list $ $name) | fromJson).value }}
{{- if hasKey $found $name }}{{ $ours = get $found $name }}{{ end }}
{{- $theirs := (include "drawbridge.valueAt" (list $ $other) | fromJson).value }}
{{- if or (kindIs "invalid" $theirs) (has $theirs (list "" dict)) }}
{{- $theirs = $ours }}
{{- else if kindIs "map" $theirs }}
{{- $theirs = merge dict $theirs $default }}
{{- end }}
{{- if not (has (toJson $ours) (list (toJson $default) (toJson $theirs))) }}
{{- fail (printf "%s and %s are both set, and differ: they are two names of one value; leave one of them out" $name $other) }}
{{- end }}
{{- $_ := set $found $name $theirs }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{/* One of them: takes a list of the root context, and our name. */}}
{{- define "drawbridge.named" -}}
{{- get (include "drawbridge.names" (index . 0) | fromJson) (index . 1) }}
{{- end }}

{{/* The port of one of them, or of the address that it is. */}}
{{- define "drawbridge.portOf" -}}
{{- regexFind "[0-9]+$" (include "drawbridge.named" .) }}
{{- end }}

{{/* Whether a leader is elected. */}}
{{- define "drawbridge.electsLeader" -}}
{{- ne (toString .Values.config.leaderElectionEnable) "false" }}
{{- end }}

{{/* The seconds of a value such as 5s: takes a list of the root context, and its path. */}}
{{- define "drawbridge.seconds" -}}
{{- (include "drawbridge.valueAt" . | fromJson).value | trimSuffix "s" | int }}
{{- end }}
