"""What operators refuse beyond the definitions of their kinds, where `operators.rules` needs a function.

Each has a line there, which says for what.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from mlstack.objects.resources import quantity
from mlstack.validate.api_server_rules import rules_for
from mlstack.validate.formats import (
    Field,
    Problems,
    label_1035,
    pattern,
    qualified_name,
    schedule,
    shown,
    subdomain,
)
from mlstack.validate.rules import RULES, KindRules, between, check, fits, joined, load, needed, syntax


def operator_rules() -> list[KindRules]:
    """Give what operators refuse, by the kinds of each."""
    rules_for("")  # parts of its table are named in this one
    return load("operators.rules")


@cache
def operator_rules_for(kind: str) -> tuple[KindRules, ...]:
    """Give what the operators of a kind refuse beyond its definition."""
    return tuple(row for row in operator_rules() if kind in row.kinds)


# --- jobs of the training operator and the MPI operator ---


@check
def _last_mpi_worker(root: Field) -> Problems:
    own_name, count = root.at("metadata", "name"), root.at("spec", "mpiReplicaSpecs", "Worker", "replicas")
    if wrong := label_1035(f"{own_name.text}-worker-{max(count.number or 1, 1) - 1}"):
        yield own_name.says(f"name of the last worker: {wrong}")


# --- runtimes of TrainJobs, and JobSets ---


@syntax
def _domain_path(text: str) -> str | None:
    """Check a name such as `example.org/manager`."""
    domain, slash, path = text.partition("/")
    if not slash or not re.fullmatch(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", path):
        return f"must be a domain, `/` and a path, got {shown(text)}"
    return subdomain(domain)


@check
def _job_set(root: Field) -> Problems:
    names: list[str] = []
    for job in root.all("spec.replicatedJobs[]"):
        yield from _replicated_job(job, root.at("metadata", "name").text)
        for dependency in job.all("dependsOn[].name"):
            if dependency.text not in names:
                yield dependency.says(f"must be a job before this one, got {shown(dependency.value)}")
        names.append(job.at("name").text)
        for coordinator in root.all("spec.coordinator?"):
            if coordinator.at("replicatedJob").text == job.at("name").text:
                yield from _coordinator(coordinator, job)


def _replicated_job(job: Field, owner: str) -> Problems:
    """Names of jobs and pods, with the highest indices, fit into a label."""
    spec, replicas = job.at("template", "spec"), _count(job.at("replicas"))
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


# --- Katib's Experiments ---

_PLACEHOLDER = re.compile(r"\$\{trialParameters\.(.+?)\}")


@check
def _trial_parameters(template: Field) -> Problems:
    """What is declared is used in the trial, and the other way round."""
    trial, declared = template.at("trialSpec"), template.all("trialParameters[].name")
    used = set(_PLACEHOLDER.findall(json.dumps(trial.value, ensure_ascii=False)))
    for parameter in declared:
        if parameter.text and parameter.text not in used:
            yield parameter.says(f"is not used: `trialSpec` has no `${{trialParameters.{parameter.text}}}`")
    for missing in sorted(used - {parameter.text for parameter in declared}):
        yield trial.says(f"uses `${{trialParameters.{missing}}}`, which is not among `trialParameters`")


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
def _common_parent(models: Field) -> Problems:
    mounted = [model for model in models.items if not model.at("uri").text.startswith("pvc://")]
    paths = [model.at("mountPath").text or "/mnt/models" for model in mounted]
    if len({path.strip("/").partition("/")[0] for path in paths}) > 1:
        yield models.says("must have mount paths with a common parent")


@check
def _canaries(spec: Field) -> Problems:
    for least in spec.all("canary[].predictor.minReplicas"):
        yield from between(0, _count(spec.at("predictor", "minReplicas")))(least)
    total = sum(percent.number or 0 for percent in spec.all("canary[].trafficPercent"))
    if total > 100:
        yield spec.at("canary").says(f"must have at most 100 percent of traffic together, got {total}")


@check
def _weights(node: Field) -> Problems:
    weights = node.all("steps[].weight")
    total = sum(weight.number or 0 for weight in weights)
    if total != 100 and all(weights):
        yield node.says(f"must have weights that add up to 100, got {total}")


# --- Seldon Core ---


@check
def _seldon_units(spec: Field) -> Problems:
    transports = set()
    for predictor in spec.at("predictors").items:
        units = _units(predictor.at("graph"))
        transports |= {unit.at("endpoint", "type").text.lower() for unit in units} - {""}
        if predictor.at("annotations", "seldon.io/no-engine") and len(units) > 1:
            yield predictor.at("graph").says("must have one unit with the annotation `seldon.io/no-engine`")
        containers = [name.text for name in predictor.all("componentSpecs[].spec.containers[].name")]
        for unit in units:
            is_own = unit.at("implementation").text in ("", "UNKNOWN_IMPLEMENTATION")
            if is_own and unit.at("name").text not in containers:
                offered = joined(containers)
                expected = f"one of the containers {offered}" if containers else "that of a container"
                yield unit.at("name").not_as(expected)
    own = spec.at("transport").text
    if len(transports) > 1 or (own and transports - {own}):
        yield spec.says("must not mix types of endpoints: give `transport` alone")


def _units(unit: Field) -> list[Field]:
    return [unit, *(inner for child in unit.at("children").items for inner in _units(child))]


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


@check
def _kueue_order(group: Field) -> Problems:
    """Quotas stand in the order of the resources."""
    covered = [resource.text for resource in group.at("coveredResources").items]
    for flavor in group.at("flavors").items:
        for resource, quota in zip(covered, flavor.at("resources").items, strict=False):
            if quota.at("name").text != resource:
                yield quota.at("name").not_as(f"`{resource}`, in the order of `coveredResources`")


@check
def _kueue_weight(field: Field) -> Problems:
    weight = quantity(field.value)
    if weight is not None and (weight < 0 or 0 < weight <= Decimal("1e-9")):
        yield field.not_as("0 or above 1n")


# --- Volcano ---

_HIERARCHY = ("volcano.sh/hierarchy", "volcano.sh/hierarchy-weights")


@check
def _volcano_queue(root: Field) -> Problems:
    """What is guaranteed is deserved, and what is deserved fits into the capability."""
    spec = root.at("spec")
    for resource, guaranteed in spec.at("guarantee", "resource").entries:
        deserved = spec.at("deserved", resource)
        if (quantity(deserved.value) or 0) < (quantity(guaranteed.value) or 0):
            yield deserved.says(f"must be at least what is guaranteed ({guaranteed.value})")
    for resource, deserved in spec.at("deserved").entries:
        capability = spec.at("capability", resource).value
        most = quantity(capability)
        if most is not None and (quantity(deserved.value) or 0) > most:
            yield deserved.says(f"must be at most the `capability` ({capability})")
    path, weights = (root.at("metadata", "annotations", key) for key in _HIERARCHY)
    if path.text.count("/") != weights.text.count("/"):
        yield weights.says(f"must have as many parts as `{_HIERARCHY[0]}`, got {shown(weights.value)}")
    parts = weights.text.split("/") if path.text or weights.text else []
    if any(not part.replace(".", "", 1).isdecimal() or float(part) <= 0 for part in parts):
        yield weights.not_as("numbers above 0 between slashes")


@check
def _volcano_job(root: Field) -> Problems:
    replicas, least = 0, root.at("spec", "minAvailable")
    for index, task in enumerate(root.all("spec.tasks[]")):
        count = _count(task.at("replicas"))
        replicas += count
        yield from between(0, count)(task.at("minAvailable"))
        pod = f"{root.at('metadata', 'name').text}-{task.at('name').text or 'default0'}-{index}"
        if wrong := qualified_name(pod):
            yield task.at("name").says(f"name of its pod: {wrong}")
    if least and (least.number or 0) > replicas:
        yield least.says(f"must be at most the tasks' replicas together ({replicas}), got {least.number}")


@check
def _volcano_policies(policies: Field) -> Problems:
    """Each event and exit code stands once, and `*` alone."""
    times: Counter[str] = Counter()
    for policy in policies.items:
        events = {field.text for field in (policy.at("event"), *policy.at("events").items) if field.text}
        code = policy.at("exitCode")
        times.update(events or ([f"exit code {code.number}"] if code else ()))
    for occasion in (occasion for occasion, count in times.items() if count > 1):
        yield policies.says(f"{shown(occasion)} stands in two policies")
    if "*" in times and any(not occasion.startswith(("*", "exit code")) for occasion in times):
        yield policies.says("must not have other events beside `*`")


# --- Argo Workflows ---

_ANY_REFERENCE = re.compile(r"\{\{\s*(inputs|workflow)\.parameters\.([-\w]+)\s*\}\}")
_TASK_REFERENCE = re.compile(r"\{\{\s*(?:tasks|steps)\.([-\w]+)\.")
_OUTPUT = re.compile(r"\{\{\s*(?:tasks|steps)\.([-\w]+)\.outputs\.(parameters|artifacts)\.([-\w]+)\s*\}\}")
# `tasks.name` and `steps.name` are known only when it runs, and are let pass.
_OF_OTHERS = re.compile(r"\{\{\s*((?:(?:tasks|steps)\.(?!name)|item\.)[^{}]*?)\s*\}\}")
_DEPENDENCY = re.compile(r"([A-Za-z0-9][-\w]*)(?:\.[A-Za-z]+)?")
_CALLS = "dag.tasks[]", "steps[][]"

RULES["step_name"] = fits(
    pattern("[A-Za-z0-9][-A-Za-z0-9]*", 128, "letters, digits and `-`, not starting with `-`")
)
RULES["parameter_name"] = fits(pattern(r"[-\w]+", None, "letters, digits, `_` and `-`"))


@check
def _argo_workflow(spec: Field) -> Problems:
    """Templates are called, and refer to each other's values, as far as they are there."""
    templates = spec.at("templates").items
    names = [template.at("name").text for template in templates]
    calls = [call.at("template") for path in _CALLS for call in spec.all(f"templates[].{path}")]
    for called in (*spec.all("entrypoint|onExit"), *calls):
        if called.text and called.text not in names and "{{" not in called.text:
            yield called.not_as(f"one of the templates {joined(names)}")
    for hook, settings in spec.at("hooks").entries:
        if hook != "exit":
            yield from needed(settings.at("expression"))
    for template in templates:
        yield from _steps_in_order(template)
        yield from _dependencies(template, template.all("dag.tasks[]"))
        yield from _references(template, spec)
        yield from _outputs(template, templates)


