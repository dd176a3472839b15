"""Objects of operators' kinds, and the changes with which their webhooks refuse them or still take them.

Read in the sources that `operators.rules` names. A case without words is a near miss that is taken.
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
        value = "removed" if self.value is REMOVE else str(self.value)[:40]
        return f"{self.base} {self.path}={value}"

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
_SERVING = """
InferenceService:
  apiVersion: serving.kserve.io/v1beta1
  kind: InferenceService
  metadata:
    name: iris
    annotations: {serving.kserve.io/deploymentMode: Standard, serving.kserve.io/autoscalerClass: hpa}
  spec:
    predictor:
      minReplicas: 1
      maxReplicas: 2
      scaleMetric: cpu
      scaleTarget: 80
      logger: {mode: all, url: "http://log"}
      model: {modelFormat: {name: sklearn}, storageUri: "gs://a/b", env: [{name: A, value: b}]}
Workers:
  apiVersion: serving.kserve.io/v1beta1
  kind: InferenceService
  metadata: {name: llm, annotations: {serving.kserve.io/autoscalerClass: none}}
  spec:
    predictor:
      model: {modelFormat: {name: huggingface}, storageUri: "pvc://models/llm"}
      workerSpec: {pipelineParallelSize: 2, containers: [{name: worker-container, image: x}]}
Canary:
  apiVersion: serving.kserve.io/v1beta1
  kind: InferenceService
  metadata:
    name: iris
    annotations: {serving.kserve.io/deploymentMode: Standard, serving.kserve.io/autoscalerClass: keda}
  spec:
    predictor:
      autoScaling:
        metrics:
        - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
      model: {modelFormat: {name: sklearn}, storageUri: "gs://a/b"}
    canary:
    - {trafficPercent: 10, predictor: {name: next, minReplicas: 1, model: {modelFormat: {name: sklearn}}}}
Custom:
  apiVersion: serving.kserve.io/v1beta1
  kind: InferenceService
  metadata: {name: own, annotations: {serving.kserve.io/deploymentMode: Knative}}
  spec:
    predictor:
      scaleMetric: rps
      scaleTarget: 200
      storageUris: [{uri: "gs://a/b", mountPath: /mnt/models/a}, {uri: "gs://a/c", mountPath: /mnt/models/b}]
      containers:
      - {name: kserve-container, image: x}
      - {name: transformer-container, image: x, env: [{name: A}]}
InferenceGraph:
  apiVersion: serving.kserve.io/v1alpha1
  kind: InferenceGraph
  metadata: {name: graph}
  spec:
    nodes:
      root: {routerType: Splitter, steps: [{serviceName: a, weight: 40}, {nodeName: next, weight: 60}]}
      next: {routerType: Sequence, steps: [{name: one, serviceName: a}, {name: two, serviceUrl: "http://b"}]}
TrainedModel:
  apiVersion: serving.kserve.io/v1alpha1
  kind: TrainedModel
  metadata: {name: iris}
  spec: {inferenceService: a, model: {storageUri: "s3://a/b", framework: sklearn, memory: 1Gi}}
LLMInferenceService:
  apiVersion: serving.kserve.io/v1alpha2
  kind: LLMInferenceService
  metadata: {name: llm}
  spec:
    model: {uri: "hf://a/b", name: base, lora: {maxRank: 8, adapters: [{name: a, uri: "hf://a/c"}]}}
    parallelism: {data: 2, dataLocal: 1}
    worker: {containers: []}
    prefill: {replicas: 1}
    router:
      gateway: {refs: [{name: g}]}
      route: {http: {refs: [{name: r}]}}
      scheduler: {replicas: 1, config: {ref: {name: c}}}
SeldonDeployment:
  apiVersion: machinelearning.seldon.io/v1
  kind: SeldonDeployment
  metadata: {name: ab}
  spec:
    protocol: seldon
    predictors:
    - name: a
      traffic: 60
      graph: {name: own, type: MODEL, endpoint: {type: REST}, children: [{name: second}]}
      componentSpecs: [{spec: {containers: [{name: own, image: x}, {name: second, image: x}]}}]
    - name: b
      traffic: 40
      graph: {name: iris, implementation: SKLEARN_SERVER, modelUri: "gs://a/b"}
"""
_PIPELINES = """
Workflow:
  apiVersion: argoproj.io/v1alpha1
  kind: Workflow
  metadata: {name: flow}
  spec:
    entrypoint: main
    onExit: work
    podGC: {strategy: OnPodCompletion}
    arguments: {parameters: [{name: rate, value: "1", enum: ["1", "2"]}]}
    hooks: {running: {template: work, expression: "a"}}
    templates:
    - name: main
      dag:
        target: b
        tasks:
        - {name: a, template: work}
        - {name: b, template: work, depends: "a.Succeeded || a.Failed", arguments: {parameters: [
            {name: of, value: "{{tasks.a.outputs.result}}"}]}}
        - {name: c, template: steps, withItems: [1, 2]}
    - name: steps
      parallelism: 1
      steps: [[{name: one, template: work}], [{name: two, templateRef: {name: other, template: t}}]]
    - name: work
      timeout: 1h
      inputs: {parameters: [{name: of, default: x}]}
      outputs: {parameters: [{name: out, valueFrom: {path: /a}}]}
      container:
        image: x
        args: ["{{inputs.parameters.of}}", "{{workflow.parameters.rate}}"]
        volumeMounts: [{name: a, mountPath: /a}, {name: a, mountPath: /b}]
      retryStrategy: {retryPolicy: OnError}
    - {name: make, resource: {action: create, manifest: "a"}}
