{{/*
Texts of a form that Kubernetes, Prometheus or its Operator refuse, often long after Helm said that all is well:
labels, quantities, durations. A schema could only answer with a regular expression. Each returns a list of sentences.
*/}}

{{/* Argument: (list path labels). The keys are those of peerwatch.labels, on which selectors and Helm itself rely. */}}
{{- define "peerwatch.mistakes.labels" -}}
{{- $found := list -}}
{{- $path := first . -}}
{{- $own := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "app.kubernetes.io/part-of" "helm.sh/chart" -}}
{{- $name := "([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)" -}}
{{- range $key, $value := last . -}}
{{- if has $key $own -}}
{{- $found = append $found (printf "%s: the label %s (%q) is set by the chart: selectors and Helm find the objects by it; use a key of your own, such as example.com/%s." $path $key $value (base $key)) -}}
{{- else if not (and (regexMatch (printf "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?%s$" $name) $key) (le (len (dir $key)) 253)) -}}
{{- $found = append $found (printf "%s: %q is no key of a label; at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends, after an optional domain and '/', such as example.com/team." $path $key) -}}
{{- else if not (regexMatch (printf "^%s?$" $name) $value) -}}
{{- $found = append $found (printf "%s.%s: %q is no value of a label; at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends; longer texts belong into annotations." $path $key $value) -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* Argument: (list path labels), of alerts. Routes and inhibitions of rules/alertmanager.example.yaml match these. */}}
{{- define "peerwatch.mistakes.alertLabels" -}}
{{- $found := list -}}
{{- $path := first . -}}
{{- range $key, $value := last . -}}
{{- if has $key (list "alertname" "severity" "role" "component" "node" "job_id") -}}
{{- $found = append $found (printf "%s: the label %s (%q) is set by the rules: routes and inhibitions match it; use a name of your own%s." $path $key $value (ternary ", or rules.alerts.NAME.severity" "" (eq $key "severity"))) -}}
{{- /* One value for all of them makes two alerts the same, and Prometheus then evaluates neither. */ -}}
{{- else if has $key (list "check" "gpu" "group" "instance" "job" "key" "kind" "level" "member" "method" "metric" "place" "reason" "result" "server") -}}
{{- $found = append $found (printf "%s: by the label %s (%q) rules tell their alerts apart; use a name of your own, such as team_%s." $path $key $value $key) -}}
{{- else if not (regexMatch "^[a-zA-Z_][a-zA-Z0-9_]*$" $key) -}}
{{- $found = append $found (printf "%s: %q is no name of a Prometheus label; letters, digits and '_', no digit first." $path $key) -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* Names of objects: those of Services may not start with a digit. */}}
{{- define "peerwatch.mistakes.names" -}}
{{- $found := list -}}
{{- range $path := list "nameOverride" "fullnameOverride" -}}
{{- $value := get $.Values $path -}}
{{- if and $value (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $value)) -}}
{{- $found = append $found (printf "%s: %q is no name of an object; lower-case letters, digits and '-', a letter first and no '-' last, such as peerwatch." $path $value) -}}
{{- end -}}
{{- end -}}
{{- $full := include "peerwatch.fullname" . -}}
{{- /* Helm takes names of releases such as 2024 and v1.2. */ -}}
{{- if not (or $found (regexMatch "^[a-z][-a-z0-9]*$" $full)) -}}
{{- $found = append $found (printf "fullnameOverride: is empty, and the release's name, %q, would make Services named %s-..., which Kubernetes refuses: lower-case letters, digits and '-', a letter first; set it, such as to peerwatch, or give the release another name." .Release.Name $full) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* ServiceAccounts that two programs would create, or that every namespace has. */}}
{{- define "peerwatch.mistakes.accounts" -}}
{{- $found := list -}}
{{- $creators := dict "default" "Kubernetes itself, in every namespace" -}}
{{- range $program := list "exporter" "detector" "checks" "responder" "reliability" -}}
{{- if and (index $.Values $program).enabled (index $.Values $program).serviceAccount.create -}}
{{- $name := include "peerwatch.serviceAccountName" (list $ $program) -}}
{{- with get $creators $name -}}
{{- $found = append $found (printf "%s.serviceAccount.create: is true, but the ServiceAccount %q is created by %s; set it to false, or choose another %s.serviceAccount.name." $program $name . $program) -}}
{{- end -}}
{{- $_ := set $creators $name (get $creators $name | default (printf "%s.serviceAccount" $program)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* Names of images, as container runtimes read them; a node says no more than InvalidImageName. */}}
{{- define "peerwatch.mistakes.images" -}}
{{- $found := list -}}
{{- $host := "([a-zA-Z0-9][-a-zA-Z0-9.]*|[[][0-9a-fA-F:]+[]])(:[0-9]+)?" -}}
{{- $part := "[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*" -}}
{{- with .Values.image.registry -}}
{{- if not (regexMatch (printf "^%s(/%s)*/?$" $host $part) .) -}}
{{- $found = append $found (printf "image.registry: %q is no beginning of an image's name; a host, with its port if it has one, and lower-case directories, without https://, such as registry.example.com/training." .) -}}
{{- end -}}
{{- end -}}
{{- range $program := list "exporter" "detector" "checks" "responder" "reliability" -}}
{{- $image := (index $.Values $program).image -}}
{{- if (index $.Values $program).enabled -}}
{{- if not (regexMatch (printf "^(%s/)?%s(/%s)*$" $host $part $part) $image.repository) -}}
{{- $found = append $found (printf "%s.image.repository: %q is no name of an image; lower-case letters, digits, '.', '_' and '-', and '/' between directories; its tag goes into %s.image.tag, a digest into %s.image.digest." $program $image.repository $program $program) -}}
{{- end -}}
{{- if and $image.tag (not (regexMatch "^[a-zA-Z0-9_][-a-zA-Z0-9_.]{0,127}$" $image.tag)) -}}
{{- $found = append $found (printf "%s.image.tag: %q is no tag; at most 128 letters, digits, '_', '.' and '-', the first neither '.' nor '-'." $program $image.tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* Argument: (list path resources). */}}
{{- define "peerwatch.mistakes.resources" -}}
{{- $found := list -}}
{{- $path := first . -}}
{{- $resources := default dict (last .) -}}
{{- $amounts := dict -}}
{{- range $part := list "requests" "limits" -}}
{{- range $resource, $value := default dict (get $resources $part) -}}
{{- $place := printf "%s.%s.%s" $path $part $resource -}}
{{- $amount := include "peerwatch.quantity" $value -}}
{{- if not $amount -}}
{{- $found = append $found (printf "%s: %q is no quantity; a number of at least 0, alone or with a unit, such as %s." $place (toString $value) (ternary "500m or 2 (CPUs)" "256Mi or 2Gi" (eq $resource "cpu"))) -}}
{{- else -}}
{{- $_ := set $amounts (print $part $resource) (float64 $amount) -}}
{{- $amount = float64 $amount -}}
{{- /* No program starts with less, no machine has more: a unit is missing, or that of the other resource. */ -}}
{{- if and (eq $resource "memory") (gt $amount 0.0) (lt $amount 1048576.0) -}}
{{- $found = append $found (printf "%s: %q is %v bytes; at least 1Mi; write Mi or Gi behind the number (m is a thousandth)." $place (toString $value) $amount) -}}
{{- end -}}
{{- if and (eq $resource "cpu") (gt $amount 1024.0) -}}
{{- $found = append $found (printf "%s: %q is %.0f CPUs, which no node has; at most 1024; write 500m for half of one." $place (toString $value) $amount) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $resource, $value := default dict $resources.requests -}}
{{- $request := get $amounts (print "requests" $resource) -}}
{{- $limit := get $amounts (print "limits" $resource) -}}
{{- if and (hasKey $amounts (print "requests" $resource)) (hasKey $amounts (print "limits" $resource)) -}}
{{- if gt $request $limit -}}
{{- $found = append $found (printf "%s.requests.%s: %q is more than %s.limits.%s, %q, which Kubernetes refuses; raise the limit too, or request less." $path $resource (toString $value) $path $resource (get $resources.limits $resource | toString)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* The number that a quantity of Kubernetes stands for (bytes, CPUs); empty if it is none, or below 0. */}}
{{- define "peerwatch.quantity" -}}
{{- $text := toString . -}}
{{- if regexMatch "^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$" $text -}}
{{- $number := regexFind "^[+]?[0-9.]+([eE][+-]?[0-9]+)?" $text -}}
{{- $factors := dict "" 1.0 "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- mulf (float64 $number) (get $factors (trimPrefix $number $text)) -}}
{{- end -}}
{{- end }}

{{/* A duration as Prometheus and its Operator read it. Argument: (dict "path" "value" "least"); least, if given, says why 0 is wrong. */}}
{{- define "peerwatch.mistakes.duration" -}}
{{- $found := list -}}
{{- if not .value -}}
{{- $found = append $found (printf "%s: is empty; give a duration, such as 90s or 1h30m." .path) -}}
{{- else if not (regexMatch "^(0|([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$" .value) -}}
{{- $found = append $found (printf "%s: %q is no duration; whole numbers, each with its unit of y, w, d, h, m, s and ms, the largest unit first, such as 90s or 1h30m." .path .value) -}}
{{- else if and .least (eq (include "peerwatch.seconds" .value | float64) 0.0) -}}
{{- $found = append $found (printf "%s: %q %s" .path .value .least) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* Argument: (list path monitor). */}}
{{- define "peerwatch.mistakes.times" -}}
{{- $found := list -}}
{{- $path := first . -}}
{{- $monitor := last . -}}
{{- $given := dict "interval" $monitor.interval -}}
{{- with $monitor.scrapeTimeout }}{{ $_ := set $given "scrapeTimeout" . }}{{ end -}}
{{- with $monitor.fast }}{{ $_ := set $given "fast.interval" .interval }}{{ end -}}
{{- range $name, $value := $given -}}
{{- $least := "means the interval of Prometheus itself, often 30s or a minute; at least 1ms, such as 1s." -}}
{{- if eq $name "scrapeTimeout" }}{{ $least = "is no time to answer in; at least 1ms, or leave it empty." }}{{ end -}}
{{- $found = concat $found (include "peerwatch.mistakes.duration" (dict "path" (printf "%s.%s" $path $name) "value" $value "least" $least) | fromYamlArray) -}}
{{- end -}}
{{- if and (not $found) $monitor.scrapeTimeout -}}
{{- if gt (include "peerwatch.seconds" $monitor.scrapeTimeout | float64) (include "peerwatch.seconds" $monitor.interval | float64) -}}
{{- $found = append $found (printf "%s.scrapeTimeout: %q is longer than the interval %q, which Prometheus refuses." $path $monitor.scrapeTimeout $monitor.interval) -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* Argument: (list "exporter" values). No container but a privileged one has NET_BIND_SERVICE, as root neither. */}}
{{- define "peerwatch.mistakes.port" -}}
{{- $found := list -}}
{{- $port := (last .).port -}}
{{- $usual := get (dict "exporter" "9400" "detector" "9401" "responder" "9402" "reliability" "9403") (first .) -}}
{{- $privileged := eq "privileged" (dig "privileges" "kernelLog" "" (last .) | toString) -}}
{{- if not $port -}}
{{- $found = append $found (printf "%s.port: is empty; give a port from 1024 to 65535, such as %s." (first .) $usual) -}}
{{- else if and (lt (int $port) 1024) (not $privileged) -}}
{{- $found = append $found (printf "%s.port: %v is below 1024, and the pod may not open such a port; choose another, such as %s%s." (first .) $port $usual (ternary "; detector.service.port may stay below" "" (eq (first .) "detector"))) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* What the values of any program that is scraped may get wrong. Argument: (list "exporter" values). */}}
{{- define "peerwatch.mistakes.pod" -}}
{{- $found := list -}}
{{- $program := first . -}}
{{- $values := last . -}}
{{- $found = concat $found (include "peerwatch.mistakes.port" . | fromYamlArray) -}}
{{- $found = concat $found (include "peerwatch.mistakes.labels" (list (printf "%s.podLabels" $program) $values.podLabels) | fromYamlArray) -}}
{{- $found = concat $found (include "peerwatch.mistakes.labels" (list (printf "%s.monitor.labels" $program) $values.monitor.labels) | fromYamlArray) -}}
{{- $found = concat $found (include "peerwatch.mistakes.resources" (list (printf "%s.resources" $program) $values.resources) | fromYamlArray) -}}
{{- if hasKey (default dict $values.podAnnotations) "checksum/config" -}}
{{- $found = append $found (printf "%s.podAnnotations: checksum/config (%q) is set by the chart, so that new settings make new pods; use a key of your own." $program (get $values.podAnnotations "checksum/config")) -}}
{{- end -}}
{{- $found = concat $found (include "peerwatch.mistakes.scheme" . | fromYamlArray) -}}
{{- $found = concat $found (include "peerwatch.mistakes.times" (list (printf "%s.monitor" $program) $values.monitor) | fromYamlArray) -}}
{{- toYaml $found -}}
{{- end }}
