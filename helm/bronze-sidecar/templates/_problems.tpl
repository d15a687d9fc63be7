{{/*
Values that are right one by one, and would fail later: when Kubernetes gets the objects, or when the sidecar starts.
Each template yields problems as lines, with the remedy.
*/}}

{{/* Names of the variables in sidecar.env that are not empty, as lines. */}}
{{- define "bronze-sidecar.variables" -}}
{{- range .Values.sidecar.env }}{{ if or .value .valueFrom }}{{ .name }}
{{ end }}{{ end -}}
{{- end -}}

{{/* Back ends that have some of their options and not all that they need. */}}
{{- define "bronze-sidecar.backendProblems" -}}
{{- $secrets := .Files.Get "files/secret-options.json" | fromJson -}}
{{- $variables := include "bronze-sidecar.variables" . -}}
{{- range $backend, $needs := .Files.Get "files/required-options.json" | fromJson -}}
{{- $prefix := printf "SIDECAR_%s_" (upper $backend) -}}
{{- $given := list -}}
{{- range $name, $value := get $.Values.config $backend | default dict -}}
{{- if not (empty $value) -}}{{- $given = append $given (trimSuffix "_file" $name) -}}{{- end -}}
{{- end -}}
{{- range regexFindAll (printf "(?m)^%s.*$" $prefix) $variables -1 -}}
{{- $given = append $given (trimPrefix $prefix . | lower | trimSuffix "_file") -}}
{{- end -}}
{{/* Any of them may be in the Secret, which is not seen here: servers with a token in their URL must be. */}}
{{- range $options := ternary $needs list (and (not (empty $given)) (not $.Values.existingSecret.environment)) -}}
{{- $found := false -}}
{{- $ways := list -}}
{{- range $name := $options -}}
{{- $secret := has $name (get $secrets $backend | default list) -}}
{{- if has $name $given -}}{{- $found = true -}}{{- end -}}
{{- $ways = append $ways (ternary (printf "%s%s in the Secret that existingSecret.environment names" $prefix (upper $name)) (printf "config.%s.%s" $backend $name) $secret) -}}
{{- end -}}
{{- if not $found }}
{{ printf "config.%s is half configured: it has no %s. Add %s." $backend (first $options) (join ", or " $ways) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The sidecar's own mounts, as JSON: its volumes' names by path. */}}
{{- define "bronze-sidecar.ownMounts" -}}
{{- $mounts := dict "/etc/bronze-sidecar/config" "bronze-sidecar-config" -}}
{{- $_ := set $mounts (include "bronze-sidecar.socket" . | dir) "bronze-sidecar-socket" -}}
{{- if .Values.existingSecret.files -}}{{- $_ := set $mounts "/etc/bronze-sidecar/secrets" "bronze-sidecar-secrets" -}}{{- end -}}
{{- if .Values.sidecar.spool.enabled -}}{{- $_ := set $mounts "/var/spool/bronze-sidecar" "bronze-sidecar-spool" -}}{{- end -}}
{{- if .Values.sidecar.deadLetters.enabled -}}{{- $_ := set $mounts "/var/lib/bronze-sidecar/dead-letters" "bronze-sidecar-dead-letters" -}}{{- end -}}
{{- toJson $mounts -}}
{{- end -}}

{{/* Not empty if a path is in one of the folders: include "bronze-sidecar.isIn" (list $path $folders) */}}
{{- define "bronze-sidecar.isIn" -}}
{{- $path := clean (index . 0) -}}
{{- range index . 1 -}}{{- if or (eq $path .) (hasPrefix (printf "%s/" .) $path) -}}yes{{- end -}}{{- end -}}
{{- end -}}

