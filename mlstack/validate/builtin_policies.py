"""The built-in policies that need a function; those that a line of a table says stand in `policies.rules`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from mlstack.objects.kube_object import KubeObject
from mlstack.objects.resources import NodePlace, amount, is_eligible
from mlstack.validate.formats import Field
from mlstack.validate.policies import Pods, PolicyContext, Violations, gpus, policy
from mlstack.validate.rules import amount_of, selects

_ACCELERATOR_LABELS = (
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "nvidia.com/gpu.product",
)

# --- GPUs and memory ---


@policy("""gpu-limits: ml | error
    | GPUs are not overcommitted: pods with a request that is not the limit are refused
    | set the GPU under `resources.limits`, and leave the request out or make it equal""")
def _gpu_limits(stack: PolicyContext) -> Violations:
    for pods, container in stack.containers:
        resources = container.at("resources")
        for name in gpus(container):
            request, limit = (resources.at(part, name) for part in ("requests", "limits"))
            if not limit:
                yield pods.obj, resources.says(f"asks for {request.value} {name} and has no limit of it")
            elif request and amount(name, str(request.value)) != amount(name, str(limit.value)):
                yield pods.obj, request.says(f"asks for {request.value} {name}, its limit is {limit.value}")


@policy("""gpu-nodes: ml, cost | warning
    | a pod on a GPU node that asks for no GPU keeps an expensive node busy and may find its GPU taken
    | ask for the GPU under `resources.limits`, or leave out the node selector""")
def _gpu_nodes(stack: PolicyContext) -> Violations:
    for pods in stack.pods:
        selector = pods.spec.at("nodeSelector")
        if pods.template.is_per_node or pods.asks_for_gpus:
            continue
        for label in _ACCELERATOR_LABELS:
            if product := selector.at(label).text:
                yield pods.obj, selector.at(label).says(f"chooses {product}, and asks for no GPU")


@policy("""gpu-tolerations: ml | error
    | a pod waits for ever where all GPU nodes have a taint that it does not tolerate
    | add the toleration to the pod's template; see `taints` in the environment's cluster.json""")
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


_TORCH_IMAGE = re.compile(r"(^|[/_-])(pytorch|torch|torchserve|torchtune|vllm(-openai)?)([:@_-]|$)")


@policy("""shared-memory: ml | error
    | data loaders of PyTorch and NCCL pass tensors through /dev/shm, which a container has 64 MiB of
    | mount an `emptyDir` with `medium: Memory` and a `sizeLimit` at /dev/shm""")
def _shared_memory(stack: PolicyContext) -> Violations:
    for pods in stack.whole_pods:
        for container in () if pods.spec.at("hostIPC").value is True else pods.main_containers:
            is_torch = pods.obj.kind == "PyTorchJob" or _TORCH_IMAGE.search(container.at("image").text)
            mounts = [mount.text for mount in container.all("volumeMounts[].mountPath")]
            if is_torch and gpus(container) and "/dev/shm" not in [mount.rstrip("/") for mount in mounts]:
                yield pods.obj, container.at("volumeMounts").says("has no volume at /dev/shm")


# --- data ---

_STATE = r"(checkpoint|ckpt|model|train|output|save|log|export|result)s?"
_OPTION = re.compile(rf"--?{_STATE}([-_]?(dir|path|directory|folder))([= ](?P<path>.*))?", re.IGNORECASE)
_VARIABLE = re.compile(rf"(.*_)?{_STATE}_?(DIR|PATH|DIRECTORY|FOLDER)", re.IGNORECASE)
_PASSING = ("emptyDir", "configMap", "secret", "projected", "downwardAPI", "image")


@policy("""checkpoint-storage: ml | error
    | what a training job writes into its container is gone with the pod, at the first failure
    | mount a PersistentVolumeClaim where it writes, or write to a bucket""")
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
                is_folder = path.startswith("/") and not path.startswith(("/dev/", "/proc/"))
                if is_folder and not _outlives(path, mounts):
                    says = f"writes to {path}, which no volume keeps that outlives the pod"
                    yield pods.obj, place.says(says)


def _written(container: Field) -> Iterator[tuple[Field, str]]:
    """Give what options and variables name for what is to be kept."""
    for words in container.all("command|args"):
        items = words.items
        for index, word in enumerate(items):
            match = _OPTION.fullmatch(word.text)
            if match:
                after = items[index + 1].text if index + 1 < len(items) else ""
                yield word, match["path"] if match["path"] is not None else after
    for variable in container.at("env").items:
        if _VARIABLE.fullmatch(variable.at("name").text):
            yield variable.at("value"), variable.at("value").text


def _outlives(path: str, mounts: Mapping[str, bool]) -> bool:
    """Tell whether the nearest mount above a path is of a volume that stays."""
    above = [mount for mount in mounts if f"{path.rstrip('/')}/".startswith(f"{mount}/")]
    return bool(above) and mounts[max(above, key=len)]


def _users_of_single_claims(stack: PolicyContext) -> Iterator[tuple[Pods, Field, str]]:
    """Give the pods that mount a claim of one node alone, its name there and its access modes."""
    modes = {
        (obj.namespace, obj.name): [mode.text for mode in Field(obj.data).all("spec.accessModes[]")]
        for obj in stack.of_kind("", "PersistentVolumeClaim")
    }
    for pods in stack.pods:
        for name in pods.spec.all("volumes[].persistentVolumeClaim?.claimName"):
            own = modes.get((pods.obj.namespace, name.text), [])
            if own and {"ReadWriteOnce", "ReadWriteOncePod"}.issuperset(own):
                yield pods, name, ", ".join(own)


@policy("""claim-access: ml | error
    | a claim of one node holds pods on other nodes up for ever, as of a job with several workers
    | ask for the access mode ReadWriteMany or ReadOnlyMany, or give each pod a claim of its own""")
def _claim_access(stack: PolicyContext) -> Violations:
    users = [*_users_of_single_claims(stack)]
    for pods, name, modes in users:
        same_claim = [other for other, its_name, _ in users if its_name.text == name.text]
        beside = [other.template for other in same_claim if other.obj is pods.obj]
        together = sum(template.most or template.replicas for template in beside)
        if together > 1 or pods.template.is_per_node:
            count = "one on each node" if pods.template.is_per_node else f"{together} of them"
            yield pods.obj, name.says(f"its pods share claim `{name.text}` ({modes}), {count}")


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


@policy("""training-deadline: ml, cost | warning
    | a job that hangs, as one whose workers wait for each other, keeps its GPUs until somebody looks
    | set `activeDeadlineSeconds` of the job to more than it ever needs""")
def _training_deadline(stack: PolicyContext) -> Violations:
    for obj in stack.objects:
        path = _DEADLINES.get((obj.group, obj.kind))
        deadlines = Field(obj.data).all(path) if path else []
        if not all(deadlines) and any(pods.asks_for_gpus for pods in stack.pods_of(obj)):
            yield obj, next(field for field in deadlines if not field).says("a job with GPUs has no deadline")


@policy("""finished-pods: ml, cost | warning
    | workers of MPI and clusters of Ray go on when the job is done, and keep their GPUs
    | set `runPolicy.cleanPodPolicy: Running` of an MPIJob, `shutdownAfterJobFinishes: true` of a RayJob""")
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


@policy("""training-queue: ml | error
    | where Kueue shares out the GPUs, a job without a queue takes what was promised to others
    | label the job `kueue.x-k8s.io/queue-name` with a LocalQueue of its namespace""")
def _training_queue(stack: PolicyContext) -> Violations:
    is_served = any(
        version.startswith("kueue.x-k8s.io/") and "LocalQueue" in kinds
        for version, kinds in (stack.apis or {}).items()
    )
    if not is_served and not stack.of_kind("kueue.x-k8s.io", "LocalQueue"):
        return
    for obj in stack.objects:
        label = Field(obj.data).at("metadata", "labels", "kueue.x-k8s.io/queue-name")
        is_meant = is_training(obj) and obj.group != "batch.volcano.sh" and not label.text
        if is_meant and any(pods.asks_for_gpus for pods in stack.pods_of(obj)):
            yield obj, label.says("a job with GPUs names no queue, and the cluster has Kueue")


# --- what runs stays up ---


@policy("""requests: reliability | warning
    | without requests the container counts as nothing to the scheduler, and is the first to be killed
    | set `resources.requests` of cpu and memory, in the template or by the component's parameters""")
