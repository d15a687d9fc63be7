{{/*
The sidecar as other charts use it. They depend on this chart with `server.enabled: false`, and give each of these
templates the context of this chart, (index .Subcharts "bronze-sidecar"). An example is in helm/examples/own-server.
*/}}

{{/* The addresses of config.listen, as lines. */}}
{{- define "bronze-sidecar.listen" -}}
{{- $listen := .Values.config.listen -}}
{{- if kindIs "string" $listen -}}{{- $listen = splitList "," $listen -}}{{- end -}}
{{- range $listen }}{{ trim . }}
{{ end -}}
{{- end -}}

{{/* The first unix socket's path; empty if there is none. */}}
{{- define "bronze-sidecar.socket" -}}
{{- regexFind "(?m)^unix://.+$" (include "bronze-sidecar.listen" .) | trimPrefix "unix://" -}}
{{- end -}}

{{/* The port of the first address that others than this pod can reach; empty if there is none. */}}
{{- define "bronze-sidecar.grpcPort" -}}
{{- $reachable := regexReplaceAll "(?m)^(unix:|127\\.|localhost:|\\[::1\\]).*$" (include "bronze-sidecar.listen" .) "" -}}
{{- regexFind "(?m)[0-9]+$" $reachable -}}
{{- end -}}

{{- define "bronze-sidecar.adminPort" -}}
{{- regexFind "[0-9]+$" (.Values.config.admin_listen | default "127.0.0.1:9464") -}}
{{- end -}}

{{/* Time for the server, then for the sidecar, then for Kubernetes itself. */}}
{{- define "bronze-sidecar.terminationGracePeriodSeconds" -}}
{{- $grace := 25 -}}
{{- if hasKey .Values.config "grace_seconds" -}}{{- $grace = .Values.config.grace_seconds -}}{{- end -}}
{{- add .Values.server.graceSeconds (ceil $grace | int64) 5 -}}
{{- end -}}

{{/* Makes pods start anew when the configuration changes, which the sidecar reads once. */}}
{{- define "bronze-sidecar.podAnnotations" -}}
checksum/bronze-sidecar-config: {{ toYaml .Values.config | sha256sum }}
{{- end -}}

{{/* The group lets the server use the socket; who the server's user is, is its own affair. */}}
{{- define "bronze-sidecar.podSecurityContext" -}}
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The user of our images. */}}
{{- define "bronze-sidecar.user" -}}
runAsUser: 10001
runAsGroup: 10001
{{- end -}}

{{/* For pods of our images alone: include "bronze-sidecar.ownPodSecurityContext" (list . .Values.podSecurityContext) */}}
{{- define "bronze-sidecar.ownPodSecurityContext" -}}
{{- $own := merge (dict "runAsNonRoot" true) (include "bronze-sidecar.user" . | fromYaml) (include "bronze-sidecar.podSecurityContext" . | fromYaml) -}}
{{- mergeOverwrite $own (index . 1) | toYaml -}}
{{- end -}}

