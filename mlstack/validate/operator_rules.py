"""What operators refuse beyond the definitions of their kinds, where `operators.rules` needs a function.

Training jobs, model serving and queues stand here, pipelines in `pipeline_rules.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import NamedTuple

from mlstack.objects.resources import quantity
from mlstack.validate import pipeline_rules as pipeline_rules  # enters its functions
from mlstack.validate.checks import (
    KindRules,
    between,
    check,
    choice,
    fits,
    joined,
    load,
    needed,
    syntax,
    unique,
)
from mlstack.validate.formats import Field, Problems, label_1035, qualified_name, shown, subdomain
from mlstack.validate.rules import rules_for


@cache
def operator_rules() -> list[KindRules]:
    """Give what operators refuse, by the kinds of each."""
    rules_for("")  # parts of its table are named in this one
    return load("operators.rules")


@cache
def operator_rules_for(kind: str) -> tuple[KindRules, ...]:
    """Give what the operators of a kind refuse beyond its definition."""
    return tuple(row for row in operator_rules() if kind in row.kinds)


# --- jobs of the training operator and the MPI operator ---


class _Roles(NamedTuple):
    """Where a job of the training operator keeps its roles, and what they must hold."""

    field: str
    container: str
    allowed: tuple[str, ...]  # empty: the webhook takes any


_JOBS = {
    "kubeflow.org/JAXJob": _Roles("jaxReplicaSpecs", "jax", ("Worker",)),
    "kubeflow.org/PaddleJob": _Roles("paddleReplicaSpecs", "paddle", ("Master", "Worker")),
    "kubeflow.org/PyTorchJob": _Roles("pytorchReplicaSpecs", "pytorch", ("Master", "Worker")),
    "kubeflow.org/TFJob": _Roles("tfReplicaSpecs", "tensorflow", ()),
    "kubeflow.org/XGBoostJob": _Roles("xgbReplicaSpecs", "xgboost", ("Master", "Worker")),
}


def job_templates(root: Field) -> list[Field]:
    """Give the pod templates of a training job, none for other kinds."""
    job = _JOBS.get(root.subject.kind)
    return root.all(f"spec.{job.field}.*.template") if job else []


@check
def _training_job(root: Field) -> Problems:
    """Every role is known, and has containers with images and the one that the operator sets up."""
    job = _JOBS[root.subject.kind]
    yield from needed(root.at("spec", job.field))
    for role, replicas in root.at("spec", job.field).entries:
        if job.allowed and role not in job.allowed:
            yield replicas.says(f"must be {joined(job.allowed, ' or ')}")
            continue
        containers = replicas.at("template", "spec", "containers")
        yield from needed(containers)
        for container in containers.items:
            yield from needed(container.at("image"))
        names = [container.at("name").text for container in containers.items]
        if names and job.container not in names:
            yield containers.says(f"must have a container `{job.container}`, got {joined(names)}")


@check
def _old_mpi_roles(roles: Field) -> Problems:
    for role, replicas in roles.entries:
        if role not in ("Launcher", "Worker"):
            yield replicas.says("must be `Launcher` or `Worker`")


@check
def _last_mpi_worker(root: Field) -> Problems:
    own_name, count = root.at("metadata", "name"), root.at("spec", "mpiReplicaSpecs", "Worker", "replicas")
    if wrong := label_1035(f"{own_name.text}-worker-{max(count.number or 1, 1) - 1}"):
        yield own_name.says(f"name of the last worker: {wrong}")


# --- runtimes of TrainJobs, and JobSets ---

_STEPS = {
    "dataset-initializer": "dataset-initializer",
    "model-initializer": "model-initializer",
    "trainer": "node",
}


@syntax
def _domain_path(text: str) -> str | None:
    """Check a name such as `example.org/manager`."""
    domain, slash, path = text.partition("/")
    if not slash or not re.fullmatch(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", path):
        return f"must be a domain, `/` and a path, got {shown(text)}"
    return subdomain(domain)


@check
def _training_step(job: Field) -> Problems:
    """A step of training has one replica and the container that the operator sets up."""
    step = job.at("template", "metadata", "labels", "trainer.kubeflow.org/trainjob-ancestor-step")
    if container := _STEPS.get(step.text):
        yield from between(1, 1)(job.at("replicas"))
        containers = job.at("template", "spec", "template", "spec", "containers")
        if container not in [inner.at("name").text for inner in containers.items]:
            yield containers.says(f"must have a container `{container}`")


@check
def _job_set(root: Field) -> Problems:
    jobs = root.at("spec", "replicatedJobs").items
    names: list[str] = []
    for job in jobs:
        yield from _replicated_job(job, root.at("metadata", "name").text)
        for dependency in job.all("dependsOn[].name"):
            if dependency.text not in names:
                yield dependency.says(f"must be a job before this one, got {shown(dependency.value)}")
        names.append(job.at("name").text)
    targets = root.all("spec.successPolicy.targetReplicatedJobs[]")
    targets += root.all("spec.failurePolicy.rules[].targetReplicatedJobs[]")
    for target in (*targets, *root.all("spec.coordinator?.replicatedJob")):
        if target.text not in names:
            yield target.not_as(f"one of the jobs {joined(names)}")
    for coordinator in root.all("spec.coordinator?"):
        for job in jobs:
            if job.at("name").text == coordinator.at("replicatedJob").text:
                yield from _coordinator(coordinator, job)


def _replicated_job(job: Field, owner: str) -> Problems:
    """Names of jobs and pods, with the highest indices, fit into a label."""
    spec, replicas = job.at("template", "spec"), _count(job.at("replicas"))
    yield from fits(label_1035)(job.at("groupName"))
    longest = f"{owner}-{job.at('name').text}-{replicas - 1}"
    wrong = label_1035(longest)
    completions = spec.at("completions").number
    if not wrong and completions and spec.at("completionMode").text in ("", "Indexed"):
        wrong = label_1035(f"{longest}-{completions - 1}-abcde")
    if wrong:
        yield job.at("name").says(f"name of the last job or pod: {wrong}")
    if _count(spec.at("parallelism")) * replicas > 2**31 - 1:
        yield job.at("replicas").says("must be at most 2147483647 times `parallelism`")


def _count(field: Field) -> int:
    """Give how many there are, of what there is one unless it is said."""
    return 1 if field.number is None else field.number


def _coordinator(coordinator: Field, job: Field) -> Problems:
    spec = job.at("template", "spec")
    completions = spec.at("completions").number
    if completions is None or spec.at("completionMode").text not in ("", "Indexed"):
        yield coordinator.says(f"needs `completions` in the indexed job `{job.at('name').text}`")
        return
    yield from between(0, _count(job.at("replicas")) - 1)(coordinator.at("jobIndex"))
    yield from between(0, completions - 1)(coordinator.at("podIndex"))


@check
def _failure_rule(own_name: Field) -> Problems:
    pattern = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
    if own_name.text and not (re.fullmatch(pattern, own_name.text) and len(own_name.text) <= 128):
        yield own_name.not_as("at most 128 letters, digits, `_`, `,` and `:`, with a letter first")


# --- Katib's Experiments ---

_DEFAULTED = ("Job", "TrainJob", "MPIJob", *(kind.rpartition("/")[2] for kind in _JOBS))
_PLACEHOLDER = re.compile(r"\$\{trialParameters\.(.+?)\}")
_META = re.compile(r"\$\{trialSpec\.(Name|Namespace|Kind|APIVersion|(Annotations|Labels)\[.+\])\}")


@check
def _experiment_name(own_name: Field) -> Problems:
    if len(own_name.text) > 40 or not re.match("[a-z]", own_name.text):
        yield own_name.not_as("at most 40 characters, starting with a letter")


@check
def _objective_alone(spec: Field) -> Problems:
    for metric in spec.all("objective.additionalMetricNames[]"):
        if metric.text == spec.at("objective", "objectiveMetricName").text:
            yield metric.says("must not be the objective again")


@check
def _trial(spec: Field) -> Problems:
    """The trial's template and its parameters name each other, and those of the search."""
    template = spec.at("trialTemplate")
    trial, config = template.at("trialSpec"), template.at("configMap")
    if bool(trial) == bool(config):
        yield template.says("needs either `trialSpec` or `configMap`")
        return
    required = template.all("configMap?.configMapName|configMapNamespace|templatePath")
    if trial.at("kind").text not in _DEFAULTED:
        required += template.all("successCondition|failureCondition")
    for field in (*required, *template.all("trialParameters[].name|reference")):
        yield from needed(field)
    for own_name in template.all("trialParameters[].name"):
        if set("{}") & set(own_name.text):
            yield own_name.says("must not contain `{` or `}`")
    yield from unique("name", "trialParameters[].name")(template)
    yield from unique("reference", "trialParameters[].reference")(template)
    searched = [inner.text for inner in spec.all("parameters[].name")]
    for reference in template.all("trialParameters[].reference"):
        if searched and reference.text not in searched and not _META.search(reference.text):
            yield reference.not_as(f"one of the parameters {joined(searched)}")
    if trial:
        yield from _placeholders(trial, template.all("trialParameters[].name"))


