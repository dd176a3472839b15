"""Policies for what machine learning asks of a cluster: GPUs, shared memory, data, training jobs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from mlstack.objects.kube_object import KubeObject
from mlstack.objects.resources import NodePlace, amount, is_eligible
from mlstack.validate.formats import Field
from mlstack.validate.policies import Pods, PolicyContext, Violations, gpus, policy

_ACCELERATOR_LABELS = (
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "nvidia.com/gpu.product",
)

# --- GPUs ---


@policy(
    "gpu-limits",
    "ml",
    reason="GPUs are not overcommitted: pods with a request that is not the limit are refused",
    fix="set the GPU under `resources.limits`, and leave the request out or make it equal",
)
def _gpu_limits(stack: PolicyContext) -> Violations:
    for pods, container in stack.containers:
        resources = container.at("resources")
        for name in gpus(container):
            request, limit = (resources.at(part, name) for part in ("requests", "limits"))
            if not limit:
                yield pods.obj, resources.says(f"asks for {request.value} {name} and has no limit of it")
            elif request and amount(name, str(request.value)) != amount(name, str(limit.value)):
                says = f"asks for {request.value} {name}, its limit is {limit.value}"
                yield pods.obj, request.says(says)


@policy(
    "gpu-nodes",
    "ml",
    "cost",
    severity="warning",
    reason="a pod on a GPU node that asks for no GPU keeps an expensive node busy and may find its GPU taken",
    fix="ask for the GPU under `resources.limits`, or leave out the node selector",
)
def _gpu_nodes(stack: PolicyContext) -> Violations:
    for pods in stack.pods:
        selector = pods.spec.at("nodeSelector")
        if pods.template.is_per_node or pods.asks_for_gpus:
            continue
        for label in _ACCELERATOR_LABELS:
            if selector.at(label).text:
                yield (
                    pods.obj,
                    selector.at(label).says(f"chooses {selector.at(label).text}, and asks for no GPU"),
                )


@policy(
    "gpu-tolerations",
    "ml",
    reason="a pod waits for ever where all GPU nodes have a taint that it does not tolerate",
    fix="add the toleration to the pod's template; see `taints` in the environment's cluster.json",
)
def _gpu_tolerations(stack: PolicyContext) -> Violations:
    """Ask the snapshot's nodes; on GKE the toleration of the resource's own name comes by itself."""
    for pods in stack.whole_pods:
        for name in sorted({name for container in pods.all_containers for name in gpus(container)}):
            shapes = [node for node in stack.nodes if amount(name, str(node["allocatable"].get(name, 0)))]
            barring = [_untolerated(node, name, pods.spec) for node in shapes]
            if barring and all(barring):
                taints = ", ".join(dict.fromkeys(taint for taints in barring for taint in taints))
                says = f"does not tolerate {taints}, which all nodes with {name} have"
                yield pods.obj, pods.spec.at("tolerations").says(says)


def _untolerated(node: Mapping[str, Any], resource: str, spec: Field) -> list[str]:
    is_gke = any(label.startswith("cloud.google.com/") for label in node.get("labels") or {})
    tolerations = {"tolerations": spec.at("tolerations").value}
    barring = []
    for text in map(str, node.get("taints") or ()):
        key, _, rest = text.partition("=")
        value, _, effect = rest.rpartition(":")
        place = NodePlace("", {}, ({"key": key, "value": value, "effect": effect},))
        is_given = (is_gke and key == resource) or is_eligible(tolerations, place)
        if effect in ("NoSchedule", "NoExecute") and not is_given:
            barring.append(text)
    return barring


# --- memory ---

_TORCH_IMAGE = re.compile(r"(^|[/_-])(pytorch|torch|torchserve|torchtune|vllm(-openai)?)([:@_-]|$)")


@policy(
    "shared-memory",
    "ml",
    reason="data loaders of PyTorch and NCCL pass tensors through /dev/shm, which a container has 64 MiB of",
    fix="mount an `emptyDir` with `medium: Memory` and a `sizeLimit` at /dev/shm",
)
def _shared_memory(stack: PolicyContext) -> Violations:
    for pods in stack.whole_pods:
        for container in () if pods.spec.at("hostIPC").value is True else pods.main_containers:
            is_torch = pods.obj.kind == "PyTorchJob" or _TORCH_IMAGE.search(container.at("image").text)
            mounts = [mount.text for mount in container.all("volumeMounts[].mountPath")]
            if is_torch and gpus(container) and "/dev/shm" not in [mount.rstrip("/") for mount in mounts]:
                yield pods.obj, container.at("volumeMounts").says("has no volume at /dev/shm")


@policy(
    "memory-volumes",
    "ml",
    "reliability",
    reason="a volume in memory without `sizeLimit` grows until the pod, or others on its node, are killed",
    fix="give the volume a `sizeLimit`, within the memory limit of the pod",
)
def _memory_volumes(stack: PolicyContext) -> Violations:
    for pods in stack.pods:
        for volume in pods.spec.all("volumes[].emptyDir?"):
            if volume.at("medium").text == "Memory" and not volume.at("sizeLimit"):
                yield pods.obj, volume.says("is in memory and has no `sizeLimit`")


# --- data ---

_STATE = r"(checkpoint|ckpt|model|train|output|save|log|export|result)s?"
_OPTION = re.compile(rf"--?{_STATE}([-_]?(dir|path|directory|folder))([= ](?P<path>.*))?", re.IGNORECASE)
_VARIABLE = re.compile(rf"(.*_)?{_STATE}_?(DIR|PATH|DIRECTORY|FOLDER)", re.IGNORECASE)
_PASSING = ("emptyDir", "configMap", "secret", "projected", "downwardAPI", "image")


@policy(
    "checkpoint-storage",
    "ml",
    reason="what a training job writes into its container is gone with the pod, at the first failure",
    fix="mount a PersistentVolumeClaim where it writes, or write to a bucket",
)
def _checkpoint_storage(stack: PolicyContext) -> Violations:
    for pods in stack.whole_pods:
        volumes = pods.spec.at("volumes").items
        passing = {v.at("name").text for v in volumes if any(v.at(kind) for kind in _PASSING)}
        for container in pods.main_containers if is_training(pods.obj) else ():
            mounts = {
                mount.at("mountPath").text.rstrip("/"): mount.at("name").text not in passing
                for mount in container.at("volumeMounts").items
            }
            for place, path in _written(container):
                if not _outlives(path, mounts):
                    says = f"writes to {path}, which no volume keeps that outlives the pod"
                    yield pods.obj, place.says(says)


def _written(container: Field) -> Iterator[tuple[Field, str]]:
    """Give the folders that options and variables name for what is to be kept."""
    for words in container.all("command|args"):
        items = words.items
        for index, word in enumerate(items):
            match = _OPTION.fullmatch(word.text)
            if match:
                after = items[index + 1].text if index + 1 < len(items) else ""
                yield from _folder(word, match["path"] if match["path"] is not None else after)
    for variable in container.at("env").items:
        if _VARIABLE.fullmatch(variable.at("name").text):
            yield from _folder(variable.at("value"), variable.at("value").text)


def _folder(place: Field, path: str) -> Iterator[tuple[Field, str]]:
    if path.startswith("/") and not path.startswith(("/dev/", "/proc/")):
        yield place, path


def _outlives(path: str, mounts: Mapping[str, bool]) -> bool:
    """Tell whether the nearest mount above a path is of a volume that stays."""
    above = [mount for mount in mounts if f"{path.rstrip('/')}/".startswith(f"{mount}/")]
    return bool(above) and mounts[max(above, key=len)]


@policy(
    "claim-access",
    "ml",
    reason="a claim of one node holds pods on other nodes up for ever, as of a job with several workers",
    fix="ask for the access mode ReadWriteMany or ReadOnlyMany, or give each pod a claim of its own",
)
def _claim_access(stack: PolicyContext) -> Violations:
    claims = {
        (obj.namespace, obj.name): Field(obj.data).at("spec", "accessModes")
        for obj in stack.of_kind("", "PersistentVolumeClaim")
    }
    users: dict[tuple[str, str], list[tuple[Pods, Field]]] = defaultdict(list)
    for pods in stack.pods:
        for name in pods.spec.all("volumes[].persistentVolumeClaim?.claimName"):
            if (pods.obj.namespace, name.text) in claims:
                users[pods.obj.namespace, name.text].append((pods, name))
    for claim, uses in users.items():
        modes = claims[claim]
        is_single = modes.items and all(
            mode.text in ("ReadWriteOnce", "ReadWriteOncePod") for mode in modes.items
        )
        for pods, name in uses if is_single else ():
            together = sum(
                other.template.most or other.template.replicas for other, _ in uses if other.obj is pods.obj
            )
            if together > 1 or pods.template.is_per_node:
                listed = ", ".join(mode.text for mode in modes.items)
                count = "one on each node" if pods.template.is_per_node else f"{together} of them"
                yield pods.obj, name.says(f"its pods share claim `{claim[1]}` ({listed}), {count}")


# --- training jobs ---

_DEADLINES: Mapping[tuple[str, str], str] = {
    ("argoproj.io", "CronWorkflow"): "spec.workflowSpec.activeDeadlineSeconds",
    ("argoproj.io", "Workflow"): "spec.activeDeadlineSeconds",
    ("batch", "Job"): "spec.activeDeadlineSeconds",
    ("batch.volcano.sh", "Job"): "",
    ("jobset.x-k8s.io", "JobSet"): "spec.replicatedJobs[].template.spec.activeDeadlineSeconds",
    **{
        ("kubeflow.org", kind): "spec.runPolicy.activeDeadlineSeconds"
        for kind in ("JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob")
    },
    ("paddlepaddle.org", "TrainingJob"): "",
    ("ray.io", "RayJob"): "spec.activeDeadlineSeconds",
    ("sparkoperator.k8s.io", "SparkApplication"): "",
    ("trainer.kubeflow.org", "TrainJob"): "",
}
"""Kinds of work that ends, and where they say when at the latest, if they can."""


def is_training(obj: KubeObject) -> bool:
    """Tell whether an object is work that ends."""
    return (obj.group, obj.kind) in _DEADLINES


@policy(
    "training-deadline",
    "ml",
    "cost",
    severity="warning",
    reason="a job that hangs, as one whose workers wait for each other, keeps its GPUs until somebody looks",
    fix="set `activeDeadlineSeconds` of the job to more than it ever needs",
)
def _training_deadline(stack: PolicyContext) -> Violations:
    for obj in stack.objects:
        path = _DEADLINES.get((obj.group, obj.kind))
        deadlines = Field(obj.data).all(path) if path else []
        if not all(deadlines) and any(pods.asks_for_gpus for pods in stack.pods_of(obj)):
            yield obj, next(field for field in deadlines if not field).says("a job with GPUs has no deadline")


@policy(
    "finished-pods",
    "ml",
    "cost",
    severity="warning",
    reason="workers of MPI and clusters of Ray go on when the job is done, and keep their GPUs",
    fix="set `runPolicy.cleanPodPolicy: Running` of an MPIJob, `shutdownAfterJobFinishes: true` of a RayJob",
)
def _finished_pods(stack: PolicyContext) -> Violations:
    for obj in [*stack.of_kind("kubeflow.org", "MPIJob"), *stack.of_kind("ray.io", "RayJob")]:
        spec = Field(obj.data).at("spec")
        cleaning = spec.at("runPolicy", "cleanPodPolicy") or spec.at("cleanPodPolicy")
        shutdown = spec.at("shutdownAfterJobFinishes")
        if not any(pods.asks_for_gpus for pods in stack.pods_of(obj)):
            continue
        if obj.kind == "MPIJob" and cleaning.text in ("", "None"):
            yield obj, spec.at("runPolicy", "cleanPodPolicy").says("leaves its workers running")
        elif obj.kind == "RayJob" and shutdown.value is not True:
            yield obj, shutdown.says("leaves its cluster running")


_SCHEDULED = (
    ("batch", "CronJob"),
    ("argoproj.io", "CronWorkflow"),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"),
)


@policy(
    "schedule-overlap",
    "ml",
    "cost",
    severity="warning",
    reason="a run that takes longer than its period is joined by the next, and both write the same model",
    fix="set `concurrencyPolicy` to Forbid or Replace",
)
def _schedule_overlap(stack: PolicyContext) -> Violations:
    for obj in stack.objects:
        policy_field = Field(obj.data).at("spec", "concurrencyPolicy")
        if (obj.group, obj.kind) in _SCHEDULED and policy_field.text in ("", "Allow"):
            yield obj, policy_field.says("runs may overlap")


_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@policy(
    "training-queue",
    "ml",
    reason="where Kueue shares out the GPUs, a job without a queue takes what was promised to others",
    fix=f"label the job `{_QUEUE_LABEL}` with a LocalQueue of its namespace",
)
def _training_queue(stack: PolicyContext) -> Violations:
    group = "kueue.x-k8s.io/"
    is_served = any(
        version.startswith(group) and "LocalQueue" in kinds for version, kinds in (stack.apis or {}).items()
    )
    if not is_served and not stack.of_kind("kueue.x-k8s.io", "LocalQueue"):
        return
    for obj in stack.objects:
        label = Field(obj.data).at("metadata", "labels", _QUEUE_LABEL)
        if (
            is_training(obj)
            and obj.group != "batch.volcano.sh"
            and not label.text
            and any(pods.asks_for_gpus for pods in stack.pods_of(obj))
        ):
            yield obj, label.says("a job with GPUs names no queue, and the cluster has Kueue")
