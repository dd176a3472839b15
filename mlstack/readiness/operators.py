"""Who serves which custom kinds, and signs of life: whether that operator looks at an object at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlstack import names
from mlstack.app.prototype import Need
from mlstack.dataclass import dataclass
from mlstack.objects.kube_object import Kinds, group_of
from mlstack.readiness.rule import Facts, Readiness, waiting

# After this time without a sign of life the operator is most likely not there.
UNSEEN_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A program that works on objects of custom kinds."""

    name: str  # as people call it
    project: str = ""  # whose manifests install it and its definitions (`kubeflow/katib` on GitHub)
    prototype: str = ""  # the bundled one that brings it, empty if none does
    job_kind: str = ""  # what that prototype's parameter `jobKinds` has to name
    # The `apiVersion`, and where it is another one the kind, that it serves today, where that is not the one
    # that was asked for.
    instead: str = ""


# Operator, project, and what it serves: `apiVersion/kind`, else `group/kind`, else group.
_OPERATORS = (
    (
        "training operator",
        "kubeflow/trainer (1.9)",
        "kubeflow.org/TFJob kubeflow.org/PyTorchJob kubeflow.org/XGBoostJob kubeflow.org/JAXJob "
        "kubeflow.org/PaddleJob kubeflow.org/v1/MPIJob",
    ),
    ("MPI operator", "kubeflow/mpi-operator", "kubeflow.org/MPIJob"),
    (
        "Katib controller",
        "kubeflow/katib",
        "kubeflow.org/Experiment kubeflow.org/Suggestion kubeflow.org/Trial kubeflow.org/StudyJob",
    ),
    (
        "Kubeflow Pipelines",
        "kubeflow/pipelines",
        "kubeflow.org/ScheduledWorkflow kubeflow.org/Viewer pipelines.kubeflow.org",
    ),
    ("notebook controller", "kubeflow/notebooks", "kubeflow.org/Notebook"),
    ("PVCViewer controller", "kubeflow/notebooks", "kubeflow.org/PVCViewer"),
    ("tensorboard controller", "kubeflow/notebooks", "tensorboard.kubeflow.org"),
    ("workspaces controller", "kubeflow/notebooks (v2)", "kubeflow.org/Workspace kubeflow.org/WorkspaceKind"),
    ("profile controller", "kubeflow/dashboard", "kubeflow.org/Profile"),
    ("webhook of PodDefaults", "kubeflow/dashboard", "kubeflow.org/PodDefault"),
    ("Kubeflow Trainer", "kubeflow/trainer", "trainer.kubeflow.org"),
    ("KServe controller", "kserve/kserve", "serving.kubeflow.org serving.kserve.io"),
    ("Knative controller", "knative/serving", "serving.knative.dev"),
    ("Seldon operator", "SeldonIO/seldon-core", "machinelearning.seldon.io"),
    ("Spark operator", "kubeflow/spark-operator", "sparkoperator.k8s.io"),
    ("Ray operator", "ray-project/kuberay", "ray.io"),
    ("JobSet controller", "kubernetes-sigs/jobset", "jobset.x-k8s.io"),
    ("LeaderWorkerSet controller", "kubernetes-sigs/lws", "leaderworkerset.x-k8s.io"),
    ("Kueue controller", "kubernetes-sigs/kueue", "kueue.x-k8s.io"),
    ("Volcano controller", "volcano-sh/volcano", "batch.volcano.sh scheduling.volcano.sh"),
    ("coscheduling plugin", "kubernetes-sigs/scheduler-plugins", "scheduling.x-k8s.io"),
    (
        "workflow controller",
        "argoproj/argo-workflows",
        "argoproj.io/Workflow argoproj.io/CronWorkflow argoproj.io/WorkflowTemplate "
        "argoproj.io/ClusterWorkflowTemplate argoproj.io/WorkflowEventBinding "
        "argoproj.io/WorkflowTaskSet argoproj.io/WorkflowTaskResult argoproj.io/WorkflowArtifactGCTask",
    ),
    (
        "Argo Rollouts controller",
        "argoproj/argo-rollouts",
        "argoproj.io/Rollout argoproj.io/AnalysisTemplate argoproj.io/ClusterAnalysisTemplate "
        "argoproj.io/Experiment",
    ),
    (
        "Argo CD",
        "argoproj/argo-cd",
        "argoproj.io/Application argoproj.io/ApplicationSet argoproj.io/AppProject",
    ),
    ("Argo Events", "argoproj/argo-events", "argoproj.io/EventSource argoproj.io/Sensor"),
    ("cert-manager", "cert-manager/cert-manager", "cert-manager.io"),
    ("gateway controller", "kubernetes-sigs/gateway-api", "gateway.networking.k8s.io"),
    ("Istio", "istio/istio", "networking.istio.io security.istio.io"),
    ("Prometheus operator", "prometheus-operator/prometheus-operator", "monitoring.coreos.com"),
    ("KEDA", "kedacore/keda", "keda.sh"),
    ("External Secrets operator", "external-secrets/external-secrets", "external-secrets.io"),
    ("Sealed Secrets controller", "bitnami-labs/sealed-secrets", "bitnami.com/SealedSecret"),
    ("Flux", "fluxcd/flux2", "helm.toolkit.fluxcd.io kustomize.toolkit.fluxcd.io source.toolkit.fluxcd.io"),
    ("elastic controller", "", "paddlepaddle.org/TrainingJob"),
)
_SERVED = {key: (name, project) for name, project, keys in _OPERATORS for key in keys.split()}
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
    is_bundled = name in _BUNDLED and (kind in _JOB_KINDS or name != "training operator")
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
    params = {"jobKinds": operator.job_kind} if operator.job_kind else {}
    return how_to_bring(Need(kind="", brings=operator.prototype, params=params), environment)