WorkflowTemplate:
  apiVersion: argoproj.io/v1alpha1
  kind: WorkflowTemplate
  metadata: {name: flow}
  spec: {templates: [{name: main, script: {image: x, source: "{{workflow.parameters.any}}"}}]}
CronWorkflow:
  apiVersion: argoproj.io/v1alpha1
  kind: CronWorkflow
  metadata: {name: nightly}
  spec:
    schedules: ["0 3 * * *"]
    timezone: Europe/Berlin
    concurrencyPolicy: Forbid
    startingDeadlineSeconds: 0
    workflowSpec: {entrypoint: main, templates: [{name: main, container: {image: x}}]}
SparkApplication:
  apiVersion: sparkoperator.k8s.io/v1beta2
  kind: SparkApplication
  metadata: {name: pi, namespace: ml}
  spec:
    sparkVersion: 4.0.0
    sparkConf: {spark.kubernetes.namespace: ml, spark.ui.port: "4041"}
    nodeSelector: {a: b}
    driver: {template: {spec: {}}}
    executor: {instances: 1}
    driverIngressOptions: [{servicePort: 1, ingressURLFormat: a}, {servicePort: 2, ingressURLFormat: b}]
ScheduledSparkApplication:
  apiVersion: sparkoperator.k8s.io/v1beta2
  kind: ScheduledSparkApplication
  metadata: {name: nightly}
  spec: {schedule: "@daily", template: {sparkConf: {spark.ui.port: "4041"}}}
RayCluster:
  apiVersion: ray.io/v1
  kind: RayCluster
  metadata: {name: ray, annotations: {a: b}}
  spec: &cluster
    rayVersion: 2.56.0
    enableInTreeAutoscaling: true
    autoscalerOptions: {version: v2, idleTimeoutSeconds: 0}
    gcsFaultToleranceOptions: {redisAddress: "redis:6379"}
    authOptions: {mode: token}
    headGroupSpec:
      rayStartParams: {num-cpus: "0"}
      template: {spec: {containers: [{name: head, image: x, env: [{name: A, value: b}]}]}}
    workerGroupSpecs:
    - groupName: small
      minReplicas: 0
      maxReplicas: 2
      idleTimeoutSeconds: 60
      labels: {a: b}
      rayStartParams: {}
      template: {spec: {restartPolicy: Never, containers: [{name: worker, image: x}]}}
RayJob:
  apiVersion: ray.io/v1
  kind: RayJob
  metadata: {name: ray}
  spec: &job
    entrypoint: python a.py
    shutdownAfterJobFinishes: true
    ttlSecondsAfterFinished: 60
    activeDeadlineSeconds: 1
    backoffLimit: 1
    rayClusterSpec: *cluster
Chosen:
  apiVersion: ray.io/v1
  kind: RayJob
  metadata: {name: ray}
  spec:
    clusterSelector: {ray.io/cluster: a}
    deletionStrategy: {deletionRules: [{policy: DeleteSelf, condition: {jobStatus: FAILED, ttlSeconds: 0}}]}
RayService:
  apiVersion: ray.io/v1
  kind: RayService
  metadata: {name: ray}
  spec:
    upgradeStrategy:
      type: NewClusterWithIncrementalUpgrade
      clusterUpgradeOptions:
        {maxSurgePercent: 50, stepSizePercent: 50, intervalSeconds: 1, gatewayClassName: a}
    rayClusterConfig: *cluster
RayCronJob:
  apiVersion: ray.io/v1
  kind: RayCronJob
  metadata: {name: ray}
  spec: {schedule: "0 3 * * *", timeZone: Europe/Berlin, jobTemplate: *job}
"""
_SCHEDULING = """
ClusterQueue:
  apiVersion: kueue.x-k8s.io/v1beta2
  kind: ClusterQueue
  metadata: {name: team}
  spec:
    cohortName: all
    namespaceSelector: {matchLabels: {a: b}}
    preemption: {reclaimWithinCohort: Any, borrowWithinCohort: {policy: LowerPriority}}
    flavorFungibility: {whenCanBorrow: TryNextFlavor, preference: BorrowingOverPreemption}
    fairSharing: {weight: "0"}
    admissionChecksStrategy: {admissionChecks: [{name: a, onFlavors: [spot]}]}
    resourceGroups:
    - coveredResources: [cpu, memory]
      flavors:
      - name: spot
        resources:
        - {name: cpu, nominalQuota: 4, borrowingLimit: 2, lendingLimit: 4}
        - {name: memory, nominalQuota: 1Gi}
