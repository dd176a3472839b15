"""One sound object of each kind that people deploy, as YAML; variants of them are in `variants`."""

from typing import Any

import yaml

_TEXT = """
Pod:
  apiVersion: v1
  kind: Pod
  metadata: {name: web, labels: {app: web}, annotations: {example.org/note: a text}}
  spec:
    serviceAccountName: default
    restartPolicy: OnFailure
    nodeSelector: {disk: ssd}
    tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
    securityContext: {runAsUser: 1000, fsGroup: 100, seccompProfile: {type: RuntimeDefault}}
    initContainers: [{name: prepare, image: busybox, command: [sh, -c, date]}]
    containers:
    - name: web
      image: nginx
      args: [--port=80]
      env:
      - {name: A, value: "1"}
      - {name: B, valueFrom: {secretKeyRef: {name: keys, key: b}}}
      - {name: C, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
      envFrom: [{configMapRef: {name: settings}}]
      ports: [{name: http, containerPort: 80}, {name: metrics, containerPort: 9090, protocol: TCP}]
      resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}}
      readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 5}
      livenessProbe: {tcpSocket: {port: 80}}
      lifecycle: {preStop: {exec: {command: [sleep, "1"]}}}
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      volumeMounts:
      - {name: data, mountPath: /data, subPath: web}
      - {name: settings, mountPath: /etc/web}
    volumes:
    - {name: data, persistentVolumeClaim: {claimName: data}}
    - {name: settings, configMap: {name: settings, items: [{key: a, path: a.conf}]}}
    - {name: scratch, emptyDir: {sizeLimit: 1Gi}}
    - {name: keys, secret: {secretName: keys, defaultMode: 256}}
    - {name: share, nfs: {server: nfs.example.org, path: /export}}
    - {name: token, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 3600}}]}}
Deployment:
  apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web}
  spec:
    replicas: 2
    selector: {matchLabels: {app: web}}
    strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 25%}}
    template:
      metadata: {labels: {app: web, tier: front}}
      spec: {containers: [{name: web, image: nginx}]}
StatefulSet:
  apiVersion: apps/v1
  kind: StatefulSet
  metadata: {name: hub}
  spec:
    serviceName: hub
    replicas: 1
    selector: {matchLabels: {app: hub}}
    template:
      metadata: {labels: {app: hub}}
      spec:
        containers: [{name: hub, image: hub, volumeMounts: [{name: db, mountPath: /db}]}]
    volumeClaimTemplates:
    - metadata: {name: db}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
DaemonSet:
  apiVersion: apps/v1
  kind: DaemonSet
  metadata: {name: agent}
  spec:
    selector: {matchLabels: {app: agent}}
    template:
      metadata: {labels: {app: agent}}
      spec: {containers: [{name: agent, image: agent}]}
Job:
  apiVersion: batch/v1
  kind: Job
  metadata: {name: train}
  spec:
    backoffLimit: 2
    template: {spec: {restartPolicy: Never, containers: [{name: train, image: train}]}}
CronJob:
  apiVersion: batch/v1
  kind: CronJob
  metadata: {name: nightly}
  spec:
    schedule: "0 3 * * mon-fri"
    timeZone: Europe/Berlin
    jobTemplate:
      spec: {template: {spec: {restartPolicy: OnFailure, containers: [{name: a, image: a}]}}}
Service:
  apiVersion: v1
  kind: Service
  metadata: {name: web}
  spec:
    selector: {app: web}
    ports: [{name: http, port: 80, targetPort: http}, {name: grpc, port: 8500}]
Headless:
  apiVersion: v1
  kind: Service
  metadata: {name: web-0}
  spec: {clusterIP: None, selector: {app: web}, publishNotReadyAddresses: true}
ConfigMap:
  apiVersion: v1
  kind: ConfigMap
  metadata: {name: settings}
  data: {a.conf: text}
  binaryData: {b: AAEC}
Secret:
  apiVersion: v1
  kind: Secret
  metadata: {name: keys}
  type: Opaque
  data: {b: c2VjcmV0}
ServiceAccount:
  apiVersion: v1
  kind: ServiceAccount
  metadata: {name: web}
PersistentVolumeClaim:
  apiVersion: v1
  kind: PersistentVolumeClaim
  metadata: {name: data}
  spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Gi}}}
PersistentVolume:
  apiVersion: v1
  kind: PersistentVolume
  metadata: {name: share}
  spec:
    capacity: {storage: 1Ti}
    accessModes: [ReadWriteMany]
    nfs: {server: nfs.example.org, path: /export}
Namespace:
  apiVersion: v1
  kind: Namespace
  metadata: {name: team-a}
Role:
  apiVersion: rbac.authorization.k8s.io/v1
  kind: Role
  metadata: {name: "web:reader"}
  rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
ClusterRole:
  apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: operator}
  rules:
  - {apiGroups: [kubeflow.org], resources: [tfjobs], verbs: ["*"]}
  - {nonResourceURLs: [/metrics], verbs: [get]}
RoleBinding:
  apiVersion: rbac.authorization.k8s.io/v1
  kind: RoleBinding
  metadata: {name: web}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: "web:reader"}
  subjects: [{kind: ServiceAccount, name: web}]
ClusterRoleBinding:
  apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRoleBinding
  metadata: {name: operator}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: operator}
  subjects: [{kind: ServiceAccount, name: operator, namespace: default}]
Autoscaler:
  apiVersion: autoscaling/v2
  kind: HorizontalPodAutoscaler
  metadata: {name: web}
  spec:
    scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
    minReplicas: 1
    maxReplicas: 5
    metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
Ingress:
  apiVersion: networking.k8s.io/v1
  kind: Ingress
  metadata: {name: web}
  spec:
    ingressClassName: nginx
    tls: [{hosts: [web.example.org], secretName: tls}]
    rules:
    - host: web.example.org
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
NetworkPolicy:
  apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  metadata: {name: web}
  spec:
    podSelector: {matchLabels: {app: web}}
    policyTypes: [Ingress]
    ingress: [{from: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 80}]}]
Budget:
  apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {name: web}
  spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
PriorityClass:
  apiVersion: scheduling.k8s.io/v1
  kind: PriorityClass
  metadata: {name: training}
  value: 1000
StorageClass:
  apiVersion: storage.k8s.io/v1
  kind: StorageClass
  metadata: {name: fast}
  provisioner: example.org/disks
CRD:
  apiVersion: apiextensions.k8s.io/v1
  kind: CustomResourceDefinition
  metadata: {name: lamps.example.org}
  spec:
    group: example.org
    scope: Namespaced
    names: {kind: Lamp, listKind: LampList, plural: lamps, singular: lamp}
    versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties: {spec: {type: object, properties: {colour: {type: string}}}}
Webhook:
  apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingWebhookConfiguration
  metadata: {name: lamps}
  webhooks:
  - name: lamps.example.org
    admissionReviewVersions: [v1]
    sideEffects: None
    clientConfig: {url: "https://127.0.0.1:9443/lamps"}
    rules: [{apiGroups: [example.org], apiVersions: [v1], operations: [CREATE], resources: [lamps]}]
Quota:
  apiVersion: v1
  kind: ResourceQuota
  metadata: {name: team}
  spec: {hard: {requests.cpu: 10, pods: 20, requests.nvidia.com/gpu: 4}}
"""

MANIFESTS: dict[str, dict[str, Any]] = yaml.load(_TEXT, yaml.CSafeLoader)

REMOVE = object()
"""In place of a value in a variant: the field is taken out."""
