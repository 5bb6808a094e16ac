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

{{- define "pdserve.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "pdserve.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
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
securityContext:
  {{- include "pdserve.podSecurityContext" .root | nindent 2 }}
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
  terminationMessagePolicy: FallbackToLogsOnError
  resources:
    {{- toYaml .root.Values.resources | nindent 4 }}
  securityContext:
    {{- include "pdserve.securityContext" .root | nindent 4 }}
{{- end -}}
