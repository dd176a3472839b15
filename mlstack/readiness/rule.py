"""The table of readiness rules, what a rule looks at and what it answers.

A rule is a function of values: the live object, its pods, its events and the time as a number. The order
of evaluation and most rules are those of kstatus (kubernetes-sigs/cli-utils), with the holes closed that its
users report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from mlstack import names
from mlstack.objects.kube_object import group_of
from mlstack.table import Table

# --- The table of readiness rules, what a rule looks at and what it answers ---
# A rule is a function of values: the live object, its pods, its events and the time as a number. The order
# of evaluation and most rules are those of kstatus (kubernetes-sigs/cli-utils), with the holes closed that
# its users report.

State = Literal["ready", "waiting", "failed", "done", "suspended", "terminating", "missing"]

Queue = Literal["", "node", "new-node", "quota"]

UNSEEN = "its controller has not seen the newest version yet"

_FINE: frozenset[State] = frozenset({"ready", "done", "suspended"})


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """What a rule says of an object.

    Attributes:
        state: `done` is work that has ended well, `suspended` work that is held on purpose.
        reason: what it waits for or why it failed; may be a remark when it is ready.
        resource: the extended resource that pods wait for (`nvidia.com/gpu`), if one does.
        queue: what pods only queue for, nothing being wrong with them: a `node`, a `new-node` that an
            autoscaler is adding, `quota`; empty if they do not.
    """

    state: State
    reason: str = ""
    resource: str = ""
    queue: Queue = ""

    @property
    def is_fine(self) -> bool:
        """Tell whether nothing has to happen any more."""
        return self.state in _FINE


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything a rule may look at.

    Attributes:
        data: the live object.
        pods: the pods that belong to it (for a claim: the pods that mount it).
        events: the events of the object and of its pods, oldest first.
        nodes: all nodes, None if they may not be read.
        now_s: the time in seconds since 1970.
        wait_for_load_balancer: whether a Service of type LoadBalancer needs its address.
        late_classes: the storage classes that bind a claim when its first pod starts, None if unknown.
        endpoints: whether a Service, by namespace and name, has a ready endpoint; None if unknown.
        has_status: whether the kind has a status that only its controller writes; None if unknown.
        logs: last lines of containers that crashed, by the UID of their pod and their name.
    """

    data: Mapping[str, Any]
    pods: Sequence[Mapping[str, Any]] = ()
    events: Sequence[Mapping[str, Any]] = ()
    nodes: Sequence[Mapping[str, Any]] | None = None
    now_s: float = 0.0
    wait_for_load_balancer: bool = False
    late_classes: Set[str] | None = None
    endpoints: Mapping[tuple[str, str], bool] | None = None
    has_status: bool | None = None
    logs: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)

    @property
    def spec(self) -> Mapping[str, Any]:
        """Give the specification."""
        return self.data.get("spec") or {}

    @property
    def status(self) -> Mapping[str, Any]:
        """Give the status, empty if no controller has written one."""
        return self.data.get("status") or {}

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Give the metadata."""
        return self.data.get("metadata") or {}

    @property
    def name(self) -> str:
        """Give the object's name."""
        return str(self.metadata.get("name", ""))

    @property
    def age_s(self) -> float:
        """Give the object's age in seconds."""
        return age_s(self.data, self.now_s)

    def condition(self, name: str) -> Mapping[str, Any]:
        """Give the condition of that type, empty if there is none."""
        return condition(self.data, name)

    def has(self, name: str) -> bool:
        """Tell whether a condition is True."""
        return self.condition(name).get("status") == "True"

    def own_events(self) -> list[Mapping[str, Any]]:
        """Give the warning events of the object itself, newest last."""
        uid = self.metadata.get("uid")
        return [event for event in self.events if _is_warning(event) and _about(event).get("uid") == uid]

    def events_of(self, pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Give the warning events of one of its pods, newest last."""
        uid = (pod.get("metadata") or {}).get("uid")
        return [event for event in self.events if _is_warning(event) and _about(event).get("uid") == uid]

    def was_told(self, about: Mapping[str, Any], reason: str) -> bool:
        """Tell whether an event of that reason was ever sent about an object."""
        uid = (about.get("metadata") or {}).get("uid")
        return any(one.get("reason") == reason and _about(one).get("uid") == uid for one in self.events)


Rule = Callable[[Facts], Readiness]

RULES: Table[Rule] = Table("readiness rule")
rule = RULES.register

RUN_TO_AN_END: set[str] = set()
"""Kinds whose objects run and end, and may queue for hours before: nobody waits for them unasked."""


def job_rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Register the rule of kinds that run to an end."""
    RUN_TO_AN_END.update(kinds)
    return rule(*kinds)


def key_of(data: Mapping[str, Any]) -> str:
    """Give the name under which the rule of an object's kind is registered: `apps/Deployment`, `Pod`."""
    group, kind = group_of(str(data.get("apiVersion", ""))), str(data.get("kind", ""))
    return f"{group}/{kind}" if group else kind


def runs_to_an_end(data: Mapping[str, Any]) -> bool:
    """Tell whether an object is of a kind that runs to an end."""
    return key_of(data) in RUN_TO_AN_END


def ready(reason: str = "") -> Readiness:
    """Say that it works."""
    return Readiness(state="ready", reason=reason)


def done(reason: str = "") -> Readiness:
    """Say that its work has ended well."""
    return Readiness(state="done", reason=reason)


def suspended(reason: str = "suspended") -> Readiness:
    """Say that it is held on purpose."""
    return Readiness(state="suspended", reason=reason)


def waiting(reason: str, *, resource: str = "", queue: Queue = "") -> Readiness:
    """Say that it is on its way, and what it waits for."""
    return Readiness(state="waiting", reason=reason, resource=resource, queue=queue)


def failed(reason: str) -> Readiness:
    """Say that it will not work without a change."""
    return Readiness(state="failed", reason=reason)


def condition(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Give the condition of that type of any object, empty if there is none.

    Raises:
        TypeError: the conditions are no list of maps.
    """
    conditions = (data.get("status") or {}).get("conditions") or ()
    if isinstance(conditions, str | Mapping) or not all(isinstance(one, Mapping) for one in conditions):
        raise TypeError("conditions")
    return next((one for one in conditions if one.get("type") == name), {})


def condition_text(found: Mapping[str, Any]) -> str:
    """Give a condition's message, else its reason."""
    return str(found.get("message") or found.get("reason") or "")


def generation_of(observed: object) -> int | None:
    """Read a generation; some controllers write it as text, others write a hash, which says nothing."""
    if isinstance(observed, str) and observed.isdigit():
        return int(observed)
    return observed if isinstance(observed, int) and not isinstance(observed, bool) else None


def age_s(data: Mapping[str, Any], now_s: float) -> float:
    """Give the age of an object in seconds; 0 if it does not say when it was made."""
    created = (data.get("metadata") or {}).get("creationTimestamp")
    return now_s - time_s(created) if created else 0.0


def time_s(text: str) -> float:
    """Give a time that the API server wrote in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def number(values: Mapping[str, Any], name: str, default: int = 0) -> int:
    """Give a count of a status or specification, the default if it is not there."""
    found = values.get(name)
    return found if isinstance(found, int) else default


def _is_warning(event: Mapping[str, Any]) -> bool:
    return event.get("type") == "Warning"


def _about(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return event.get("involvedObject") or {}


# --- Who serves which custom kinds, and signs of life: whether that operator looks at an object at
# all

# After this time without a sign of life the operator is most likely not there.
UNSEEN_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A program that works on objects of custom kinds.

    Attributes:
        name: as people call it.
        project: whose manifests install it and its definitions (`kubeflow/katib` on GitHub).
        prototype: the bundled prototype that brings it; empty if none does.
        job_kind: what that prototype's parameter `jobKinds` has to name.
        instead: the `apiVersion`, and where it is another one the kind, that it serves today, where that
            is not the one that was asked for.
    """

    name: str
    project: str = ""
    prototype: str = ""
    job_kind: str = ""
    instead: str = ""


_TRAINING, _MPI = ("training operator", "kubeflow/trainer (1.9)"), ("MPI operator", "kubeflow/mpi-operator")
_KATIB, _PIPELINES = ("Katib controller", "kubeflow/katib"), ("Kubeflow Pipelines", "kubeflow/pipelines")
_ARGO, _EVENTS = ("workflow controller", "argoproj/argo-workflows"), ("Argo Events", "argoproj/argo-events")
_ROLLOUTS, _ARGO_CD = ("Argo Rollouts controller", "argoproj/argo-rollouts"), ("Argo CD", "argoproj/argo-cd")
_ISTIO, _VOLCANO = ("Istio", "istio/istio"), ("Volcano controller", "volcano-sh/volcano")
_WORKSPACES = ("workspaces controller", "kubeflow/notebooks (v2)")
_FLUX = "fluxcd/flux2"

# By `apiVersion/kind`, else `group/kind`, else group: operator and project.
_SERVED: Mapping[str, tuple[str, str]] = {
    "kubeflow.org/TFJob": _TRAINING,
    "kubeflow.org/PyTorchJob": _TRAINING,
    "kubeflow.org/XGBoostJob": _TRAINING,
    "kubeflow.org/JAXJob": _TRAINING,
    "kubeflow.org/PaddleJob": _TRAINING,
    "kubeflow.org/v1/MPIJob": _TRAINING,
    "kubeflow.org/MPIJob": _MPI,
    "kubeflow.org/Experiment": _KATIB,
    "kubeflow.org/Suggestion": _KATIB,
    "kubeflow.org/Trial": _KATIB,
    "kubeflow.org/StudyJob": _KATIB,
    "kubeflow.org/ScheduledWorkflow": _PIPELINES,
    "kubeflow.org/Viewer": _PIPELINES,
    "pipelines.kubeflow.org": _PIPELINES,
    "kubeflow.org/Notebook": ("notebook controller", "kubeflow/notebooks"),
    "kubeflow.org/PVCViewer": ("PVCViewer controller", "kubeflow/notebooks"),
    "tensorboard.kubeflow.org": ("tensorboard controller", "kubeflow/notebooks"),
    "kubeflow.org/Workspace": _WORKSPACES,
    "kubeflow.org/WorkspaceKind": _WORKSPACES,
    "kubeflow.org/Profile": ("profile controller", "kubeflow/dashboard"),
    "kubeflow.org/PodDefault": ("webhook of PodDefaults", "kubeflow/dashboard"),
    "trainer.kubeflow.org": ("Kubeflow Trainer", "kubeflow/trainer"),
    "serving.kubeflow.org": ("KServe controller", "kserve/kserve"),
    "serving.kserve.io": ("KServe controller", "kserve/kserve"),
    "serving.knative.dev": ("Knative controller", "knative/serving"),
    "machinelearning.seldon.io": ("Seldon operator", "SeldonIO/seldon-core"),
    "sparkoperator.k8s.io": ("Spark operator", "kubeflow/spark-operator"),
    "ray.io": ("Ray operator", "ray-project/kuberay"),
    "jobset.x-k8s.io": ("JobSet controller", "kubernetes-sigs/jobset"),
    "leaderworkerset.x-k8s.io": ("LeaderWorkerSet controller", "kubernetes-sigs/lws"),
    "kueue.x-k8s.io": ("Kueue controller", "kubernetes-sigs/kueue"),
    "batch.volcano.sh": _VOLCANO,
    "scheduling.volcano.sh": _VOLCANO,
    "scheduling.x-k8s.io": ("coscheduling plugin", "kubernetes-sigs/scheduler-plugins"),
    "argoproj.io/Workflow": _ARGO,
    "argoproj.io/CronWorkflow": _ARGO,
    "argoproj.io/WorkflowTemplate": _ARGO,
    "argoproj.io/ClusterWorkflowTemplate": _ARGO,
    "argoproj.io/WorkflowEventBinding": _ARGO,
    "argoproj.io/WorkflowTaskSet": _ARGO,
    "argoproj.io/WorkflowTaskResult": _ARGO,
    "argoproj.io/WorkflowArtifactGCTask": _ARGO,
    "argoproj.io/Rollout": _ROLLOUTS,
    "argoproj.io/AnalysisTemplate": _ROLLOUTS,
    "argoproj.io/ClusterAnalysisTemplate": _ROLLOUTS,
    "argoproj.io/Experiment": _ROLLOUTS,
    "argoproj.io/Application": _ARGO_CD,
    "argoproj.io/ApplicationSet": _ARGO_CD,
    "argoproj.io/AppProject": _ARGO_CD,
    "argoproj.io/EventSource": _EVENTS,
    "argoproj.io/Sensor": _EVENTS,
    "cert-manager.io": ("cert-manager", "cert-manager/cert-manager"),
    "gateway.networking.k8s.io": ("gateway controller", "kubernetes-sigs/gateway-api"),
    "networking.istio.io": _ISTIO,
    "security.istio.io": _ISTIO,
    "monitoring.coreos.com": ("Prometheus operator", "prometheus-operator/prometheus-operator"),
    "keda.sh": ("KEDA", "kedacore/keda"),
    "external-secrets.io": ("External Secrets operator", "external-secrets/external-secrets"),
    "bitnami.com/SealedSecret": ("Sealed Secrets controller", "bitnami-labs/sealed-secrets"),
    "helm.toolkit.fluxcd.io": ("Flux", _FLUX),
    "kustomize.toolkit.fluxcd.io": ("Flux", _FLUX),
    "source.toolkit.fluxcd.io": ("Flux", _FLUX),
    "paddlepaddle.org/TrainingJob": ("elastic controller", ""),
}
_BUNDLED = {"training operator": "kubeflow-core", "elastic controller": "elastic-controller"}
# What the prototype `kubeflow-core` can bring of the training operator's kinds: not MPIJob.
_JOB_KINDS = frozenset({"TFJob", "PyTorchJob", "XGBoostJob", "JAXJob", "PaddleJob"})
# Versions and kinds that their operator has left behind.
_TODAY = {
    **{f"kubeflow.org/{kind}": "kubeflow.org/v1" for kind in _JOB_KINDS},
    "kubeflow.org/MPIJob": "kubeflow.org/v2beta1",
    "kubeflow.org/v1/MPIJob": "kubeflow.org/v1",
    "kubeflow.org/StudyJob": "kubeflow.org/v1beta1 Experiment",
    "kubeflow.org/Experiment": "kubeflow.org/v1beta1",
    "serving.kubeflow.org": "serving.kserve.io/v1beta1",
}
# Nobody serves these any more.
_RETIRED: Mapping[str, str] = {
    "kubeflow.org/MXJob": "the training operator has left it out since 1.9, and MXNet is archived",
    "kubeflow.org/ChainerJob": "its operator is not maintained",
    "kubeflow.org/CaffeJob": "its operator is not maintained",
    "kubeflow.org/Caffe2Job": "its operator is not maintained",
    "kfdef.apps.kubeflow.org/KfDef": "kfctl is not maintained",
    "scheduling.incubator.k8s.io/PodGroup": "kube-batch is not maintained; Volcano took its place",
    "scheduling.incubator.k8s.io/Queue": "kube-batch is not maintained; Volcano took its place",
}


def operator_of(api_version: str, kind: str) -> Operator | None:
    """Give the operator that serves a kind, None if it is not known."""
    keys = _keys(api_version, kind)
    served = next((_SERVED[key] for key in keys if key in _SERVED), None)
    if served is None:
        return None
    name, project = served
    today = next((_TODAY[key] for key in keys if key in _TODAY), "")
    is_bundled = name in _BUNDLED and (kind in _JOB_KINDS or name != _TRAINING[0])
    return Operator(
        name=name,
        project=project,
        prototype=_BUNDLED[name] if is_bundled else "",
        job_kind=kind.lower() if kind in _JOB_KINDS else "",
        instead="" if today == api_version else today,
    )


def retired(api_version: str, kind: str) -> str:
    """Say why nobody serves a kind any more; empty if somebody does, or that is not known."""
    return next((_RETIRED[key] for key in _keys(api_version, kind) if key in _RETIRED), "")


def likely_kind(api_version: str, kind: str) -> str:
    """Give the known kind of a group that is spelt nearly so; empty if there is none."""
    group = group_of(api_version)
    known = [key.rpartition("/")[2] for key in _SERVED if key.startswith(f"{group}/")]
    return "" if kind in known else names.nearest(kind, known) or ""


def how_to_install(operator: Operator, environment: str) -> str:
    """Say how an operator and its definitions come into a cluster."""
    if not operator.prototype:
        return f"install it by the manifests of github.com/{operator.project}"
    add = f"mlstack generate {operator.prototype} {operator.prototype}"
    apply = f"mlstack apply {environment} -c {operator.prototype}"
    kinds = f", its parameter `jobKinds` naming {operator.job_kind}" if operator.job_kind else ""
    return f"the prototype `{operator.prototype}` brings it{kinds}: {add}, then {apply}"


def unseen(facts: Facts) -> Readiness | None:
    """Say that no operator has looked at an object; None if one has, or it is too early to tell."""
    if facts.status or facts.events or facts.pods or facts.age_s <= UNSEEN_S:
        return None
    return waiting(f"{_unseen_by(facts.data)} after {int(facts.age_s)} s")


def is_unseen(data: Mapping[str, Any], found: Readiness) -> bool:
    """Tell whether that is what an object waits for."""
    return found.state == "waiting" and found.reason.startswith(_unseen_by(data))


def _unseen_by(data: Mapping[str, Any]) -> str:
    return f"no {name_of(data) or 'controller'} has picked it up"


def name_of(data: Mapping[str, Any]) -> str:
    """Name the operator that serves an object; empty if it is not known."""
    known = operator_of(str(data.get("apiVersion", "")), str(data.get("kind", "")))
    return known.name if known else ""


def _keys(api_version: str, kind: str) -> tuple[str, ...]:
    group = group_of(api_version)
    return (f"{api_version}/{kind}", f"{group}/{kind}", group)
