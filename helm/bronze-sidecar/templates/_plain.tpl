{{/*
What operators give in plain text: variables, arguments, annotations and the configuration. Manifests, `helm get values`
and the process list show it, so it must hold no secret; and a line break in it is a mistake, such as that of a file with
a newline at its end. Each template yields problems as lines, and never repeats a value.
*/}}

{{/* Names that mean a secret, wherever they end a name. */}}
{{- define "bronze-sidecar.secretWords" -}}
(?:password|passwd|pass|secret|token|api[-_.]?key|access[-_.]?key(?:[-_.]?id)?|secret[-_.]?(?:access[-_.]?)?key|private[-_.]?key)
{{- end -}}

{{/* The sidecar's options that hold secrets, as in a regular expression: `nats[-_]pass|…`. */}}
{{- define "bronze-sidecar.secretOptions" -}}
{{- $names := list -}}
{{- range $backend, $options := .Files.Get "files/secret-options.json" | fromJson -}}
{{- range $options -}}
{{- $names = append $names (printf "%s_%s" $backend . | replace "_" "[-_]") -}}
{{- end -}}
{{- end -}}
{{- join "|" $names -}}
{{- end -}}

{{/* Not empty if a value of any kind has a control character in it, or in a part of it. */}}
{{- define "bronze-sidecar.hasControl" -}}
{{- if regexMatch `\\(?:[bfnrt]|u00[01]|u202[89])|[\x7f-\x{9f}]` (toJson . | replace `\\` "") -}}yes{{- end -}}
{{- end -}}

{{/* Not empty if a text has a URL with a password, or one of NATS with a token. */}}
{{- define "bronze-sidecar.hasCredentials" -}}
{{- if regexMatch `://[^/@\s]*:[^/@\s]+@|(?i:nats|tls|wss?)://[^/@\s]+@` . -}}yes{{- end -}}
{{- end -}}

{{/* Not empty if an address without a scheme has a password or a token before it. */}}
{{- define "bronze-sidecar.hasAddressCredentials" -}}
{{- if regexMatch `[^/@\s,"]@` . -}}yes{{- end -}}
{{- end -}}

{{/* Not empty if a text gives a secret to a name: include "bronze-sidecar.givesSecret" (list . $text) */}}
{{- define "bronze-sidecar.givesSecret" -}}
{{- $known := printf `(?i:--|SIDECAR_)(?i:%s)` (include "bronze-sidecar.secretOptions" (index . 0)) -}}
{{- $words := include "bronze-sidecar.secretWords" . -}}
{{- $assigned := printf `(?i:(?:^|[-_.\s/"'])%s)=|[a-z](?:Password|Passwd|Secret|Token|ApiKey|AccessKey|SecretKey|PrivateKey)=` $words -}}
{{- $flag := printf `(?:^|\s)--?(?:[\w.-]*[-_.])?(?i:%s)\s+` $words -}}
{{/* Spark names Secrets like this, and a switch is no secret. */}}
{{- $text := regexReplaceAll `(?:secretKeyRef\.[\w.-]+=|secrets\.[\w.-]+=/|=(?:true|false)\b)` (index . 1) " " -}}
{{- if regexMatch (printf `(?:%s=|%s)["']?[^\s"']|(?:%s\s+|%s)["']?[^\s"'-]` $known $assigned $known $flag) $text -}}yes{{- end -}}
{{- end -}}

