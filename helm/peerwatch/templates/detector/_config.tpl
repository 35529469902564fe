{{/* The user's settings, and those that other parts of the chart depend on. */}}
{{- define "peerwatch.detector.config" -}}
{{- $config := deepCopy (default dict .Values.detector.config) -}}
{{- $prometheus := merge (dict "url" .Values.prometheus.url "recorded" .Values.prometheus.recorded) (default dict $config.prometheus) -}}
{{- with .Values.prometheus.headers -}}
{{- $prometheus = set $prometheus "headers" . -}}
{{- end -}}
{{- $_ := set $config "prometheus" $prometheus -}}
{{- $_ := set $config "preset" .Values.preset -}}
{{- if gt (int .Values.detector.replicas) 1 -}}
{{- /* A member is called by its host's name, which is the pod's. */ -}}
{{- $group := printf "%s/%s" .Release.Namespace (include "peerwatch.fullname" .) -}}
{{- $_ := set $config "replicas" (dict "enabled" true "group" $group "replication" .Values.detector.replication) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end }}
