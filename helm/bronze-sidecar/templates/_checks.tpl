{{/* What the schema cannot say of values; all problems at once. */}}
{{- define "bronze-sidecar.check" -}}
{{- $config := .Values.config | default dict -}}
{{- $problems := list -}}
{{- range $backend, $names := .Files.Get "files/secret-options.json" | fromJson -}}
{{- range $name := $names -}}
{{- if hasKey (get $config $backend | default dict) $name -}}
{{- $variable := printf "SIDECAR_%s_%s" $backend $name | upper -}}
{{- $problems = append $problems (printf "config.%s.%s is a secret, which a ConfigMap must not hold: put it into a Secret as %s and name that in existingSecret.environment, or use %s_file with existingSecret.files." $backend $name $variable $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "bronze-sidecar.hasCredentials" (toYaml $config) -}}
{{- $problems = append $problems "config holds a URL with a password or token, which a ConfigMap must not: leave it out and give it by existingSecret." -}}
{{- end -}}
{{- $kinds := list "plain" "backend" "container" "spool" "memory" "port" -}}
{{- if include "bronze-sidecar.socket" . -}}
{{- $kinds = concat $kinds (list "folder" "volume") -}}
{{- else -}}
{{- $problems = append $problems "config.listen has no unix socket, through which the server sends: add unix:///run/bronze-sidecar/sidecar.sock." -}}
{{- end -}}
{{- range $kind := $kinds -}}
{{- range splitList "\n" (include (printf "bronze-sidecar.%sProblems" $kind) $) -}}
{{- if trim . -}}{{- $problems = append $problems (trim .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $admin := $config.admin_listen | default "127.0.0.1:9464" -}}
{{- if regexMatch "^(127\\.|localhost:|\\[::1\\])" $admin -}}
{{- $problems = append $problems (printf "config.admin_listen is %s, where probes and Prometheus do not reach it: use 0.0.0.0:9464." $admin) -}}
{{- else if not (include "bronze-sidecar.adminPort" .) -}}
{{- $problems = append $problems (printf "config.admin_listen is %s, which has no port: use 0.0.0.0:9464." $admin) -}}
{{- else if eq (include "bronze-sidecar.adminPort" .) (include "bronze-sidecar.grpcPort" .) -}}
{{- $problems = append $problems (printf "config.admin_listen and config.listen have the same port, %s: choose another for one of them." (include "bronze-sidecar.adminPort" .)) -}}
{{- end -}}
{{- if and (eq (get .Values.strategy "type" | default "") "Recreate") (get .Values.strategy "rollingUpdate") -}}
{{- $problems = append $problems "strategy.rollingUpdate does not go with strategy.type Recreate: leave it out." -}}
{{- end -}}
{{- if and .Values.sidecar.native (semverCompare "<1.29.0-0" .Capabilities.KubeVersion.Version) -}}
{{- $problems = append $problems (printf "sidecar.native needs Kubernetes 1.29, and this is %s: set it to false." .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and (eq .Values.sidecar.readiness "grpc") (not (and (include "bronze-sidecar.grpcPort" .) $config.insecure)) -}}
{{- $problems = append $problems "sidecar.readiness is grpc, which Kubernetes asks for without TLS: add 0.0.0.0:50051 to config.listen and set config.insecure, with networkPolicy.enabled." -}}
{{- end -}}
{{- if and .Values.monitoring.alerts.enabled (not .Values.monitoring.podMonitor.enabled) -}}
{{- $problems = append $problems "monitoring.alerts needs monitoring.podMonitor.enabled: without it there are no metrics to alert on." -}}
{{- end -}}
{{- if and .Values.pipeline.enabled (not .Values.pipeline.args) -}}
{{- $problems = append $problems "pipeline.args is empty: say what bronze-pipeline shall do." -}}
{{- end -}}
{{- if and .Values.pipeline.maintenance.enabled (not .Values.pipeline.maintenance.tables) -}}
{{- $problems = append $problems "pipeline.maintenance.tables is empty: name the tables." -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "wrong values:\n  - %s" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end -}}