Cohort:
  apiVersion: kueue.x-k8s.io/v1beta2
  kind: Cohort
  metadata: {name: all}
  spec:
    parentName: root
    resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: spot, resources: [{name: cpu, nominalQuota: 4, borrowingLimit: 2, lendingLimit: 5}]}]
ResourceFlavor:
  apiVersion: kueue.x-k8s.io/v1beta2
  kind: ResourceFlavor
  metadata: {name: spot}
  spec:
    nodeLabels: {a: b}
    nodeTaints: [{key: a, value: b, effect: NoSchedule}, {key: a, effect: NoExecute}]
    tolerations: [{key: a, operator: Exists}]
PodGroup:
  apiVersion: scheduling.volcano.sh/v1beta1
  kind: PodGroup
  metadata: {name: gang}
  spec: {minMember: 2, networkTopology: {mode: hard, highestTierAllowed: 1}}
Queue:
  apiVersion: scheduling.volcano.sh/v1beta1
  kind: Queue
  metadata:
    name: team
    annotations: {volcano.sh/hierarchy: root/team, volcano.sh/hierarchy-weights: 1/2.5}
  spec:
    parent: root
    capability: {cpu: 8}
    deserved: {cpu: 8, memory: 1Gi}
    guarantee: {resource: {cpu: 8}}
VolcanoJob:
  apiVersion: batch.volcano.sh/v1alpha1
  kind: Job
  metadata: {name: mpi}
  spec:
    minAvailable: 3
    policies: [{event: PodEvicted, action: RestartJob}, {exitCode: 3, action: AbortJob}]
    volumes: [{mountPath: /a, volumeClaimName: a}, {mountPath: /b, volumeClaim: {}}]
    tasks:
    - {name: master, replicas: 1, minAvailable: 1, policies: [{events: [TaskCompleted], action: CompleteJob}]}
    - {name: worker, replicas: 2, dependsOn: {name: [master]}}
