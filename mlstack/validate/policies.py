"""Policies: what a team wants of its objects beyond what the API server takes; the table, sets and waivers.

Built-in ones stand in `policies.rules`, or in `builtin_policies.py` with a function; an app's own are files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, cached_property, partial
from itertools import chain
from typing import Any, Literal, NamedTuple

from mlstack.app.document import AppDocument
from mlstack.app.environment import PolicyFile
from mlstack.dataclass import Record, dataclass, row
from mlstack.errors import ConfigError, SchemaError, UsageError
from mlstack.names import did_you_mean, nearest
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.references import PodTemplate, templates
from mlstack.objects.resources import is_gpu
from mlstack.validate import cel
from mlstack.validate.formats import Fault, Field, Keys, Problem, fault_of, shown
from mlstack.validate.rules import KindRules, load

WAIVER = "mlstack.dev/waive"
"""Annotation of an object: a line `ID: reason` for each policy that it need not keep."""
ALL = "all"


class Pods(NamedTuple):
    """The pods of one template of an object."""

    obj: KubeObject
    template: PodTemplate
    spec: Field
    apart: tuple[Field, ...] = ()  # containers that stand elsewhere than in its `containers`
    is_partial: bool = False  # an operator's runtime adds to it: what it lacks tells nothing

    @property
    def main_containers(self) -> list[Field]:
        """Give those that do the work."""
        return [*self.apart, *self.spec.at("containers").items]

    @property
    def containers(self) -> list[Field]:
        """Give those that run: not the ones that only start before them, but sidecars."""
        return [*self.main_containers, *self.spec.all("initContainers[restartPolicy=Always]")]

    @property
    def all_containers(self) -> list[Field]:
        """Give every container."""
        return [*self.apart, *self.spec.all("initContainers|containers[]")]

    @property
    def labels(self) -> Mapping[str, Any]:
        """Give the labels that its pods have."""
        return Field(self.template.metadata).at("labels").value or {}

    @property
    def asks_for_gpus(self) -> bool:
        """Tell whether a container asks for a GPU, by its name or by a claim of devices."""
        return bool(self.spec.at("resourceClaims").items) or any(map(gpus, self.all_containers))


def gpus(container: Field) -> dict[str, Field]:
    """Give the GPU resources that a container asks for, by name."""
    asked = container.at("resources").all("requests|limits")
    return {name: value for part in asked for name, value in part.entries if is_gpu(name) and value.value}


@dataclass(frozen=True)
class PolicyContext:
    """What policies look at: all objects of an environment, and what is known of its cluster."""

    objects: Sequence[KubeObject]
    environment: str = ""
    nodes: Sequence[Mapping[str, Any]] = ()  # shapes, as a snapshot has them
    apis: Mapping[str, Sequence[str]] | None = None  # kinds that it serves by API version

    @cached_property
    def pods(self) -> tuple[Pods, ...]:
        """Give every template of pods of every object."""
        return tuple(chain.from_iterable(self._pods_by_object.values()))

    @cached_property
    def whole_pods(self) -> tuple[Pods, ...]:
        """Give those to which no operator's runtime adds."""
        return tuple(pods for pods in self.pods if not pods.is_partial)

    @property
    def containers(self) -> Iterator[tuple[Pods, Field]]:
        """Give every container with its pods."""
        return ((pods, container) for pods in self.pods for container in pods.all_containers)

    def pods_of(self, obj: KubeObject) -> Sequence[Pods]:
        """Give those of one object."""
        return self._pods_by_object.get(id(obj), ())

    @cached_property
    def _pods_by_object(self) -> Mapping[int, Sequence[Pods]]:
        return {id(obj): (*_written_whole(obj), *_written_apart(obj)) for obj in self.objects}

    def of_kind(self, group: str, *kinds: str) -> list[KubeObject]:
        """Give the objects of some kinds of a group."""
        return [obj for kind in kinds for obj in self._by_kind.get((group, kind), ())]

    @cached_property
    def _by_kind(self) -> Mapping[tuple[str, str], Sequence[KubeObject]]:
        rows: dict[tuple[str, str], list[KubeObject]] = defaultdict(list)
        for obj in self.objects:
            rows[obj.group, obj.kind].append(obj)
        return rows


