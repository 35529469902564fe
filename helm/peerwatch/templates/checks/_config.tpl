{{/* The user's settings, and what only the chart knows: what it mounted where. */}}
{{- define "peerwatch.checks.config" -}}
{{- $values := .Values.checks -}}
{{- $config := deepCopy (default dict $values.config) -}}
{{- $_ := set $config "spool" "/var/lib/peerwatch/checks" -}}
{{- /* In the directory that all pods with checks on the node share. */ -}}
{{- $paths := dict "procfs" "/host/proc" "sysfs" "/host/sys" "lock" "/var/lib/peerwatch/checks/lock" "work" "/tmp" -}}
{{- if $values.filesystems -}}
{{- $_ := set $paths "rootfs" "/host/root" -}}
{{- else -}}
{{- /* They would test the container's. */ -}}
{{- $_ := set $config "exclude" (concat (default list $config.exclude) (list "filesystem_space" "mounts") | uniq) -}}
{{- end -}}
{{- $_ := set $config "paths" $paths -}}
{{- toYaml $config -}}
{{- end }}
