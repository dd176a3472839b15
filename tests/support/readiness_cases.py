"""One object a case for every readiness rule: what it looks like ready, waiting and failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OLD = "2027-01-15T07:00:00Z"
NOW_S = 1_800_000_000.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """One look of an object.

    Attributes:
        state: what its rule has to say.
        reason: part of what the rule has to give as the reason.
        status: its status, None if it has none.
        spec: its specification.
        parts: other parts of the object, metadata included.
        facts: what else the rule is told.
    """

    state: str
    reason: str = ""
    status: Mapping[str, Any] | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def conditions(**states: str | tuple[str, str, str]) -> dict[str, Any]:
    """Build a status of conditions: `Ready="True"` or `Ready=("False", reason, message)`."""
    full = {name: state if isinstance(state, tuple) else (state, "", "") for name, state in states.items()}
    rows = [
        {"type": name, "status": status, "reason": reason, "message": message}
        for name, (status, reason, message) in full.items()
    ]
    return {"conditions": rows}


def stuck_pod(reason: str = "InvalidImageName") -> dict[str, Any]:
    """Build a pod that can never start."""
    state = {"waiting": {"reason": reason, "message": ""}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "p", "creationTimestamp": OLD},
        "status": {"phase": "Pending", "containerStatuses": [{"name": "main", "state": state}]},
    }


BROKEN = {"pods": [stuck_pod()]}
FULL = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
ACTIVE = {"active": 1}
WEBHOOKS = {"webhooks": [{"clientConfig": {"service": {"namespace": "ml", "name": "hook"}}}]}


def _training(roles: str, role: str = "Worker") -> list[Case]:
    spec = {roles: {role: {"replicas": 1}}}
    return [
        Case(state="ready", spec=spec, status={"replicaStatuses": {role: ACTIVE}}),
        Case(state="waiting", spec=spec, status={"replicaStatuses": {role: {}}}, reason="0 of 1"),
        Case(state="failed", spec=spec, status=conditions(Failed=("True", "JobFailed", "no")), reason="no"),
        Case(state="done", spec=spec, status=conditions(Succeeded="True")),
        Case(state="suspended", spec=spec, status=conditions(Suspended="True")),
    ]


_ACTIVE = [
    Case(state="ready", status=conditions(Active="True")),
    Case(state="waiting", status=conditions(Active=("False", "FlavorNotFound", "no flavor")), reason="no fl"),
    Case(state="failed", status=conditions(Active=("False", "BadConfig", "bad")), reason="bad"),
    Case(state="suspended", status=conditions(Active=("False", "Stopped", ""))),
]
_WEBHOOK = [
    Case(state="ready", parts=WEBHOOKS, facts={"endpoints": {("ml", "hook"): True}}),
    Case(state="waiting", parts=WEBHOOKS, facts={"endpoints": {}}, reason="Service ml/hook has no ready"),
]
_CERTIFICATE = [
    Case(state="ready", status=conditions(Ready="True")),
    Case(state="waiting", status=conditions(Ready=("False", "Pending", "no account")), reason="no account"),
]
_SETTLED = [Case(state="ready"), Case(state="waiting", status={"observedGeneration": 1})]
_EXPERIMENT = [
    Case(state="ready", status=conditions(Created="True", Running="True")),
    Case(state="waiting", status=conditions(Created=("True", "", "is created")), reason="is created"),
    Case(state="failed", status=conditions(Failed=("True", "", "no")), reason="no"),
    Case(state="done", status=conditions(Succeeded=("True", "", "goal")), reason="goal"),
]

_READY = [
    Case(state="ready", status=conditions(Ready="True")),
    Case(state="waiting", status=conditions(Ready=("False", "", "no route")), reason="no route"),
    Case(state="failed", status=conditions(Ready="Unknown"), facts=BROKEN),
]

CASES: Mapping[str, tuple[str, list[Case]]] = {
    "serving.kserve.io/InferenceGraph": ("serving.kserve.io/v1alpha1", _READY),
    "serving.kserve.io/LLMInferenceService": ("serving.kserve.io/v1alpha2", _READY),
    "serving.kserve.io/TrainedModel": ("serving.kserve.io/v1alpha1", _READY),
    "sparkoperator.k8s.io/ScheduledSparkApplication": (
        "sparkoperator.k8s.io/v1beta2",
        [
            Case(state="ready", status={"scheduleState": "Scheduled"}),
            Case(state="waiting", status={"lastRunName": "pi-1"}, reason="is not looked at yet"),
            Case(
                state="failed",
                status={"scheduleState": "FailedValidation", "reason": "bad cron"},
                reason="bad cron",
            ),
            Case(state="suspended", spec={"suspend": True}, status={"scheduleState": "Scheduled"}),
        ],
    ),
    "ray.io/RayCronJob": (
        "ray.io/v1",
        [Case(state="ready"), Case(state="suspended", spec={"suspend": True}), *_SETTLED[1:]],
    ),
    "Pod": (
        "v1",
        [
            Case(state="ready", status={"phase": "Running", **conditions(Ready="True")}),
            Case(state="waiting", status={"phase": "Pending"}),
            Case(state="failed", status={"phase": "Failed", "message": "evicted"}, reason="evicted"),
            Case(state="done", status={"phase": "Succeeded"}),
        ],
    ),
    "PersistentVolumeClaim": (
        "v1",
        [
            Case(state="ready", status={"phase": "Bound"}),
            Case(state="waiting", status={"phase": "Pending"}, reason="no volume"),
            Case(state="failed", status={"phase": "Lost"}),
        ],
    ),
    "Service": (
        "v1",
        [
            Case(state="ready"),
            Case(state="waiting", spec={"type": "LoadBalancer"}, facts={"wait_for_load_balancer": True}),
        ],
    ),
    "Namespace": (
        "v1",
        [
            Case(state="ready", status={"phase": "Active"}),
            Case(state="waiting", status={"phase": "Terminating"}),
        ],
    ),
    "ReplicationController": (
        "v1",
        [Case(state="ready", status=FULL), Case(state="waiting"), Case(state="failed", facts=BROKEN)],
    ),
    "apps/ReplicaSet": (
        "apps/v1",
        [Case(state="ready", status=FULL), Case(state="waiting"), Case(state="failed", facts=BROKEN)],
    ),
    "apps/Deployment": (
        "apps/v1",
        [
            Case(state="ready", status=FULL),
            Case(state="waiting", reason="0 of 1"),
            Case(state="failed", facts=BROKEN, reason="InvalidImageName"),
            Case(state="suspended", spec={"paused": True}),
        ],
    ),
    "apps/StatefulSet": (
        "apps/v1",
        [Case(state="ready", status=FULL), Case(state="waiting"), Case(state="failed", facts=BROKEN)],
    ),
    "apps/DaemonSet": (
        "apps/v1",
        [
            Case(state="ready", status={"desiredNumberScheduled": 0, "observedGeneration": 2}),
            Case(state="waiting", status={"desiredNumberScheduled": 0}),
            Case(state="failed", status={"desiredNumberScheduled": 1, "observedGeneration": 2}, facts=BROKEN),
        ],
    ),
    "batch/Job": (
        "batch/v1",
        [
            Case(state="ready", status={"ready": 1}),
            Case(state="waiting"),
            Case(
                state="failed", status=conditions(FailureTarget=("True", "", "too many")), reason="too many"
            ),
            Case(state="done", status=conditions(Complete="True")),
        ],
    ),
    "batch/CronJob": (
        "batch/v1",
        [Case(state="ready"), Case(state="suspended", spec={"suspend": True}), *_SETTLED[1:]],
    ),
    "apiextensions.k8s.io/CustomResourceDefinition": (
        "apiextensions.k8s.io/v1",
        [
            Case(state="ready", status=conditions(Established="True")),
            Case(state="waiting", status={"conditions": None}),
            Case(state="failed", status=conditions(NamesAccepted=("False", "KindConflict", "taken"))),
        ],
    ),
    "apiregistration.k8s.io/APIService": (
        "apiregistration.k8s.io/v1",
        [
            Case(state="ready", status=conditions(Available="True")),
            Case(state="waiting", status=conditions(Available=("False", "", "no endpoints")), reason="no e"),
        ],
    ),
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration": (
        "admissionregistration.k8s.io/v1",
        _WEBHOOK,
    ),
    "admissionregistration.k8s.io/MutatingWebhookConfiguration": (
        "admissionregistration.k8s.io/v1",
        _WEBHOOK,
    ),
    "autoscaling/HorizontalPodAutoscaler": (
        "autoscaling/v2",
        [
            *_SETTLED,
            Case(
                state="ready",
                status=conditions(ScalingActive=("False", "FailedGetResourceMetric", "no metrics")),
                reason="cannot scale: no metrics",
            ),
        ],
    ),
    "policy/PodDisruptionBudget": ("policy/v1", _SETTLED),
    "networking.k8s.io/Ingress": ("networking.k8s.io/v1", _SETTLED),
    "cert-manager.io/Issuer": ("cert-manager.io/v1", _CERTIFICATE),
    "cert-manager.io/ClusterIssuer": ("cert-manager.io/v1", _CERTIFICATE),
    "cert-manager.io/Certificate": ("cert-manager.io/v1", _CERTIFICATE),
    "gateway.networking.k8s.io/Gateway": (
        "gateway.networking.k8s.io/v1",
        [
            Case(state="ready", status=conditions(Accepted="True", Programmed="True")),
            Case(
                state="waiting", status=conditions(Accepted="True", Programmed=("False", "Pending", "soon"))
            ),
            Case(state="failed", status=conditions(Accepted=("False", "ListenersNotValid", "bad"))),
        ],
    ),
    "kubeflow.org/TFJob": ("kubeflow.org/v1", _training("tfReplicaSpecs")),
    "kubeflow.org/PyTorchJob": ("kubeflow.org/v1", _training("pytorchReplicaSpecs")),
    "kubeflow.org/MPIJob": ("kubeflow.org/v2beta1", _training("mpiReplicaSpecs", "Launcher")),
    "kubeflow.org/XGBoostJob": ("kubeflow.org/v1", _training("xgbReplicaSpecs")),
    "kubeflow.org/PaddleJob": ("kubeflow.org/v1", _training("paddleReplicaSpecs")),
    "kubeflow.org/JAXJob": ("kubeflow.org/v1", _training("jaxReplicaSpecs")),
    "trainer.kubeflow.org/TrainJob": (
        "trainer.kubeflow.org/v1alpha1",
        [
            Case(state="ready", status={"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]}),
            Case(state="waiting", status={"jobsStatus": [{"name": "node", "active": 1, "ready": 0}]}),
            Case(state="failed", status=conditions(Failed=("True", "", "no")), reason="no"),
            Case(state="done", status=conditions(Complete="True")),
            Case(state="suspended", status=conditions(Suspended="True")),
        ],
    ),
    "jobset.x-k8s.io/JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        [
            Case(state="ready", status={"replicatedJobsStatus": [{"name": "a", "active": 1, "ready": 1}]}),
            Case(
                state="waiting",
                status={"replicatedJobsStatus": [{"name": "a", "active": 1, "ready": 0}]},
                reason="0 of 1 jobs of a run",
            ),
            Case(state="failed", status={"terminalState": "Failed", **conditions(Failed=("True", "", "no"))}),
            Case(state="done", status={"terminalState": "Completed", **conditions(Completed="True")}),
            Case(state="suspended", status=conditions(Suspended="True")),
        ],
    ),
    "leaderworkerset.x-k8s.io/LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io/v1",
        [
            Case(state="ready", status={"readyReplicas": 1, **conditions(Available="True")}),
            Case(state="waiting", status={"readyReplicas": 0}, reason="0 of 1 groups"),
            Case(state="failed", status={"readyReplicas": 0}, facts=BROKEN),
        ],
    ),
    "batch.volcano.sh/Job": (
        "batch.volcano.sh/v1alpha1",
        [
            Case(state="ready", status={"state": {"phase": "Running"}, "running": 2}),
            Case(state="waiting", status={"state": {"phase": "Pending"}}, reason="is pending"),
            Case(state="failed", status={"state": {"phase": "Failed", "message": "no"}}, reason="no"),
            Case(state="done", status={"state": {"phase": "Completed"}}),
        ],
    ),
    "paddlepaddle.org/TrainingJob": (
        "paddlepaddle.org/v1",
        [
            Case(state="ready", status={"phase": "Scaling"}),
            Case(state="waiting", status={"phase": "Pending", "reason": "2 GPUs missing"}, reason="2 GPUs"),
            Case(
                state="waiting",
                status={
                    "phase": "Scaling",
                    "reason": "ready: 0 of 1 master",
                    "conditions": [{"type": "GangReady", "status": "False"}],
                },
                reason="0 of 1 master",
            ),
            Case(
                state="failed",
                status={
                    "phase": "Pending",
                    "reason": "spec: wrong",
                    "conditions": [{"type": "Degraded", "status": "True", "reason": "InvalidSpec"}],
                },
                reason="spec: wrong",
            ),
            Case(state="failed", status={"phase": "failed", "reason": "no"}, reason="no"),
            Case(state="done", status={"phase": "Succeeded"}),
            Case(state="suspended", status={"phase": "Suspended"}),
        ],
    ),
    "ray.io/RayCluster": (
        "ray.io/v1",
        [
            Case(
                state="ready",
                status={"desiredWorkerReplicas": 1, "readyWorkerReplicas": 1, "state": "ready"},
            ),
            Case(
                state="waiting",
                status={
                    "desiredWorkerReplicas": 2,
                    "readyWorkerReplicas": 1,
                    **conditions(RayClusterProvisioned="True"),
                },
                reason="1 of 2 workers",
            ),
            Case(state="failed", status={"state": "failed", "reason": "no"}, reason="no"),
            Case(state="suspended", status={"state": "suspended"}),
        ],
    ),
    "ray.io/RayService": (
        "ray.io/v1",
        [
            Case(state="ready", status=conditions(Ready="True")),
            Case(
                state="waiting",
                status={
                    "activeServiceStatus": {"applicationStatuses": {"llm": {"status": "DEPLOYING"}}},
                    **conditions(Ready=("False", "", "")),
                },
                reason="application llm is DEPLOYING",
            ),
            Case(
                state="failed",
                status={
                    "activeServiceStatus": {
                        "applicationStatuses": {"llm": {"status": "DEPLOY_FAILED", "message": "no module"}}
                    }
                },
                reason="application llm: no module",
            ),
        ],
    ),
    "ray.io/RayJob": (
        "ray.io/v1",
        [
            Case(state="ready", status={"jobStatus": "RUNNING", "jobDeploymentStatus": "Running"}),
            Case(state="waiting", status={"jobDeploymentStatus": "Initializing"}, reason="is initializing"),
            Case(state="failed", status={"jobStatus": "FAILED", "message": "exit 1"}, reason="exit 1"),
            Case(state="done", status={"jobStatus": "SUCCEEDED"}),
            Case(state="suspended", status={"jobDeploymentStatus": "Suspended"}),
        ],
    ),
    "sparkoperator.k8s.io/SparkApplication": (
        "sparkoperator.k8s.io/v1beta2",
        [
            Case(state="ready", status={"applicationState": {"state": "RUNNING"}}),
            Case(state="waiting", status={"applicationState": {"state": "SUBMITTED"}}, reason="is submitted"),
            Case(
                state="failed",
                status={"applicationState": {"state": "SUBMISSION_FAILED", "errorMessage": "no image"}},
                reason="no image",
            ),
            Case(state="done", status={"applicationState": {"state": "COMPLETED"}}),
        ],
    ),
    "serving.kserve.io/InferenceService": (
        "serving.kserve.io/v1beta1",
        [
            Case(
                state="ready",
                status={"modelStatus": {"transitionStatus": "UpToDate"}, **conditions(Ready="True")},
            ),
            Case(state="waiting", status=conditions(Ready=("False", "", "no predictor")), reason="no predic"),
            Case(
                state="failed",
                status={
                    "modelStatus": {
                        "transitionStatus": "BlockedByFailedLoad",
                        "lastFailureInfo": {"reason": "ModelLoadFailed", "message": "no file"},
                    }
                },
                reason="ModelLoadFailed: no file",
            ),
            Case(state="suspended", status=conditions(Stopped="True")),
        ],
    ),
    "serving.knative.dev/Service": (
        "serving.knative.dev/v1",
        [
            Case(state="ready", status=conditions(Ready="True")),
            Case(state="waiting", status=conditions(Ready=("Unknown", "", "soon")), reason="soon"),
            Case(state="failed", status=conditions(Ready=("Unknown", "", "soon")), facts=BROKEN),
        ],
    ),
    "machinelearning.seldon.io/SeldonDeployment": (
        "machinelearning.seldon.io/v1",
        [
            Case(state="ready", status={"state": "Available"}),
            Case(state="waiting", status={"state": "Creating"}, reason="is creating"),
            Case(state="failed", status={"state": "Failed", "description": "no"}, reason="no"),
        ],
    ),
    "argoproj.io/Rollout": (
        "argoproj.io/v1alpha1",
        [
            Case(state="ready", status={"phase": "Healthy", "observedGeneration": "2"}),
            Case(state="waiting", status={"phase": "Healthy", "observedGeneration": "1"}),
            Case(state="failed", status={"phase": "Degraded", "message": "no"}, reason="no"),
            Case(state="suspended", status={"phase": "Paused", "message": "CanaryPauseStep"}),
        ],
    ),
    "kubeflow.org/Notebook": (
        "kubeflow.org/v1",
        [
            Case(state="ready", status={"readyReplicas": 1}),
            Case(
                state="waiting",
                status={"containerState": {"waiting": {"reason": "PodInitializing"}}},
                reason="PodInitializing",
            ),
            Case(state="failed", status={"readyReplicas": 0}, facts=BROKEN),
            Case(
                state="suspended", parts={"metadata": {"annotations": {"kubeflow-resource-stopped": "now"}}}
            ),
        ],
    ),
    "kueue.x-k8s.io/ClusterQueue": ("kueue.x-k8s.io/v1beta1", _ACTIVE),
    "kueue.x-k8s.io/LocalQueue": ("kueue.x-k8s.io/v1beta1", _ACTIVE),
    "kueue.x-k8s.io/AdmissionCheck": ("kueue.x-k8s.io/v1beta1", _ACTIVE),
    "kueue.x-k8s.io/Workload": (
        "kueue.x-k8s.io/v1beta1",
        [
            Case(state="ready", status=conditions(QuotaReserved="True", Admitted="True")),
            Case(
                state="waiting",
                status=conditions(QuotaReserved=("False", "Pending", "insufficient gpus")),
                reason="waiting for quota: insufficient gpus",
            ),
            Case(state="failed", status=conditions(Finished=("True", "JobFailed", "no")), reason="no"),
            Case(state="done", status=conditions(Finished=("True", "Succeeded", ""))),
        ],
    ),
    "kubeflow.org/Experiment": ("kubeflow.org/v1beta1", _EXPERIMENT),
    "kubeflow.org/Trial": ("kubeflow.org/v1beta1", _EXPERIMENT),
    "argoproj.io/Workflow": (
        "argoproj.io/v1alpha1",
        [
            Case(state="ready", status={"phase": "Running"}),
            Case(state="waiting", status={"phase": "Pending"}, reason="is pending"),
            Case(state="failed", status={"phase": "Error", "message": "no"}, reason="no"),
            Case(state="done", status={"phase": "Succeeded"}),
            Case(state="suspended", spec={"suspend": True}),
        ],
    ),
    "argoproj.io/CronWorkflow": (
        "argoproj.io/v1alpha1",
        [
            Case(state="ready", status={"phase": "Active"}),
            Case(
                state="failed",
                status={"conditions": [{"type": "SpecError", "status": "True", "message": "bad cron"}]},
                reason="bad cron",
            ),
            Case(state="suspended", spec={"suspend": True}),
            *_SETTLED[1:],
        ],
    ),
    **{
        f"{group}/PodGroup": (
            f"{group}/{version}",
            [
                Case(state="ready", status={"phase": "Pending"}),
                Case(state="failed", status={"phase": "Failed"}),
                *_SETTLED[1:],
            ],
        )
        for group, version in (
            ("scheduling.volcano.sh", "v1beta1"),
            ("scheduling.x-k8s.io", "v1alpha1"),
            ("scheduling.k8s.io", "v1beta1"),
            ("scheduling.incubator.k8s.io", "v1alpha1"),
            ("scheduling.sigs.dev", "v1alpha2"),
        )
    },
    "scheduling.volcano.sh/Queue": (
        "scheduling.volcano.sh/v1beta1",
        [
            Case(state="ready", status={"state": "Open"}),
            Case(state="waiting", status={}, reason="no Volcano controller has picked it up"),
            Case(state="suspended", status={"state": "Closed"}, reason="takes nothing"),
        ],
    ),
}

NEVER_FAIL = frozenset(
    {
        "Service",
        "Namespace",
        "batch/CronJob",
        "ray.io/RayCronJob",
        "apiregistration.k8s.io/APIService",
        "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
        "admissionregistration.k8s.io/MutatingWebhookConfiguration",
        "autoscaling/HorizontalPodAutoscaler",
        "policy/PodDisruptionBudget",
        "scheduling.volcano.sh/Queue",
        "networking.k8s.io/Ingress",
        "cert-manager.io/Issuer",
        "cert-manager.io/ClusterIssuer",
        "cert-manager.io/Certificate",
    }
)
"""Kinds that have no end they cannot come back from."""
