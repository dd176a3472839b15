"""What Argo Workflows, the Spark operator and KubeRay refuse beyond the definitions of their kinds.

Argo looks when a workflow starts: one that it refuses has failed before its first step. KubeRay has the rules
in its controller and in an optional webhook; those behind its feature gates are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlstack.validate.checks import (
    OperatorRules,
    at,
    between,
    choice,
    fits,
    joined,
    labels,
    name,
    needed,
    says,
    unique,
)
from mlstack.validate.formats import (
    Field,
    Problems,
    Syntax,
    label_1035,
    schedule,
    shown,
    time_zones,
)

# --- Argo Workflows ---

_ARGO = "argoproj.io"
_TEMPLATE_TYPES = (
    *("container", "containerSet", "steps", "script", "resource", "dag", "suspend", "data", "http"),
    "plugin",
)
_LEAF_ONLY = "timeout|pendingTimeout|activeDeadlineSeconds"
_LOOPS = ("withItems", "withParam", "withSequence")
_ANY_REFERENCE = re.compile(r"\{\{\s*((?:inputs|workflow)\.parameters\.[-\w]+)\s*\}\}")
_TASK_REFERENCE = re.compile(r"\{\{\s*(?:tasks|steps)\.([-\w]+)\.")
_OUTPUT = re.compile(r"\{\{\s*(?:tasks|steps)\.([-\w]+)\.outputs\.(parameters|artifacts)\.([-\w]+)\s*\}\}")
# `tasks.name` and `steps.name` are known only when it runs, and are let pass.
_OF_OTHERS = re.compile(r"\{\{\s*((?:(?:tasks|steps)\.(?!name)|item\.)[^{}]*?)\s*\}\}")
_DEPENDENCY = re.compile(r"([A-Za-z0-9][-\w]*)(?:\.[A-Za-z]+)?")


def _workflow(spec: Field) -> Problems:
    """Check a workflow that brings its templates; one of a WorkflowTemplate is left to the operator."""
    templates = spec.at("templates")
    if spec.at("workflowTemplateRef"):
        yield from says("must not stand beside `workflowTemplateRef`")(templates)
        return
    known = [template.at("name").text for template in templates.items]
    yield from _names(templates, _step_name)
    if not spec.subject.kind.endswith("WorkflowTemplate"):
        yield from needed(spec.at("entrypoint"))
        yield from _values(spec.at("arguments"))
    for field in spec.all("entrypoint|onExit"):
        if field.text and field.text not in known and "{{" not in field.text:
            yield field.not_as(f"one of the templates {joined(known)}")
    for hook, settings in spec.at("hooks").entries:
        if hook != "exit":
            yield from needed(settings.at("expression"))
    strategies = ("OnPodCompletion", "OnPodSuccess", "OnWorkflowCompletion", "OnWorkflowSuccess")
    yield from choice(*strategies, unset=True)(spec.at("podGC", "strategy"))
    declared = {f"workflow.parameters.{name.text}" for name in spec.all("arguments.parameters[].name")}
    for template in templates.items:
        yield from _template(template, known, spec)
        yield from _references(template, declared, spec)
        yield from _outputs(template, templates)


def _step_name(text: str) -> str | None:
    if re.fullmatch(r"[A-Za-z0-9][-A-Za-z0-9]*", text) and len(text) <= 128:
        return None
    return f"must be at most 128 letters, digits and `-`, not starting with `-`, got {shown(text)}"


def _parameter_name(text: str) -> str | None:
    return (
        None if re.fullmatch(r"[-\w]+", text) else f"must be letters, digits, `_` and `-`, got {shown(text)}"
    )


def _names(entries: Field, syntax: Syntax) -> Problems:
    taken: set[str] = set()
    for entry in entries.items:
        yield from name(syntax)(entry.at("name"))
        if entry.at("name").text in taken:
            yield entry.at("name").says(f"name {shown(entry.at('name').value)} is used twice")
        taken.add(entry.at("name").text)


def _values(arguments: Field) -> Problems:
    yield from _names(arguments.at("parameters"), _parameter_name)
    yield from _names(arguments.at("artifacts"), _parameter_name)
    for parameter in arguments.at("parameters").items:
        if not parameter.at("value") and not parameter.at("valueFrom"):
            yield parameter.at("value").says("is required, or `valueFrom`")
        allowed = parameter.at("enum").items
        if (
            allowed
            and parameter.at("value")
            and parameter.at("value").value not in [a.value for a in allowed]
        ):
            yield parameter.at("value").not_as(f"one of {joined(str(value.value) for value in allowed)}")


def _template(template: Field, known: list[str], spec: Field) -> Problems:
    types = [kind for kind in _TEMPLATE_TYPES if template.at(kind)]
    if len(types) != 1:
        offered = "one of `container`, `script`, `steps`, `dag`, `resource` and so on"
        yield template.says(f"must have {offered}, got {joined(types, ' and ') or 'none'}")
        return
    yield from _names(template.at("inputs", "parameters"), _parameter_name)
    yield from _names(template.at("outputs", "parameters"), _parameter_name)
    policies = ("Always", "OnError", "OnFailure", "OnTransientError")
    yield from choice(*policies, unset=True)(template.at("retryStrategy", "retryPolicy"))
    for output in template.all("outputs.parameters[]"):
        if not output.at("value") and not output.at("valueFrom"):
            yield output.at("valueFrom").says("is required, or `value`")
    if types[0] in ("steps", "dag"):
        yield from at(_LEAF_ONLY, says(f"must not be set beside `{types[0]}`"))(template)
        yield from _called(template, known)
        return
    yield from says("must only be set beside `steps` or `dag`")(template.at("parallelism"))
    if types[0] in ("container", "script") and not spec.at("templateDefaults", types[0], "image").text:
        yield from needed(template.at(types[0], "image"))
    paths = [*template.all("container.volumeMounts[].mountPath"), *template.all("inputs.artifacts[].path")]
    for position, path in enumerate(paths if template.at("container") else ()):
        if path.text and path.text in [other.text for other in paths[:position]]:
            yield path.says(f"path {shown(path.value)} is used twice")
    if resource := template.at("resource"):
        yield from choice("get", "create", "apply", "delete", "replace", "patch")(resource.at("action"))
        if resource.at("action").text not in ("get", "delete") and bool(resource.at("manifest")) == bool(
            resource.at("manifestFrom")
        ):
            yield resource.says("needs either `manifest` or `manifestFrom`")


def _called(template: Field, known: list[str]) -> Problems:
    """Steps and tasks call templates that are there, and wait for others without a circle."""
    tasks, groups = template.at("dag", "tasks"), template.at("steps").items
    if template.at("dag"):
        yield from needed(tasks)
        yield from _names(tasks, _step_name)
        yield from _dependencies(template, tasks)
    steps = [step for group in groups for step in (group.items or group.all("steps[]"))]
    taken: set[str] = set()
    for step in steps:
        yield from name(_step_name)(step.at("name"))
        if step.at("name").text in taken:
            yield step.at("name").says(f"name {shown(step.at('name').value)} is used twice")
        for wanted in _TASK_REFERENCE.findall(" ".join(_texts(step.value))):
            if wanted not in (*taken, step.at("name").text, "name"):
                yield step.says(f"uses the step `{wanted}`, which does not stand before it")
        taken.add(step.at("name").text)
    for call in (*steps, *tasks.items):
        reference, called = call.at("templateRef"), call.at("template")
        if reference and called.text:
            yield called.says("must not stand beside `templateRef`")
        yield from at("templateRef?.name|template", needed)(call)
        if called.text and called.text not in known and "{{" not in called.text:
            yield called.not_as(f"one of the templates {joined(known)}")
        if len(loops := [loop for loop in _LOOPS if call.at(loop)]) > 1:
            yield call.says(f"must have one loop, got {joined(loops, ' and ')}")
        yield from _values(call.at("arguments"))


def _dependencies(template: Field, tasks: Field) -> Problems:
    names = [task.at("name").text for task in tasks.items]
    after: dict[str, list[str]] = {}
    has_depends = any(task.at("depends").text for task in tasks.items)
    for task in tasks.items:
        after[task.at("name").text] = [wanted for _, wanted in _waited_for(task)]
        for field, wanted in _waited_for(task):
            if wanted not in names:
                yield field.says(f"must name a task of this template, got {shown(wanted)}")
        if has_depends:
            together = says("must not be used where a task has `depends`")
            yield from at("dependencies|continueOn", together)(task)
        for wanted in _TASK_REFERENCE.findall(" ".join(_texts(task.at("arguments").value))):
            if wanted in names and wanted not in _ancestors(task.at("name").text, after, tasks):
                yield task.at("arguments").says(
                    f"uses the task `{wanted}`, on which this one does not depend"
                )
    for task in tasks.items:
        if task.at("name").text in _ancestors(task.at("name").text, after, tasks):
            yield task.says("waits for itself, in a circle")
    for target in template.at("dag", "target").text.split():
        if "{{" not in target and target not in names:
            yield template.at("dag", "target").not_as(f"one of the tasks {joined(names)}")


def _waited_for(task: Field) -> Iterator[tuple[Field, str]]:
    for dependency in task.at("dependencies").items:
        yield dependency, dependency.text
    for wanted in _DEPENDENCY.findall(task.at("depends").text):
        yield task.at("depends"), wanted


def _ancestors(task: str, after: dict[str, list[str]], tasks: Field) -> set[str]:
    """Give what a task waits for, directly or not."""
    for other in tasks.items:
        after.setdefault(other.at("name").text, [wanted for _, wanted in _waited_for(other)])
    reached: set[str] = set()
    ahead = list(after.get(task, ()))
    while ahead:
        if (current := ahead.pop()) not in reached:
            reached.add(current)
            ahead.extend(after.get(current, ()))
    return reached


def _references(template: Field, declared: set[str], spec: Field) -> Problems:
    """Parameters that a template uses are declared; a WorkflowTemplate's may come with the workflow."""
    own = {f"inputs.parameters.{name.text}" for name in template.all("inputs.parameters[].name")}
    has_inline = any("inline" in call for call in _mappings(template.value))
    for reference in sorted(set(_ANY_REFERENCE.findall(" ".join(_texts(template.value))))):
        is_workflow = reference.startswith("workflow.")
        if is_workflow and spec.subject.kind.endswith("WorkflowTemplate"):
            continue
        if reference not in (declared if is_workflow else own) and not (has_inline and not is_workflow):
            place = "spec.arguments" if is_workflow else "its inputs"
            yield template.says(f"uses `{{{{{reference}}}}}`, which is not among the parameters of {place}")


