{{/* Short enough for the longest suffix and for the hashes that Kubernetes adds. */}}
{{- define "peerwatch.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $release := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $release .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* Labels that select pods: they may never change. Argument: (list $ "exporter"). */}}
{{- define "peerwatch.selector" -}}
{{- $root := first . -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{/* Labels of an object. Argument: (list $ "exporter"), and what the user wants on this kind of object besides, as a map. */}}
{{- define "peerwatch.labels" -}}
{{- $root := first . -}}
{{ include "peerwatch.selector" (list $root (index . 1)) }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: peerwatch
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- include "peerwatch.usersLabels" . }}
{{- end }}

{{/* Labels of pods, with the same argument: without versions, so that only a change of the pod replaces it. */}}
{{- define "peerwatch.podLabels" -}}
{{ include "peerwatch.selector" (list (first .) (index . 1)) }}
app.kubernetes.io/part-of: peerwatch
{{- include "peerwatch.usersLabels" . }}
{{- end }}

{{/* The user's labels, each key once; those of the kind of object hide the common ones. */}}
{{- define "peerwatch.usersLabels" -}}
{{- $labels := default dict (first .).Values.commonLabels | deepCopy -}}
{{- range slice . 2 }}{{ $labels = mergeOverwrite $labels (default dict . | deepCopy) }}{{ end -}}
{{- with $labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Argument: (list $ "exporter"). */}}
{{- define "peerwatch.image" -}}
{{- $root := first . -}}
{{- $image := (index $root.Values (last .)).image -}}
{{- with $root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default $root.Chart.AppVersion $image.tag }}{{ end -}}
{{- end }}

{{- define "peerwatch.serviceAccountName" -}}
{{- $root := first . -}}
{{- $account := (index $root.Values (last .)).serviceAccount -}}
{{- if $account.name }}{{ $account.name }}
{{- else if $account.create }}{{ include "peerwatch.fullname" $root }}-{{ last . }}
{{- else }}default{{ end -}}
{{- end }}

{{/*
The environment of a container. A variable that the user sets as well comes once: server-side apply refuses a name that is there twice.
Argument: (list own users), two lists of variables.
*/}}
{{- define "peerwatch.env" -}}
{{- $names := list -}}
{{- range last . | default list }}{{ $names = append $names (get . "name") }}{{ end -}}
{{- $env := list -}}
{{- range first . }}{{ if not (has .name $names) }}{{ $env = append $env . }}{{ end }}{{ end -}}
{{- concat $env (last . | default list) | toYaml -}}
{{- end }}

{{/* What every container of the chart keeps to. */}}
{{- define "peerwatch.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
{{- end }}

{{/* Seconds of a duration such as 1s, 500ms or 1m30s; a year has 365 days, as in Prometheus. */}}
{{- define "peerwatch.seconds" -}}
{{- $total := 0.0 -}}
{{- range regexFindAll "[0-9]+(ms|[smhdwy])" (toString .) -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $number := regexFind "[0-9]+" . | float64 -}}
{{- $total = addf $total (mulf $number (get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0 "w" 604800.0 "y" 31536000.0) $unit)) -}}
{{- end -}}
{{- $total -}}
{{- end }}

{{/* The time limit of a scrape: never longer than the interval. Argument: a monitor's values. */}}
{{- define "peerwatch.scrapeTimes" -}}
interval: {{ .interval }}
{{- if .scrapeTimeout }}
scrapeTimeout: {{ .scrapeTimeout }}
{{- else if lt (include "peerwatch.seconds" .interval | float64) 10.0 }}
scrapeTimeout: {{ .interval }}
{{- end }}
{{- end }}

{{/* Labels of a target that every monitor sets. Argument: (list $ "exporter"). */}}
{{- define "peerwatch.relabelings" -}}
{{- $root := first . -}}
{{- if eq (last .) "exporter" -}}
- action: replace
  sourceLabels: [__meta_kubernetes_pod_node_name]
  targetLabel: node
{{- else }}
# A pod that is placed anew is the same {{ last . }}, and its alerts go on.
- action: replace
  sourceLabels: [__meta_kubernetes_pod_name]
  targetLabel: instance
{{- end }}
{{- with $root.Values.cluster }}
- action: replace
  replacement: {{ . | quote }}
  targetLabel: cluster
{{- end }}
{{- with (index $root.Values (last .)).monitor.relabelings }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* How a monitor's endpoint is scraped where a web configuration asks for TLS or a password. Argument: the monitor's values. */}}
{{- define "peerwatch.scrapeAccess" -}}
scheme: {{ .scheme }}
{{- with .tlsConfig }}
tlsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .basicAuth }}
basicAuth:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What a probe asks; where a login may be needed, only whether the port is open. Argument: (list values port path). */}}
{{- define "peerwatch.probe" -}}
{{- $port := index . 1 -}}
{{- if (index . 0).webConfigSecret -}}
tcpSocket: {port: {{ $port }}}
{{- else -}}
httpGet: {path: {{ index . 2 }}, port: {{ $port }}}
{{- end -}}
{{- end }}
