"""What Argo Workflows, the Spark operator and KubeRay refuse, where `operators.rules` needs a function."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mlstack.validate.checks import RULES, Rule, check, choice, joined, name, needed, says, syntax
from mlstack.validate.formats import Field, Problems, Syntax, schedule, shown, time_zones

# --- Argo Workflows ---

_TEMPLATE_TYPES = (
    *("container", "containerSet", "steps", "script", "resource", "dag", "suspend", "data", "http"),
    "plugin",
)
_LEAF_ONLY = "timeout|pendingTimeout|activeDeadlineSeconds?"
_LOOPS = ("withItems", "withParam", "withSequence")
_ANY_REFERENCE = re.compile(r"\{\{\s*((?:inputs|workflow)\.parameters\.[-\w]+)\s*\}\}")
_TASK_REFERENCE = re.compile(r"\{\{\s*(?:tasks|steps)\.([-\w]+)\.")
_OUTPUT = re.compile(r"\{\{\s*(?:tasks|steps)\.([-\w]+)\.outputs\.(parameters|artifacts)\.([-\w]+)\s*\}\}")
# `tasks.name` and `steps.name` are known only when it runs, and are let pass.
_OF_OTHERS = re.compile(r"\{\{\s*((?:(?:tasks|steps)\.(?!name)|item\.)[^{}]*?)\s*\}\}")
_DEPENDENCY = re.compile(r"([A-Za-z0-9][-\w]*)(?:\.[A-Za-z]+)?")


@check
def _argo_workflow(spec: Field) -> Problems:
    """Check a workflow that brings its templates; one of a WorkflowTemplate is left to the operator."""
    templates = spec.at("templates")
    if spec.at("workflowTemplateRef"):
        yield from says(templates, "must not stand beside `workflowTemplateRef`")
        return
    names = [template.at("name").text for template in templates.items]
    yield from _names(templates.items, _step_name)
    is_whole = not spec.subject.kind.endswith("WorkflowTemplate")
    if is_whole:
        yield from needed(spec.at("entrypoint"))
        yield from _values(spec.at("arguments"))
    for field in spec.all("entrypoint|onExit"):
        if field.text and field.text not in names and "{{" not in field.text:
            yield field.not_as(f"one of the templates {joined(names)}")
    for hook, settings in spec.at("hooks").entries:
        if hook != "exit":
            yield from needed(settings.at("expression"))
    strategies = ("OnPodCompletion", "OnPodSuccess", "OnWorkflowCompletion", "OnWorkflowSuccess")
    yield from choice(*strategies, unset=True)(spec.at("podGC", "strategy"))
    declared = {f"workflow.parameters.{name.text}" for name in spec.all("arguments.parameters[].name")}
    for template in templates.items:
        yield from _template(template, names, spec)
        yield from _references(template, declared if is_whole else None)
        yield from _outputs(template, templates)


def _step_name(text: str) -> str | None:
    if re.fullmatch(r"[A-Za-z0-9][-A-Za-z0-9]*", text) and len(text) <= 128:
        return None
    return f"must be at most 128 letters, digits and `-`, not starting with `-`, got {shown(text)}"


def _parameter_name(text: str) -> str | None:
    is_fine = re.fullmatch(r"[-\w]+", text)
    return None if is_fine else f"must be letters, digits, `_` and `-`, got {shown(text)}"


def _names(entries: Sequence[Field], syntax: Syntax) -> Problems:
    taken: set[str] = set()
    for entry in entries:
        yield from name(syntax)(entry.at("name"))
        if entry.at("name").text in taken:
            yield entry.at("name").says(f"name {shown(entry.at('name').value)} is used twice")
        taken.add(entry.at("name").text)


def _values(arguments: Field) -> Problems:
    yield from _names(arguments.all("parameters[]"), _parameter_name)
    yield from _names(arguments.all("artifacts[]"), _parameter_name)
    for parameter in arguments.at("parameters").items:
        value, allowed = parameter.at("value"), [choice.value for choice in parameter.at("enum").items]
        if not value and not parameter.at("valueFrom"):
            yield value.says("is required, or `valueFrom`")
        if allowed and value and value.value not in allowed:
            yield value.not_as(f"one of {joined(map(str, allowed))}")


def _template(template: Field, names: list[str], spec: Field) -> Problems:
    types = [kind for kind in _TEMPLATE_TYPES if template.at(kind)]
    if len(types) != 1:
        offered = "one of `container`, `script`, `steps`, `dag`, `resource` and so on"
        yield template.says(f"must have {offered}, got {joined(types, ' and ') or 'none'}")
        return
    yield from _names(template.all("inputs.parameters[]"), _parameter_name)
    yield from _names(template.all("outputs.parameters[]"), _parameter_name)
    policies = ("Always", "OnError", "OnFailure", "OnTransientError")
    yield from choice(*policies, unset=True)(template.at("retryStrategy", "retryPolicy"))
    for output in template.all("outputs.parameters[]"):
        if not output.at("value") and not output.at("valueFrom"):
            yield output.at("valueFrom").says("is required, or `value`")
    if types[0] in ("steps", "dag"):
        for field in template.all(_LEAF_ONLY):
            yield field.says(f"must not be set beside `{types[0]}`")
        yield from _called(template, names)
        return
    yield from says(template.at("parallelism"), "must only be set beside `steps` or `dag`")
    if types[0] in ("container", "script") and not spec.at("templateDefaults", types[0], "image").text:
        yield from needed(template.at(types[0], "image"))
    paths = [*template.all("container.volumeMounts[].mountPath"), *template.all("inputs.artifacts[].path")]
    for position, path in enumerate(paths if template.at("container") else ()):
        if path.text and path.text in [other.text for other in paths[:position]]:
            yield path.says(f"path {shown(path.value)} is used twice")
    if resource := template.at("resource"):
        action, is_given = resource.at("action"), bool(resource.at("manifest"))
        yield from choice("get", "create", "apply", "delete", "replace", "patch")(action)
        if action.text not in ("get", "delete") and is_given == bool(resource.at("manifestFrom")):
            yield resource.says("needs either `manifest` or `manifestFrom`")


def _called(template: Field, names: list[str]) -> Problems:
    """Steps and tasks call templates that are there, and wait for others without a circle."""
    tasks = template.at("dag", "tasks")
    if template.at("dag"):
        yield from needed(tasks)
        yield from _names(tasks.items, _step_name)
        yield from _dependencies(template, tasks.items)
    steps = [step for group in template.at("steps").items for step in (group.items or group.all("steps[]"))]
    yield from _names(steps, _step_name)
    before = {"name"}
    for step in steps:
        for used in _TASK_REFERENCE.findall(" ".join(texts(step.value))):
            if used not in (*before, step.at("name").text):
                yield step.says(f"uses the step `{used}`, which does not stand before it")
        before.add(step.at("name").text)
    for call in (*steps, *tasks.items):
        reference, called = call.at("templateRef"), call.at("template")
        if reference and called.text:
            yield called.says("must not stand beside `templateRef`")
        for field in call.all("templateRef?.name|template"):
            yield from needed(field)
        if called.text and called.text not in names and "{{" not in called.text:
            yield called.not_as(f"one of the templates {joined(names)}")
        if len(loops := [loop for loop in _LOOPS if call.at(loop)]) > 1:
            yield call.says(f"must have one loop, got {joined(loops, ' and ')}")
        yield from _values(call.at("arguments"))


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
        for used in _TASK_REFERENCE.findall(" ".join(texts(task.at("arguments").value))):
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


def _references(template: Field, of_workflow: set[str] | None) -> Problems:
    """Parameters that a template uses are declared; a WorkflowTemplate's may come with the workflow."""
    own = {f"inputs.parameters.{name.text}" for name in template.all("inputs.parameters[].name")}
    has_inline = any("inline" in call for call in _mappings(template.value))
    for reference in sorted(set(_ANY_REFERENCE.findall(" ".join(texts(template.value))))):
        is_workflow = reference.startswith("workflow.")
        if has_inline if not is_workflow else of_workflow is None:
            continue
        if reference not in ((of_workflow or ()) if is_workflow else own):
            place = "spec.arguments" if is_workflow else "its inputs"
            yield template.says(f"uses `{{{{{reference}}}}}`, which is not among the parameters of {place}")


