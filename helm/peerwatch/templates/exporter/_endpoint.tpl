{{/* What an endpoint of a monitor of the exporter says beside its path. Argument: $. */}}
{{- define "peerwatch.exporter.endpoint" -}}
{{- $monitor := .Values.exporter.monitor -}}
port: metrics
scheme: {{ $monitor.scheme }}
{{- with $monitor.tlsConfig }}
tlsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $monitor.basicAuth }}
basicAuth:
  {{- toYaml . | nindent 2 }}
{{- end }}
relabelings:
  {{- include "peerwatch.relabelings" (list . "exporter") | nindent 2 }}
{{- with $monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
