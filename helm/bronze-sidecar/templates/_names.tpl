{{- define "bronze-sidecar.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "bronze-sidecar.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "bronze-sidecar.labels" -}}
{{- include "bronze-sidecar.labelsWith" (list . dict) -}}
{{- end -}}

{{/* Labels with more of them, which do not replace ours: include "bronze-sidecar.labelsWith" (list . $labels) */}}
{{- define "bronze-sidecar.labelsWith" -}}
{{- $root := index . 0 -}}
{{- $own := include "bronze-sidecar.selectorLabels" $root | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- merge $own (index . 1) $root.Values.commonLabels | toYaml -}}
{{- end -}}

{{/* A field that may be zero, and is left out if it is null: include "bronze-sidecar.field" (list $values "field") */}}
{{- define "bronze-sidecar.field" -}}
{{- $value := get (index . 0) (index . 1) -}}
{{- if not (has ($value | toString) (list "" "<nil>")) -}}
{{- /* Large numbers would be written as powers of ten. */ -}}
{{ index . 1 }}: {{ kindIs "bool" $value | ternary $value (int64 $value) }}
{{- end -}}
{{- end -}}

{{/* Labels of every pod with this sidecar in it, whichever chart makes the pod. */}}
{{- define "bronze-sidecar.podLabels" -}}
bronze-sidecar: {{ include "bronze-sidecar.fullname" . | quote }}
{{- end -}}

{{/* Labels of the pod that `helm test` runs. */}}
{{- define "bronze-sidecar.testLabels" -}}
{{ include "bronze-sidecar.selectorLabels" . }}
app.kubernetes.io/component: test
{{- end -}}

{{- define "bronze-sidecar.servicePorts" -}}
{{- range .Values.server.ports -}}
{{- $port := dict "name" .name "port" .containerPort "targetPort" .name }}
{{- with .protocol }}{{- $_ := set $port "protocol" . }}{{- end -}}
- {{ mergeOverwrite $port (get $.Values.service.ports .name | default dict) | toYaml | nindent 2 | trim }}
{{ end }}
{{- end -}}

{{- define "bronze-sidecar.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "bronze-sidecar.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* An image's name: include "bronze-sidecar.image" (list . .Values.sidecar.image) */}}
{{- define "bronze-sidecar.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := (dig "imageRegistry" "" ($root.Values.global | default dict)) | default $image.registry -}}
{{- $name := list $registry $image.repository | compact | join "/" -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Images in use that no registry is named for and that are in no public one, as lines. */}}
{{- define "bronze-sidecar.unpullable" -}}
{{- $pipeline := .Values.pipeline -}}
{{- $images := list .Values.sidecar.image -}}
{{- if .Values.server.enabled -}}{{- $images = append $images .Values.server.image -}}{{- end -}}
{{- if or $pipeline.enabled $pipeline.maintenance.enabled -}}{{- $images = append $images $pipeline.image -}}{{- end -}}
{{- $names := list -}}
{{- range $images -}}{{- $names = append $names (include "bronze-sidecar.image" (list $ .)) -}}{{- end -}}
{{- range uniq $names -}}
{{- if not (contains "/" .) }}
{{ . }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "bronze-sidecar.imagePullSecrets" -}}
{{- with concat (dig "imagePullSecrets" list (.Values.global | default dict)) .Values.imagePullSecrets | uniq -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}
