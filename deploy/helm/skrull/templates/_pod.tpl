{{/* The pod of a daemon, whichever object makes it. */}}
{{- define "skrull.pod" -}}
metadata:
  labels:
    {{- include "skrull.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # Other options, other pods.
    skrull/config: {{ include "skrull.config" . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  # Longer than a daemon drains.
  terminationGracePeriodSeconds: {{ add .Values.drainSeconds 10 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ quote . }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  topologySpreadConstraints:
    {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ $key }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "skrull.selector" $ | nindent 10 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: skrulld
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: ["skrulld", "--config", "/etc/skrull/config/skrulld.conf"]
      ports:
        - name: grpc
          containerPort: 7419
        - name: metrics
          containerPort: 7420
      # A large store is read before the first call is taken.
      startupProbe:
        httpGet:
          path: /healthz
          port: metrics
        periodSeconds: 5
        failureThreshold: 120
      livenessProbe:
        httpGet:
          path: /healthz
          port: metrics
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet:
          path: /readyz
          port: metrics
        periodSeconds: 5
        timeoutSeconds: 3
        failureThreshold: 2
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: ["ALL"]
      volumeMounts:
        - name: config
          mountPath: /etc/skrull/config
          readOnly: true
        {{- if .Values.security.tlsSecret }}
        - name: tls
          mountPath: /etc/skrull/tls
          readOnly: true
        {{- end }}
        {{- if .Values.security.authSecret }}
        - name: auth
          mountPath: /etc/skrull/auth
          readOnly: true
        {{- end }}
        {{- if .Values.store.etcdSecret }}
        - name: etcd
          mountPath: /etc/skrull/etcd
          readOnly: true
        {{- end }}
        {{- if not .Values.store.etcd }}
        - name: store
          mountPath: /var/lib/skrull
        {{- end }}
        # SQLite sorts here what does not fit its memory.
        - name: tmp
          mountPath: /tmp
  volumes:
    - name: config
      configMap:
        name: {{ include "skrull.name" . }}
    - name: tmp
      emptyDir:
        sizeLimit: 1Gi
    {{- if .Values.security.tlsSecret }}
    - name: tls
      secret:
        secretName: {{ quote .Values.security.tlsSecret }}
        defaultMode: 0440
    {{- end }}
    {{- if .Values.security.authSecret }}
    - name: auth
      secret:
        secretName: {{ quote .Values.security.authSecret }}
        defaultMode: 0440
    {{- end }}
    {{- if .Values.store.etcdSecret }}
    - name: etcd
      secret:
        secretName: {{ quote .Values.store.etcdSecret }}
        defaultMode: 0440
    {{- end }}
{{- end }}
