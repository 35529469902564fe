{{/* The user's settings, and those that other parts of the chart depend on. */}}
{{- define "peerwatch.responder.config" -}}
{{- $config := deepCopy (default dict .Values.responder.config) -}}
{{- $_ := set $config "listen" (dict "address" "0.0.0.0" "port" (int .Values.responder.port)) -}}
{{- $_ := set $config "journal" "/var/lib/peerwatch/responder/journal.jsonl" -}}
{{- $web := dict "token_file" "/etc/peerwatch-token/token" -}}
{{- if .Values.responder.webConfigSecret }}{{ $_ := set $web "config_file" "/etc/peerwatch-web/web-config.yaml" }}{{ end -}}
{{- $_ := set $config "web" (merge $web (default dict $config.web)) -}}
{{- $cluster := merge (default dict $config.cluster) (dict "type" "kubernetes") -}}
{{- if and (eq (toString $cluster.type) "kubernetes") .Values.cluster (not $cluster.name) -}}
{{- $_ := set $cluster "name" .Values.cluster -}}
{{- end -}}
{{- $_ := set $config "cluster" $cluster -}}
{{- toYaml $config -}}
{{- end }}

{{/* Whether it asks Kubernetes; empty: it does not. */}}
{{- define "peerwatch.responder.asksKubernetes" -}}
{{- if eq "kubernetes" (dig "cluster" "type" "" (include "peerwatch.responder.config" . | fromYaml) | toString) }}yes{{ end -}}
{{- end }}
