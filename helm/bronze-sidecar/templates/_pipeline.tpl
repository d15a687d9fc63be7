{{/*
A CronJob of the pipeline's image. Takes root, name (also its component), schedule and containers, each with name,
command, args and resources.
*/}}
{{- define "bronze-sidecar.pipelineCronJob" -}}
{{- $root := .root -}}
{{- $pipeline := .root.Values.pipeline -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ include "bronze-sidecar.fullname" .root | trunc 43 | trimSuffix "-" }}-{{ .name }}
  labels:
    {{- include "bronze-sidecar.labels" .root | nindent 4 }}
spec:
  schedule: {{ .schedule | quote }}
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      backoffLimit: 2
      template:
        metadata:
          labels:
            {{- include "bronze-sidecar.labels" .root | nindent 12 }}
            app.kubernetes.io/component: {{ .name }}
        spec:
          restartPolicy: Never
          serviceAccountName: {{ include "bronze-sidecar.serviceAccountName" .root }}
          automountServiceAccountToken: false
          securityContext:
            {{- include "bronze-sidecar.podSecurityContext" .root | nindent 12 }}
          {{- with .root.Values.imagePullSecrets }}
          imagePullSecrets:
            {{- toYaml . | nindent 12 }}
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