{{/* Files of the sidecar that are where it cannot write, or where its folder hides something. */}}
{{- define "bronze-sidecar.folderProblems" -}}
{{- $own := include "bronze-sidecar.ownMounts" . | fromJson -}}
{{- $folder := include "bronze-sidecar.socket" . | dir -}}
{{- $folders := keys $own -}}
{{- range .Values.sidecar.volumeMounts -}}{{- $folders = append $folders (clean .mountPath) -}}{{- end -}}
{{- $example := "unix:///run/bronze-sidecar/sidecar.sock" -}}
{{- if regexMatch `^/(?:home|media|mnt|root|run|srv|tmp|var(?:/[^/]*)?|(?:bin|boot|dev|etc|lib|lib32|lib64|opt|proc|sbin|sys|usr)(?:/.*)?)?$` $folder }}
{{ printf "config.listen: the folder of the socket, %s, is mounted into both containers and would hide what is there: give the socket a folder of its own, such as %s." $folder $example }}
{{- end -}}
{{- range regexFindAll "(?m)^unix:.*$" (include "bronze-sidecar.listen" .) -1 -}}
{{- $path := trimPrefix "unix://" . -}}
{{- if not (hasPrefix "/" $path) }}
{{ printf "config.listen: %s is no socket: write %s." . $example }}
{{- else if gt (len $path) 107 }}
{{ printf "config.listen: the path of the socket %s is longer than 107 bytes: choose a shorter one." $path }}
{{- else if not (include "bronze-sidecar.isIn" (list $path $folders)) }}
{{ printf "config.listen: nothing is mounted at %s, and the root file system is read-only: put the socket beside the first, into %s." (dir $path) $folder }}
{{- end -}}
{{- end -}}
{{- range $option, $switch := dict "spool_dir" "sidecar.spool.enabled" "dead_letter_file" "sidecar.deadLetters.enabled" -}}
{{- $path := get $.Values.config $option -}}
{{- if and $path (not (include "bronze-sidecar.isIn" (list $path (without $folders $folder)))) }}
{{ printf "config.%s is %s, where no volume is mounted, and the root file system is read-only: leave it out and set %s, or mount a volume there with sidecar.volumeMounts." $option $path $switch }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Mounts of one container: dict "where" … "mounts" … "taken" (paths of other mounts) "volumes" (names, or nothing if they are not known) */}}
{{- define "bronze-sidecar.mountProblems" -}}
{{- $taken := .taken -}}
{{- range .mounts -}}
{{- $path := clean .mountPath -}}
{{- if eq $path "/" }}
{{ printf "%s mounts %s over the root of the image: mount it into a folder." $.where .name }}
{{- else if has $path $taken }}
{{ printf "%s mounts a second volume at %s: choose another folder." $.where $path }}
{{- end -}}
{{- $taken = append $taken $path -}}
{{- if and $.volumes (not (has .name $.volumes)) }}
{{ printf "%s mounts %s, which is not among the volumes: add it." $.where .name }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Containers of one name, of which Kubernetes would take none. */}}
{{- define "bronze-sidecar.containerProblems" -}}
{{- $names := list "server" "bronze-sidecar" -}}
{{- range $field := list "extraInitContainers" "extraContainers" -}}
{{- range get $.Values $field -}}
{{- if has .name $names }}
{{ printf "%s: the name %s is there twice, or is one of the chart's own: choose another." $field .name }}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Volumes, and what mounts them. The pods of another chart have volumes of its own. */}}
{{- define "bronze-sidecar.volumeProblems" -}}
{{- $own := include "bronze-sidecar.ownMounts" . | fromJson -}}
{{- $volumes := list -}}
{{- if .Values.server.enabled -}}
{{- $volumes = values $own -}}
{{- range .Values.volumes -}}
{{- if has .name $volumes }}
{{ printf "volumes has %s twice, or it is one of the chart's own: choose another name." .name }}
{{- end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{ include "bronze-sidecar.mountProblems" (dict "where" "server.volumeMounts" "mounts" .Values.server.volumeMounts "taken" (list (include "bronze-sidecar.socket" . | dir)) "volumes" $volumes) }}
{{- end }}
{{ include "bronze-sidecar.mountProblems" (dict "where" "sidecar.volumeMounts" "mounts" .Values.sidecar.volumeMounts "taken" (keys $own) "volumes" $volumes) }}
{{- $names := list "tmp" -}}
{{- range .Values.pipeline.volumes -}}{{- $names = append $names .name -}}{{- end }}
{{ include "bronze-sidecar.mountProblems" (dict "where" "pipeline.volumeMounts" "mounts" .Values.pipeline.volumeMounts "taken" (list "/tmp") "volumes" $names) }}
{{- end -}}

{{/* Queues on disk that nothing uses, that have no disk, or that two pods would share. */}}
{{- define "bronze-sidecar.spoolProblems" -}}
{{- $spool := .Values.sidecar.spool -}}
{{- $variables := include "bronze-sidecar.variables" . -}}
{{- $spilling := "" -}}
{{- $queues := 0 -}}
{{- range $backend, $_ := .Files.Get "files/required-options.json" | fromJson -}}
{{- if eq (get (get $.Values.config $backend | default dict) "when_full" | default "wait") "spill" -}}{{- $spilling = printf "config.%s.when_full" $backend -}}{{- $queues = add1 $queues -}}{{- end -}}
{{- end -}}
{{- $elsewhere := or .Values.existingSecret.environment (regexMatch "(?m)^SIDECAR_[A-Z]+_WHEN_FULL$" $variables) -}}
{{- $disk := or $spool.enabled .Values.config.spool_dir (regexMatch "(?m)^SIDECAR_SPOOL_DIR$" $variables) -}}
{{- if and $spilling (not $disk) }}
{{ printf "%s is spill, and there is no disk for it: set sidecar.spool.enabled." $spilling }}
{{- else if and $spool.enabled (not $spilling) (not $elsewhere) }}
{{ "sidecar.spool.enabled has no effect on its own, and the sidecar refuses that: set config.<back end>.when_full to spill." }}
{{- end -}}
{{/* Kubernetes ends a pod that takes more, and what waits there is gone. */}}
{{- if and $spool.enabled (or (not $spool.volume) (hasKey $spool.volume "emptyDir")) -}}
{{- $each := include "bronze-sidecar.bytes" (.Values.config.spool_max_bytes | default 1073741824) | int64 -}}
{{- $needed := mul 2 $each $queues -}}
{{- $server := dig "limits" "ephemeral-storage" 0 .Values.server.resources -}}
{{- $limits := dict "sidecar.spool.volume.emptyDir.sizeLimit" (list (dig "emptyDir" "sizeLimit" 0 $spool.volume)) -}}
{{- $_ := set $limits "sidecar.resources.limits.ephemeral-storage" (list (dig "limits" "ephemeral-storage" 0 .Values.sidecar.resources) $server) -}}
{{- range $name, $sizes := $limits -}}
{{- $room := 0 -}}
{{- if first $sizes -}}{{- range $sizes -}}{{- $room = include "bronze-sidecar.bytes" . | int64 | add $room -}}{{- end -}}{{- end -}}
{{- if and $room (lt $room $needed) }}
{{ printf "%s is %v, and queues on disk may take %d MiB: Kubernetes would evict the pod, with what waits there. Raise it, or lower config.spool_max_bytes, of which a queue takes twice as much." $name (first $sizes) (div $needed 1048576) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $spilling (gt (int64 (.Values.config.workers | default 1)) 1) }}
{{ printf "%s is spill, and several workers cannot share a queue on disk: leave config.workers out." $spilling }}
{{- end -}}
{{- if and $spool.enabled .Values.server.enabled (get $spool.volume "persistentVolumeClaim") -}}
{{- if or (ne (toString .Values.replicas) "1") (ne (get .Values.strategy "type" | default "") "Recreate") }}
{{ "sidecar.spool.volume is one claim for all pods, and a queue on disk belongs to one sidecar at a time: use replicas 1 with strategy.type Recreate, an ephemeral volume or emptyDir, or a StatefulSet of your own (helm/examples/own-server)." }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A number of bytes such as 512Mi or 1.5G; 0 if it is not understood. */}}
{{- define "bronze-sidecar.bytes" -}}
{{- $text := kindIs "string" . | ternary (toString .) (int64 . | toString) -}}
{{- $units := dict "" 1 "k" 1000 "m" 1000000 "g" 1000000000 "t" 1000000000000 "ki" 1024 "mi" 1048576 "gi" 1073741824 "ti" 1099511627776 -}}
{{- $number := regexFind `^[0-9]+(?:\.[0-9]+)?` $text -}}
{{- $unit := trimPrefix $number $text | trim | lower | trimSuffix "b" -}}
{{- if and $number (hasKey $units $unit) -}}{{- mulf $number (get $units $unit) | int64 -}}{{- else -}}0{{- end -}}
{{- end -}}