{{/* Variables: include "bronze-sidecar.envProblems" (dict "root" . "where" "server.env" "env" … "secret" "server.existingSecret") */}}
{{- define "bronze-sidecar.envProblems" -}}
{{- $known := printf `^(?i:SIDECAR_)(?i:%s)$` (include "bronze-sidecar.secretOptions" .root) -}}
{{- $general := printf `(?i:(?:^|_)%s)$` (include "bronze-sidecar.secretWords" .) -}}
{{- range $index, $entry := .env -}}
{{- $value := $entry.value | default "" | toString -}}
{{/* What Kubernetes takes from another variable is not in the manifest. */}}
{{- $plain := regexReplaceAll `\$\([^()]+\)` $value "" -}}
{{- if include "bronze-sidecar.hasControl" $entry.name }}
{{ printf "%s[%d] has a control character in its name." $.where $index }}
{{- else if include "bronze-sidecar.hasControl" $value }}
{{ printf "%s: %s has a line break or another control character in its value: take it out, or take the value from a ConfigMap with valueFrom.configMapKeyRef if it is meant." $.where $entry.name }}
{{- end }}
{{- if and $plain (or (regexMatch $known $entry.name) (and (regexMatch $general $entry.name) (not (regexMatch `^(?:true|false)$` $plain)))) }}
{{ printf "%s: %s is a secret, which must not be in plain text: use valueFrom.secretKeyRef instead of value, or put it into the Secret that %s names." $.where $entry.name $.secret }}
{{- else if or (include "bronze-sidecar.hasCredentials" $plain) (and (regexMatch `^SIDECAR_(?:NATS_SERVERS|KAFKA_BROKERS|REDIS_HOST)$` $entry.name) (include "bronze-sidecar.hasAddressCredentials" $plain)) }}
{{ printf "%s: %s holds a password or token in plain text: use valueFrom.secretKeyRef instead of value, or put it into the Secret that %s names." $.where $entry.name $.secret }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Words of a command line: include "bronze-sidecar.argProblems" (dict "root" . "lists" (list (list "server.args" …)) "secret" …) */}}
{{- define "bronze-sidecar.argProblems" -}}
{{- $names := printf `^--?(?:(?i:%s)|(?:[\w.-]*[-_.])?(?i:%s))$` (include "bronze-sidecar.secretOptions" .root) (include "bronze-sidecar.secretWords" .) -}}
{{- $previous := "" -}}
{{- range $list := .lists -}}
{{- range $index, $given := index $list 1 -}}
{{- $word := toString $given -}}
{{- $where := printf "%s[%d]" (index $list 0) $index -}}
{{- $text := $word -}}
{{- $plain := regexReplaceAll `\$\([^()]+\)` $word "" -}}
{{/* A script has lines, and variables of the shell. */}}
{{- if regexMatch `^-[a-z]*c$` $previous -}}
{{- $text = regexReplaceAll `[\n\t]` $word " " -}}
{{- $plain = regexReplaceAll `\$(?:\w+|\{[^{}]*\})` $plain "" -}}
{{- end -}}
{{- if include "bronze-sidecar.hasControl" $text }}
{{ printf "%s has a line break or another control character, which no argument can mean: take it out." $where }}
{{- end }}
{{- if or (include "bronze-sidecar.givesSecret" (list $.root $plain)) (include "bronze-sidecar.hasCredentials" $plain) (and $plain (regexMatch $names $previous) (not (regexMatch `^(?:--.*|true|false)$` $plain))) }}
{{ printf "%s holds a secret in plain text, which manifests and process lists show: give it as a variable or file from a Secret, such as the one that %s names, and write $(NAME) if it must be an argument." $where $.secret }}
{{- end }}
{{- $previous = $word -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Annotations, which may have lines: include "bronze-sidecar.annotationProblems" (list . "podAnnotations" …) */}}
{{- define "bronze-sidecar.annotationProblems" -}}
{{- $root := index . 0 -}}
{{- $where := index . 1 -}}
{{- range $name, $value := index . 2 -}}
{{- if include "bronze-sidecar.hasControl" (list $name (regexReplaceAll `[\r\n\t]` $value " ")) }}
{{ printf "%s has a control character in %s." $where (regexReplaceAll `[^\w./-]` $name "?") }}
{{- end }}
{{- if or (include "bronze-sidecar.givesSecret" (list $root $value)) (include "bronze-sidecar.hasCredentials" $value) }}
{{ printf "%s: %s holds a secret in plain text: whoever may see the object sees it. Leave it out." $where $name }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The configuration, whose secrets are refused by name elsewhere. */}}
{{- define "bronze-sidecar.configProblems" -}}
{{- range $name, $value := . -}}
{{- $parts := ternary $value (dict "" $value) (kindIs "map" $value) -}}
{{- range $option, $content := $parts -}}
{{- $path := list "config" $name $option | compact | join "." -}}
{{- if include "bronze-sidecar.hasControl" $content }}
{{ printf "%s has a line break or another control character, which no option can mean: take it out." $path }}
{{- end }}
{{- if and (has $path (list "config.nats.servers" "config.kafka.brokers" "config.redis.host")) (include "bronze-sidecar.hasAddressCredentials" (regexReplaceAll `[a-z]+://[^\s,"]*` (toJson $content) "")) }}
{{ printf "%s holds a password or token, which a ConfigMap must not: leave it out and give it by existingSecret." $path }}
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* All of these. */}}
{{- define "bronze-sidecar.plainProblems" -}}
{{- $config := .Values.config | default dict -}}
{{- include "bronze-sidecar.configProblems" $config }}
{{ include "bronze-sidecar.envProblems" (dict "root" . "where" "sidecar.env" "env" .Values.sidecar.env "secret" "existingSecret.environment") }}
{{- range $part := list "server" "pipeline" }}
{{- $values := get $.Values $part }}
{{- $secret := printf "%s.existingSecret" $part }}
{{ include "bronze-sidecar.envProblems" (dict "root" $ "where" (printf "%s.env" $part) "env" $values.env "secret" $secret) }}
{{ include "bronze-sidecar.argProblems" (dict "root" $ "lists" (list (list (printf "%s.command" $part) $values.command) (list (printf "%s.args" $part) $values.args)) "secret" $secret) }}
{{- end }}
{{- range $field := list "extraInitContainers" "extraContainers" }}
{{- range $index, $container := get $.Values $field }}
{{- $where := printf "%s[%d]" $field $index }}
{{- $secret := printf "%s.envFrom" $where }}
{{ include "bronze-sidecar.envProblems" (dict "root" $ "where" (printf "%s.env" $where) "env" .env "secret" $secret) }}
{{ include "bronze-sidecar.argProblems" (dict "root" $ "lists" (list (list (printf "%s.command" $where) .command) (list (printf "%s.args" $where) .args)) "secret" $secret) }}
{{- end }}
{{- end }}
{{- with .Values.pipeline.maintenance }}
{{ include "bronze-sidecar.argProblems" (dict "root" $ "lists" (list (list "pipeline.maintenance.tables" .tables) (list "pipeline.maintenance.args" .args)) "secret" "pipeline.existingSecret") }}
{{- end }}
{{- range $path := list "startupProbe" "livenessProbe" "readinessProbe" "lifecycle.preStop" "lifecycle.postStart" }}
{{- $place := $.Values.server }}
{{- range splitList "." (printf "%s.exec" $path) }}
{{- $place = get $place . | default dict }}
{{- end }}
{{ include "bronze-sidecar.argProblems" (dict "root" $ "lists" (list (list (printf "server.%s.exec.command" $path) ($place.command | default list))) "secret" "server.existingSecret") }}
{{- end }}
{{ include "bronze-sidecar.annotationProblems" (list . "podAnnotations" .Values.podAnnotations) }}
{{ include "bronze-sidecar.annotationProblems" (list . "service.annotations" .Values.service.annotations) }}
{{ include "bronze-sidecar.annotationProblems" (list . "serviceAccount.annotations" .Values.serviceAccount.annotations) }}
{{- end -}}
