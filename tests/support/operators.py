"""Objects of operators' kinds, and the changes with which their webhooks refuse them or still take them.

Read in the sources that `OPERATOR_RULES` names. A case without words is a near miss that is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from tests.support.manifests import REMOVE
from tests.support.variants import Variant


@dataclass(frozen=True)
class Case:
    """One change of one object, and words of what is said of it."""

    base: str
    path: str
    value: Any
    said: str | None

    def __str__(self) -> str:
        """Give an id of the test."""
        return f"{self.base} {self.path}={str(self.value)[:40]}"

    def build(self) -> dict[str, Any]:
        """Give the object with the change."""
        return Variant(self.base, self.path, self.value, refused=self.said is not None).build(OBJECTS)


_TRAINING = """
TFJob:
  apiVersion: kubeflow.org/v1
  kind: TFJob
  metadata: {name: cnn}
  spec:
    tfReplicaSpecs:
      Chief: {replicas: 1, template: {spec: {containers: [{name: tensorflow, image: x}]}}}
      Worker:
        replicas: 2
        template: {spec: {containers: [{name: tensorflow, image: x}, {name: log, image: x}]}}
PyTorchJob:
  apiVersion: kubeflow.org/v1
  kind: PyTorchJob
  metadata: {name: ddp}
  spec:
    elasticPolicy: {minReplicas: 1}
    pytorchReplicaSpecs:
      Master: {replicas: 1, template: {spec: {containers: [{name: pytorch, image: x}]}}}
      Worker: {replicas: 1, template: {spec: {containers: [{name: pytorch, image: x}]}}}
XGBoostJob:
  apiVersion: kubeflow.org/v1
  kind: XGBoostJob
  metadata: {name: trees}
  spec:
    xgbReplicaSpecs:
      Master: {replicas: 1, template: {spec: {containers: [{name: xgboost, image: x}]}}}
      Worker: {replicas: 1, template: {spec: {containers: [{name: xgboost, image: x}]}}}
JAXJob:
  apiVersion: kubeflow.org/v1
  kind: JAXJob
  metadata: {name: jax}
  spec:
    jaxReplicaSpecs:
      Worker: {replicas: 2, template: {spec: {containers: [{name: jax, image: x}]}}}
PaddleJob:
  apiVersion: kubeflow.org/v1
  kind: PaddleJob
  metadata: {name: paddle}
  spec:
    paddleReplicaSpecs:
      Worker: {replicas: 2, template: {spec: {containers: [{name: paddle, image: x}]}}}
MPIJob:
  apiVersion: kubeflow.org/v2beta1
  kind: MPIJob
  metadata: {name: pi}
  spec:
    slotsPerWorker: 1
    runPolicy: {cleanPodPolicy: Running, backoffLimit: 1}
    mpiReplicaSpecs:
      Launcher: {replicas: 1, template: {spec: {containers: [{name: mpi, image: x}]}}}
      Worker: {replicas: 2, restartPolicy: Never, template: {spec: {containers: [{name: mpi, image: x}]}}}
OldMPIJob:
  apiVersion: kubeflow.org/v1
  kind: MPIJob
  metadata: {name: pi}
  spec:
    mpiReplicaSpecs:
      Launcher: {replicas: 1, template: {spec: {containers: [{name: mpi, image: x}]}}}
TrainJob:
  apiVersion: trainer.kubeflow.org/v1alpha1
  kind: TrainJob
  metadata: {name: tune}
  spec:
    runtimeRef: {name: torch-distributed}
    runtimePatches:
    - manager: example.org/queues
      trainingRuntimeSpec:
        template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [
          {name: node}, {name: log, env: [{name: A, value: b}]}]}}}}}]}}
TrainingRuntime:
  apiVersion: trainer.kubeflow.org/v1alpha1
  kind: TrainingRuntime
  metadata: {name: torch}
  spec:
    template:
      spec:
        replicatedJobs:
        - name: node
          replicas: 1
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {template: {spec: {containers: [{name: node, image: x}]}}}
JobSet:
  apiVersion: jobset.x-k8s.io/v1alpha2
  kind: JobSet
  metadata: {name: set}
  spec:
    network: {subdomain: nodes}
    coordinator: {replicatedJob: workers, jobIndex: 0, podIndex: 1}
    successPolicy: {operator: All, targetReplicatedJobs: [workers]}
    failurePolicy: {rules: [{name: host, action: FailJobSet, onJobFailureReasons: [PodFailurePolicy]}]}
    replicatedJobs:
    - name: driver
      replicas: 1
      template: {spec: {template: {spec: {}}}}
    - name: workers
      replicas: 2
      dependsOn: [{name: driver, status: Ready}]
      template: {spec: {parallelism: 2, completions: 2, template: {spec: {}}}}