"""
OBJECTS: dict[str, dict[str, Any]] = {
    name: data
    for text in (_TRAINING, _SERVING, _PIPELINES, _SCHEDULING)
    for name, data in yaml.load(text, yaml.CSafeLoader).items()
}

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

_SERVING_ROWS: list[tuple[str, str, Any, str | None]] = [
    ("InferenceService", "metadata.name", "1iris", "lower-case letters"),
    ("InferenceService", "metadata.name", "i-1", None),
    ("InferenceService", "metadata.annotations[serving.kserve.io/autoscalerClass]", "kpa", "`external`"),
    ("InferenceService", "metadata.annotations[serving.kserve.io/autoscalerClass]", "external", None),
    (
        "InferenceService",
        "spec.predictor.model",
        REMOVE,
        "must have one model or container `kserve-container`, got none",
    ),
    ("InferenceService", "spec.predictor.sklearn", {"storageUri": "gs://a"}, "got `model` and `sklearn`"),
    ("InferenceService", "spec.predictor.model.name", "a", "the runtime names its container"),
    ("InferenceService", "spec.predictor.model.env[0].name", "PYTHONPATH", "must not be `PYTHONPATH`"),
    ("InferenceService", "spec.predictor.minReplicas", 3, "must be at least `minReplicas` (3), got 2"),
    ("InferenceService", "spec.predictor.minReplicas", 2, None),
    ("InferenceService", "spec.predictor.minReplicas", 0, None),
    ("InferenceService", "spec.predictor.containerConcurrency", -1, "must be at least 0"),
    ("InferenceService", "spec.predictor.logger.mode", "some", "`response`"),
    (
        "InferenceService",
        "spec.predictor.logger.storage",
        {"path": "a", "key": "b"},
        "parameters is required",
    ),
    ("InferenceService", "spec.predictor.scaleMetric", "rps", "`cpu` or `memory`"),
    ("InferenceService", "spec.predictor.scaleTarget", 101, "must be 1 to 100 percent"),
    ("InferenceService", "spec.predictor.scaleTarget", 100, None),
    (
        "InferenceService",
        "spec.predictor.autoScaling",
        {"metrics": [{"type": "External"}]},
        "must be `Resource`",
    ),
    (
        "InferenceService",
        "spec.transformer",
        {"containers": [{"name": "a"}], "maxReplicas": -1},
        "at least 0",
    ),
    ("Workers", "metadata.annotations", {}, "must be `none` with a `workerSpec`"),
    ("Workers", "spec.predictor.model.storageUri", "gs://a/b", "starts with `pvc://` or `oci://`"),
    ("Workers", "spec.predictor.model.storageUri", "oci://a/b", None),
    (
        "Workers",
        "spec.predictor.model.env",
        [{"name": "TENSOR_PARALLEL_SIZE"}],
        "give the size in `workerSpec`",
    ),
    ("Workers", "spec.predictor.workerSpec.pipelineParallelSize", 0, "must be at least 1"),
    ("Workers", "spec.predictor.workerSpec.containers[+]", {"name": "b"}, "must have one container"),
    ("Canary", "metadata.annotations[serving.kserve.io/deploymentMode]", "Knative", "needs the annotation"),
    ("Canary", "spec.canary[0].trafficPercent", 101, "must be 0 to 100"),
    ("Canary", "spec.canary[0].trafficPercent", 100, None),
    ("Canary", "spec.canary[0].predictor.name", REMOVE, "is required"),
    ("Canary", "spec.canary[0].predictor.maxReplicas", 2, "must not be set for a canary"),
    ("Canary", "spec.canary[0].predictor.minReplicas", 2, "must be 0 to 1"),
    ("Canary", "spec.canary[+]", {"trafficPercent": 91, "predictor": {"name": "b"}}, "got 101"),
    ("Canary", "spec.canary[+]", {"trafficPercent": 90, "predictor": {"name": "b"}}, None),
    ("Canary", "spec.canary[+]", {"trafficPercent": 1, "predictor": {"name": "next"}}, "is used twice"),
    ("Canary", "spec.predictor.scaleMetric", "cpu", "must not be set for KEDA"),
    (
        "Canary",
        "spec.predictor.autoScaling.metrics[0].resource.target.type",
        "Value",
        "must be `Utilization`",
    ),
    ("Canary", "spec.predictor.autoScaling.metrics[0].resource.name", "gpu", "`cpu` or `memory`"),
    (
        "Canary",
        "spec.predictor.autoScaling.metrics[0]",
        {"type": "External", "external": {}},
        "query is required",
    ),
    ("Custom", "spec.predictor.containers[0].name", "main", "container `kserve-container`, got none"),
    ("Custom", "spec.predictor.containers[1].env[0].name", "STORAGE_URI", "in a transformer's container"),
    ("Custom", "spec.predictor.storageUris[0].mountPath", "models", "an absolute path"),
    ("Custom", "spec.predictor.storageUris[0].mountPath", "/opt/a", "a common parent"),
    ("Custom", "spec.predictor.storageUris[0].uri", "", "uri is required"),
    ("Custom", "spec.predictor.scaleMetric", "cpu", "`concurrency` or `rps`"),
    ("Custom", "spec.predictor.scaleTarget", 0, "must be at least 1"),
    ("Custom", "spec.predictor.deploymentStrategy", {"type": "Recreate"}, "deploymentMode: Standard"),
    ("InferenceGraph", "metadata.name", "1graph", "lower-case letters"),
    ("InferenceGraph", "spec.nodes.root", REMOVE, "spec.nodes.root is required"),
    ("InferenceGraph", "spec.nodes.root.steps[0].weight", 41, "add up to 100, got 101"),
    ("InferenceGraph", "spec.nodes.root.steps[0].weight", REMOVE, "weight is required"),
    ("InferenceGraph", "spec.nodes.next.steps[1].name", "one", "step `one` is used twice"),
    ("InferenceGraph", "spec.nodes.next.steps[1].serviceName", "b", "must have one target, got 2"),
    ("InferenceGraph", "spec.nodes.next.steps[0].serviceName", REMOVE, "needs one target"),
    ("InferenceGraph", "spec.nodes.next.steps[0].weight", 1, None),
    ("TrainedModel", "metadata.name", "a.b", "without dots"),
    ("TrainedModel", "spec.model.storageUri", "pvc://a/b", "starts with `s3://`"),
    ("TrainedModel", "spec.model.storageUri", "https://a/b", None),
    ("LLMInferenceService", "spec.parallelism", REMOVE, "needs `parallelism`"),
    ("LLMInferenceService", "spec.parallelism.pipeline", 2, "must not have both"),
    ("LLMInferenceService", "spec.parallelism.dataLocal", REMOVE, "is required with `data`"),
    ("LLMInferenceService", "spec.parallelism.data", 0, "must be at least 1"),
    ("LLMInferenceService", "spec.prefill.parallelism", {"pipeline": 0}, "must be at least 1"),
    ("LLMInferenceService", "spec.router.route.http.spec", {}, "either `refs` or a `spec`"),
    ("LLMInferenceService", "spec.router.gateway.refs", [], "must not be set with a managed gateway"),
    ("LLMInferenceService", "spec.router.gateway", REMOVE, None),
    ("LLMInferenceService", "spec.router.scheduler.replicas", 0, "must be at least 1"),
    ("LLMInferenceService", "spec.router.scheduler.config", {}, "one of `inline`, `ref`"),
    ("LLMInferenceService", "spec.model.lora.maxRank", 0, "must be at least 1"),
    ("LLMInferenceService", "spec.model.lora.adapters[0].name", "base", "the model's own name"),
    ("LLMInferenceService", "spec.model.lora.adapters[+]", {"name": "a"}, "adapter `a` is used twice"),
    ("SeldonDeployment", "spec.protocol", "http", "`kfserving`"),
    ("SeldonDeployment", "spec.protocol", "tensorflow", "does not know `protocol: tensorflow`"),
    ("SeldonDeployment", "spec.protocol", "v2", None),
    ("SeldonDeployment", "spec.transport", "tcp", "`rest` or `grpc`"),
    ("SeldonDeployment", "spec.transport", "grpc", "must not mix types of endpoints"),
    ("SeldonDeployment", "spec.transport", "rest", None),
    ("SeldonDeployment", "spec.serverType", "kafka", "must have `KAFKA_BROKER` and"),
    ("SeldonDeployment", "spec.predictors", [], "predictors is required"),
    ("SeldonDeployment", "spec.predictors[1].name", "a", "predictor `a` is used twice"),
    ("SeldonDeployment", "spec.predictors[1].traffic", 41, "adds up to 100, got 101"),
    ("SeldonDeployment", "spec.predictors[1].shadow", True, "must have traffic"),
    ("SeldonDeployment", "spec.predictors[1].graph.modelUri", REMOVE, "modelUri is required"),
    (
        "SeldonDeployment",
        "spec.predictors[0].graph.children[0].name",
        "third",
        "one of the containers `own`, `second`",
    ),
    (
        "SeldonDeployment",
        "spec.predictors[0].annotations",
        {"seldon.io/no-engine": "true"},
        "must have one unit",
    ),
    ("SeldonDeployment", "spec.predictors[0].graph.logger", {"url": "a"}, "mode is required"),
]
_FLOW = "spec.templates"
_TASK = "spec.templates[0].dag.tasks[0]"
_WORK = "spec.templates[2]"
_PIPELINE_ROWS: list[tuple[str, str, Any, str | None]] = [
    ("Workflow", "metadata.name", "a" * 64, "at most 63 characters"),
    ("Workflow", "metadata.name", "a" * 63, None),
    ("Workflow", "spec.entrypoint", REMOVE, "spec.entrypoint is required"),
    ("Workflow", "spec.entrypoint", "start", "one of the templates `main`, `steps`, `work`, `make`"),
    ("Workflow", "spec.onExit", "end", "one of the templates"),
    ("Workflow", "spec.workflowTemplateRef", {"name": "a"}, "must not stand beside `workflowTemplateRef`"),
    ("Workflow", "spec", {"workflowTemplateRef": {"name": "a"}}, None),
    ("Workflow", "spec.podGC.strategy", "Never", "`OnWorkflowSuccess`"),
    ("Workflow", "spec.arguments.parameters[0].value", REMOVE, "is required, or `valueFrom`"),
    ("Workflow", "spec.arguments.parameters[0].value", "3", "one of `1`, `2`"),
    ("Workflow", "spec.arguments.parameters[0].name", "a b", "letters, digits, `_` and `-`"),
    ("Workflow", "spec.arguments.parameters[0].name", "speed", "uses `{{workflow.parameters.rate}}`"),
    ("Workflow", "spec.hooks.running.expression", REMOVE, "expression is required"),
    ("Workflow", "spec.hooks.exit", {"template": "work"}, None),
    ("Workflow", f"{_FLOW}[1].name", "work", "name `work` is used twice"),
    ("Workflow", f"{_FLOW}[1].name", "a_b", "letters, digits and `-`"),
    ("Workflow", f"{_FLOW}[1].timeout", "1h", "must not be set beside `steps`"),
    ("Workflow", f"{_FLOW}[1].steps[0][0].template", "walk", "one of the templates"),
    ("Workflow", f"{_FLOW}[1].steps[0][0].template", "{{workflow.parameters.rate}}", None),
    ("Workflow", f"{_FLOW}[1].steps[0][0].name", "two", "name `two` is used twice"),
    ("Workflow", f"{_FLOW}[1].steps[1][0].template", "work", "must not stand beside `templateRef`"),
    ("Workflow", f"{_FLOW}[0].dag.target", "d", "one of the tasks `a`, `b`, `c`"),
    ("Workflow", f"{_TASK}.depends", "b", "waits for itself"),
    ("Workflow", f"{_TASK}.depends", "d", "must name a task of this template, got `d`"),
    ("Workflow", f"{_TASK}.depends", "c", None),
    ("Workflow", f"{_TASK}.dependencies", ["c"], "must not be used where a task has `depends`"),
    ("Workflow", f"{_FLOW}[0].dag.tasks[1].depends", "c", "uses the task `a`"),
    ("Workflow", f"{_FLOW}[0].dag.tasks[2].withParam", "[]", "must have one loop"),
    ("Workflow", f"{_TASK}.when", "{{tasks.a.outputs.parameters.out}} == 1", None),
    ("Workflow", f"{_TASK}.when", "{{tasks.a.outputs.parameters.no}} == 1", "uses the output `no` of `a`"),
    ("Workflow", f"{_FLOW}[1].steps[1][0].when", "{{steps.one.outputs.parameters.out}} == 1", None),
    ("Workflow", f"{_FLOW}[1].steps[0][0].when", "{{steps.two.status}} == 1", "uses the step `two`"),
    ("Workflow", f"{_WORK}.container.args[0]", "{{tasks.a.outputs.result}}", "by `arguments`"),
    ("Workflow", f"{_WORK}.container.args[0]", "{{tasks.name}}", None),
    ("Workflow", f"{_WORK}.container.args[0]", "{{item.of}}", "by `arguments`"),
    ("Workflow", f"{_WORK}.container.args[0]", "{{item}}", None),
    ("Workflow", f"{_WORK}.script", {"image": "x"}, "got `container` and `script`"),
    ("Workflow", f"{_WORK}.container.image", "", "image is required"),
    ("Workflow", f"{_WORK}.inputs", REMOVE, "uses `{{inputs.parameters.of}}`"),
    ("Workflow", f"{_WORK}.container.volumeMounts[1].mountPath", "/a", "path `/a` is used twice"),
    ("Workflow", f"{_WORK}.parallelism", 1, "must only be set beside `steps` or `dag`"),
    ("Workflow", f"{_WORK}.retryStrategy.retryPolicy", "Never", "`OnTransientError`"),
    ("Workflow", f"{_WORK}.outputs.parameters[0]", {"name": "a"}, "is required, or `value`"),
    ("Workflow", f"{_FLOW}[3].resource.action", "make", "`patch`"),
    ("Workflow", f"{_FLOW}[3].resource.manifest", REMOVE, "needs either `manifest` or `manifestFrom`"),
    ("Workflow", f"{_FLOW}[3].resource", {"action": "get"}, None),
    ("WorkflowTemplate", "spec.entrypoint", "start", "one of the templates `main`"),
    ("WorkflowTemplate", "spec.entrypoint", "main", None),
    ("CronWorkflow", "metadata.name", "a" * 53, "at most 52 characters"),
    ("CronWorkflow", "metadata.name", "a" * 52, None),
    ("CronWorkflow", "spec.schedules", [], "schedules is required"),
    ("CronWorkflow", "spec.schedules[0]", "0 25 * * *", "hour must be 0 to 23"),
    ("CronWorkflow", "spec.schedules[0]", "TZ=Europe/Berlin 0 3 * * *", None),
    ("CronWorkflow", "spec.timezone", "Berlin", "a time zone"),
    ("CronWorkflow", "spec.concurrencyPolicy", "Never", "`Replace`"),
    ("CronWorkflow", "spec.startingDeadlineSeconds", -1, "must be at least 0"),
    ("CronWorkflow", "spec.workflowSpec.entrypoint", REMOVE, "entrypoint is required"),
    ("SparkApplication", "metadata.name", "1pi", "starting with a letter"),
    ("SparkApplication", "metadata.name", "pi-1", None),
    ("SparkApplication", "spec.sparkVersion", "2.4.5", "needs `sparkVersion` 3.0.0"),
    ("SparkApplication", "spec.sparkVersion", "3.0.0", None),
    ("SparkApplication", "spec.executor.nodeSelector", {"a": "b"}, "together with `spec.nodeSelector`"),
    ("SparkApplication", "spec.sparkConf[spark.master]", "a", "is managed by the operator"),
    ("SparkApplication", "spec.sparkConf[spark.kubernetes.driver.container.image]", "a", "use `image`"),
    (
        "SparkApplication",
        "spec.sparkConf[spark.kubernetes.authenticate.driver.serviceAccountName]",
        "a",
        "use `driver.serviceAccount`",
    ),
    ("SparkApplication", "spec.sparkConf[spark.kubernetes.namespace]", "x", "must be `ml`"),
    ("SparkApplication", "spec.driverIngressOptions[0].servicePort", 2, "port `2` is used twice"),
    ("SparkApplication", "spec.driverIngressOptions[0].ingressURLFormat", "", "is required"),
    ("ScheduledSparkApplication", "spec.template.sparkConf[spark.master]", "a", "is managed by the operator"),
    ("ScheduledSparkApplication", "spec.template.sparkConf[spark.executor.cores]", "1", None),
    ("RayCluster", "metadata.name", "r" * 54, "at most 53 characters"),
    ("RayCluster", "metadata.name", "r" * 53, None),
    ("RayCluster", "metadata.name", "1ray", "starting with a letter"),
    ("RayCluster", "metadata.annotations[ray.io/ft-enabled]", "true", "together with `gcsFaultTolerance"),
    ("RayCluster", "spec.upgradeStrategy", {"type": "Rolling"}, "`Recreate` or `None`"),
    ("RayCluster", "spec.headGroupSpec.template.spec.containers", [], "containers is required"),
    (
        "RayCluster",
        "spec.headGroupSpec.resources",
        {"CPU": "1"},
        "together with resources in `rayStartParams`",
    ),
    ("RayCluster", "spec.headGroupSpec.rayStartParams.labels", "a=b", "use `labels` of the group"),
    ("RayCluster", "spec.headGroupSpec.rayStartParams.redis-password", "a", "use `gcsFaultToleranceOptions`"),
    ("RayCluster", "spec.headGroupSpec.rayStartParams.redis-username", "a", "redisUsername"),
    (
        "RayCluster",
        "spec.headGroupSpec.template.spec.containers[0].env[0].name",
        "REDIS_PASSWORD",
        "use `gcs",
    ),
    ("RayCluster", "spec.gcsFaultToleranceOptions.storage", {"size": "1Gi"}, "needs `backend: rocksdb`"),
    ("RayCluster", "spec.gcsFaultToleranceOptions", REMOVE, None),
    ("RayCluster", "spec.workerGroupSpecs[0].minReplicas", 3, "at least `minReplicas` (3), got 2"),
    ("RayCluster", "spec.workerGroupSpecs[0].minReplicas", 2, None),
    ("RayCluster", "spec.workerGroupSpecs[0].minReplicas", -1, "must be at least 0"),
    ("RayCluster", "spec.workerGroupSpecs[0].labels", {"a": "b c"}, "letters, digits"),
    ("RayCluster", "spec.workerGroupSpecs[0].suspend", True, "must not be set with `enableInTree"),
    ("RayCluster", "spec.workerGroupSpecs[0].template.spec.restartPolicy", "Always", "must be `Never`"),
    ("RayCluster", "spec.autoscalerOptions.version", "v1", "needs `autoscalerOptions.version: v2`"),
    ("RayCluster", "spec.autoscalerOptions.idleTimeoutSeconds", -1, "must be at least 0"),
    ("RayCluster", "spec.autoscalerOptions.env", [{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD"}], "set by"),
    (
        "RayCluster",
        "spec.headGroupSpec.template.spec.containers[0].env[0]",
        {"name": "RAY_enable_autoscaler_v2", "value": "1"},
        "together with `autoscalerOptions.version`",
    ),
    ("RayCluster", "spec.rayVersion", "2.51.1", "2.52 or later"),
    ("RayCluster", "spec.rayVersion", "2.52.0", None),
    ("RayCluster", "spec.authOptions", {"enableK8sTokenAuth": True}, "`token` with `enableK8sTokenAuth`"),
    ("RayJob", "metadata.name", "r" * 48, "at most 47 characters"),
    ("RayJob", "metadata.name", "r" * 47, None),
    ("RayJob", "spec.shutdownAfterJobFinishes", False, "needs `shutdownAfterJobFinishes: true`"),
    ("RayJob", "spec.rayClusterSpec", REMOVE, "is required, or `clusterSelector`"),
    ("RayJob", "spec.rayClusterSpec.workerGroupSpecs[0].maxReplicas", -1, "must be at least 0"),
    ("RayJob", "spec.submissionMode", "Mode", "`K8sJobMode`"),
    ("RayJob", "spec.submissionMode", "InteractiveMode", "must be 0 with a `clusterSelector` or"),
    ("RayJob", "spec.activeDeadlineSeconds", 0, "must be at least 1"),
    ("RayJob", "spec.backoffLimit", -1, "must be at least 0"),
    ("RayJob", "spec.deletionStrategy", {"onSuccess": {"policy": "DeleteSelf"}}, "policy is required"),
    (
        "RayJob",
        "spec.deletionStrategy",
        {"onSuccess": {"policy": "DeleteWorkers"}, "onFailure": {"policy": "DeleteSelf"}},
        "must not be `DeleteWorkers` with `enableInTreeAutoscaling`",
    ),
    ("Chosen", "spec.clusterSelector", {"a": "b"}, "is required"),
    ("Chosen", "spec.submissionMode", "SidecarMode", "must not be `SidecarMode` with"),
    ("Chosen", "spec.backoffLimit", 1, "must be 0 with a `clusterSelector`"),
    ("Chosen", "spec.backoffLimit", 0, None),
    ("Chosen", "spec.suspend", True, "a cluster of its own"),
    ("Chosen", "spec.deletionStrategy.deletionRules[0].policy", "DeleteCluster", "with a `clusterSelector`"),
    ("Chosen", "spec.deletionStrategy.deletionRules[0].condition.ttlSeconds", -1, "must be at least 0"),
    ("Chosen", "spec.deletionStrategy.deletionRules[0].condition.jobStatus", REMOVE, "either `jobStatus` or"),
    ("RayService", "spec.upgradeStrategy.type", "Rolling", "`NewCluster`"),
    ("RayService", "spec.upgradeStrategy.type", "None", None),
    ("RayService", "spec.rayClusterConfig.enableInTreeAutoscaling", False, "needs `enableInTreeAutoscaling"),
    ("RayService", "spec.upgradeStrategy.clusterUpgradeOptions.stepSizePercent", 51, "maxSurgePercent` (50)"),
    ("RayService", "spec.upgradeStrategy.clusterUpgradeOptions.intervalSeconds", 0, "must be at least 1"),
    ("RayService", "spec.upgradeStrategy.clusterUpgradeOptions.gatewayClassName", "", "is required"),
    ("RayService", "spec.rayClusterDeletionDelaySeconds", -1, "must be at least 0"),
    (
        "RayService",
        "spec.rayClusterConfig.headGroupSpec.headService",
        {"metadata": {"name": "a"}},
        "the operator names it",
    ),
    ("RayCronJob", "metadata.name", "r" * 37, "at most 36 characters"),
    ("RayCronJob", "metadata.name", "r" * 36, None),
    ("RayCronJob", "spec.schedule", "* * * *", "must have 5 fields"),
    ("RayCronJob", "spec.timeZone", "Berlin", "a time zone"),
    ("RayCronJob", "spec.jobTemplate.shutdownAfterJobFinishes", False, "needs `shutdownAfterJobFinishes"),
]
_QUOTA = "spec.resourceGroups[0].flavors[0].resources[0]"
_SCHEDULING_ROWS: list[tuple[str, str, Any, str | None]] = [
    ("ClusterQueue", "spec.cohortName", REMOVE, "must not be set without `spec.cohortName`"),
    ("ClusterQueue", f"{_QUOTA}.lendingLimit", 5, "at most `nominalQuota` (4)"),
    ("ClusterQueue", f"{_QUOTA}.lendingLimit", 0, None),
    ("ClusterQueue", f"{_QUOTA}.nominalQuota", -1, "must not be negative"),
    ("ClusterQueue", f"{_QUOTA}.name", "memory", "must be `cpu`, in the order of `coveredResources`"),
    (
        "ClusterQueue",
        "spec.resourceGroups[0].coveredResources",
        ["cpu", "cpu"],
        "resource `cpu` is used twice",
    ),
    ("ClusterQueue", "spec.resourceGroups[0].flavors[+]", {"name": "spot"}, "flavor `spot` is used twice"),
    ("ClusterQueue", "spec.preemption.reclaimWithinCohort", "Never", "with `reclaimWithinCohort: Never`"),
    ("ClusterQueue", "spec.flavorFungibility.whenCanBorrow", "MayStopSearch", "must be `TryNextFlavor`"),
    ("ClusterQueue", "spec.flavorFungibility.whenCanPreempt", "TryNextFlavor", None),
    ("ClusterQueue", "spec.fairSharing.weight", "-1", "0 or above 1n"),
    (
        "ClusterQueue",
        "spec.admissionChecksStrategy.admissionChecks[0].onFlavors",
        ["a"],
        "one of the flavors `spot`",
    ),
    ("ClusterQueue", "spec.namespaceSelector", {"matchLabels": {"a b": "c"}}, "key "),
    ("Cohort", "spec.parentName", REMOVE, "must not be set without `spec.parentName`"),
    ("Cohort", f"{_QUOTA}.lendingLimit", 9, None),
    ("ResourceFlavor", "spec.nodeLabels", {"a": "b c"}, "letters, digits"),
    ("ResourceFlavor", "spec.nodeTaints[1].effect", "NoSchedule", "twice with the same effect"),
    ("ResourceFlavor", "spec.tolerations[0].operator", "Equal", None),
    ("ResourceFlavor", "spec.tolerations[0].value", "a", "must not be set with `operator: Exists`"),
    ("PodGroup", "spec.networkTopology.highestTierName", "a", "must not have both"),
    ("PodGroup", "spec.networkTopology", {"highestTierName": "a"}, None),
    ("Queue", "spec.guarantee.resource.cpu", 9, "at least what is guaranteed (9)"),
    ("Queue", "spec.capability.cpu", 7, "at most the `capability` (7)"),
    ("Queue", "spec.capability", {}, None),
    ("Queue", "spec.parent", "team", "must be another queue"),
    ("Queue", "metadata.annotations[volcano.sh/hierarchy-weights]", "1", "as many parts"),
    ("Queue", "metadata.annotations[volcano.sh/hierarchy-weights]", "1/0", "numbers above 0"),
    ("VolcanoJob", "metadata.name", "a" * 60, "name of its pod"),
    ("VolcanoJob", "spec.tasks", [], "spec.tasks is required"),
    ("VolcanoJob", "spec.minAvailable", 4, "replicas together (3), got 4"),
    ("VolcanoJob", "spec.minAvailable", 2, None),
    ("VolcanoJob", "spec.tasks[1].name", "master", "task `master` is used twice"),
    ("VolcanoJob", "spec.tasks[0].minAvailable", 2, "must be 0 to 1"),
    ("VolcanoJob", "spec.tasks[1].dependsOn.name", ["chief"], "one of the tasks `master`, `worker`"),
    ("VolcanoJob", "spec.policies[0].event", "PodRunning", "`PodFailed`"),
    ("VolcanoJob", "spec.policies[0].action", "SyncJob", "`AbortJob`"),
    ("VolcanoJob", "spec.policies[1].exitCode", 0, "must not be 0"),
    ("VolcanoJob", "spec.policies[1].event", "*", "either `event` or `exitCode`"),
    ("VolcanoJob", "spec.policies[+]", {"event": "PodEvicted", "action": "AbortJob"}, "stands in two"),
    ("VolcanoJob", "spec.policies[+]", {"event": "*", "action": "AbortJob"}, "other events beside `*`"),
    ("VolcanoJob", "spec.volumes[0].mountPath", "/b", "mount path `/b` is used twice"),
    ("VolcanoJob", "spec.volumes[1].volumeClaimName", "b", "either `volumeClaim` or"),
]

_ROWS += _SERVING_ROWS + _PIPELINE_ROWS + _SCHEDULING_ROWS
CASES = [Case(*row) for row in _ROWS]
