{{/* The name of every object of a release: the release's own. */}}
{{- define "skrull.name" -}}
{{ .Release.Name }}
{{- end }}

{{/* What selects the pods of a release; never changes. */}}
{{- define "skrull.selector" -}}
app.kubernetes.io/name: skrulld
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "skrull.labels" -}}
{{ include "skrull.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The options of the daemon, as a file. Helm itself would print a large number
with an exponent; JSON does not. */}}
{{- define "skrull.config" -}}
listen_address = 0.0.0.0:7419
metrics_address = 0.0.0.0:7420
drain_seconds = {{ .Values.drainSeconds }}
{{- if .Values.store.etcd }}
store = {{ .Values.store.etcd }}
{{- if .Values.store.etcdSecret }}
etcd_ca_file = /etc/skrull/etcd/ca.crt
etcd_cert_file = /etc/skrull/etcd/tls.crt
etcd_key_file = /etc/skrull/etcd/tls.key
{{- end }}
{{- else }}
{{- if .Values.store.etcdSecret }}
{{- fail "store.etcdSecret needs store.etcd" }}
{{- end }}
store = sqlite:/var/lib/skrull/skrull.db
{{- end }}
{{- if .Values.security.tlsSecret }}
tls_cert_file = /etc/skrull/tls/tls.crt
tls_key_file = /etc/skrull/tls/tls.key
{{- if .Values.security.clientCertificates }}
tls_client_ca_file = /etc/skrull/tls/ca.crt
tls_client_certificates = {{ .Values.security.clientCertificates }}
{{- end }}
{{- else }}
{{- if .Values.security.clientCertificates }}
{{- fail "security.clientCertificates needs security.tlsSecret" }}
{{- end }}
{{- if .Values.security.authSecret }}
{{- fail "security.authSecret needs security.tlsSecret: tokens never go in plain text" }}
{{- end }}
allow_plaintext = true
{{- end }}
{{- if .Values.security.authSecret }}
auth_file = /etc/skrull/auth/tokens
{{- end }}
{{- range $name, $value := .Values.config }}
{{ $name }} = {{ if kindIs "string" $value }}{{ $value }}{{ else }}{{ toJson $value }}{{ end }}
{{- end }}
{{- end }}
