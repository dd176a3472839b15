"""Training jobs: sound ones, and variants that our CustomResourceDefinitions refuse or take.

The verdicts are asked of a real API server in `tests/cluster/test_validation_agrees.py`.
"""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.manifests import REMOVE
from tests.support.variants import Variant

_TEXT = """
TFJob:
  apiVersion: kubeflow.org/v1
  kind: TFJob
  metadata: {name: cnn, labels: {app: cnn}}
  spec:
    runPolicy: {cleanPodPolicy: Running, backoffLimit: 3}
    successPolicy: AllWorkers
    tfReplicaSpecs:
      PS:
        replicas: 1
        restartPolicy: OnFailure
        template: {spec: {containers: [{name: tensorflow, image: "tensorflow/tensorflow:2.15.0"}]}}
      Worker:
        replicas: 2
        restartPolicy: OnFailure
        template:
          metadata: {labels: {app: cnn}, annotations: {example.org/note: a}}
          spec:
            containers:
            - name: tensorflow
              image: tensorflow/tensorflow:2.15.0-gpu
              command: [python, train.py]
              env: [{name: A, value: "1"}, {name: B, valueFrom: {secretKeyRef: {name: keys, key: b}}}]
              ports: [{name: tfjob-port, containerPort: 2222}]
              resources: {requests: {cpu: 500m}, limits: {nvidia.com/gpu: 1, memory: 1.5Gi}}
              volumeMounts: [{name: data, mountPath: /data}]
            volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
            nodeSelector: {gpu: l4}
            tolerations: [{key: nvidia.com/gpu, operator: Exists}]
Chief:
  apiVersion: kubeflow.org/v1
  kind: TFJob
  metadata: {name: chief}
  spec:
    tfReplicaSpecs:
      Chief: &tf
        replicas: 1
        template: {spec: {containers: [{name: tensorflow, image: x}]}}
      Evaluator: *tf
PyTorchJob:
  apiVersion: kubeflow.org/v1
  kind: PyTorchJob
  metadata: {name: ddp}
  spec:
    nprocPerNode: "2"
    pytorchReplicaSpecs:
      Master: &torch
        replicas: 1
        restartPolicy: OnFailure
        template: {spec: {containers: [{name: pytorch, image: x}]}}
      Worker: *torch
Elastic:
  apiVersion: kubeflow.org/v1
  kind: PyTorchJob
  metadata: {name: elastic}
  spec:
    elasticPolicy:
      minReplicas: 1
      maxReplicas: 4
      maxRestarts: 10
      rdzvBackend: c10d
      metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
    pytorchReplicaSpecs: {Worker: *torch}
XGBoostJob:
  apiVersion: kubeflow.org/v1
  kind: XGBoostJob
  metadata: {name: trees}
  spec:
    xgbReplicaSpecs:
      Master: &xgb {replicas: 1, template: {spec: {containers: [{name: xgboost, image: x}]}}}
      Worker: *xgb
JAXJob:
  apiVersion: kubeflow.org/v1
  kind: JAXJob
  metadata: {name: jax}
  spec:
    jaxReplicaSpecs: {Worker: {replicas: 2, template: {spec: {containers: [{name: jax, image: x}]}}}}
PaddleJob:
  apiVersion: kubeflow.org/v1
  kind: PaddleJob
  metadata: {name: paddle}
  spec:
    elasticPolicy: {minReplicas: 1, maxReplicas: 2}
    paddleReplicaSpecs:
      Worker: {replicas: 2, template: {spec: {containers: [{name: paddle, image: x}]}}}
"""

JOBS: dict[str, dict[str, Any]] = yaml.load(_TEXT, yaml.CSafeLoader)

_ROLES = "spec.tfReplicaSpecs"
_WORKER = "spec.tfReplicaSpecs.Worker"
_POD = "spec.tfReplicaSpecs.Worker.template.spec"
_CONTAINER = "spec.tfReplicaSpecs.Worker.template.spec.containers[0]"
_TORCH = "spec.pytorchReplicaSpecs"
_ROLE = JOBS["Chief"]["spec"]["tfReplicaSpecs"]["Chief"]
_XGB = JOBS["XGBoostJob"]["spec"]["xgbReplicaSpecs"]["Master"]