{{/* Bounds of what waits that the memory cannot hold. */}}
{{- define "bronze-sidecar.memoryProblems" -}}
{{- $mebibyte := 1048576 -}}
{{- $own := mul 128 $mebibyte -}}
{{- $config := .Values.config -}}
{{- $limit := dig "limits" "memory" "" .Values.sidecar.resources | default "" -}}
{{- $container := include "bronze-sidecar.bytes" $limit | int64 -}}
{{- $given := include "bronze-sidecar.bytes" ($config.memory_limit | default "") | int64 -}}
{{- if and $container (lt $container (mul 192 $mebibyte)) }}
{{ printf "sidecar.resources.limits.memory is %v, and the sidecar needs 192Mi: raise it." $limit }}
{{- end -}}
{{- if and $container (gt $given $container) }}
{{ printf "config.memory_limit is above sidecar.resources.limits.memory, %v, at which the sidecar would be killed: leave it out, and the limit counts." $limit }}
{{- end -}}
{{- $memory := or $given $container (mul 512 $mebibyte) -}}
{{/* A variable beats the file; its value is not looked at. */}}
{{- if not (regexMatch "(?m)^SIDECAR_MEMORY_LIMIT$" (include "bronze-sidecar.variables" .)) -}}
{{- $workers := int64 ($config.workers | default 1) -}}
{{- $least := add (mul $workers 192) 64 | mul $mebibyte -}}
{{- if and (gt $workers 1) (lt $memory $least) }}
{{ printf "config.workers is %d, which needs %d MiB, and the sidecar may use %d MiB: raise sidecar.resources.limits.memory, or have fewer." $workers (div $least $mebibyte) (div $memory $mebibyte) }}
{{- else if gt $workers 1 -}}
{{- $memory = div (sub $memory (mul 64 $mebibyte)) $workers -}}
{{- end -}}
{{/* An event takes about this much beside its envelope. */}}
{{- $queue := add (int64 ($config.max_queue_bytes | default 0)) (mul 671 (int64 ($config.max_queue_events | default 0))) -}}
{{- if gt (add $queue $own) $memory }}
{{ printf "config.max_queue_bytes and config.max_queue_events let about %d MiB wait for one back end, beside 128 MiB for the process, and it may use %d MiB: leave them out, and they follow from the memory, or raise sidecar.resources.limits.memory." (div $queue $mebibyte) (div $memory $mebibyte) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Ports that are not there, are taken, or are not allowed. */}}
{{- define "bronze-sidecar.portProblems" -}}
{{- if .Values.server.enabled -}}
{{- $service := .Values.service -}}
{{- $names := list -}}
{{- $numbers := list (include "bronze-sidecar.adminPort" .) (include "bronze-sidecar.grpcPort" .) -}}
{{- range .Values.server.ports -}}
{{- $number := int .containerPort | toString -}}
{{- $place := eq (.protocol | default "TCP") "TCP" | ternary $number (printf "%s/%s" $number .protocol) -}}
{{- if or (has $place $numbers) (has .name $names) }}
{{ printf "server.ports: the port %s, %s, is there twice, or is one of the sidecar's (config.admin_listen, config.listen): choose another." .name $number }}
{{- end -}}
{{- $names = append $names .name -}}
{{- $numbers = append $numbers $place -}}
{{- end -}}
{{- if and .Values.server.hook (not .Values.server.readinessProbe) (not (has "http" $names)) }}
{{ "server.ports has no port http, which tardis-machine is asked at: name it so, or set server.readinessProbe." }}
{{- end -}}
{{- if $service.enabled -}}
{{- if not $names }}
{{ "service.enabled is on, and server.ports is empty: add the server's ports, or set service.enabled to false." }}
{{- end -}}
{{- range $name, $port := $service.ports -}}
{{- if not (has $name $names) }}
{{ printf "service.ports.%s is not among server.ports: those are %s." $name (join ", " $names) }}
{{- end -}}
{{- if and (get $port "nodePort") (eq $service.type "ClusterIP") }}
{{ printf "service.ports.%s.nodePort needs service.type NodePort or LoadBalancer." $name }}
{{- end -}}
{{- end -}}
{{- if and $service.externalTrafficPolicy (eq $service.type "ClusterIP") }}
{{ "service.externalTrafficPolicy needs service.type NodePort or LoadBalancer." }}
{{- end -}}
{{- range $field := list "loadBalancerClass" "loadBalancerSourceRanges" -}}
{{- if and (get $service $field) (ne $service.type "LoadBalancer") }}
{{ printf "service.%s needs service.type LoadBalancer." $field }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