Experiment:
  apiVersion: kubeflow.org/v1beta1
  kind: Experiment
  metadata: {name: search}
  spec:
    parallelTrialCount: 2
    maxTrialCount: 4
    maxFailedTrialCount: 1
    objective: {type: maximize, objectiveMetricName: accuracy, additionalMetricNames: [loss]}
    algorithm: {algorithmName: random}
    metricsCollectorSpec: {collector: {kind: StdOut}, source: {filter: {metricsFormat: ['(\\w+)=(\\d+)']}}}
    parameters:
    - {name: lr, parameterType: double, feasibleSpace: {min: "0.1", max: "0.2"}}
    - {name: opt, parameterType: categorical, feasibleSpace: {list: [sgd, adam]}}
    trialTemplate:
      primaryContainerName: main
      trialParameters: [{name: rate, reference: lr}, {name: who, reference: '${trialSpec.Name}'}]
      trialSpec:
        apiVersion: batch/v1
        kind: Job
        spec:
          template:
            spec: {containers: [{name: main, args: ['${trialParameters.rate}', '${trialParameters.who}']}]}
"""
OBJECTS: dict[str, dict[str, Any]] = yaml.load(_TRAINING, yaml.CSafeLoader)

_ROLE = OBJECTS["TFJob"]["spec"]["tfReplicaSpecs"]["Chief"]
_TRIAL = "spec.trialTemplate"

_ROWS: list[tuple[str, str, Any, str | None]] = [
    ("TFJob", "metadata.name", "1cnn", "metadata.name must be lower-case letters"),
    ("TFJob", "metadata.name", "c-1", None),
    ("TFJob", "spec.tfReplicaSpecs.Master", _ROLE, "must not have both a `Chief` and a `Master`"),
    ("TFJob", "spec.tfReplicaSpecs.Evaluator", _ROLE, None),
    (
        "TFJob",
        "spec.tfReplicaSpecs.Worker.template.spec.containers[0].name",
        "main",
        "a container `tensorflow`",
    ),
    ("TFJob", "spec.tfReplicaSpecs.Worker.template.spec.containers[1].image", "", "is required"),
    ("TFJob", "spec.tfReplicaSpecs.Worker.template.spec.containers", [], "is required"),
    ("TFJob", "spec.runPolicy", {"managedBy": "me"}, "`kueue.x-k8s.io/multikueue`"),
    ("TFJob", "spec.runPolicy", {"managedBy": "kueue.x-k8s.io/multikueue"}, None),
    ("PyTorchJob", "spec.pytorchReplicaSpecs.Master.replicas", 2, "must be 1, got `2`"),
    ("PyTorchJob", "spec.pytorchReplicaSpecs.Master.replicas", REMOVE, "must be 1"),
    ("PyTorchJob", "spec.pytorchReplicaSpecs.Worker.replicas", 0, "must be at least 1"),
    ("PyTorchJob", "spec.pytorchReplicaSpecs.Worker.replicas", REMOVE, None),
    ("PyTorchJob", "spec.pytorchReplicaSpecs.Worker", REMOVE, "is required with an `elasticPolicy`"),
    ("PyTorchJob", "spec.pytorchReplicaSpecs.Master", REMOVE, None),
    ("PyTorchJob", "spec.pytorchReplicaSpecs.Chief", _ROLE, "must be `Master` or `Worker`"),
    ("PyTorchJob", "spec.elasticPolicy.nProcPerNode", 2, None),
    ("XGBoostJob", "spec.xgbReplicaSpecs.Master", REMOVE, "spec.xgbReplicaSpecs.Master is required"),
    ("XGBoostJob", "spec.xgbReplicaSpecs.Master.replicas", 2, "must be 1"),
    ("XGBoostJob", "spec.xgbReplicaSpecs.Worker", REMOVE, None),
    ("JAXJob", "spec.jaxReplicaSpecs.Master", _ROLE, "must be `Worker`"),
    ("JAXJob", "spec.runPolicy", {"managedBy": "me"}, None),
    (
        "PaddleJob",
        "spec.paddleReplicaSpecs.Worker.template.spec.containers[0].name",
        "x",
        "container `paddle`",
    ),
    ("PaddleJob", "spec.paddleReplicaSpecs.Worker.replicas", 1, None),
    ("MPIJob", "metadata.name", "a" * 55, "name of the last worker: must have at most 63"),
    ("MPIJob", "metadata.name", "a" * 54, None),
    ("MPIJob", "spec.mpiReplicaSpecs.Launcher", REMOVE, "Launcher is required"),
    ("MPIJob", "spec.mpiReplicaSpecs.Launcher.replicas", 2, "must be 1"),
    ("MPIJob", "spec.mpiReplicaSpecs.Worker", REMOVE, None),
    ("MPIJob", "spec.mpiReplicaSpecs.Worker.replicas", 0, "must be at least 1"),
    ("MPIJob", "spec.mpiReplicaSpecs.Worker.restartPolicy", "ExitCode", "`Never` or `OnFailure`"),
    ("MPIJob", "spec.mpiReplicaSpecs.Worker.template.spec.containers", [], "is required"),
    ("MPIJob", "spec.slotsPerWorker", -1, "must be at least 0"),
    ("MPIJob", "spec.slotsPerWorker", 0, None),
    ("MPIJob", "spec.mpiImplementation", "LAM", "`OpenMPI`"),
    ("MPIJob", "spec.runPolicy.cleanPodPolicy", "Some", "`Running`"),
    ("MPIJob", "spec.runPolicy.backoffLimit", -1, "must be at least 0"),
    ("MPIJob", "spec.runPolicy.managedBy", "kubeflow.org/training-operator", "`kubeflow.org/mpi-operator`"),
    ("OldMPIJob", "spec.mpiReplicaSpecs.Launcher", REMOVE, "Launcher is required"),
    ("OldMPIJob", "spec.mpiReplicaSpecs.Master", _ROLE, "must be `Launcher` or `Worker`"),
    ("OldMPIJob", "spec.mpiReplicaSpecs.Worker", _ROLE, None),
    ("TrainJob", "spec.runtimeRef.kind", "Runtime", "`ClusterTrainingRuntime` or `TrainingRuntime`"),
    ("TrainJob", "spec.runtimeRef.kind", "TrainingRuntime", None),
    ("TrainJob", "spec.runtimeRef.apiGroup", "kubeflow.org", "must be `trainer.kubeflow.org`"),
    ("TrainJob", "spec.runtimePatches[0].manager", "queues", "must be a domain, `/` and a path"),
    (
        "TrainJob",
        "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"
        ".containers[0].env",
        [{"name": "A", "value": "b"}],
        "use `spec.trainer.env`",
    ),
    ("TrainingRuntime", "spec.template.spec.replicatedJobs[0].replicas", 2, "must be 1"),
    (
        "TrainingRuntime",
        "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].name",
        "trainer",
        "must have a container `node`",
    ),
    ("TrainingRuntime", "spec.template.spec.replicatedJobs[0].template.metadata.labels", {}, None),
    ("JobSet", "metadata.name", "s" * 46, "name of the last job or pod"),
    ("JobSet", "metadata.name", "s" * 45, None),
    ("JobSet", "spec.network.subdomain", "a.b", "lower-case letters, digits and `-`"),
    ("JobSet", "spec.managedBy", "me", "must be a domain"),
    ("JobSet", "spec.managedBy", "kueue.x-k8s.io/multikueue", None),
    ("JobSet", "spec.replicatedJobs[0].dependsOn", [{"name": "workers"}], "must be a job before this one"),
    ("JobSet", "spec.replicatedJobs[1].groupName", "A", "lower-case"),
    ("JobSet", "spec.replicatedJobs[1].template.spec.parallelism", 2**31 - 1, "times `parallelism`"),
    ("JobSet", "spec.successPolicy.targetReplicatedJobs", ["nodes"], "one of the jobs `driver`, `workers`"),
    ("JobSet", "spec.coordinator.jobIndex", 2, "must be 0 to 1"),
    ("JobSet", "spec.coordinator.podIndex", 2, "must be 0 to 1"),
    ("JobSet", "spec.coordinator.replicatedJob", "driver", "needs `completions`"),
    ("JobSet", "spec.failurePolicy.rules[0].onJobFailureReasons", ["Tired"], "`PodFailurePolicy`"),
    ("JobSet", "spec.failurePolicy.rules[0].name", "1st", "with a letter first"),
    ("JobSet", "spec.failurePolicy.rules[+]", {"name": "host"}, "is used twice"),
    ("Experiment", "metadata.name", "s" * 41, "at most 40 characters"),
    ("Experiment", "metadata.name", "s" * 40, None),
    ("Experiment", "spec.parallelTrialCount", 0, "must be at least 1"),
    ("Experiment", "spec.parallelTrialCount", 5, "at most `maxTrialCount` (4)"),
    ("Experiment", "spec.parallelTrialCount", 4, None),
    ("Experiment", "spec.maxFailedTrialCount", -1, "must be at least 0"),
    ("Experiment", "spec.objective", REMOVE, "spec.objective is required"),
    ("Experiment", "spec.objective.type", "max", "`minimize` or `maximize`"),
    ("Experiment", "spec.objective.additionalMetricNames", ["accuracy"], "must not be the objective again"),
    ("Experiment", "spec.algorithm", REMOVE, "algorithmName is required"),
    ("Experiment", "spec.earlyStopping", {}, "earlyStopping.algorithmName is required"),
    ("Experiment", "spec.resumePolicy", "Sometimes", "`LongRunning`"),
    ("Experiment", "spec.nasConfig", {"graphConfig": {}}, "either `parameters` or `nasConfig`"),
    ("Experiment", "spec.parameters[0].parameterType", "float", "`double`"),
    ("Experiment", "spec.parameters[0].feasibleSpace", {}, "is required"),
    ("Experiment", "spec.parameters[0].feasibleSpace.max", REMOVE, "max is required"),
    ("Experiment", "spec.parameters[0].feasibleSpace.step", "0.01", None),
    (
        "Experiment",
        "spec.parameters[1].feasibleSpace.min",
        "1",
        "must not be set with `parameterType: categorical`",
    ),
    ("Experiment", f"{_TRIAL}.primaryContainerName", REMOVE, "is required"),
    ("Experiment", f"{_TRIAL}.configMap", {"configMapName": "a"}, "either `trialSpec` or `configMap`"),
    ("Experiment", f"{_TRIAL}.trialSpec.kind", "Pod", "successCondition is required"),
    ("Experiment", f"{_TRIAL}.trialSpec.kind", "TFJob", None),
    ("Experiment", f"{_TRIAL}.trialSpec.metadata", {"name": "a"}, "must not be set"),
    ("Experiment", f"{_TRIAL}.trialSpec.metadata", {"labels": {"a": "b"}}, None),
    ("Experiment", f"{_TRIAL}.trialParameters[0].reference", "rate", "one of the parameters `lr`, `opt`"),
    ("Experiment", f"{_TRIAL}.trialParameters[0].name", "speed", "has no `${trialParameters.speed}`"),
    ("Experiment", f"{_TRIAL}.trialParameters[1].name", "rate", "is used twice"),
    ("Experiment", f"{_TRIAL}.trialParameters[0]", {"name": "rate"}, "reference is required"),
    ("Experiment", "spec.metricsCollectorSpec.collector.kind", "Stdin", "`PrometheusMetric`"),
    ("Experiment", "spec.metricsCollectorSpec.collector.kind", "Custom", "customCollector is required"),
    ("Experiment", "spec.metricsCollectorSpec.source.filter.metricsFormat", ["a=(.*)"], "two groups"),
    (
        "Experiment",
        "spec.metricsCollectorSpec",
        {"collector": {"kind": "File"}, "source": {"fileSystemPath": {"path": "a.log"}}},
        "an absolute path",
    ),
    ("Experiment", "spec.metricsCollectorSpec", {"collector": {"kind": "File"}}, None),
]

CASES = [Case(*row) for row in _ROWS]