def _outputs(template: Field, templates: Field) -> Problems:
    """Only steps and tasks may use what others give, and only what the template of those declares."""
    text = " ".join(texts(template.value))
    if not template.at("dag") and not template.at("steps"):
        for reference in sorted(set(_OF_OTHERS.findall(text))):
            whose = "hand it over by `arguments` of the step or task"
            yield template.says(f"uses `{{{{{reference}}}}}`, which the steps and tasks alone know: {whose}")
        return
    steps = [step for group in template.at("steps").items for step in group.items]
    tasks = [*template.all("dag.tasks[]"), *steps]
    called = {task.at("name").text: task.at("template").text for task in tasks}
    for task, kind, output in sorted(set(_OUTPUT.findall(text))):
        makers = [maker for maker in templates.items if maker.at("name").text == called.get(task)]
        if makers and output not in [given.text for given in makers[0].all(f"outputs.{kind}[].name")]:
            missing = f"uses the output `{output}` of `{task}`"
            yield template.says(f"{missing}, whose template has none of that name")


def _mappings(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _mappings(inner)


def texts(value: object) -> list[str]:
    """Give all texts of plain data, but for keys."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for inner in parts for text in texts(inner)]


@syntax
def _argo_schedule(text: str) -> str | None:
    """Check a schedule as Argo reads it: a time zone may stand in front."""
    return schedule(re.sub(r"^(CRON_)?TZ=\S+\s+", "", text))


@check
def _zone(zone: Field) -> Problems:
    if zone.text not in time_zones():
        yield zone.not_as("a time zone such as `Europe/Berlin`")


# --- the Spark operator ---

_AUTHENTICATE = "spark.kubernetes.authenticate"
_MANAGED = "is managed by the operator"
_DENIED = {
    **{
        f"{_AUTHENTICATE}.{who}.serviceAccountName": f"must not be set: use `{who}.serviceAccount`"
        for who in ("driver", "executor")
    },
    **{
        f"{_AUTHENTICATE}{who}.{what}": _MANAGED
        for who in ("", ".driver", ".executor")
        for what in ("oauthToken", "oauthTokenFile")
    },
    "spark.master": _MANAGED,
    "spark.kubernetes.driver.master": _MANAGED,
    **{
        f"spark.kubernetes.{who}container.image": "must not be set: use `image`"
        for who in ("", "driver.", "executor.")
    },
}


@check
def _spark_conf(root: Field) -> Problems:
    path = "spec.template.sparkConf" if "Scheduled" in root.subject.kind else "spec.sparkConf"
    namespace = root.at("metadata", "namespace").text
    for key, value in root.all(path)[0].entries:
        if key in _DENIED:
            yield value.says(_DENIED[key])
        if key == "spark.kubernetes.namespace" and namespace and value.text != namespace:
            yield value.not_as(f"`{namespace}`, where the application is")


# --- KubeRay ---


@check
def _ray_replicas(group: Field) -> Problems:
    low, high = group.at("minReplicas"), group.at("maxReplicas")
    if (low.number or 0) > (high.number if high.number is not None else 2**31):
        yield high.says(f"must be at least `minReplicas` ({low.number}), got {high.number}")


@check
def _ray_variables(cluster: Field) -> Problems:
    """The newer autoscaler is asked for in one place, and by who scales."""
    options, is_scaling = cluster.at("autoscalerOptions"), cluster.at("enableInTreeAutoscaling").value is True
    newer = _head_variables(cluster).get("RAY_enable_autoscaler_v2", Field(None))
    is_set = newer.at("value").text in ("1", "true")
    if not is_scaling and is_set:
        yield newer.says("needs `enableInTreeAutoscaling: true`")
    if is_scaling and options.at("version"):
        yield from says(newer, "must not be set together with `autoscalerOptions.version`")
    for field in cluster.all("workerGroupSpecs[].idleTimeoutSeconds?"):
        if options.at("version").text != "v2" and not is_set:
            yield field.says("needs `autoscalerOptions.version: v2`")


def _head_variables(cluster: Field) -> dict[str, Field]:
    containers = cluster.all("headGroupSpec.template.spec.containers[]")[:1]
    return {variable.at("name").text: variable for first in containers for variable in first.all("env[]")}


@check
def _ray_fault_tolerance(root: Field) -> Problems:
    annotations = root.at("metadata", "annotations")
    paths = {"Cluster": "spec", "Job": "spec.rayClusterSpec", "Service": "spec.rayClusterConfig"}
    path = paths.get(root.subject.kind.removeprefix("ray.io/Ray"), "spec.jobTemplate.rayClusterSpec")
    for cluster in root.all(f"{path}?"):
        variables, none = _head_variables(cluster), Field(None)
        options, params = (
            cluster.at("gcsFaultToleranceOptions"),
            cluster.at("headGroupSpec", "rayStartParams"),
        )
        enabled, address = annotations.at("ray.io/ft-enabled"), variables.get("RAY_REDIS_ADDRESS", none)
        if options and enabled.text:
            yield enabled.says("must not be set together with `gcsFaultToleranceOptions`")
        if options:
            denied = [annotations.at("ray.io/external-storage-namespace"), params.at("redis-password")]
            for field in (*denied, variables.get("REDIS_PASSWORD", none), address):
                yield from says(field, "must not be set: use `gcsFaultToleranceOptions`")
            if options.at("backend").text in ("", "redis"):
                yield from says(options.at("storage"), "needs `backend: rocksdb`")
        elif enabled.text.lower() != "true":
            yield from says(address, "needs `gcsFaultToleranceOptions`")
        for field in (params.at("redis-username"), variables.get("REDIS_USERNAME", none)):
            yield from says(field, "must not be set: use `gcsFaultToleranceOptions.redisUsername`")


@check
def _ray_token(cluster: Field) -> Problems:
    auth, version = cluster.at("authOptions"), cluster.at("rayVersion")
    least = (2, 55) if auth.at("enableK8sTokenAuth").value is True else (2, 52)
    if auth.at("mode").text == "token" and tuple(map(int, re.findall(r"\d+", version.text)[:2])) < least:
        yield version.not_as(f"{least[0]}.{least[1]} or later with `authOptions.mode: token`")


def _above_zero(message: str) -> Rule:
    def check(field: Field) -> Problems:
        if (field.number or 0) > 0:
            yield field.says(message)

    return check


RULES["ray_keeps"] = _above_zero("needs `shutdownAfterJobFinishes: true`")
RULES["ray_once"] = _above_zero("must be 0 with a `clusterSelector` or `InteractiveMode`")


@check
def _ray_deletion(spec: Field) -> Problems:
    strategy, ends = spec.at("deletionStrategy"), spec.at("shutdownAfterJobFinishes").value is True
    rules, old = strategy.at("deletionRules"), strategy.all("onSuccess|onFailure")
    if bool(rules.items) == any(old):
        yield strategy.says("needs either `deletionRules` or both `onSuccess` and `onFailure`")
        return
    if rules.items and ends:
        yield rules.says("must not be set together with `shutdownAfterJobFinishes`")
    is_scaling = spec.at("rayClusterSpec", "enableInTreeAutoscaling").value is True
    for policy in (*(old if any(old) else ()), *rules.items):
        kind = policy.at("policy")
        if policy in old:
            yield from needed(kind)
        if policy in old and ends and kind.text == "DeleteNone":
            yield kind.says("must not be `DeleteNone` with `shutdownAfterJobFinishes`")
        if kind.text == "DeleteWorkers" and is_scaling:
            yield kind.says("must not be `DeleteWorkers` with `enableInTreeAutoscaling`")
        if kind.text in ("DeleteWorkers", "DeleteCluster") and spec.at("clusterSelector").names:
            yield kind.says(f"must not be `{kind.text}` with a `clusterSelector`")


@check
def _ray_upgrade_step(options: Field) -> Problems:
    step, surge = options.at("stepSizePercent").number, options.at("maxSurgePercent").number
    if step is not None and step > (100 if surge is None else surge):
        yield options.at("stepSizePercent").says(f"must be at most `maxSurgePercent` ({surge}), got {step}")
