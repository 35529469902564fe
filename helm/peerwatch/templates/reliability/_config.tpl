{{/* The user's settings, and those that other parts of the chart depend on. */}}
{{- define "peerwatch.reliability.config" -}}
{{- $config := deepCopy (default dict .Values.reliability.config) -}}
{{- $_ := set $config "listen" (dict "address" "0.0.0.0" "port" (int .Values.reliability.port)) -}}
{{- $_ := set $config "scheduler" (default "kubernetes" $config.scheduler) -}}
{{- $prometheus := default dict $config.prometheus -}}
{{- if not $prometheus.url -}}
{{- $prometheus = merge $prometheus (dict "url" .Values.prometheus.url "headers" (default dict .Values.prometheus.headers)) -}}
{{- end -}}
{{- $_ := set $config "prometheus" $prometheus -}}
{{- if .Values.reliability.webConfigSecret -}}
{{- $_ := set $config "web" (merge (dict "config_file" "/etc/peerwatch-web/web-config.yaml") (default dict $config.web)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end }}
