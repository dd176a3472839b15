"""What the operators of training jobs refuse beyond their definitions, and what they do otherwise.

The operators check in webhooks or before they start; neither is asked by a dry run without them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mlstack.validate.checks import (
    OperatorRules,
    at,
    between,
    choice,
    fits,
    joined,
    name,
    needed,
    says,
    unique,
)
from mlstack.validate.formats import Field, Problems, label_1035, shown, subdomain


class _Roles(NamedTuple):
    """Where a job of the training operator keeps its roles, and what they must hold."""

    field: str
    container: str
    allowed: tuple[str, ...]  # empty: the webhook takes any


_GROUP = "kubeflow.org"
_JOBS = {
    f"{_GROUP}/JAXJob": _Roles("jaxReplicaSpecs", "jax", ("Worker",)),
    f"{_GROUP}/PaddleJob": _Roles("paddleReplicaSpecs", "paddle", ("Master", "Worker")),
    f"{_GROUP}/PyTorchJob": _Roles("pytorchReplicaSpecs", "pytorch", ("Master", "Worker")),
    f"{_GROUP}/TFJob": _Roles("tfReplicaSpecs", "tensorflow", ()),
    f"{_GROUP}/XGBoostJob": _Roles("xgbReplicaSpecs", "xgboost", ("Master", "Worker")),
}
_MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def job_templates(root: Field) -> list[Field]:
    """Give the pod templates of a training job, none for other kinds."""
    job = _JOBS.get(root.subject.kind)
    return root.all(f"spec.{job.field}.*.template") if job else []


# --- jobs of the training operator ---


def _remarks(root: Field) -> Problems:
    """Say what the webhook takes and the operator then does otherwise."""
    for policy in root.all(f"spec.{_JOBS[root.subject.kind].field}.*.restartPolicy"):
        if policy.text == "ExitCode":
            # Seen with 1.8.1.
            yield policy.says(
                "`ExitCode` retries without end: the operator does not heed `backoffLimit`", "warning"
            )
    # kubeflow/trainer#3358
    late = "may be passed: the operator looks at it only when a pod changes"
    yield from at("spec.runPolicy.activeDeadlineSeconds", says(late, "warning"))(root)
    overridden = says("is overridden: give `restartPolicy` beside `template`", "warning")
    for template in job_templates(root):
        yield from overridden(template.at("spec", "restartPolicy"))


def _roles(root: Field) -> Problems:
    """Every role is known, and has containers with images and the one that the operator sets up."""
    job = _JOBS[root.subject.kind]
    yield from needed(root.at("spec", job.field))
    for role, replicas in root.at("spec", job.field).entries:
        if job.allowed and role not in job.allowed:
            yield replicas.says(f"must be {joined(job.allowed, ' or ')}")
            continue
        containers = replicas.at("template", "spec", "containers")
        yield from needed(containers)
        yield from _images(containers)
        names = [container.at("name").text for container in containers.items]
        if names and job.container not in names:
            yield containers.says(f"must have a container `{job.container}`, got {joined(names)}")


def _images(containers: Field) -> Problems:
    for container in containers.items:
        yield from needed(container.at("image"))


def _single_master(root: Field) -> Problems:
    master = root.at("spec", _JOBS[root.subject.kind].field, "Master")
    if master and master.at("replicas").number != 1:
        yield master.at("replicas").says(f"must be 1, got {shown(master.at('replicas').value)}")


def _tf_job(roles: Field) -> Problems:
    if {"Chief", "Master"} <= set(roles.names):
        yield roles.says("must not have both a `Chief` and a `Master`")


def _pytorch_job(spec: Field) -> Problems:
    workers, elastic = spec.at("pytorchReplicaSpecs", "Worker"), spec.at("elasticPolicy")
    yield from between(1)(workers.at("replicas"))
    if not elastic:
        return
    if not workers:
        yield workers.says("is required with an `elasticPolicy`")
    if elastic.at("nProcPerNode") and spec.at("nprocPerNode"):
        yield elastic.at("nProcPerNode").says("must not be set together with `spec.nprocPerNode`")


# --- MPIJobs: of the MPI operator (v2beta1), of the training operator (v1) ---


def _mpi_job(root: Field) -> Problems:
    if root.at("apiVersion").text.endswith("/v1"):
        yield from _old_mpi_job(root.at("spec", "mpiReplicaSpecs"))
        return
    spec = root.at("spec")
    yield from at("slotsPerWorker", between(0))(spec)
    yield from at("runPolicy.ttlSecondsAfterFinished|activeDeadlineSeconds|backoffLimit", between(0))(spec)
    managers = ("kubeflow.org/mpi-operator", _MULTIKUEUE)
    yield from at("runPolicy.managedBy?", choice(*managers))(spec)
    yield from at("runPolicy.cleanPodPolicy?", choice("None", "Running", "All"))(spec)
    yield from at("mpiImplementation?", choice("OpenMPI", "Intel", "MPICH"))(spec)
    launcher, worker = spec.at("mpiReplicaSpecs", "Launcher"), spec.at("mpiReplicaSpecs", "Worker")
    yield from needed(launcher)
    yield from between(1, 1)(launcher.at("replicas"))
    yield from between(1)(worker.at("replicas"))
    for role in (launcher, worker):
        yield from at("restartPolicy?", choice("Never", "OnFailure"))(role)
        if role:
            yield from needed(role.at("template", "spec", "containers"))
    last = f"{root.at('metadata', 'name').text}-worker-{max(worker.at('replicas').number or 1, 1) - 1}"
    if wrong := label_1035(last):
        yield root.at("metadata", "name").says(f"name of the last worker: {wrong}")


def _old_mpi_job(roles: Field) -> Problems:
    yield from needed(roles.at("Launcher"))
    yield from between(1, 1)(roles.at("Launcher", "replicas"))
    for role, replicas in roles.entries:
        if role not in ("Launcher", "Worker"):
            yield replicas.says("must be `Launcher` or `Worker`")
        yield from at("template.spec.containers", needed, _images)(replicas)


# --- TrainJobs and their runtimes ---

_TRAINER = "trainer.kubeflow.org"
_ANCESTOR = f"{_TRAINER}/trainjob-ancestor-step"
_STEPS = {
    "dataset-initializer": "dataset-initializer",
    "model-initializer": "model-initializer",
    "trainer": "node",
}
_PATCHED = "template.spec.replicatedJobs[].template.spec.template.spec"


def _domain_path(text: str) -> str | None:
    """Check a name such as `example.org/manager`."""
    domain, slash, path = text.partition("/")
    if not slash or not re.fullmatch(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", path):
        return f"must be a domain, `/` and a path, got {shown(text)}"
    return subdomain(domain)


def _runtime(reference: Field) -> Problems:
    group, kind = reference.at("apiGroup"), reference.at("kind")
    if group and group.text != _TRAINER:
        yield group.not_as(f"`{_TRAINER}`")
    if kind:
        yield from choice("ClusterTrainingRuntime", "TrainingRuntime")(kind)


def _runtime_patch(patch: Field) -> Problems:
    """Patches may not touch the variables of the containers that the operator sets up."""
    yield from name(_domain_path)(patch.at("manager"))
    for container in patch.all(f"trainingRuntimeSpec.{_PATCHED}.containers[]"):
        if container.at("name").text in _STEPS.values() and container.at("env").items:
            yield container.at("env").says("must not be set here: use `spec.trainer.env`")


def _training_runtime(job: Field) -> Problems:
    """A step of training has one replica and the container that the operator sets up."""
    container = _STEPS.get(job.at("template", "metadata", "labels", _ANCESTOR).text)
    if container is None:
        return
    yield from between(1, 1)(job.at("replicas"))
    containers = job.at("template", "spec", "template", "spec", "containers")
    if container not in [inner.at("name").text for inner in containers.items]:
        yield containers.says(f"must have a container `{container}`")


# --- JobSets ---

_REASONS = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
_RULE_NAME = re.compile("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def _job_set(root: Field) -> Problems:
    jobs = root.at("spec", "replicatedJobs").items
    names: list[str] = []
    for job in jobs:
        names.append(job.at("name").text)
        yield from _replicated_job(job, root.at("metadata", "name").text)
        for dependency in job.all("dependsOn[].name"):
            if dependency.text not in names[:-1]:
                yield dependency.says(f"must be a job before this one, got {shown(dependency.value)}")
    policies = root.all("spec.successPolicy.targetReplicatedJobs[]")
    policies += root.all("spec.failurePolicy.rules[].targetReplicatedJobs[]")
    for target in (*policies, *root.all("spec.coordinator?.replicatedJob")):
        if target.text not in names:
            yield target.not_as(f"one of the jobs {joined(names)}")
    for coordinator in root.all("spec.coordinator?"):
        for job in jobs:
            if job.at("name").text == coordinator.at("replicatedJob").text:
                yield from _coordinator(coordinator, job)


def _replicated_job(job: Field, owner: str) -> Problems:
    """Names of jobs and pods, with the highest indices, fit into a label."""
    spec, replicas = job.at("template", "spec"), job.at("replicas").number
    replicas = 1 if replicas is None else replicas
    yield from fits(label_1035)(job.at("groupName"))
    longest = f"{owner}-{job.at('name').text}-{replicas - 1}"
    wrong = label_1035(longest)
    completions = spec.at("completions").number
    if not wrong and completions and spec.at("completionMode").text in ("", "Indexed"):
        wrong = label_1035(f"{longest}-{completions - 1}-abcde")
    if wrong:
        yield job.at("name").says(f"name of the last job or pod: {wrong}")
    parallelism = spec.at("parallelism").number
    if (1 if parallelism is None else parallelism) * replicas > 2**31 - 1:
        yield job.at("replicas").says("must be at most 2147483647 times `parallelism`")


def _coordinator(coordinator: Field, job: Field) -> Problems:
    spec, replicas = job.at("template", "spec"), job.at("replicas").number
    completions = spec.at("completions").number
    if completions is None or spec.at("completionMode").text not in ("", "Indexed"):
        yield coordinator.says(f"needs `completions` in the indexed job `{job.at('name').text}`")
        return
    yield from between(0, (1 if replicas is None else replicas) - 1)(coordinator.at("jobIndex"))
    yield from between(0, completions - 1)(coordinator.at("podIndex"))


def _failure_rule(rule: Field) -> Problems:
    own_name = rule.at("name")
    if own_name.text and not (_RULE_NAME.fullmatch(own_name.text) and len(own_name.text) <= 128):
        yield own_name.not_as("at most 128 letters, digits, `_`, `,` and `:`, with a letter first")
    yield from at("onJobFailureReasons[]", choice(*_REASONS))(rule)


# --- Katib's Experiments ---

_COUNTS = "spec.parallelTrialCount|maxTrialCount"
_TYPES = ("int", "double", "categorical", "discrete", "unknown")
_DEFAULTED = ("Job", "TrainJob", "MPIJob", *(kind.rpartition("/")[2] for kind in _JOBS))
_PLACEHOLDER = re.compile(r"\$\{trialParameters\.(.+?)\}")
_META = re.compile(r"\$\{trialSpec\.(Name|Namespace|Kind|APIVersion|(Annotations|Labels)\[.+\])\}")


def _experiment(root: Field) -> Problems:
    spec = root.at("spec")
    if len(root.at("metadata", "name").text) > 40 or not re.match("[a-z]", root.at("metadata", "name").text):
        yield root.at("metadata", "name").not_as("at most 40 characters, starting with a letter")
    most = spec.at("maxTrialCount").number
    for count in spec.all("maxFailedTrialCount|parallelTrialCount"):
        if most is not None and count.number is not None and count.number > most:
            yield count.says(f"must be at most `maxTrialCount` ({most}), got {count.number}")
    objective = spec.at("objective", "objectiveMetricName").text
    for metric in spec.all("objective.additionalMetricNames[]"):
        if metric.text == objective:
            yield metric.says("must not be the objective again")
    if bool(spec.at("parameters").items) == bool(spec.at("nasConfig")):
        yield spec.says("needs either `parameters` or `nasConfig`")
    yield from at("earlyStopping?.algorithmName", needed)(spec)
    yield from _trial(spec)
    yield from at("metricsCollectorSpec", _metrics_collector)(spec)


def _parameter(parameter: Field) -> Problems:
    """Numbers have bounds, choices a list."""
    space, kind = parameter.at("feasibleSpace"), parameter.at("parameterType").text
    if not space.names:
        yield space.says("is required")
    elif kind in ("double", "int"):
        yield from says(f"must not be set with `parameterType: {kind}`")(space.at("list"))
        yield from at("max|min", needed)(space)
    elif kind in ("categorical", "discrete"):
        yield from at("max|min|step", says(f"must not be set with `parameterType: {kind}`"))(space)


def _trial(spec: Field) -> Problems:
    """The trial's template and its parameters name each other, and those of the search."""
    template = spec.at("trialTemplate")
    for field in template.all("primaryContainerName|trialParameters"):
        yield from needed(field)
    trial, config = template.at("trialSpec"), template.at("configMap")
    if bool(trial) == bool(config):
        yield template.says("needs either `trialSpec` or `configMap`")
        return
    yield from at("configMap?.configMapName|configMapNamespace|templatePath", needed)(template)
    if trial.at("kind").text not in _DEFAULTED:
        yield from at("successCondition|failureCondition", needed)(template)
    parameters = template.at("trialParameters")
    for parameter in parameters.items:
        yield from at("name|reference", needed)(parameter)
        if set("{}") & set(parameter.at("name").text):
            yield parameter.at("name").says("must not contain `{` or `}`")
    yield from unique("name", "trialParameters[].name")(template)
    yield from unique("reference", "trialParameters[].reference")(template)
    searched = [inner.text for inner in spec.all("parameters[].name")]
    for reference in template.all("trialParameters[].reference"):
        if searched and reference.text not in searched and not _META.search(reference.text):
            yield reference.says(
                f"must be one of the parameters {joined(searched)}, got {shown(reference.value)}"
            )
    if trial:
        yield from _placeholders(trial, parameters)


