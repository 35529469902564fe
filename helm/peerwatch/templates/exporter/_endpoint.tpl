{{/* What an endpoint of a monitor of the exporter says beside its path. Argument: $. */}}
{{- define "peerwatch.exporter.endpoint" -}}
{{- $monitor := .Values.exporter.monitor -}}
port: metrics
{{ include "peerwatch.scrapeAccess" $monitor }}
relabelings:
  {{- include "peerwatch.exporter.places" . | nindent 2 }}
  {{- include "peerwatch.relabelings" (list . "exporter") | nindent 2 }}
{{- with $monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Relabelings that make target labels of the labels of a Kubernetes node that name its places. */}}
{{- define "peerwatch.exporter.places" -}}
{{- range $level, $label := .Values.exporter.monitor.places }}
{{- with $label }}
- action: replace
  sourceLabels: [__meta_kubernetes_node_label_{{ regexReplaceAll "[^a-zA-Z0-9_]" . "_" }}]
  targetLabel: topology_{{ $level }}
{{- end }}
{{- end }}
{{- end }}
