{{/* Takes a list of the root context, how long each may be, and paths of durations: each against the next. */}}
{{- define "drawbridge.inOrder" -}}
{{- $root := index . 0 }}
{{- $rule := index . 1 }}
{{- $names := slice . 2 }}
{{- range $at, $limit := rest $names }}
{{- $name := index $names $at }}
{{- $value := (include "drawbridge.valueAt" (list $root $name) | fromJson).value }}
{{- $most := (include "drawbridge.valueAt" (list $root $limit) | fromJson).value }}
{{- $over := subf (include "drawbridge.microseconds" $value | float64) (include "drawbridge.microseconds" $most | float64) }}
{{- if or (gt $over 0.0) (and (eq $over 0.0) (eq $rule "shorter than")) }}
{{- fail (printf "%s (%s) must be %s %s (%s)" $name $value $rule $limit $most) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Takes a list of the root context, the path of requirements as in a label selector, and the operators that take values. */}}
{{- define "drawbridge.valuesOfOperators" -}}
{{- $name := index . 1 }}
{{- $operators := slice . 2 }}
{{- range $at, $requirement := (include "drawbridge.valueAt" . | fromJson).value }}
{{- if and (has .operator $operators) (not .values) }}
{{- fail (printf "%s[%d] has operator %s of key %s, but no values: give some, for example values: [redis]" $name $at .operator .key) }}
{{- end }}
{{- if and .values (not (has .operator $operators)) }}
{{- fail (printf "%s[%d] has operator %s of key %s, which takes no values: leave values out" $name $at .operator .key) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Values that are set without effect, all at once. Takes a list of the root context, and paths, each before its way out. */}}
{{- define "drawbridge.refuse" -}}
{{- $root := first . }}
{{- $words := rest . }}
{{- $found := list }}
{{- range $at, $path := $words }}
{{- if and (eq (mod $at 2) 0) (include "drawbridge.valueAt" (list $root $path) | fromJson).value }}
{{- $found = append $found (printf "%s %s" $path (index $words (add1 $at))) }}
{{- end }}
{{- end }}
{{- with $found }}
{{- fail (join "\n" .) }}
{{- end }}
{{- end }}

{{/* As JSON, under "value". Takes a list of the root context, and the path of a value. */}}
{{- define "drawbridge.valueAt" -}}
{{- $found := (index . 0).Values }}
{{- range splitList "." (index . 1) }}{{ $found = index (default dict $found) . }}{{ end }}
{{- dict "value" $found | toJson }}
{{- end }}

{{/* In a duration as Go writes it: whole ones, which a float holds exactly. */}}
{{- define "drawbridge.microseconds" -}}
{{- $sum := 0.0 }}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 }}
{{- $unit := regexFind "[a-z]+" . }}
{{- $worth := get (dict "h" 3600000000.0 "m" 60000000.0 "s" 1000000.0 "ms" 1000.0) $unit }}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) $worth) }}
{{- end }}
{{- $sum }}
{{- end }}