def _placeholders(trial: Field, declared: list[Field]) -> Problems:
    used = set(_PLACEHOLDER.findall(" ".join(_texts(trial.value))))
    for parameter in declared:
        if parameter.text and parameter.text not in used:
            yield parameter.says(f"is not used: `trialSpec` has no `${{trialParameters.{parameter.text}}}`")
    for missing in sorted(used - {parameter.text for parameter in declared}):
        yield trial.says(f"uses `${{trialParameters.{missing}}}`, which is not among `trialParameters`")
    for field in trial.all("metadata.name|namespace"):
        if field.text:
            yield field.says("must not be set: trials are named by the operator")
    for field in trial.all("apiVersion|kind"):
        yield from needed(field)


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for key, inner in value.items() for text in (str(key), *_texts(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


@check
def _metric_port(port: Field) -> Problems:
    if port and not (port.number or 0) > 0 and not (port.text.isdecimal() and int(port.text) > 0):
        yield port.not_as("a number above 0")


# --- KServe ---

_FRAMEWORKS = (
    *("huggingface", "lightgbm", "model", "onnx", "paddle", "pmml", "pytorch", "sklearn"),
    *("tensorflow", "triton", "xgboost"),
)
_CONTAINER = "kserve-container"


@check
def _one_model(predictor: Field) -> Problems:
    own = [f"`{name}`" for name in _FRAMEWORKS if predictor.at(name)]
    names = predictor.all("containers[].name")
    own += [f"container `{_CONTAINER}`" for name in names if name.text == _CONTAINER]
    if len(own) != 1:
        expected = f"must have one model or container `{_CONTAINER}`"
        yield predictor.says(f"{expected}, got {' and '.join(own) or 'none'}")


@check
def _replica_bounds(component: Field) -> Problems:
    low, high = _count(component.at("minReplicas")), component.at("maxReplicas")
    if high.number and low > high.number:
        yield high.says(f"must be at least `minReplicas` ({low}), got {high.number}")


@check
def _model_variables(component: Field) -> Problems:
    containers = component.all("containers|initContainers[]")
    containers += component.all("workerSpec.containers|initContainers[]")
    for container in (*containers, *component.all("|".join((*_FRAMEWORKS, "art")))):
        for variable in container.all("env[].name"):
            if variable.text == "PYTHONPATH":
                yield variable.says("must not be `PYTHONPATH`")
            if variable.text == "STORAGE_URI" and container.at("name").text == "transformer-container":
                yield variable.says("must not be `STORAGE_URI` in a transformer's container")


@check
def _storage_uris(component: Field) -> Problems:
    """Several models are mounted at absolute paths with a common parent."""
    several = component.at("storageUris")
    if several and any(framework.at("storageUri") for framework in component.all("|".join(_FRAMEWORKS))):
        yield several.says("must not be set together with `storageUri`")
    parents = set()
    for entry in several.items:
        yield from needed(entry.at("uri"))
        path = entry.at("mountPath").text or "/mnt/models"
        if not path.startswith("/") or path == "/" or ".." in path:
            yield entry.at("mountPath").not_as("an absolute path below the root, without `..`")
        if not entry.at("uri").text.startswith("pvc://"):
            parents.add(path.strip("/").partition("/")[0])
    if len(parents) > 1:
        yield several.says("must have mount paths with a common parent")


@check
def _percents(target: Field) -> Problems:
    if target.number is not None and not 1 <= target.number <= 100:
        yield target.says(f"must be 1 to 100 percent, got {target.number}")


@check
def _one_mebibyte(amount: Field) -> Problems:
    if amount and (quantity(amount.value) or 0) < 2**20:
        yield amount.not_as("at least `1Mi`")


@check
def _canaries(spec: Field) -> Problems:
    stable = spec.at("predictor")
    for own in spec.all("canary[].predictor"):
        if own.at("name").text and own.at("name").text == stable.at("name").text:
            yield own.at("name").says("must differ from the stable predictor's")
        yield from between(0, _count(stable.at("minReplicas")))(own.at("minReplicas"))
    total = sum(percent.number or 0 for percent in spec.all("canary[].trafficPercent"))
    if total > 100:
        yield spec.at("canary").says(f"must have at most 100 percent of traffic together, got {total}")


@check
def _weights(node: Field) -> Problems:
    weights = node.all("steps[].weight")
    total = sum(weight.number or 0 for weight in weights)
    if total != 100 and all(weights):
        yield node.says(f"must have weights that add up to 100, got {total}")


@check
def _adapter_names(root: Field) -> Problems:
    base = root.at("spec", "model", "name").text or root.at("metadata", "name").text
    for adapter in root.all("spec.model.lora.adapters[].name"):
        if adapter.text in (".", "..", base):
            yield adapter.says(f"must not be `.`, `..` or the model's own name, got {shown(adapter.value)}")


# --- Seldon Core ---

_PLAIN_SERVERS = ("HUGGINGFACE_SERVER", "MLFLOW_SERVER", "SKLEARN_SERVER", "XGBOOST_SERVER")
_BUILT_IN = ("SIMPLE_MODEL", "SIMPLE_ROUTER", "RANDOM_ABTEST", "AVERAGE_COMBINER")
_KAFKA = ("KAFKA_BROKER", "KAFKA_INPUT_TOPIC", "KAFKA_OUTPUT_TOPIC")


@check
def _seldon_units(spec: Field) -> Problems:
    transports = set()
    for predictor in spec.at("predictors").items:
        units = _units(predictor.at("graph"))
        transports |= {unit.at("endpoint", "type").text.lower() for unit in units} - {""}
        if predictor.at("annotations", "seldon.io/no-engine") and len(units) > 1:
            yield predictor.at("graph").says("must have one unit with the annotation `seldon.io/no-engine`")
        if spec.at("serverType").text == "kafka":
            given = [variable.text for variable in predictor.all("svcOrchSpec.env[].name")]
            if missing := [name for name in _KAFKA if name not in given]:
                yield predictor.at("svcOrchSpec", "env").says(f"must have {joined(missing, ' and ')}")
        for unit in units:
            yield from _unit(unit, predictor, spec.at("protocol").text)
    own = spec.at("transport").text
    if len(transports) > 1 or (own and transports - {own}):
        yield spec.says("must not mix types of endpoints: give `transport` alone")


def _units(unit: Field) -> list[Field]:
    return [unit, *(inner for child in unit.at("children").items for inner in _units(child))]


def _unit(unit: Field, predictor: Field, protocol: str) -> Problems:
    """Every unit of a graph has a container of its name, or a server that comes with Seldon and a model."""
    server, own_name = unit.at("implementation"), unit.at("name")
    if server.text in ("", "UNKNOWN_IMPLEMENTATION"):
        containers = [name.text for name in predictor.all("componentSpecs[].spec.containers[].name")]
        if own_name.text not in containers:
            offered = f"one of the containers {joined(containers)}" if containers else "that of a container"
            yield own_name.not_as(offered)
    elif server.text not in _BUILT_IN:
        if server.text != "HUGGINGFACE_SERVER" and not unit.at("modelUri").text:
            yield unit.at("modelUri").says(f"is required with `implementation: {server.text}`")
        if protocol == "tensorflow" and server.text in _PLAIN_SERVERS:
            yield server.says(f"`{server.text}` does not know `protocol: tensorflow`")
    for mode in unit.all("logger?.mode"):
        yield from needed(mode)


@check
def _seldon_traffic(predictors: Field) -> Problems:
    shadows = [predictor for predictor in predictors.items if predictor.at("shadow").value is True]
    for shadow in shadows[1:]:
        yield shadow.at("shadow").says("must be set for one predictor alone")
    if shadows and len(predictors.items) == 1:
        yield shadows[0].at("shadow").says("must not be set for the only predictor")
    for shadow in shadows:
        yield from between(0, 100)(shadow.at("traffic"))
    served = [predictor for predictor in predictors.items if predictor not in shadows]
    total = sum(predictor.at("traffic").number or 0 for predictor in served)
    if total != 100 and (len(served) > 1 or 0 < total < 100):
        yield predictors.says(f"must have traffic that adds up to 100, got {total}")


# --- Kueue ---

_MAX_FLAVORS = 256
_MAX_COMBINATIONS = 512


@check
def _cluster_queue(spec: Field) -> Problems:
    for quota in spec.all("resourceGroups[].flavors[].resources[]"):
        lent, nominal = quantity(quota.at("lendingLimit").value), quantity(quota.at("nominalQuota").value)
        if lent is not None and nominal is not None and lent > nominal:
            yield quota.at("lendingLimit").says(f"must be at most `nominalQuota` ({nominal:f})")
    flavors = [flavor.text for flavor in spec.all("resourceGroups[].flavors[].name")]
    for flavor in spec.all("admissionChecksStrategy.admissionChecks[].onFlavors[]"):
        if flavor.text not in flavors:
            yield flavor.not_as(f"one of the flavors {joined(flavors)}")


@check
def _kueue_quotas_in_order(spec: Field) -> Problems:
    """Resources and flavors stand once, quotas in the order of the resources."""
    for what, path in (("resource", "coveredResources[]"), ("flavor", "flavors[].name")):
        fields = spec.all(f"resourceGroups[].{path}")
        times = Counter(field.text for field in fields)
        for field in fields:
            if field.text and times[field.text] > 1:
                yield field.says(f"{what} {shown(field.value)} is used twice")
        if len(fields) > _MAX_FLAVORS:
            yield spec.at("resourceGroups").says(f"must have at most {_MAX_FLAVORS} {what}s together")
    for group in spec.at("resourceGroups").items:
        covered = [resource.text for resource in group.at("coveredResources").items]
        if len(group.all("flavors[].resources[]")) > _MAX_COMBINATIONS:
            yield group.says(f"must have at most {_MAX_COMBINATIONS} quotas")
        for flavor in group.at("flavors").items:
            for resource, quota in zip(covered, flavor.at("resources").items, strict=False):
                if quota.at("name").text != resource:
                    yield quota.at("name").not_as(f"`{resource}`, in the order of `coveredResources`")


@check
def _kueue_weight(field: Field) -> Problems:
    weight = quantity(field.value)
    if weight is not None and (weight < 0 or 0 < weight <= quantity("1n")):  # type: ignore[operator]
        yield field.not_as("0 or above 1n")


@check
def _kueue_taints(taints: Field) -> Problems:
    times = Counter((taint.at("key").text, taint.at("effect").text) for taint in taints.items)
    for taint in taints.items:
        if times[taint.at("key").text, taint.at("effect").text] > 1:
            yield taint.says(f"taint {shown(taint.at('key').value)} is used twice with the same effect")


# --- Volcano ---

_EVENTS = (
    *("*", "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed"),
    "JobUpdated",
)
_ACTIONS = (
    *("AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob"),
    *("CompleteJob", "ResumeJob"),
)
_HIERARCHY = ("volcano.sh/hierarchy", "volcano.sh/hierarchy-weights")


@check
def _volcano_queue(root: Field) -> Problems:
    """What is guaranteed is deserved, and what is deserved fits into the capability."""
    spec, own_name = root.at("spec"), root.at("metadata", "name").text
    for resource, guaranteed in spec.at("guarantee", "resource").entries:
        deserved = spec.at("deserved", resource)
        if (quantity(deserved.value) or 0) < (quantity(guaranteed.value) or 0):
            yield deserved.says(f"must be at least what is guaranteed ({guaranteed.value})")
    for resource, deserved in spec.at("deserved").entries:
        capability = spec.at("capability", resource).value
        most = quantity(capability)
        if most is not None and (quantity(deserved.value) or 0) > most:
            yield deserved.says(f"must be at most the `capability` ({capability})")
    if own_name and spec.at("parent").text == own_name:
        yield spec.at("parent").says("must be another queue")
    path, weights = (root.at("metadata", "annotations", key) for key in _HIERARCHY)
    if path.text.count("/") != weights.text.count("/"):
        yield weights.says(f"must have as many parts as `{_HIERARCHY[0]}`, got {shown(weights.value)}")
    parts = weights.text.split("/") if path.text or weights.text else []
    if any(not part.replace(".", "", 1).isdecimal() or float(part) <= 0 for part in parts):
        yield weights.not_as("numbers above 0 between slashes")


@check
def _volcano_job(root: Field) -> Problems:
    spec, own_name = root.at("spec"), root.at("metadata", "name").text
    tasks = spec.at("tasks").items
    replicas, names = 0, [task.at("name").text for task in tasks]
    for index, task in enumerate(tasks):
        count = _count(task.at("replicas"))
        replicas += count
        if names[index] and names[index] in names[:index]:
            yield task.at("name").says(f"task {shown(names[index])} is used twice")
        yield from between(0, count)(task.at("minAvailable"))
        if wrong := qualified_name(f"{own_name}-{names[index] or 'default0'}-{index}"):
            yield task.at("name").says(f"name of its pod: {wrong}")
        for dependency in task.all("dependsOn.name[]"):
            if dependency.text not in names:
                yield dependency.not_as(f"one of the tasks {joined(names)}")
    least = spec.at("minAvailable")
    if least and (least.number or 0) > replicas:
        yield least.says(f"must be at most the tasks' replicas together ({replicas}), got {least.number}")
    paths = Counter(path.text for path in spec.all("volumes[].mountPath"))
    for path in spec.all("volumes[].mountPath"):
        if path.text and paths[path.text] > 1:
            yield path.says(f"mount path {shown(path.value)} is used twice")


@check
def _volcano_policies(policies: Field) -> Problems:
    """A policy is for events or an exit code; each stands once, and `*` alone."""
    events: Counter[str] = Counter()
    for policy in policies.items:
        own = [field for field in (policy.at("event"), *policy.at("events").items) if field.text]
        code = policy.at("exitCode")
        if bool(own) == bool(code):
            yield policy.says("needs either `event` or `exitCode`")
        for event in own:
            yield from choice(*_EVENTS)(event)
        if own:
            yield from choice(*_ACTIONS)(policy.at("action"))
        if code.number == 0:
            yield code.says("must not be 0")
        events.update({event.text for event in own} or ([f"exit code {code.number}"] if code else ()))
    for occasion, times in events.items():
        if times > 1:
            yield policies.says(f"{shown(occasion)} stands in two policies")
    if "*" in events and any(not occasion.startswith(("*", "exit code")) for occasion in events):
        yield policies.says("must not have other events beside `*`")