{{- define "bronze-sidecar.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* What tells the server where the sidecar is. */}}
{{- define "bronze-sidecar.serverEnv" -}}
- name: BRONZE_SIDECAR_ADDRESS
  value: unix://{{ include "bronze-sidecar.socket" . }}
{{- if .Values.server.hook }}
- name: NODE_OPTIONS
  value: --require bronze-sidecar-client/tardis-machine
# Whatever is in server.env comes later, and wins.
- name: BRONZE_SIDECAR_FLUSH_MS
  value: {{ mul 1000 .Values.server.graceSeconds | quote }}
{{- end }}
{{- end -}}

{{- define "bronze-sidecar.serverVolumeMounts" -}}
- name: bronze-sidecar-socket
  mountPath: {{ include "bronze-sidecar.socket" . | dir }}
{{- end -}}

{{/* The sidecar's container: among initContainers if sidecar.native, otherwise among containers. */}}
{{- define "bronze-sidecar.container" -}}
{{- include "bronze-sidecar.check" . -}}
name: bronze-sidecar
image: {{ include "bronze-sidecar.image" (list . .Values.sidecar.image) }}
imagePullPolicy: {{ .Values.sidecar.image.pullPolicy }}
args: [run]
{{- if .Values.sidecar.native }}
restartPolicy: Always
{{- else }}
lifecycle:
  preStop:
    exec:
      # Both containers are told to stop at once; the server still sends what it has.
      command: [sleep, {{ .Values.server.graceSeconds | quote }}]
{{- end }}
env:
  - name: SIDECAR_CONFIG
    value: /etc/bronze-sidecar/config/config.yaml
  {{- if .Values.sidecar.spool.enabled }}
  - name: SIDECAR_SPOOL_DIR
    value: /var/spool/bronze-sidecar
  {{- end }}
  {{- if .Values.sidecar.deadLetters.enabled }}
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  # Pods that share a volume have a file each.
  - name: SIDECAR_DEAD_LETTER_FILE
    value: /var/lib/bronze-sidecar/dead-letters/$(POD_NAME).jsonl
  {{- end }}
  {{- with .Values.sidecar.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.existingSecret.environment }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
# Problems of the configuration are the last that is logged.
terminationMessagePolicy: FallbackToLogsOnError
ports:
  - name: admin
    containerPort: {{ include "bronze-sidecar.adminPort" . }}
  {{- with include "bronze-sidecar.grpcPort" . }}
  - name: grpc
    containerPort: {{ . }}
  {{- end }}
startupProbe:
  httpGet:
    path: /healthz
    port: admin
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet:
    path: /healthz
    port: admin
  timeoutSeconds: 5
{{- $paths := dict "reached" "/reached" "http" "/readyz" }}
{{- with get $paths .Values.sidecar.readiness }}
readinessProbe:
  httpGet:
    path: {{ . }}
    port: admin
  timeoutSeconds: 5
{{- end }}
{{- if eq .Values.sidecar.readiness "grpc" }}
readinessProbe:
  grpc:
    port: {{ include "bronze-sidecar.grpcPort" . }}
  timeoutSeconds: 5
{{- end }}
securityContext:
  {{- if not .Values.server.enabled }}
  {{- include "bronze-sidecar.user" . | nindent 2 }}
  {{- end }}
  {{- include "bronze-sidecar.securityContext" . | nindent 2 }}
resources:
  {{- toYaml .Values.sidecar.resources | nindent 2 }}
volumeMounts:
  - name: bronze-sidecar-config
    mountPath: /etc/bronze-sidecar/config
    readOnly: true
  {{- if .Values.existingSecret.files }}
  - name: bronze-sidecar-secrets
    mountPath: /etc/bronze-sidecar/secrets
    readOnly: true
  {{- end }}
  {{- include "bronze-sidecar.serverVolumeMounts" . | nindent 2 }}
  {{- if .Values.sidecar.spool.enabled }}
  - name: bronze-sidecar-spool
    mountPath: /var/spool/bronze-sidecar
  {{- end }}
  {{- if .Values.sidecar.deadLetters.enabled }}
  - name: bronze-sidecar-dead-letters
    mountPath: /var/lib/bronze-sidecar/dead-letters
  {{- end }}
  {{- with .Values.sidecar.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The sidecar's volumes. What is used if none is named is no default among the values, which would be merged with it. */}}
{{- define "bronze-sidecar.volumes" -}}
- name: bronze-sidecar-config
  configMap:
    name: {{ include "bronze-sidecar.fullname" . }}
- name: bronze-sidecar-socket
  emptyDir:
    sizeLimit: 1Mi
{{- if .Values.sidecar.spool.enabled }}
- name: bronze-sidecar-spool
  {{- .Values.sidecar.spool.volume | default (dict "emptyDir" dict) | toYaml | nindent 2 }}
{{- end }}
{{- if .Values.sidecar.deadLetters.enabled }}
- name: bronze-sidecar-dead-letters
  {{- .Values.sidecar.deadLetters.volume | default (dict "emptyDir" dict) | toYaml | nindent 2 }}
{{- end }}
{{- with .Values.existingSecret.files }}
- name: bronze-sidecar-secrets
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end -}}