def _outputs(template: Field, templates: Field) -> Problems:
    """Only steps and tasks may use what others give, and only what the template of those declares."""
    texts = " ".join(_texts(template.value))
    tasks = [
        *template.all("dag.tasks[]"),
        *(step for group in template.at("steps").items for step in group.items),
    ]
    if not template.at("dag") and not template.at("steps"):
        for reference in sorted(set(_OF_OTHERS.findall(texts))):
            whose = "hand it over by `arguments` of the step or task"
            yield template.says(f"uses `{{{{{reference}}}}}`, which the steps and tasks alone know: {whose}")
        return
    called = {task.at("name").text: task.at("template").text for task in tasks}
    for task, kind, output in sorted(set(_OUTPUT.findall(texts))):
        makers = [maker for maker in templates.items if maker.at("name").text == called.get(task)]
        if makers and output not in [given.text for given in makers[0].all(f"outputs.{kind}[].name")]:
            yield template.says(
                f"uses the output `{output}` of `{task}`, whose template has none of that name"
            )


def _mappings(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _mappings(inner)


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


def _cron_workflow(root: Field) -> Problems:
    yield from _longest(root, 52)
    spec = root.at("spec")
    if not spec.at("schedules").items and not spec.at("schedule"):
        yield spec.at("schedules").says("is required")
    yield from at("schedules[]", name(_argo_schedule))(spec)
    yield from at("schedule", fits(_argo_schedule))(spec)
    if spec.at("timezone").text and spec.at("timezone").text not in time_zones():
        yield spec.at("timezone").not_as("a time zone such as `Europe/Berlin`")
    yield from choice("Allow", "Forbid", "Replace", unset=True)(spec.at("concurrencyPolicy"))
    yield from between(0)(spec.at("startingDeadlineSeconds"))


def _argo_schedule(text: str) -> str | None:
    """Check a schedule as Argo reads it: a time zone may stand in front."""
    return schedule(re.sub(r"^(CRON_)?TZ=\S+\s+", "", text))


def _longest(root: Field, limit: int) -> Problems:
    own_name = root.at("metadata", "name")
    if len(own_name.text) > limit:
        yield own_name.says(f"must have at most {limit} characters, got {len(own_name.text)}")


# --- the Spark operator ---

_SPARK = "sparkoperator.k8s.io"
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


def _spark_conf(root: Field) -> Problems:
    spec = root.at("spec", "template") if root.subject.kind.startswith(f"{_SPARK}/Sched") else root.at("spec")
    namespace = root.at("metadata", "namespace").text
    for key, value in spec.at("sparkConf").entries:
        if key in _DENIED:
            yield value.says(_DENIED[key])
        if key == "spark.kubernetes.namespace" and namespace and value.text != namespace:
            yield value.not_as(f"`{namespace}`, where the application is")


def _spark(spec: Field) -> Problems:
    for part in spec.all("driver|executor"):
        if spec.at("nodeSelector") and part.at("nodeSelector"):
            yield part.at("nodeSelector").says("must not be set together with `spec.nodeSelector`")
        if part.at("template") and re.match(r"[012]\.", spec.at("sparkVersion").text or "0."):
            yield part.at("template").says("needs `sparkVersion` 3.0.0 or later")
    ingresses = "driverIngressOptions[]"
    yield from at(f"{ingresses}.servicePort|ingressURLFormat", needed)(spec)
    yield from unique("port", f"{ingresses}.servicePort")(spec)
    yield from unique("address", f"{ingresses}.ingressURLFormat")(spec)


# --- KubeRay ---

_RAY = "ray.io"
_MAX_CLUSTER_NAME = 53
_CLUSTERS = {"RayCluster": "", "RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
_RAY_RESOURCES = ("num-cpus", "num-gpus", "memory", "resources")
_MODES = ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")


def _ray_name(root: Field) -> Problems:
    kind = root.subject.kind.rpartition("/")[2]
    limit = {"RayCluster": _MAX_CLUSTER_NAME, "RayCronJob": _MAX_CLUSTER_NAME - 17}.get(
        kind, _MAX_CLUSTER_NAME - 6
    )
    yield from _longest(root, limit)
    if kind != "RayCronJob":
        yield from fits(label_1035)(root.at("metadata", "name"))


def _ray(root: Field) -> Problems:
    kind, spec = root.subject.kind.rpartition("/")[2], root.at("spec")
    if kind == "RayCronJob":
        yield from _ray_job(spec.at("jobTemplate"))
        spec, kind = spec.at("jobTemplate"), "RayJob"
    cluster = spec.at(_CLUSTERS[kind]) if _CLUSTERS[kind] else spec
    if cluster:
        yield from _ray_cluster(cluster, root.at("metadata", "annotations"))


def _ray_cluster(cluster: Field, annotations: Field) -> Problems:
    head, is_scaling = cluster.at("headGroupSpec"), cluster.at("enableInTreeAutoscaling").value is True
    options = cluster.at("autoscalerOptions")
    yield from _ray_group(head)
    for group in cluster.at("workerGroupSpecs").items:
        yield from _ray_group(group)
        low, high = group.at("minReplicas"), group.at("maxReplicas")
        yield from at("minReplicas|maxReplicas|idleTimeoutSeconds", between(0))(group)
        if (low.number or 0) > (high.number if high.number is not None else 2**31):
            yield high.says(f"must be at least `minReplicas` ({low.number}), got {high.number}")
        if is_scaling and group.at("suspend").value is True:
            yield group.at("suspend").says("must not be set with `enableInTreeAutoscaling`")
    yield from between(0)(options.at("idleTimeoutSeconds"))
    variables = {variable.at("name").text: variable for variable in _head_variables(head)}
    newer = variables.get("RAY_enable_autoscaler_v2", Field(None))
    is_newer = options.at("version").text == "v2" or newer.at("value").text in ("1", "true")
    if not is_scaling and newer.at("value").text in ("1", "true"):
        yield newer.says("needs `enableInTreeAutoscaling: true`")
    if is_scaling and options.at("version") and newer:
        yield newer.says("must not be set together with `autoscalerOptions.version`")
    if is_scaling and options.at("version").text == "v2":
        policies = cluster.all("headGroupSpec.template.spec.restartPolicy")
        policies += cluster.all("workerGroupSpecs[].template.spec.restartPolicy")
        for policy in policies:
            yield from choice("Never", unset=True)(policy)
    for field in cluster.all("workerGroupSpecs[].idleTimeoutSeconds") if not is_newer else ():
        yield from says("needs `autoscalerOptions.version: v2`")(field)
    for variable in options.at("env").items:
        if variable.at("name").text == "KUBERAY_GEN_AUTOSCALER_START_CMD":
            yield variable.says("is set by the operator")
    yield from _fault_tolerance(cluster, annotations, variables)
    yield from _ray_token(cluster)


def _ray_group(group: Field) -> Problems:
    """A group has a container, its resources stand in one place, its labels outside the start parameters."""
    params = group.at("rayStartParams")
    yield from needed(group.at("template", "spec", "containers"))
    if group.at("resources").names and any(params.at(key).text for key in _RAY_RESOURCES):
        yield group.at("resources").says("must not be set together with resources in `rayStartParams`")
    if params.at("labels"):
        yield params.at("labels").says("must not be set: use `labels` of the group")
    yield from labels(group.at("labels"))


def _head_variables(head: Field) -> list[Field]:
    containers = head.all("template.spec.containers[]")
    return list(containers[0].at("env").items) if containers else []


def _fault_tolerance(cluster: Field, annotations: Field, variables: dict[str, Field]) -> Problems:
    options, params = cluster.at("gcsFaultToleranceOptions"), cluster.at("headGroupSpec", "rayStartParams")
    enabled = annotations.at("ray.io/ft-enabled")
    if options and enabled.text:
        yield enabled.says("must not be set together with `gcsFaultToleranceOptions`")
    if options:
        denied = [annotations.at("ray.io/external-storage-namespace"), params.at("redis-password")]
        denied += [variables[key] for key in ("REDIS_PASSWORD", "RAY_REDIS_ADDRESS") if key in variables]
        for field in denied:
            yield from says("must not be set: use `gcsFaultToleranceOptions`")(field)
        if options.at("backend").text in ("", "redis"):
            yield from says("needs `backend: rocksdb`")(options.at("storage"))
    elif enabled.text.lower() != "true" and "RAY_REDIS_ADDRESS" in variables:
        yield variables["RAY_REDIS_ADDRESS"].says("needs `gcsFaultToleranceOptions`")
    for field in (params.at("redis-username"), variables.get("REDIS_USERNAME", Field(None))):
        yield from says("must not be set: use `gcsFaultToleranceOptions.redisUsername`")(field)


def _ray_token(cluster: Field) -> Problems:
    auth, version = cluster.at("authOptions"), cluster.at("rayVersion")
    is_token, is_cluster_token = auth.at("mode").text == "token", auth.at("enableK8sTokenAuth").value is True
    if is_cluster_token and not is_token:
        yield auth.at("mode").not_as("`token` with `enableK8sTokenAuth`")
    least = (2, 55) if is_cluster_token else (2, 52)
    if is_token and tuple(map(int, re.findall(r"\d+", version.text)[:2])) < least:
        yield version.not_as(f"{least[0]}.{least[1]} or later with `authOptions.mode: token`")


def _ray_job(spec: Field) -> Problems:
    ends, chosen = spec.at("shutdownAfterJobFinishes").value is True, spec.at("clusterSelector")
    mode, retries = spec.at("submissionMode"), spec.at("backoffLimit")
    yield from choice(*_MODES, unset=True)(mode)
    if spec.at("suspend").value is True and (not ends or chosen.names):
        yield spec.at("suspend").says("needs `shutdownAfterJobFinishes` and a cluster of its own")
    if (spec.at("ttlSecondsAfterFinished").number or 0) > 0 and not ends:
        yield spec.at("ttlSecondsAfterFinished").says("needs `shutdownAfterJobFinishes: true`")
    yield from at("ttlSecondsAfterFinished|backoffLimit", between(0))(spec)
    yield from at("activeDeadlineSeconds|preRunningDeadlineSeconds", between(1))(spec)
    if chosen.names:
        yield from needed(chosen.at("ray.io/cluster"))
        if mode.text == "SidecarMode":
            yield mode.says("must not be `SidecarMode` with a `clusterSelector`")
    elif not spec.at("rayClusterSpec"):
        yield spec.at("rayClusterSpec").says("is required, or `clusterSelector`")
    if (retries.number or 0) > 0 and (chosen.names or mode.text == "InteractiveMode"):
        yield retries.says("must be 0 with a `clusterSelector` or `InteractiveMode`")
    if mode.text == "SidecarMode":
        yield from at("submitterPodTemplate|submitterConfig", says("must not be set in `SidecarMode`"))(spec)
        policy = spec.at("rayClusterSpec", "headGroupSpec", "template", "spec", "restartPolicy")
        yield from choice("Never", unset=True)(policy)
    yield from _deletion(spec.at("deletionStrategy"), spec, ends=ends)


def _deletion(strategy: Field, spec: Field, *, ends: bool) -> Problems:
    rules, old = strategy.at("deletionRules"), strategy.all("onSuccess|onFailure")
    is_old = any(old)
    if not strategy:
        return
    if bool(rules.items) == is_old:
        yield strategy.says("needs either `deletionRules` or both `onSuccess` and `onFailure`")
        return
    if rules.items and ends:
        yield rules.says("must not be set together with `shutdownAfterJobFinishes`")
    for policy in old if is_old else ():
        yield from needed(policy.at("policy"))
        if ends and policy.at("policy").text == "DeleteNone":
            yield policy.at("policy").says("must not be `DeleteNone` with `shutdownAfterJobFinishes`")
    is_scaling = spec.at("rayClusterSpec", "enableInTreeAutoscaling").value is True
    for policy in (*strategy.all("onSuccess|onFailure"), *rules.items):
        kind = policy.at("policy")
        if kind.text == "DeleteWorkers" and is_scaling:
            yield kind.says("must not be `DeleteWorkers` with `enableInTreeAutoscaling`")
        if kind.text in ("DeleteWorkers", "DeleteCluster") and spec.at("clusterSelector").names:
            yield kind.says(f"must not be `{kind.text}` with a `clusterSelector`")
    for condition in rules.items:
        if bool(condition.at("condition", "jobStatus")) == bool(
            condition.at("condition", "jobDeploymentStatus")
        ):
            yield condition.at("condition").says("needs either `jobStatus` or `jobDeploymentStatus`")
        yield from at("condition.ttlSeconds", between(0))(condition)


def _ray_service(spec: Field) -> Problems:
    upgrade, head = spec.at("upgradeStrategy"), spec.at("rayClusterConfig", "headGroupSpec")
    kinds = ("NewClusterWithIncrementalUpgrade", "NewCluster", "None")
    yield from choice(*kinds, unset=True)(upgrade.at("type"))
    yield from says("must not be set: the operator names it")(head.at("headService", "metadata", "name"))
    yield from between(0)(spec.at("rayClusterDeletionDelaySeconds"))
    if upgrade.at("type").text != kinds[0]:
        return
    options = upgrade.at("clusterUpgradeOptions")
    if spec.at("rayClusterConfig", "enableInTreeAutoscaling").value is not True:
        yield upgrade.at("type").says("needs `enableInTreeAutoscaling: true`")
    yield from at("stepSizePercent|intervalSeconds|gatewayClassName", needed)(options)
    yield from at("maxSurgePercent|stepSizePercent", between(0, 100))(options)
    yield from between(1)(options.at("intervalSeconds"))
    step, surge = options.at("stepSizePercent").number, options.at("maxSurgePercent").number
    if step is not None and step > (100 if surge is None else surge):
        yield options.at("stepSizePercent").says(f"must be at most `maxSurgePercent` ({surge}), got {step}")


def _ray_cron_job(spec: Field) -> Problems:
    yield from name(schedule)(spec.at("schedule"))
    if spec.at("timeZone") and spec.at("timeZone").text not in time_zones():
        yield spec.at("timeZone").not_as("a time zone such as `Europe/Berlin`")


# --- the table ---

_ARGO_SOURCE = "argoproj/argo-workflows v4.1.2, workflow/validate/validate.go"
_SPARK_SOURCE = "kubeflow/spark-operator v2.5.2, internal/webhook"
_RAY_SOURCE = "ray-project/kuberay v1.7.0, ray-operator/controllers/ray/utils/validation.go"
PIPELINE_RULES = (
    OperatorRules(
        "Argo Workflows 4.1",
        _ARGO_SOURCE,
        tuple(f"{_ARGO}/{kind}" for kind in ("ClusterWorkflowTemplate", "Workflow", "WorkflowTemplate")),
        (lambda root: _longest(root, 63), at("spec", _workflow)),
    ),
    OperatorRules(
        "Argo Workflows 4.1",
        _ARGO_SOURCE,
        (f"{_ARGO}/CronWorkflow",),
        (_cron_workflow, at("spec.workflowSpec", _workflow)),
    ),
    OperatorRules(
        "Spark operator 2.5",
        f"{_SPARK_SOURCE}/sparkapplication_validator.go, sparkconf_validator.go",
        (f"{_SPARK}/SparkApplication",),
        (at("metadata.name", fits(label_1035)), _spark_conf, at("spec", _spark)),
    ),
    OperatorRules(
        "Spark operator 2.5",
        f"{_SPARK_SOURCE}/scheduledsparkapplication_validator.go, sparkconf_validator.go",
        (f"{_SPARK}/ScheduledSparkApplication",),
        (at("metadata.name", fits(label_1035)), _spark_conf),
    ),
    OperatorRules(
        "KubeRay 1.7",
        _RAY_SOURCE,
        (f"{_RAY}/RayCluster",),
        (_ray_name, _ray, at("spec.upgradeStrategy?.type", choice("Recreate", "None", unset=True))),
    ),
    OperatorRules("KubeRay 1.7", _RAY_SOURCE, (f"{_RAY}/RayJob",), (_ray_name, _ray, at("spec", _ray_job))),
    OperatorRules(
        "KubeRay 1.7", _RAY_SOURCE, (f"{_RAY}/RayService",), (_ray_name, _ray, at("spec", _ray_service))
    ),
    OperatorRules(
        "KubeRay 1.7", _RAY_SOURCE, (f"{_RAY}/RayCronJob",), (_ray_name, _ray, at("spec", _ray_cron_job))
    ),
)
