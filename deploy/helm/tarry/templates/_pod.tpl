{{- define "tarry.labels" -}}
{app.kubernetes.io/name: {{ .Release.Name }}}
{{- end }}

{{- define "tarry.server-labels" -}}
{app.kubernetes.io/name: {{ .Release.Name }}-server}
{{- end }}

{{- /* What pods of workers and of the server have in common, from `spec` on. */}}
{{- define "tarry.pod" -}}
# TERM comes first (the image's STOPSIGNAL): jobs finish for TERM_GRACE, then they are given back and run elsewhere.
terminationGracePeriodSeconds: {{ add .Values.termGrace 15 }}
enableServiceLinks: false
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tarry.container" -}}
image: {{ .Values.image | quote }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "tarry.env" -}}
- name: TARRY_STORE
  valueFrom:
    secretKeyRef: {name: {{ .Values.store.secret }}, key: {{ .Values.store.key }}}
- name: TARRY_MASTER__TERM_GRACE
  value: {{ .Values.termGrace | toString | quote }}
- name: TARRY_MASTER__LOG_FORMAT
  value: json
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "tarry.liveness" -}}
# Of this pod alone: it does not fail because a store is away, which no restart would mend.
livenessProbe:
  exec:
    command: [tarry, status]
  periodSeconds: 30
  timeoutSeconds: 10
  failureThreshold: 3
{{- end }}
