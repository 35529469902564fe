{{/* What an endpoint of a monitor of the exporter says beside its path. Argument: $. */}}
{{- define "peerwatch.exporter.endpoint" -}}
{{- $monitor := .Values.exporter.monitor -}}
port: metrics
{{ include "peerwatch.scrapeAccess" $monitor }}
relabelings:
  {{- include "peerwatch.relabelings" (list . "exporter") | nindent 2 }}
{{- with $monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