_BROKEN: list[tuple[str, str, Any]] = [
    ("TFJob", "metadata.name", "1cnn"),
    ("TFJob", "metadata.name", "Cnn"),
    ("TFJob", "metadata.name", "cnn.a"),
    ("TFJob", "metadata.name", "c" * 51),
    ("TFJob", "spec", REMOVE),
    ("TFJob", _ROLES, REMOVE),
    ("TFJob", _ROLES, {}),
    ("TFJob", _ROLES, {"PS": _ROLE}),
    ("TFJob", _ROLES, {"Evaluator": _ROLE}),
    ("TFJob", f"{_ROLES}.worker", _ROLE),
    ("TFJob", f"{_ROLES}.Launcher", _ROLE),
    ("TFJob", _WORKER, None),
    ("TFJob", f"{_ROLES}.Chief", {**_ROLE, "replicas": 2}),
    ("TFJob", f"{_ROLES}.Evaluator", {**_ROLE, "replicas": 2}),
    ("Chief", f"{_ROLES}.Master", _ROLE),
    ("TFJob", f"{_WORKER}.replicas", 0),
    ("TFJob", f"{_WORKER}.replicas", -1),
    ("TFJob", f"{_WORKER}.replicas", "2"),
    ("TFJob", f"{_WORKER}.restartPolicy", "onfailure"),
    ("TFJob", f"{_WORKER}.restartPolicy", ""),
    ("TFJob", f"{_WORKER}.template", REMOVE),
    ("TFJob", f"{_WORKER}.template", {}),
    ("TFJob", f"{_WORKER}.replica", 2),
    ("TFJob", f"{_POD}.containers", []),
    ("TFJob", f"{_POD}.containers", REMOVE),
    ("TFJob", f"{_POD}.container", []),
    ("TFJob", f"{_CONTAINER}.name", "main"),
    ("TFJob", f"{_CONTAINER}.name", "Tensorflow"),
    ("TFJob", f"{_CONTAINER}.image", REMOVE),
    ("TFJob", f"{_CONTAINER}.image", ""),
    ("TFJob", f"{_CONTAINER}.comand", ["a"]),
    ("TFJob", f"{_CONTAINER}.command", "a"),
    ("TFJob", f"{_CONTAINER}.args", [1]),
    ("TFJob", f"{_CONTAINER}.env[0].value", 1),
    ("TFJob", f"{_CONTAINER}.env[1].name", "A"),
    ("TFJob", f"{_CONTAINER}.ports[0].containerPort", 0),
    ("TFJob", f"{_CONTAINER}.ports[0].containerPort", 70000),
    ("TFJob", f"{_CONTAINER}.ports[0].protocol", "tcp"),
    ("TFJob", f"{_CONTAINER}.ports[+]", {"containerPort": 2222, "protocol": "TCP"}),
    ("TFJob", f"{_CONTAINER}.resources.limits.cpu", "abc"),
    ("TFJob", f"{_CONTAINER}.resources.limits.memory", "1 Gi"),
    ("TFJob", f"{_CONTAINER}.resources.limits[nvidia.com/gpu]", True),
    ("TFJob", f"{_CONTAINER}.resources.limits[nvidia.com/gpu]", 0.5),
    ("TFJob", f"{_CONTAINER}.imagePullPolicy", "Sometimes"),
    ("TFJob", f"{_CONTAINER}.volumeMounts[+]", {"name": "data", "mountPath": "/data"}),
    ("TFJob", f"{_CONTAINER}.volumeMounts[0].name", "missing"),
    ("TFJob", f"{_POD}.containers[+]", {"name": "tensorflow", "image": "x"}),
    ("TFJob", f"{_POD}.volumes[+]", {"name": "data", "emptyDir": {}}),
    ("TFJob", f"{_POD}.tolerations[0].operator", "Has"),
    ("TFJob", f"{_POD}.nodeSelector.gpu", 1),
    ("TFJob", f"{_POD}.ephemeralContainers", []),
    ("TFJob", f"{_WORKER}.template.metadata.labels.app", 1),
    ("TFJob", f"{_WORKER}.template.metadata.creationTimestamp", None),
    ("TFJob", "spec.runPolicy.cleanPodPolicy", "running"),
    ("TFJob", "spec.runPolicy.backoffLimit", -1),
    ("TFJob", "spec.runPolicy.activeDeadlineSeconds", 0),
    ("TFJob", "spec.runPolicy.suspend", "true"),
    ("TFJob", "spec.runPolicy.managedBy", "me"),
    ("TFJob", "spec.runPolicy.schedulingPolicy", {"minResources": {"cpu": "abc"}}),
    ("TFJob", "spec.runPolicy.ttl", 5),
    ("TFJob", "spec.successPolicy", "AllPods"),
    ("TFJob", "spec.nprocPerNode", "2"),
    ("PyTorchJob", f"{_TORCH}.Master.replicas", 2),
    ("PyTorchJob", f"{_TORCH}.Master.replicas", REMOVE),
    ("PyTorchJob", f"{_TORCH}.Master.template.spec.containers[0].name", "tensorflow"),
    ("PyTorchJob", f"{_TORCH}.Chief", JOBS["Elastic"]["spec"]["pytorchReplicaSpecs"]["Worker"]),
    ("PyTorchJob", "spec.nprocPerNode", 2),
    ("PyTorchJob", "spec.nprocPerNode", "many"),
    ("PyTorchJob", "spec.elasticPolicy", {"nProcPerNode": 2}),
    ("Elastic", f"{_TORCH}.Worker.replicas", 0),
    ("Elastic", f"{_TORCH}.Worker", REMOVE),
    ("Elastic", "spec.elasticPolicy.minReplicas", 5),
    ("Elastic", "spec.elasticPolicy.rdzvBackend", "C10d"),
    ("Elastic", "spec.elasticPolicy.metrics[0].resource.target", REMOVE),
    ("XGBoostJob", "spec.xgbReplicaSpecs.Master", REMOVE),
    ("XGBoostJob", "spec.xgbReplicaSpecs.Master.replicas", 2),
    ("XGBoostJob", "spec.xgbReplicaSpecs.PS", _XGB),
    ("JAXJob", "spec.jaxReplicaSpecs.Worker.template.spec.containers[0].name", "main"),
    ("JAXJob", "spec.jaxReplicaSpecs", {}),
    ("PaddleJob", "spec.elasticPolicy.minReplicas", 3),
    ("PaddleJob", "spec.paddleReplicaSpecs.Worker.replicas", 0),
]