def _steps_in_order(template: Field) -> Problems:
    before = {"name"}
    for step in template.all("steps[][]"):
        own_name = step.at("name").text
        for used in _used(_TASK_REFERENCE, step):
            if used not in (*before, own_name):
                yield step.says(f"uses the step `{used}`, which does not stand before it")
        before.add(own_name)


def _used(reference: re.Pattern[str], field: Field) -> list[Any]:
    """Give what texts below a field refer to, each once."""
    return sorted(set(reference.findall(" ".join(_texts(field.value)))))


def _dependencies(template: Field, tasks: Sequence[Field]) -> Problems:
    after = {task.at("name").text: [before for _, before in _waited_for(task)] for task in tasks}
    has_depends = any(task.at("depends").text for task in tasks)
    for task in tasks:
        ancestors = _ancestors(task.at("name").text, after)
        for field, before in _waited_for(task):
            if before not in after:
                yield field.says(f"must name a task of this template, got {shown(before)}")
        for field in task.all("dependencies|continueOn?") if has_depends else ():
            yield field.says("must not be used where a task has `depends`")
        for used in _used(_TASK_REFERENCE, task.at("arguments")):
            if used in after and used not in ancestors:
                yield task.at("arguments").says(f"uses the task `{used}`, on which this one does not depend")
        if task.at("name").text in ancestors:
            yield task.says("waits for itself, in a circle")
    target = template.at("dag", "target")
    for named in target.text.split():
        if "{{" not in named and named not in after:
            yield target.not_as(f"one of the tasks {joined(task.at('name').text for task in tasks)}")