def _requests(stack: PolicyContext) -> Violations:
    for pods in stack.whole_pods:
        whole = {name for part in pods.spec.at("resources").all("requests|limits") for name in part.names}
        for container in pods.containers:
            resources = container.at("resources")
            asked = whole | {name for part in resources.all("requests|limits") for name in part.names}
            missing = [name for name in ("cpu", "memory") if name not in asked]
            if missing:
                yield pods.obj, resources.says(f"asks for no {' and no '.join(missing)}")


def _serving(stack: PolicyContext) -> Iterator[Pods]:
    """Give the pods of workloads that a Service leads to, Services looked up by a label that each wants."""
    by_label: dict[tuple[str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for service in stack.of_kind("", "Service"):
        selector = Field(service.data).at("spec", "selector")
        for name in selector.names[:1]:
            by_label[service.namespace, name, str(selector.value[name])].append(selector.value)
    for pods in stack.pods:
        labels, namespace = pods.labels, pods.obj.namespace
        near = (by_label.get((namespace, name, str(value)), ()) for name, value in labels.items())
        is_selected = any(selector.items() <= labels.items() for rows in near for selector in rows)
        if pods.obj.group == "apps" and pods.obj.kind in ("Deployment", "StatefulSet") and is_selected:
            yield pods


@policy("""readiness-probe: reliability | warning
    | without a probe a model server gets requests before its model is loaded, and after it hangs
    | give the container that the Service leads to a `readinessProbe`""")
def _readiness_probe(stack: PolicyContext) -> Violations:
    for pods in _serving(stack):
        if not any(container.at("readinessProbe") for container in pods.containers):
            yield pods.obj, pods.spec.at("containers").says("serve without a `readinessProbe`")


@policy("""disruption-budget: reliability | warning
    | without a budget a drain of nodes, as of an upgrade, may take all replicas of a service at once
    | add a PodDisruptionBudget with `maxUnavailable: 1` that selects these pods""")
def _disruption_budget(stack: PolicyContext) -> Violations:
    for pods in _serving(stack):
        replicas = Field(pods.obj.data).at("spec", "replicas")
        if (replicas.number or 1) > 1 and not any(_budgets(stack, pods)):
            says = f"{replicas.number} replicas serve and no PodDisruptionBudget selects them"
            yield pods.obj, replicas.says(says)


def _budgets(stack: PolicyContext, pods: Pods) -> Iterator[KubeObject]:
    for budget in stack.of_kind("policy", "PodDisruptionBudget"):
        selector = Field(budget.data).at("spec", "selector")
        if budget.namespace == pods.obj.namespace and selector and selects(selector, pods.labels):
            yield budget


@policy("""budget-blocks: reliability | error
    | a budget that lets no pod go stops every drain: upgrades of nodes hang until somebody deletes it
    | let one pod go: `maxUnavailable: 1`, or fewer in `minAvailable` than there are replicas""")
def _budget_blocks(stack: PolicyContext) -> Violations:
    for pods in stack.pods:
        replicas = Field(pods.obj.data).at("spec", "replicas")
        if pods.obj.group == "apps" and not pods.template.is_per_node:
            for budget in _budgets(stack, pods):
                spec, count = Field(budget.data).at("spec"), 1 if replicas.number is None else replicas.number
                least, most = spec.at("minAvailable"), spec.at("maxUnavailable")
                bound = 100 if least.text else count
                if count and amount_of(most) == 0:
                    yield budget, most.says(f"lets no pod of {pods.obj.identity} go")
                elif count and (amount_of(least) or 0) >= bound:
                    says = f"{least.value} of {count} pods of {pods.obj.identity}: lets none go"
                    yield budget, least.says(says)


@policy("""claim-rollout: reliability | error
    | the new pod of a rolling update waits for the volume of the old one, and the old one for it
    | set `strategy: {type: Recreate}`, or use a claim that many nodes may mount""")
def _claim_rollout(stack: PolicyContext) -> Violations:
    for pods, claim, _ in _users_of_single_claims(stack):
        strategy = Field(pods.obj.data).at("spec", "strategy")
        surge = strategy.at("rollingUpdate", "maxSurge")
        has_surge = not surge or amount_of(surge) != 0
        is_rolling = strategy.at("type").text in ("", "RollingUpdate") and has_surge
        if (pods.obj.group, pods.obj.kind) == ("apps", "Deployment") and is_rolling:
            says = f"rolls over while one node alone may mount claim `{claim.text}`"
            yield pods.obj, strategy.says(says)


# --- nobody may do more than the work needs ---


@policy("""non-root: security | warning
    | root in a container is root on the node once it finds a way out of it
    | set `runAsNonRoot: true` and `runAsUser` in the pod's `securityContext`""")
def _non_root(stack: PolicyContext) -> Violations:
    for pods in stack.whole_pods:
        for container in pods.all_containers if pods.spec.at("os", "name").text != "windows" else ():
            contexts = [holder.at("securityContext") for holder in (container, pods.spec)]
            user = next((context.at("runAsUser") for context in contexts if context.at("runAsUser")), None)
            claims = [context.at("runAsNonRoot").value for context in contexts if context.at("runAsNonRoot")]
            if user is not None and user.value == 0:
                yield pods.obj, user.says("runs as root")
            elif user is None and claims[:1] != [True]:
                yield pods.obj, contexts[0].says("may run as root")


@policy("""restricted: security | warning
    | a namespace of Pod Security level `restricted` refuses pods that keep more than they need
    | set `allowPrivilegeEscalation: false`, `capabilities.drop: [ALL]`, `seccompProfile` RuntimeDefault""")
def _restricted(stack: PolicyContext) -> Violations:
    for pods in stack.whole_pods:
        profile = pods.spec.at("securityContext", "seccompProfile", "type")
        for container in pods.all_containers if pods.spec.at("os", "name").text != "windows" else ():
            context = container.at("securityContext")
            own = context.at("seccompProfile", "type").text or profile.text
            dropped = [capability.text for capability in context.all("capabilities.drop[]")]
            is_set = {
                "allowPrivilegeEscalation": context.at("allowPrivilegeEscalation").value is False,
                "capabilities.drop": "ALL" in dropped,
                "seccompProfile": own in ("RuntimeDefault", "Localhost"),
            }
            lacking = [name for name in is_set if not is_set[name]]
            if lacking:
                yield pods.obj, context.says(f"is not restricted: {', '.join(lacking)}")