def how_to_bring(need: Need, environment: str) -> str:
    """Say how a kind that is needed comes into a cluster: with a prototype of ours, else upstream's way."""
    if not need.brings:
        return f"as its project says: {need.install}"
    params = "".join(f", its parameter `{name}` naming {value}" for name, value in need.params.items())
    add = f"mlstack generate {need.brings} {need.brings}"
    apply = f"mlstack apply {environment} -c {need.brings}"
    return f"the prototype `{need.brings}` brings it{params}: {add}, then {apply}"


def need_text(need: Need, environment: str) -> str:
    """Say that a prototype needs a kind, and how that comes into a cluster."""
    api_version, _, kind = need.kind.rpartition("/")
    return f"needs the kind `{kind}` ({api_version}): {how_to_bring(need, environment)}"


def kind_hint(api_version: str, kind: str, served: Kinds, environment: str) -> str:
    """Say how a cluster that serves other kinds comes to know this one, or what was meant."""
    group, operator = group_of(api_version), operator_of(api_version, kind)
    versions = [
        other.api_version
        for other in served.of_group(group)
        if other.kind == kind
        if operator is None or _operator_name(other.api_version, kind) == operator.name
    ]
    if versions:
        return f"the cluster serves `{kind}` as {' and '.join(versions)}: write that `apiVersion`"
    if why := retired(api_version, kind):
        return f"nobody serves `{kind}` any more: {why}"
    if operator is not None:
        today = f"the {operator.name} serves {operator.instead} today; " if operator.instead else ""
        return f"`{kind}` is served by the {operator.name}: {today}{how_to_install(operator, environment)}"
    same_group = [other.kind for other in served.of_group(group)]
    likely = likely_kind(api_version, kind) or names.nearest(kind, same_group)
    if likely and likely != kind:
        return f"did you mean `{likely}`?"
    if "." in group and not group.endswith(".k8s.io"):
        return f"install the definitions of `{group}` first, or make them part of the app"
    elsewhere = sorted({other.api_version for other in Kinds.builtin() if other.kind == kind})
    if elsewhere:
        return f"Kubernetes serves `{kind}` as {' and '.join(elsewhere)}: write that `apiVersion`"
    return f"Kubernetes has no such kind: kubectl api-resources{f' --api-group={group}' if group else ''}"


def unseen(facts: Facts) -> Readiness | None:
    """Say that no operator has looked at an object; None if one has, or it is too early to tell."""
    if facts.status or facts.events or facts.pods or facts.age_s <= UNSEEN_S:
        return None
    return waiting(f"{_unseen_by(facts.data)} after {int(facts.age_s)} s")


def is_unseen(data: Mapping[str, Any], readiness: Readiness) -> bool:
    """Tell whether that is what an object waits for."""
    return readiness.state == "waiting" and readiness.reason.startswith(_unseen_by(data))


def _unseen_by(data: Mapping[str, Any]) -> str:
    return f"no {serving_operator(data) or 'controller'} has picked it up"


def serving_operator(data: Mapping[str, Any]) -> str:
    """Name the operator that serves an object; empty if it is not known."""
    return _operator_name(str(data.get("apiVersion", "")), str(data.get("kind", "")))


def _operator_name(api_version: str, kind: str) -> str:
    operator = operator_of(api_version, kind)
    return operator.name if operator else ""


def _keys(api_version: str, kind: str) -> tuple[str, ...]:
    group = group_of(api_version)
    return (f"{api_version}/{kind}", f"{group}/{kind}", group)