def _waited_for(task: Field) -> Iterator[tuple[Field, str]]:
    for dependency in task.at("dependencies").items:
        yield dependency, dependency.text
    for before in _DEPENDENCY.findall(task.at("depends").text):
        yield task.at("depends"), before


def _ancestors(task: str, after: dict[str, list[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = list(after.get(task, ()))
    while ahead:
        if (current := ahead.pop()) not in reached:
            reached.add(current)
            ahead.extend(after.get(current, ()))
    return reached


def _references(template: Field, spec: Field) -> Problems:
    """Parameters that a template uses are declared; a WorkflowTemplate's may come with the workflow."""
    inputs = [name.text for name in template.all("inputs.parameters[].name")]
    arguments = [name.text for name in spec.all("arguments.parameters[].name")]
    has_inline = any(call.at("inline") for path in _CALLS for call in template.all(path))
    for owner, name in _used(_ANY_REFERENCE, template):
        is_workflow = owner == "workflow"
        if spec.subject.kind.endswith("WorkflowTemplate") if is_workflow else has_inline:
            continue
        if name not in (arguments if is_workflow else inputs):
            place = "spec.arguments" if is_workflow else "its inputs"
            reference = f"`{{{{{owner}.parameters.{name}}}}}`"
            yield template.says(f"uses {reference}, which is not among the parameters of {place}")


def _outputs(template: Field, templates: Sequence[Field]) -> Problems:
    """Only steps and tasks may use what others give, and only what the template of those declares."""
    if not template.at("dag") and not template.at("steps"):
        for reference in _used(_OF_OTHERS, template):
            whose = "hand it over by `arguments` of the step or task"
            yield template.says(f"uses `{{{{{reference}}}}}`, which the steps and tasks alone know: {whose}")
        return
    calls = [call for path in _CALLS for call in template.all(path)]
    called = {call.at("name").text: call.at("template").text for call in calls}
    for task, kind, output in _used(_OUTPUT, template):
        makers = [maker for maker in templates if maker.at("name").text == called.get(task)]
        if makers and output not in [given.text for given in makers[0].all(f"outputs.{kind}[].name")]:
            missing = f"uses the output `{output}` of `{task}`"
            yield template.says(f"{missing}, whose template has none of that name")


def _texts(value: object) -> list[str]:
    """Give all texts of plain data, but for keys."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for inner in parts for text in _texts(inner)]


@syntax
def _argo_schedule(text: str) -> str | None:
    """Check a schedule as Argo reads it: a time zone may stand in front."""
    return schedule(re.sub(r"^(CRON_)?TZ=\S+\s+", "", text))


# --- KubeRay ---


@check
def _ray_token(cluster: Field) -> Problems:
    auth, version = cluster.at("authOptions"), cluster.at("rayVersion")
    least = (2, 55) if auth.at("enableK8sTokenAuth").value is True else (2, 52)
    if auth.at("mode").text == "token" and tuple(map(int, re.findall(r"\d+", version.text)[:2])) < least:
        yield version.not_as(f"{least[0]}.{least[1]} or later with `authOptions.mode: token`")