# --- where pods are written ---


def _written_whole(obj: KubeObject) -> Iterator[Pods]:
    for template in templates(obj):
        spec = Field(template.spec, template.keys)  # an operator lays its own over what names no image
        is_partial = not all(container.at("image") for container in spec.at("containers").items)
        yield Pods(obj, template, spec, is_partial=is_partial)


def _written_apart(obj: KubeObject) -> Iterator[Pods]:
    parts = _PARTS.get((obj.group, obj.kind))
    for part, apart, is_partial in parts(Field(obj.data).at("spec")) if parts else ():
        counts = [part.at(name).number for name in ("maxReplicas", "minReplicas", "numNodes", "instances")]
        template = PodTemplate("", next(filter(None, counts), 1), {}, keys=part.keys)
        yield Pods(obj, template, part, tuple(apart), is_partial)


@dataclass(frozen=True)
class _Completed(Field):
    """A map that has some of its fields elsewhere."""

    elsewhere: Mapping[str, Field] = field(default_factory=dict)

    def at(self, *keys: str) -> Field:
        own = super().at(*keys)
        return own if own or keys[0] not in self.elsewhere else self.elsewhere[keys[0]].at(*keys[1:])


_Parts = Iterator[tuple[Field, Sequence[Field], bool]]


def _kserve_parts(spec: Field) -> _Parts:
    """Predictor, transformer and explainer are pods; a model becomes a container of its runtime."""
    for part in spec.all("predictor|transformer|explainer?"):
        models = [inner for name, inner in part.entries if inner.at("modelFormat") or inner.at("storageUri")]
        yield part, models, bool(models)


def _argo_parts(spec: Field) -> _Parts:
    """Each template is a pod, which has from the workflow what it does not say itself."""
    workflow = spec.at("workflowSpec") if spec.at("workflowSpec") else spec
    for template in workflow.at("templates").items:
        apart = [*template.all("container|script?"), *template.all("containerSet?.containers[]")]
        if apart:
            pod = _Completed(template.value, template.keys, template.subject, dict(workflow.entries))
            yield pod, [*apart, *template.at("sidecars").items], False


def _train_job_parts(spec: Field) -> _Parts:
    """The trainer is a container of the job's runtime."""
    for trainer in spec.all("trainer?"):
        resources = {"resources": trainer.at("resourcesPerNode")}
        yield trainer, [_Completed(trainer.value, trainer.keys, trainer.subject, resources)], True


def _spark_parts(spec: Field) -> _Parts:
    """Driver and executors are pods of one container, to which Spark adds."""
    spec = spec.at("template") if spec.at("template") else spec
    shared = {name: spec.at(name) for name in ("image", "volumes")}
    for part in spec.all("driver|executor?"):
        name, count = (part.at("gpu", key) for key in ("name", "quantity"))
        gpu = {"limits": {name.text: count.value}} if name else {}
        resources = Field(gpu, (*part.keys, "gpu"), part.subject)
        pod = _Completed(part.value, part.keys, part.subject, {**shared, "resources": resources})
        yield pod, [pod], True


_PARTS: Mapping[tuple[str, str], Callable[[Field], _Parts]] = {
    ("serving.kserve.io", "InferenceService"): _kserve_parts,
    **{("argoproj.io", kind): _argo_parts for kind in ("Workflow", "CronWorkflow", "WorkflowTemplate")},
    ("trainer.kubeflow.org", "TrainJob"): _train_job_parts,
    ("sparkoperator.k8s.io", "SparkApplication"): _spark_parts,
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): _spark_parts,
}


# --- what they are asked ---

Violations = Iterator[tuple[KubeObject, Problem]]
PolicyCheck = Callable[[PolicyContext], Violations]


class Policy(Record):
    """One thing that objects are to keep."""

    id: str  # as waivers name it
    sets: tuple[str, ...]  # that it belongs to
    severity: Literal["error", "warning"]  # with an error `validate` says no
    reason: str  # why it is wanted, one sentence without a full stop
    fix: str  # what to do about it
    check: PolicyCheck  # gives what does not keep it; the severity of its problems does not count
    where: str = ""  # the file of an app's own