def _placeholders(trial: Field, parameters: Field) -> Problems:
    used = set(_PLACEHOLDER.findall(" ".join(_texts(trial.value))))
    declared = [parameter.at("name") for parameter in parameters.items]
    for parameter in declared:
        if parameter.text and parameter.text not in used:
            yield parameter.says(f"is not used: `trialSpec` has no `${{trialParameters.{parameter.text}}}`")
    for missing in sorted(used - {parameter.text for parameter in declared}):
        yield trial.says(f"uses `${{trialParameters.{missing}}}`, which is not among `trialParameters`")
    for field in trial.all("metadata.name|namespace"):
        if field.text:
            yield field.says("must not be set: trials are named by the operator")
    yield from at("apiVersion|kind", needed)(trial)


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for key, inner in value.items() for text in (str(key), *_texts(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


def _metrics_collector(collector: Field) -> Problems:
    kind, source = collector.at("collector", "kind").text or "StdOut", collector.at("source")
    path, file_format = source.at("fileSystemPath", "path"), source.at("fileSystemPath", "format")
    file_kind = source.at("fileSystemPath", "kind")
    if kind in ("File", "TensorFlowEvent", "Custom") and path.text and not path.text.startswith("/"):
        yield path.not_as("an absolute path")
    if kind == "File":
        yield from choice("File", unset=True)(file_kind)
        yield from choice("TEXT", "JSON", unset=True)(file_format)
        if file_format.text == "JSON":
            yield from says("must not be set with `format: JSON`")(source.at("filter"))
    elif kind == "TensorFlowEvent":
        yield from choice("Directory", unset=True)(file_kind)
        if file_format.text:
            yield file_format.says("must not be set for events of TensorFlow")
    elif kind == "PrometheusMetric":
        port, url = source.at("httpGet", "port"), source.at("httpGet", "path")
        if port and not (port.number or 0) > 0 and not (port.text.isdecimal() and int(port.text) > 0):
            yield port.not_as("a number above 0")
        if url.text and not url.text.startswith("/"):
            yield url.not_as("a path that starts with `/`")
    elif kind == "Custom":
        yield from needed(collector.at("collector", "customCollector"))
    elif kind not in ("StdOut", "Push"):
        yield collector.at("collector", "kind").not_as(
            "one of `StdOut`, `File`, `TensorFlowEvent`, `PrometheusMetric`, `Push`, `Custom`"
        )
    for pattern in source.all("filter.metricsFormat[]"):
        if not re.search(r"\(.*\).*\(.*\)", pattern.text):
            yield pattern.not_as("a pattern with two groups, the metric's name and its value")


# --- the table ---

TRAINING_RULES = (
    OperatorRules(
        "training operator 1.9",
        "kubeflow/trainer v1.9.4, pkg/webhooks",
        tuple(_JOBS),
        (at("metadata.name", fits(label_1035)), _roles, _remarks),
    ),
    OperatorRules(
        "training operator 1.9",
        "kubeflow/trainer v1.9.4, pkg/common/util/webhooks.go",
        tuple(kind for kind in _JOBS if not kind.endswith("/JAXJob")),
        (at("spec.runPolicy.managedBy?", choice("kubeflow.org/training-operator", _MULTIKUEUE)),),
    ),
    OperatorRules(
        "training operator 1.9",
        "kubeflow/trainer v1.9.4, pkg/webhooks/tensorflow, pytorch, xgboost",
        (f"{_GROUP}/TFJob",),
        (at("spec.tfReplicaSpecs", _tf_job),),
    ),
    OperatorRules(
        "training operator 1.9",
        "kubeflow/trainer v1.9.4, pkg/webhooks/pytorch/pytorchjob_webhook.go",
        (f"{_GROUP}/PyTorchJob",),
        (_single_master, at("spec", _pytorch_job)),
    ),
    OperatorRules(
        "training operator 1.9",
        "kubeflow/trainer v1.9.4, pkg/webhooks/xgboost/xgboostjob_webhook.go",
        (f"{_GROUP}/XGBoostJob",),
        (at("spec.xgbReplicaSpecs.Master", needed), _single_master),
    ),
    OperatorRules(
        "MPI operator 0.8",
        "kubeflow/mpi-operator v0.8.0, pkg/apis/kubeflow/validation; v1: kubeflow/trainer v1.9.4,"
        " pkg/apis/kubeflow.org/v1/mpi_validation.go",
        (f"{_GROUP}/MPIJob",),
        (_mpi_job,),
    ),
    OperatorRules(
        "Kubeflow Trainer 2.3",
        "kubeflow/trainer v2.3.0, pkg/webhooks/trainjob_webhook.go, pkg/runtime/framework/plugins/jobset",
        (f"{_TRAINER}/TrainJob",),
        (at("spec.runtimeRef", _runtime), at("spec.runtimePatches[]", _runtime_patch)),
    ),
    OperatorRules(
        "Kubeflow Trainer 2.3",
        "kubeflow/trainer v2.3.0, pkg/webhooks/trainingruntime_webhook.go",
        (f"{_TRAINER}/ClusterTrainingRuntime", f"{_TRAINER}/TrainingRuntime"),
        (at("spec.template.spec.replicatedJobs[]", _training_runtime),),
    ),
    OperatorRules(
        "JobSet 0.12",
        "kubernetes-sigs/jobset v0.12.0, pkg/webhooks/jobset_webhook.go",
        ("jobset.x-k8s.io/JobSet",),
        (
            _job_set,
            at("spec.network.subdomain", fits(label_1035)),
            at("spec.managedBy", fits(_domain_path)),
            at("spec.failurePolicy.rules[]", _failure_rule),
            unique("rule", "spec.failurePolicy.rules[].name"),
        ),
    ),
    OperatorRules(
        "Katib 0.19",
        "kubeflow/katib v0.19.0, pkg/webhook/v1beta1/experiment/validator/validator.go",
        (f"{_GROUP}/Experiment",),
        (
            _experiment,
            at("spec.maxFailedTrialCount", between(0)),
            at(_COUNTS, between(1)),
            at("spec.objective", needed, at("type", choice("minimize", "maximize"))),
            at("spec.objective?.objectiveMetricName", needed),
            at("spec.algorithm.algorithmName", needed),
            at("spec.resumePolicy", choice("Never", "LongRunning", "FromVolume", unset=True)),
            at("spec.parameters[]", _parameter),
            at(
                "spec.parameters[].parameterType",
                choice(*_TYPES),
            ),
        ),
    ),
)
