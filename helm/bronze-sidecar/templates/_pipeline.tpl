{{/*
A CronJob of the pipeline's image. Takes root, name (also its component), values (its schedule and limits) and
containers, each with name, command, args and resources.
*/}}
{{- define "bronze-sidecar.pipelineCronJob" -}}
{{- $root := .root -}}
{{- $pipeline := .root.Values.pipeline -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  # A CronJob's name has 52 characters at most, because its jobs' names end with a number.
  name: {{ include "bronze-sidecar.fullname" .root | trunc (int (sub 51 (len .name))) | trimSuffix "-" }}-{{ .name }}
  labels:
    {{- include "bronze-sidecar.labels" .root | nindent 4 }}
spec:
  schedule: {{ .values.schedule | quote }}
  {{- with $pipeline.timeZone }}
  timeZone: {{ . }}
  {{- end }}
  concurrencyPolicy: Forbid
  {{- range $field := list "suspend" "startingDeadlineSeconds" "successfulJobsHistoryLimit" "failedJobsHistoryLimit" }}
  {{- with include "bronze-sidecar.field" (list $.values $field) }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- end }}
  jobTemplate:
    spec:
      {{- range $field := list "activeDeadlineSeconds" "backoffLimit" "ttlSecondsAfterFinished" }}
      {{- with include "bronze-sidecar.field" (list $.values $field) }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- end }}
      template:
        metadata:
          labels:
            {{- include "bronze-sidecar.labelsWith" (list .root (dict "app.kubernetes.io/component" .name)) | nindent 12 }}
        spec:
          restartPolicy: Never
          serviceAccountName: {{ include "bronze-sidecar.serviceAccountName" .root }}
          automountServiceAccountToken: false
          securityContext:
            {{- include "bronze-sidecar.ownPodSecurityContext" (list .root $pipeline.podSecurityContext) | nindent 12 }}
          {{- with include "bronze-sidecar.imagePullSecrets" .root }}
          {{- . | nindent 10 }}
          {{- end }}
          {{- with $pipeline.priorityClassName }}
          priorityClassName: {{ . }}
          {{- end }}
          {{- range $field := list "nodeSelector" "tolerations" "affinity" }}
          {{- with get $pipeline $field }}
          {{ $field }}:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- end }}
          containers:
            {{- range .containers }}
            - name: {{ .name }}
              image: {{ include "bronze-sidecar.image" (list $root $pipeline.image) }}
              imagePullPolicy: {{ $pipeline.image.pullPolicy }}
              {{- with .command }}
              command:
                {{- toYaml . | nindent 16 }}
              {{- end }}
              args:
                {{- toYaml .args | nindent 16 }}
              {{- with $pipeline.env }}
              env:
                {{- toYaml . | nindent 16 }}
              {{- end }}
              {{- with $pipeline.existingSecret }}
              envFrom:
                - secretRef:
                    name: {{ . }}
              {{- end }}
              terminationMessagePolicy: FallbackToLogsOnError
              securityContext:
                {{- include "bronze-sidecar.securityContext" $root | nindent 16 }}
              resources:
                {{- toYaml .resources | nindent 16 }}
              volumeMounts:
                - name: tmp
                  mountPath: /tmp
                {{- with $pipeline.volumeMounts }}
                {{- toYaml . | nindent 16 }}
                {{- end }}
            {{- end }}
          volumes:
            - name: tmp
              emptyDir: {}
            {{- with $pipeline.volumes }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
{{- end -}}