class PolicyOutcome(Record):
    """What a policy found in an environment."""

    id: str  # as waivers name it
    severity: Literal["error", "warning"]  # with an error `validate` says no
    sets: tuple[str, ...]  # that it belongs to
    reason: str  # why it is wanted
    fix: str  # what to do about it
    findings: int  # that are among the faults
    waived: int  # that objects have waived, with a reason


_BUILTIN: dict[str, Policy] = {}


def policy(text: str) -> Callable[[PolicyCheck], None]:
    """Enter a built-in policy that the function below checks: `ID: SETS | SEVERITY | why | what to do`."""
    id, _, rest = text.partition(": ")
    sets, severity, reason, fix = map(str.strip, rest.split(" | "))
    level: Literal["error", "warning"] = "error" if severity == "error" else "warning"

    def enter(check: PolicyCheck) -> None:
        _BUILTIN[id] = Policy(
            id=id, sets=tuple(sets.split(", ")), severity=level, reason=reason, fix=fix, check=check
        )

    return enter


@cache
def builtin() -> Mapping[str, Policy]:
    """Give the built-in policies by id."""
    from mlstack.validate import builtin_policies  # noqa: F401 -- it enters those that need a function

    rows: dict[str, list[KindRules]] = {}
    for entry in load("policies.rules"):
        rows.setdefault(entry.title, []).append(entry)
    for text, own in rows.items():
        policy(text)(partial(_unkept, own))
    return _BUILTIN


def _unkept(rows: Sequence[KindRules], stack: PolicyContext) -> Violations:
    """Lay the rules of a policy on the fields that they are for."""
    for entry in rows:
        for obj, place in _fields(entry.kinds, stack):
            for rule in entry.rules:
                yield from ((obj, problem) for problem in rule(place))


def _fields(kinds: Sequence[str], stack: PolicyContext) -> Iterator[tuple[KubeObject, Field]]:
    if "pods" in kinds:
        yield from ((pods.obj, pods.spec) for pods in stack.pods)
    if "containers" in kinds:
        yield from ((pods.obj, container) for pods, container in stack.containers)
    for obj in stack.objects:
        if f"{obj.group}/{obj.kind}" in kinds:
            yield obj, Field(obj.data)


def chosen(words: str, known: Mapping[str, Policy]) -> list[Policy]:
    """Give the policies of some sets or ids, written with commas between; `all` are all.

    Raises:
        UsageError: there is no such set or id.
    """
    names = [word.strip() for word in words.split(",")]
    sets = dict.fromkeys([ALL, *(name for policy in known.values() for name in policy.sets)])
    for name in names:
        if name not in sets and name not in known:
            hint = did_you_mean(name, [*sets, *known], f"sets: {', '.join(sets)}; mlstack policy list")
            raise UsageError(f"no policy and no set of policies is called `{name}`", hint=hint)
    return [policy for policy in known.values() if {ALL, policy.id, *policy.sets} & set(names)]


class PolicyVerdict(NamedTuple):
    """What policies found."""

    faults: list[Fault]
    waived: list[Fault]
    outcomes: list[PolicyOutcome]


def check_policies(
    policies: Iterable[Policy],
    stack: PolicyContext,
    *,
    known: Iterable[str],
    components: Collection[str] | None = None,
) -> PolicyVerdict:
    """Find what does not keep policies, and what is wrong with the waivers.

    Args:
        policies: those that are asked.
        stack: what they look at.
        known: the ids of all that there are.
        components: of which findings are wanted; None is all.
    """
    ids = frozenset(known)
    asked = [obj for obj in stack.objects if components is None or obj.component in components]
    waivers = {id(obj): dict(_waivers(obj)) for obj in asked}
    verdict = PolicyVerdict([fault for obj in asked for fault in _wrong_waivers(obj, ids)], [], [])
    for policy in policies:
        violations = [
            (obj, fault_of(obj, problem.keys, problem.message, policy.severity, policy=policy.id))
            for obj, problem in policy.check(stack)
            if id(obj) in waivers
        ]
        faults = dict.fromkeys(
            replace(fault, waiver=waivers[id(obj)].get(policy.id, "")) for obj, fault in violations
        )
        waived = [fault for fault in faults if fault.waiver]
        verdict.waived.extend(waived)
        verdict.faults.extend(fault for fault in faults if not fault.waiver)
        outcome = row(PolicyOutcome, policy, findings=len(faults) - len(waived), waived=len(waived))
        verdict.outcomes.append(outcome)
    return verdict


