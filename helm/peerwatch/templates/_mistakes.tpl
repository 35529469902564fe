{{/* Values that cannot work together, as a list of sentences. */}}
{{- define "peerwatch.mistakes" -}}
{{- $missing := include "peerwatch.mistakes.missing" . -}}
{{- /* The others look into the sections. */ -}}
{{- if fromYamlArray $missing }}{{ $missing }}{{ else }}{{ include "peerwatch.mistakes.given" . }}{{ end -}}
{{- end }}

{{- define "peerwatch.mistakes.given" -}}
{{- $found := include "peerwatch.mistakes.names" . | fromYamlArray -}}
{{- /* As the condition of a dependency it would have kept the chart from being rendered. */ -}}
{{- if and (hasKey .Values "enabled") (not .Values.enabled) -}}
{{- $found = append $found "enabled: is false, which only a chart with the dependency's condition peerwatch.enabled reads; set exporter.enabled, detector.enabled and the like, or do not install the chart." -}}
{{- end -}}
{{- $found = concat $found (include "peerwatch.mistakes.accounts" . | fromYamlArray) -}}
{{- $found = concat $found (include "peerwatch.mistakes.images" . | fromYamlArray) -}}
{{- $found = concat $found (include "peerwatch.mistakes.labels" (list "commonLabels" .Values.commonLabels) | fromYamlArray) -}}
{{- if .Values.exporter.enabled -}}
{{- $found = concat $found (include "peerwatch.mistakes.exporter" . | fromYamlArray) -}}
{{- end -}}
{{- if .Values.detector.enabled -}}
{{- $found = concat $found (include "peerwatch.mistakes.detector" . | fromYamlArray) -}}
{{- end -}}
{{- if .Values.checks.enabled -}}
{{- $found = concat $found (include "peerwatch.mistakes.checks" . | fromYamlArray) -}}
{{- end -}}
{{- if .Values.responder.enabled -}}
{{- $found = concat $found (include "peerwatch.mistakes.responder" . | fromYamlArray) -}}
{{- end -}}
{{- if .Values.reliability.enabled -}}
{{- $found = concat $found (include "peerwatch.mistakes.reliability" . | fromYamlArray) -}}
{{- end -}}
{{- $found = concat $found (include "peerwatch.mistakes.rules" . | fromYamlArray) -}}
{{- $found = concat $found (include "peerwatch.mistakes.labels" (list "dashboards.labels" .Values.dashboards.labels) | fromYamlArray) -}}
{{- toYaml $found -}}
{{- end }}

