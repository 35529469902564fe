{{/* The user's settings, and what only the chart knows: what it mounted where. */}}
{{- define "peerwatch.exporter.config" -}}
{{- $values := .Values.exporter -}}
{{- $config := deepCopy (default dict $values.config) -}}
{{- $jobs := default dict $config.jobs -}}
{{- if not $values.privileges.processes -}}
{{- /* Without the right to read them, both would report a failure for ever. */ -}}
{{- $jobs = set $jobs "environment" false -}}
{{- $collectors := default dict $config.collectors -}}
{{- $disabled := append (default list $collectors.disabled) "ranks" | uniq -}}
{{- $_ := set $config "collectors" (set $collectors "disabled" $disabled) -}}
{{- end -}}
{{- if not $values.privileges.kubelet -}}
{{- $jobs = set $jobs "pod_resources_socket" nil -}}
{{- end -}}
{{- if $values.mappingDirectory -}}
{{- $jobs = set $jobs "mapping_directory" "/host/jobs" -}}
{{- end -}}
{{- if $jobs -}}
{{- $_ := set $config "jobs" $jobs -}}
{{- end -}}
{{- if $values.heartbeatDirectory -}}
{{- $_ := set $config "heartbeat" (set (default dict $config.heartbeat) "directory" "/host/heartbeat") -}}
{{- end -}}
{{- if $values.logs.enabled -}}
{{- $pods := default nil $values.logs.podsDirectory -}}
{{- $_ := set $config "logs" (merge (dict "enabled" true "pods_directory" $pods) (default dict $config.logs)) -}}
{{- end -}}
{{- if $values.pingsSecret -}}
{{- $_ := set $config "pings" (set (default dict $config.pings) "secret_file" "/etc/peerwatch-pings/pings.secret") -}}
{{- end -}}
{{- /* Helm makes strings of keys; those of xid.severity are numbers. */ -}}
{{- regexReplaceAll "(?m)^( +)\"([0-9]+)\":" (toYaml $config) "${1}${2}:" -}}
{{- end }}

{{/* The directories of logs that are mounted, as a list. */}}
{{- define "peerwatch.exporter.logs" -}}
{{- with .Values.exporter.logs -}}
{{- $directories := list -}}
{{- if .enabled -}}
{{- $directories = concat (compact (list .podsDirectory)) (default list .directories) | uniq -}}
{{- end -}}
{{- toYaml $directories -}}
{{- end -}}
{{- end }}

{{/* Whether anything that the pod may do is kept for root. */}}
{{- define "peerwatch.exporter.root" -}}
{{- with .Values.exporter.privileges -}}
{{- if or .kubelet .processes .systemd (ne (include "peerwatch.exporter.kernelLog" .) "off") }}true{{ end -}}
{{- end -}}
{{- end }}

{{/* How the kernel log is read; without quotes YAML makes false of off. Argument: the privileges. */}}
{{- define "peerwatch.exporter.kernelLog" -}}
{{- ternary "off" .kernelLog (kindIs "bool" .kernelLog) -}}
{{- end }}