_WAIVER_KEYS: Keys = ("metadata", "annotations", WAIVER)


def _waivers(obj: KubeObject) -> Iterator[tuple[str, str]]:
    for line in Field(obj.data).at(*map(str, _WAIVER_KEYS)).text.splitlines():
        name, _, reason = line.partition(":")
        if line.strip():
            yield name.strip(), reason.strip()


def _wrong_waivers(obj: KubeObject, known: frozenset[str]) -> Iterator[Fault]:
    for name, reason in _waivers(obj):
        if name not in known:
            near = nearest(name, known)
            hint = f": did you mean `{near}`?" if near else ", see mlstack policy list"
            message = f"waives `{name}`, which is no policy{hint}"
        elif not reason:
            message = f"waives `{name}` without a reason: write `{name}: REASON`"
        else:
            continue
        yield fault_of(obj, _WAIVER_KEYS, message)


# --- an app's own: the files of its folder `policies/`, whose CEL is checked when they are read ---


_VARIABLES = ("object", "environment", "component")


def all_policies(files: Iterable[tuple[PolicyFile, AppDocument]]) -> dict[str, Policy]:
    """Give the built-in policies and an app's own, of its `files`, by id.

    Raises:
        SchemaError: a file is wrong, its id is taken, or its expression uses what is not known here.
    """
    known = dict(builtin())
    for own, document in files:
        where = str(document.origin(("id",)))
        if own.id in known:
            other = known[own.id].where
            message = f"`{own.id}` is {f'the policy of {other}' if other else 'a built-in policy'} already"
            raise SchemaError(message, where=where, hint="give it another id")
        place = str(document.origin(("expression",)))
        try:
            cel.check(own.expression, _names(own))
        except cel.UnsupportedError as error:
            message = f"`expression` of `{own.id}` cannot be evaluated: {error}"
            hint = "CEL as in Kubernetes' own rules: https://kubernetes.io/docs/reference/using-api/cel/"
            raise SchemaError(message, where=place, hint=hint) from error
        check = partial(_violations, own, place)
        known[own.id] = row(Policy, own, sets=own.sets or ("own",), check=check, where=document.file)
    return known


def _names(own: PolicyFile) -> tuple[str, ...]:
    below = {"object": (), "pod": ("pod",), "container": ("pod", "container")}
    return (*_VARIABLES, *below[own.each])


def _violations(own: PolicyFile, place: str, stack: PolicyContext) -> Violations:
    for obj in stack.objects:
        if not _is_meant(own, obj):
            continue
        facts = {"object": obj.data, "environment": stack.environment, "component": obj.component}
        for part, variables in _asked(own, obj, stack):
            try:
                holds = cel.evaluate(own.expression, {**facts, **variables}, is_plain=True)
            except cel.UnsupportedError as error:
                message = f"policy `{own.id}` cannot be evaluated for {obj.identity}: {error}"
                hint = "guard what may be of another type, as with `type(x) == string`"
                raise ConfigError(message, where=place, hint=hint) from error
            except cel.EvaluationError as error:
                yield obj, part.says(f"{shown(own.expression)} has no value: {error}")
                continue
            if holds is not True:
                yield obj, part.says(own.message or f"is against {shown(own.expression)}")


def _is_meant(own: PolicyFile, obj: KubeObject) -> bool:
    names = (obj.kind, f"{obj.group}/{obj.kind}")
    return own.match is None or not own.match.kinds or any(name in own.match.kinds for name in names)


def _asked(own: PolicyFile, obj: KubeObject, stack: PolicyContext) -> list[tuple[Field, Mapping[str, Any]]]:
    """Give what the expression is asked of in an object, with the variables for each."""
    if own.each == "object":
        return [(Field(obj.data), {})]
    pods = stack.pods_of(obj)
    if own.each == "pod":
        return [(pod.spec, {"pod": pod.spec.value}) for pod in pods]
    return [
        (container, {"pod": pod.spec.value, "container": container.value})
        for pod in pods
        for container in pod.all_containers
    ]