{{- define "peerwatch.mistakes.exporter" -}}
{{- $found := list -}}
{{- $values := .Values.exporter -}}
{{- $may := $values.privileges -}}
{{- $taken := dict "9100" "node_exporter" "10248" "the kubelet" "10249" "kube-proxy" "10250" "the kubelet" "10256" "kube-proxy" -}}
{{- with and $may.hostNetwork (get $taken (toString $values.port)) -}}
{{- $found = append $found (printf "exporter.port: %v is the port of %s on every node; choose another, such as 9400." $values.port .) -}}
{{- end -}}
{{- if and $values.heartbeatDirectory (not $may.processes) -}}
{{- $found = append $found (printf "exporter.heartbeatDirectory: %q is of no use while exporter.privileges.processes is false: ranks are not looked for; set it to true." $values.heartbeatDirectory) -}}
{{- end -}}
{{- if and $values.logs.enabled (not $may.processes) -}}
{{- $found = append $found "exporter.logs.enabled: is of no use while exporter.privileges.processes is false: nobody knows whose logs they are; set it to true." -}}
{{- end -}}
{{- range $values.logs.directories -}}
{{- if regexMatch "^/(bin|dev|etc|host|lib|lib64|opt|proc|sbin|sys|tmp|usr)(/|$)" . -}}
{{- $found = append $found (printf "exporter.logs.directories: %q would hide a directory of the container; name another one, such as /shared/slurm-logs." .) -}}
{{- end -}}
{{- end -}}
{{- $pings := (default dict $values.config).pings | default dict -}}
{{- if and $pings.enabled (not $values.pingsSecret) -}}
{{- $found = append $found "exporter.pingsSecret: is empty, but exporter.config.pings.enabled is true; name a Secret with the key pings.secret (docs/pings.md)." -}}
{{- end -}}
{{- if and $pings.enabled (not $may.hostNetwork) -}}
{{- $found = append $found "exporter.privileges.hostNetwork: is false, but exporter.config.pings.enabled is true; pings between pods' own networks say nothing about the nodes' NICs, so set it to true." -}}
{{- end -}}
{{- if and (eq (include "peerwatch.exporter.kernelLog" $may) "device") (not $may.kernelLogDevice) -}}
{{- $found = append $found "exporter.privileges.kernelLogDevice: is empty, but kernelLog is \"device\"; name the resource under which your device plugin hands out /dev/kmsg." -}}
{{- end -}}
{{- range $place, $instead := dict "listen" "exporter.port" "paths" "nothing: the chart mounts them" "web.config_file" "exporter.webConfigSecret" "heartbeat.directory" "exporter.heartbeatDirectory" "pings.secret_file" "exporter.pingsSecret" "jobs.mapping_directory" "exporter.mappingDirectory" "jobs.pod_resources_socket" "exporter.privileges.kubelet" "logs.enabled" "exporter.logs.enabled" "logs.pods_directory" "exporter.logs.podsDirectory" -}}
{{- if include "peerwatch.has" (list $values.config $place) -}}
{{- $found = append $found (printf "exporter.config.%s: is set by the chart; use %s instead." $place $instead) -}}
{{- end -}}
{{- end -}}
{{- $found = concat $found (include "peerwatch.mistakes.pod" (list "exporter" $values) | fromYamlArray) -}}
{{- with $values.monitor -}}
{{- $seconds := include "peerwatch.seconds" .interval | float64 -}}
{{- $recorded := and (ne .kind "none") $.Values.rules.enabled $.Values.rules.recording -}}
{{- if and $recorded (eq $.Values.preset "peerwatch") (gt $seconds 5.0) -}}
{{- $found = append $found (printf "exporter.monitor.interval: %q is too long for the recording rules, which take rates over 15 s; at most 5s, or set rules.recording and prometheus.recorded to false." .interval) -}}
{{- end -}}
{{- if and $recorded (eq $.Values.preset "fast") (gt $seconds 20.0) -}}
{{- $found = append $found (printf "exporter.monitor.interval: %q is too long for the recording rules of the preset fast, which take rates over a minute; at most 20s, or set rules.recording to false and do without panels of the dashboards." .interval) -}}
{{- end -}}
{{- if and (ne .kind "none") (eq $.Values.preset "fast") (not .fast.enabled) -}}
{{- $found = append $found "exporter.monitor.fast.enabled: is false, but preset is \"fast\": the detector reads the fast endpoint, which is then not scraped; set it to true." -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{- define "peerwatch.mistakes.checks" -}}
{{- $found := list -}}
{{- $values := .Values.checks -}}
{{- range $place, $instead := dict "spool" "checks.directory" "paths" "nothing: the chart mounts them" -}}
{{- if include "peerwatch.has" (list $values.config $place) -}}
{{- $found = append $found (printf "checks.config.%s: is set by the chart; use %s instead." $place $instead) -}}
{{- end -}}
{{- end -}}
{{- $found = concat $found (include "peerwatch.mistakes.labels" (list "checks.podLabels" $values.podLabels) | fromYamlArray) -}}
{{- $found = concat $found (include "peerwatch.mistakes.resources" (list "checks.resources" $values.resources) | fromYamlArray) -}}
{{- if hasKey (default dict $values.podAnnotations) "checksum/config" -}}
{{- $found = append $found (printf "checks.podAnnotations: checksum/config (%q) is set by the chart, so that new settings make new pods; use a key of your own." (get $values.podAnnotations "checksum/config")) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{- define "peerwatch.mistakes.detector" -}}
{{- $found := list -}}
{{- $values := .Values.detector -}}
{{- if lt (int $values.replicas) 1 -}}
{{- $found = append $found (printf "detector.replicas: %v leaves no detector to evaluate the jobs; at least 1, or set detector.enabled to false." $values.replicas) -}}
{{- end -}}
{{- if gt (int $values.replication) (max 1 (int $values.replicas) | int) -}}
{{- $found = append $found (printf "detector.replication: %v detectors cannot evaluate the same job where detector.replicas is %v; at most that many." $values.replication $values.replicas) -}}
{{- end -}}
{{- if not (or $values.existingSecret .Values.prometheus.url) -}}
{{- $found = append $found "prometheus.url: is empty; give the address of the server that the detector reads, such as http://prometheus:9090." -}}
{{- end -}}
{{- if and $values.existingSecret $values.config -}}
{{- $found = append $found (printf "detector.config: is not used, since detector.existingSecret is %q; put the settings into that Secret." $values.existingSecret) -}}
{{- end -}}
{{- range $place, $instead := dict "listen" "detector.port" "preset" "preset" "replicas" "detector.replicas" "prometheus.url" "prometheus.url" "prometheus.recorded" "prometheus.recorded" "prometheus.headers" "prometheus.headers" "web.config_file" "detector.webConfigSecret" -}}
{{- if include "peerwatch.has" (list $values.config $place) -}}
{{- $found = append $found (printf "detector.config.%s: is set by the chart; use the chart's value %s instead." $place $instead) -}}
{{- end -}}
{{- end -}}
{{- $found = concat $found (include "peerwatch.mistakes.pod" (list "detector" $values) | fromYamlArray) -}}
{{- toYaml $found -}}
{{- end }}

{{- define "peerwatch.mistakes.responder" -}}
{{- $found := list -}}
{{- $values := .Values.responder -}}
{{- if not $values.tokenSecret -}}
{{- $found = append $found "responder.tokenSecret: is empty; name a Secret with the key token, or anybody in the cluster could give orders (docs/responder.md#with-helm)." -}}
{{- end -}}
{{- if and $values.journal.size (not (include "peerwatch.quantity" $values.journal.size)) -}}
{{- $found = append $found (printf "responder.journal.size: %q is no quantity; a number with a unit, such as 1Gi." $values.journal.size) -}}
{{- end -}}
{{- $config := default dict $values.config -}}
{{- $policy := default dict $config.policy -}}
{{- /* What is of another kind the pod refuses. */ -}}
{{- $rules := ternary $policy dict (kindIs "map" $policy) | dig "rules" list | default list -}}
{{- if and $rules (not $config.alertmanager) -}}
{{- $found = append $found "responder.config.alertmanager: is missing, but responder.config.policy has rules; give the server that is asked whether an alert still fires, such as {url: \"http://alertmanager-operated.monitoring:9093\"}." -}}
{{- end -}}
{{- range $rule := ternary $rules list (kindIs "slice" $rules) -}}
{{- if and (kindIs "map" $rule) (not $config.prometheus) -}}
{{- if $rule.advice -}}
{{- $found = append $found (printf "responder.config.prometheus: is missing, but the rule %q asks for advice; give the server that has the diagnoses, such as {url: %q}." (toString $rule.name) (default "http://prometheus:9090" $.Values.prometheus.url)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $example := dict "cluster" "{type: slurm}" "web" "{}" -}}
{{- $section := get $config $name | default dict -}}
{{- if not (kindIs "map" $section) -}}
{{- $found = append $found (printf "responder.config.%s: %q is no section; write settings below it, such as %s (docs/responder.md)." $name (toString $section) $example) -}}
{{- end -}}
{{- end -}}
{{- range $place, $instead := dict "listen" "responder.port" "journal" "responder.journal" "web.token_file" "responder.tokenSecret" "web.config_file" "responder.webConfigSecret" -}}
{{- if include "peerwatch.has" (list (default dict $values.config) $place) -}}
{{- $found = append $found (printf "responder.config.%s: is set by the chart; use %s instead." $place $instead) -}}
{{- end -}}
{{- end -}}
{{- $found = concat $found (include "peerwatch.mistakes.pod" (list "responder" $values) | fromYamlArray) -}}
{{- toYaml $found -}}
{{- end }}

{{- define "peerwatch.mistakes.reliability" -}}
{{- $found := list -}}
{{- $values := .Values.reliability -}}
{{- $url := include "peerwatch.reliability.config" . | fromYaml | dig "prometheus" "url" "" -}}
{{- /* Of the same URL the detector's mistake speaks. */ -}}
{{- if not (or $url (and .Values.detector.enabled (not .Values.detector.existingSecret))) -}}
{{- $found = append $found "prometheus.url: is empty; give the address of the server from which peerwatch-reliability reads jobs and events, such as http://prometheus:9090, or set reliability.config.prometheus.url." -}}
{{- end -}}
{{- range $place, $instead := dict "listen" "reliability.port" "web.config_file" "reliability.webConfigSecret" -}}
{{- if include "peerwatch.has" (list (default dict $values.config) $place) -}}
{{- $found = append $found (printf "reliability.config.%s: is set by the chart; use %s instead." $place $instead) -}}
{{- end -}}
{{- end -}}
{{- range $name := list "token_file" "password_file" "ca_file" -}}
{{- $file := (default dict $values.config).prometheus | default dict | dig $name "" | default "" -}}
{{- if and (hasPrefix "/etc/peerwatch-prometheus/" $file) (not $values.prometheusSecret) -}}
{{- $found = append $found (printf "reliability.config.prometheus.%s: %s is not there while reliability.prometheusSecret is empty; name the Secret." $name $file) -}}
{{- end -}}
{{- end -}}
{{- $found = concat $found (include "peerwatch.mistakes.pod" (list "reliability" $values) | fromYamlArray) -}}
{{- toYaml $found -}}
{{- end }}

{{- define "peerwatch.mistakes.rules" -}}
{{- $found := list -}}
{{- $rules := .Values.rules -}}
{{- $known := include "peerwatch.rules.alerts" . | fromJsonArray -}}
{{- range $name, $change := $rules.alerts -}}
{{- if not (has $name $known) -}}
{{- $found = append $found (printf "rules.alerts.%s: there is no such alert; there are %s." $name (join ", " $known)) -}}
{{- end -}}
{{- $path := printf "rules.alerts.%s" $name -}}
{{- if hasKey $change "for" -}}
{{- $found = concat $found (include "peerwatch.mistakes.duration" (dict "path" (print $path ".for") "value" (get $change "for")) | fromYamlArray) -}}
{{- end -}}
{{- if hasKey $change "keepFiringFor" -}}
{{- $least := "resolves the alert at the first missing sample, and pages again with the next; more than 0, such as the 10m of a cause (docs/rules.md#timing), or omit it to keep the rule's own." -}}
{{- $found = concat $found (include "peerwatch.mistakes.duration" (dict "path" (print $path ".keepFiringFor") "value" $change.keepFiringFor "least" $least) | fromYamlArray) -}}
{{- end -}}
{{- $found = concat $found (include "peerwatch.mistakes.alertLabels" (list (print $path ".labels") (default dict $change.labels)) | fromYamlArray) -}}
{{- end -}}
{{- $found = concat $found (include "peerwatch.mistakes.alertLabels" (list "rules.alertLabels" $rules.alertLabels) | fromYamlArray) -}}
{{- $found = concat $found (include "peerwatch.mistakes.labels" (list "rules.labels" $rules.labels) | fromYamlArray) -}}
{{- if and $rules.enabled (not $rules.recording) .Values.detector.enabled .Values.prometheus.recorded (ne .Values.preset "fast") -}}
{{- $found = append $found "prometheus.recorded: is true, but rules.recording is false, so the series that the detector would read are not recorded; set both to the same value." -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* "true" if a setting such as web.config_file is given. Argument: (list config path). */}}
{{- define "peerwatch.has" -}}
{{- $keys := splitList "." (last .) -}}
{{- $section := default dict (first .) -}}
{{- range initial $keys -}}
{{- $section = default dict (get $section .) -}}
{{- if not (kindIs "map" $section) }}{{ $section = dict }}{{ end -}}
{{- end -}}
{{- if hasKey $section (last $keys) }}true{{ end -}}
{{- end }}

{{/* A monitor that speaks TLS to a program that does not. Argument: (list program values). */}}
{{- define "peerwatch.mistakes.scheme" -}}
{{- $found := list -}}
{{- $program := index . 0 -}}
{{- $values := index . 1 -}}
{{- if and (eq $values.monitor.scheme "https") (not $values.webConfigSecret) -}}
{{- $found = append $found (printf "%s.monitor.scheme: is \"https\", but %s.webConfigSecret is empty, so its pods serve plain HTTP; set both or neither." $program $program) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}
