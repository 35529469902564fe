{{/* The files to load, by the name of their subject: {node: rules/node.rules.yaml, ...}. */}}
{{- define "peerwatch.rules.files" -}}
{{- $rules := .Values.rules -}}
{{- $all := include "peerwatch.rules.all" . | fromYaml -}}
{{- $recording := dict "recording" "peerwatch" "dcgm" "dcgm" "slow" "fast" -}}
{{- range $name, $path := $all }}
{{- $wanted := dig $name true $rules.files -}}
{{- with get $recording $name }}
{{- $wanted = and $rules.recording (eq . $.Values.preset) -}}
{{- end }}
{{- /* The same alerts as gpu, from the fields of dcgm-exporter. */ -}}
{{- if eq $name "dcgm-gpu" }}
{{- $wanted = and (dig "gpu" true $rules.files) (eq $.Values.preset "dcgm") -}}
{{- end }}
{{- if $wanted }}
{{ $name }}: {{ $path }}
{{- end }}
{{- end }}
{{- end }}

{{- define "peerwatch.rules.all" -}}
{{- range $pattern := list "rules/*.rules.yaml" "rules/dcgm/*.rules.yaml" "rules/slow/*.rules.yaml" }}
{{- range $path, $_ := $.Files.Glob $pattern }}
{{ base $path | trimSuffix ".rules.yaml" }}: {{ $path }}
{{- end }}
{{- end }}
{{- end }}

{{/* The names of all alerts, each once. */}}
{{- define "peerwatch.rules.alerts" -}}
{{- $names := list -}}
{{- range $_, $path := include "peerwatch.rules.all" . | fromYaml -}}
{{- range ($.Files.Get $path | fromYaml).groups -}}
{{- range .rules -}}
{{- with .alert }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- uniq $names | sortAlpha | toJson -}}
{{- end }}

{{/* A rule with the values' changes; nothing if it is switched off. Argument: (list $ rule). */}}
{{- define "peerwatch.rules.changed" -}}
{{- $rules := (first .).Values.rules -}}
{{- $rule := deepCopy (last .) -}}
{{- if not $rule.alert -}}
{{- toYaml $rule -}}
{{- else -}}
{{- $change := default dict (get (default dict $rules.alerts) $rule.alert) -}}
{{- if dig "enabled" true $change -}}
{{- range $from, $to := dict "for" "for" "keepFiringFor" "keep_firing_for" -}}
{{- with get $change $from }}{{ $_ := set $rule $to . }}{{ end -}}
{{- end -}}
{{- with $change.severity }}{{ $_ := set $rule.labels "severity" . }}{{ end -}}
{{- $_ := set $rule "labels" (mergeOverwrite $rule.labels (default dict $rules.alertLabels | deepCopy) (default dict $change.labels)) -}}
{{- $annotations := $rule.annotations -}}
{{- with $rules.runbookUrl -}}
{{- $_ := set $annotations "runbook_url" (printf "%s/%s.md" (trimSuffix "/" .) $rule.alert) -}}
{{- end -}}
{{- if and $rules.grafanaUrl $annotations.dashboard_url -}}
{{- $_ := set $annotations "dashboard_url" (print (trimSuffix "/" $rules.grafanaUrl) $annotations.dashboard_url) -}}
{{- end -}}
{{- $_ := set $rule "annotations" (mergeOverwrite $annotations (default dict $change.annotations)) -}}
{{- toYaml $rule -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Alerts that have no source, by the privilege that would give them one, from what the rules say. */}}
{{- define "peerwatch.rules.withoutSource" -}}
{{- $may := .Values.exporter.privileges -}}
{{- $off := dict -}}
{{- if not $may.processes }}{{ $_ := set $off "processes" (list "ranks") }}{{ end -}}
{{- if eq (include "peerwatch.exporter.kernelLog" $may) "off" }}{{ $_ := set $off "kernelLog" (list "kernel" "sxid") }}{{ end -}}
{{- if not $may.filesystems }}{{ $_ := set $off "filesystems" (list "filesystem") }}{{ end -}}
{{- if not $may.systemd }}{{ $_ := set $off "systemd" (list "systemd") }}{{ end -}}
{{- $found := dict -}}
{{- range (.Files.Get "rules/source.rules.yaml" | fromYaml).groups -}}
{{- range $rule := .rules -}}
{{- range $setting, $collectors := $off -}}
{{- /* What the kernel refuses is known without the filesystem's files. */ -}}
{{- if and $rule.labels (has (dig "labels" "collector" "" $rule) $collectors) (not (contains "host_filesystem_write_refused" $rule.expr)) -}}
{{- $_ := set $found $setting (append (default list (get $found $setting)) $rule.labels.alertname | uniq) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $found }}{{ toYaml . }}{{ end -}}
{{- end }}