_FINE: list[tuple[str, str, Any]] = [
    ("TFJob", "metadata.name", "c" * 50),
    ("TFJob", _ROLES, {"Worker": _ROLE}),
    ("TFJob", _ROLES, {"Master": _ROLE, "Worker": {**_ROLE, "replicas": 0}}),
    ("TFJob", f"{_WORKER}.replicas", REMOVE),
    ("TFJob", f"{_WORKER}.replicas", 10_000),
    ("TFJob", f"{_WORKER}.restartPolicy", "ExitCode"),
    ("TFJob", "spec.successPolicy", ""),
    ("TFJob", "spec.runPolicy", REMOVE),
    ("TFJob", "spec.runPolicy.suspend", True),
    ("TFJob", "spec.runPolicy.schedulingPolicy", {"queue": "q", "minResources": {"cpu": 4, "memory": "1Gi"}}),
    ("TFJob", "spec.enableDynamicWorker", True),
    ("TFJob", f"{_CONTAINER}.resources.limits.cpu", 2),
    ("TFJob", f"{_CONTAINER}.ports[+]", {"containerPort": 2222, "protocol": "UDP"}),
    ("TFJob", f"{_POD}.containers[+]", {"name": "proxy", "image": "x"}),
    ("TFJob", f"{_POD}.initContainers", [{"name": "fetch", "image": "x", "command": ["git"]}]),
    ("TFJob", f"{_POD}.volumes[+]", {"name": "code", "emptyDir": {"sizeLimit": "1Gi"}}),
    ("TFJob", f"{_POD}.imagePullSecrets", [{"name": "regcred"}]),
    ("TFJob", f"{_POD}.schedulerName", "volcano"),
    ("TFJob", f"{_POD}.securityContext", {"fsGroup": 100, "seccompProfile": {"type": "RuntimeDefault"}}),
    ("TFJob", "status", {"conditions": [{"type": "Created"}]}),
    ("PyTorchJob", "spec.nprocPerNode", "auto"),
    ("PyTorchJob", f"{_TORCH}.Worker", REMOVE),
    ("Elastic", "spec.elasticPolicy", {"nProcPerNode": 2, "rdzvConf": [{"key": "a", "value": "b"}]}),
    ("XGBoostJob", "spec.xgbReplicaSpecs.Worker", REMOVE),
]

JOB_VARIANTS = [
    *(Variant(*line, refused=True) for line in _BROKEN),
    *(Variant(*line, refused=False) for line in _FINE),
]
