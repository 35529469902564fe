{{/*
What may not be null: sections, and values that cannot be empty. A section whose lines are all comments is null, and Helm then
drops what the chart has there.
*/}}
{{- define "peerwatch.mistakes.missing" -}}
{{- $own := dict -}}
{{- $_ := set $own "exporter" "logLevel privileges privileges.hostNetwork privileges.kubelet privileges.processes privileges.kernelLog privileges.filesystems privileges.systemd logs logs.enabled kubeletDirectory monitor monitor.kind monitor.scheme monitor.fast monitor.fast.enabled monitor.places" -}}
{{- $_ := set $own "detector" "logLevel replicas replication service service.type service.port podDisruptionBudget podDisruptionBudget.enabled networkPolicy networkPolicy.enabled monitor monitor.kind monitor.scheme" -}}
{{- $_ := set $own "checks" "suites intervalSeconds filesystems directory" -}}
{{- $_ := set $own "responder" "logLevel journal networkPolicy networkPolicy.enabled monitor monitor.kind monitor.scheme" -}}
{{- $_ := set $own "reliability" "logLevel networkPolicy networkPolicy.enabled monitor monitor.kind monitor.scheme" -}}
{{- $paths := splitList " " "preset image image.pullPolicy prometheus prometheus.recorded rules rules.enabled rules.recording rules.files dashboards dashboards.enabled" -}}
{{- range $program, $rest := $own -}}
{{- $paths = append $paths $program -}}
{{- range printf "enabled image image.repository serviceAccount serviceAccount.create %s" $rest | splitList " " -}}
{{- $paths = append $paths (printf "%s.%s" $program .) -}}
{{- end -}}
{{- end -}}
{{- $found := list -}}
{{- range $path := $paths -}}
{{- $keys := splitList "." $path -}}
{{- $section := $.Values -}}
{{- range initial $keys }}{{ $section = get (default dict $section) . }}{{ end -}}
{{- /* What is missing with its section needs no second sentence. */ -}}
{{- if kindIs "map" $section -}}
{{- if kindIs "invalid" (index $section (last $keys)) -}}
{{- $found = append $found (printf "%s: is null or missing; leave it out of your values for the chart's own, or give a value (with helm upgrade, --reset-then-reuse-values instead of --reuse-values)." $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}
