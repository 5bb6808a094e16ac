{{- define "pdserve.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains "pdserve" .Release.Name -}}
{{ .Release.Name | trunc 45 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-pdserve" .Release.Name | trunc 45 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "pdserve.operator" -}}
{{ include "pdserve.fullname" . }}-operator
{{- end -}}

{{- define "pdserve.selectorLabels" -}}
app.kubernetes.io/name: pdserve
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "pdserve.labels" -}}
app.kubernetes.io/name: pdserve
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "pdserve.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "pdserve.operator" .) "default" .Values.serviceAccount.create) }}
{{- end -}}

{{- define "pdserve.image" -}}
{{- with .Values.image -}}
{{- $registry := .registry | default (dig "imageRegistry" "" ($.Values.global | default dict)) -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "pdserve.routerRole" -}}
{{ include "pdserve.fullname" . }}-router
{{- end -}}

{{- define "pdserve.secretRule" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, update]
{{- end -}}

{{- /* What the cluster asks of every pod: names, volumes, identity. */ -}}
{{- define "pdserve.podFields" -}}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.extraVolumes }}
volumes:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* A pod of the operator's image that runs one subcommand to its end. */ -}}
{{- define "pdserve.checkPod" -}}
restartPolicy: Never
serviceAccountName: {{ include "pdserve.serviceAccount" .root }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "pdserve.podFields" .root | nindent 0 }}
containers:
- name: {{ .command }}
  image: {{ include "pdserve.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [pd-operator]
  args:
  - {{ .command }}
  {{- if .root.Values.namespaced }}
  - --namespace={{ .root.Release.Namespace }}
  {{- end }}
  {{- range .args }}
  - {{ . }}
  {{- end }}
  {{- with .root.Values.extraEnv }}
  env:
    {{- toYaml . | nindent 2 }}
  {{- end }}
  terminationMessagePolicy: FallbackToLogsOnError
  resources:
    {{- toYaml .root.Values.resources | nindent 4 }}
  {{- with .root.Values.extraVolumeMounts }}
  volumeMounts:
    {{- toYaml . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- toYaml .root.Values.securityContext | nindent 4 }}
{{- end -}}
