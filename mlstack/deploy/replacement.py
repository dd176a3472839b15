"""What may change in objects whose controller does not follow every change.

A rule looks at the fields that differ and gives the reason why the object needs a new run, or None if
the change can be made in place. Kinds without a rule change in place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlstack.deploy.changes import Change, Refusal
from mlstack.deploy.inventory import MEMBER_LABEL, name_of
from mlstack.errors import (
    Cause,
    ClusterError,
    ConfigError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    MlstackError,
    TransientError,
)
from mlstack.kube import parallel
from mlstack.kube.client import Cluster
from mlstack.objects.kinds import CRD_GROUP, kinds_of_crd
from mlstack.objects.kube_object import APP_LABEL, ENVIRONMENT_LABEL, KubeObject, marks
from mlstack.objects.managed_fields import FieldChange, path_text
from mlstack.readiness import operators
from mlstack.table import Table

# --- What may change in objects whose controller does not follow every change ---
# A rule looks at the fields that differ and gives the reason why the object needs a new run, or None if
# the change can be made in place. Kinds without a rule change in place.

Rule = Callable[[KubeObject, Sequence[FieldChange]], str | None]

RULES: Table[Rule] = Table("rule of what may change")
replacement = RULES.register

_FIXED_OF_ELASTIC_JOBS = (
    *(f"spec.{name}" for name in ("image", "port", "ports_num", "ports_num_for_sparse")),
    *(f"spec.{name}" for name in ("portsNum", "portsNumForSparse", "pserver.minInstance")),
    *(f"spec.trainer.{name}" for name in ("entrypoint", "workspace", "resources")),
    *(f"spec.pserver.{name}" for name in ("min-instance", "entrypoint", "resources", "storage")),
    *(f"spec.master.{name}" for name in ("enabled", "entrypoint", "resources", "storage", "etcd")),
)
_ROLE_WORDS = {"Worker": "workers", "PS": "parameter servers", "Evaluator": "evaluators"}


def needs_new_run(live: KubeObject, changed: Sequence[FieldChange]) -> str | None:
    """Say why an object has to be made anew to take a change; None if it can change in place."""
    found = RULES.get(f"{live.group}/{live.kind}")
    return found(live, changed) if found else None


@replacement(
    "kubeflow.org/TFJob",
    "kubeflow.org/MPIJob",
    "kubeflow.org/XGBoostJob",
    "kubeflow.org/PaddleJob",
    "kubeflow.org/JAXJob",
)
def training_job(live: KubeObject, changed: Sequence[FieldChange]) -> str | None:
    """Recreate when more than `runPolicy` and metadata differ.

    The operators (the training operator, the MPI operator for its own MPIJobs) ignore most changes of a
    running job, and count a worker that they remove themselves as failed, so scaling down ends the job. A
    suspended job has no pods and reads its specification when it resumes.
    """
    lasting = [change for change in changed if not _follows(change.path)]
    if not lasting or _has_condition(live, "Suspended"):
        return None
    what = ", ".join(dict.fromkeys(words(change) for change in lasting[:3]))
    more = f" and {len(lasting) - 3} more" if len(lasting) > 3 else ""
    if _has_condition(live, "Succeeded") or _has_condition(live, "Failed"):
        why = f"the {operators.serving_operator(live.data)} does not change a finished job."
    else:
        why = f"the {operators.serving_operator(live.data)} does not change a running job."
    return f"{live.name}: {what}{more} needs a new run: {why}"


@replacement("kubeflow.org/PyTorchJob")
def pytorch_job(live: KubeObject, changed: Sequence[FieldChange]) -> str | None:
    """Recreate as other training jobs, but let an elastic job change its number of workers."""
    elastic = bool((live.data.get("spec") or {}).get("elasticPolicy"))
    scaled = "spec.pytorchReplicaSpecs.Worker.replicas"
    return training_job(live, [one for one in changed if not (elastic and one.path == scaled)])


@replacement("paddlepaddle.org/TrainingJob")
def elastic_job(live: KubeObject, changed: Sequence[FieldChange]) -> str | None:
    """Recreate where the definition says that a field is immutable: one model, one kind of pods."""
    lasting = [change for change in changed if _is_fixed(change.path)]
    if not lasting:
        return None
    what = ", ".join(dict.fromkeys(words(change) for change in lasting[:3]))
    more = f" and {len(lasting) - 3} more" if len(lasting) > 3 else ""
    return f"{live.name}: {what}{more} needs a new run: a training job keeps its image, commands and servers."


def _is_fixed(path: str) -> bool:
    below = any(path == fixed or path.startswith(f"{fixed}.") for fixed in _FIXED_OF_ELASTIC_JOBS)
    return below or path in ("spec.pserver", "spec.master")


def _follows(path: str) -> bool:
    return path.startswith(("metadata", "spec.runPolicy"))


def _has_condition(live: KubeObject, name: str) -> bool:
    conditions = (live.data.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == name and one.get("status") == "True" for one in conditions)


def words(change: FieldChange) -> str:
    """Name a change as people do: `workers 1 -> 3`, `image a -> b`."""
    steps = change.path.split(".")
    role = steps[2] if len(steps) > 2 and steps[1].endswith("ReplicaSpecs") else ""
    if change.action != "changed":
        name = _ROLE_WORDS.get(role, role.lower()) if len(steps) == 3 and role else _last(change.path)
        return f"{name} {change.action}"
    if role and steps[-1] == "replicas":
        return f"{_ROLE_WORDS.get(role, role.lower())} {change.old} -> {change.new}"
    if not all(isinstance(value, str | int | float) for value in (change.old, change.new)):
        return f"{_last(change.path)} changed"
    return f"{_last(change.path)} {_short(change.old)} -> {_short(change.new)}"


def _last(path: str) -> str:
    return path.rpartition("spec.")[2] or path


def _short(value: str | float) -> str:
    return str(value) or '""'


# --- Objects whose change cannot be made in place: which are made anew, which never, and what to
# say

RECREATE = "mlstack.dev/recreate"

_Key = tuple[str, str]

# What goes with them does not come back.
_NEVER: Mapping[_Key, str] = {
    ("", "PersistentVolumeClaim"): "its data would be lost; make one of another name",
    ("", "PersistentVolume"): "its data would be lost; make one of another name",
    ("", "Namespace"): "everything in it would be lost",
    (CRD_GROUP, "CustomResourceDefinition"): "every object of its kind would be lost",
}
# Made anew without being asked for: a new run is what a change of them means.
_BY_THEMSELVES: Mapping[_Key, str] = {
    ("batch", "Job"): "Kubernetes does not change the pods of a Job.",
}
# The server names `spec` alone; these of its fields are not meant.
_FREE: Mapping[_Key, tuple[str, ...]] = {
    ("apps", "StatefulSet"): (
        "spec.replicas",
        "spec.ordinals",
        "spec.template",
        "spec.updateStrategy",
        "spec.revisionHistoryLimit",
        "spec.persistentVolumeClaimRetentionPolicy",
        "spec.minReadySeconds",
    ),
}
# The words of Kubernetes 1.30 to 1.36; no code tells these refusals from others.
_FIXED = re.compile(
    r"immutable|may not change|cannot change|may not be changed|updates to .* are forbidden"
    r"|missing from spec.versions"
)
_RECREATED_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class ReplacementVerdict:
    """What becomes of an object that cannot change as it is wanted."""

    recreate: bool  # whether it is deleted and made anew, once that is confirmed
    reason: str  # why, or what cannot change
    hint: str = ""  # what to do where it is not made anew


def judge(wanted: KubeObject, environment: str, *, fixed: str, why: str | None) -> ReplacementVerdict:
    """Tell what becomes of an object that cannot change in place.

    Raises:
        ConfigError: the annotation says neither `true` nor `never`.
    """
    key = (wanted.group, wanted.kind)
    said = _annotation(wanted)
    keep = f"or let the files say there what the cluster has (`mlstack diff {environment}` shows both)"
    if key in _NEVER:
        hint = f"a {wanted.kind} is never made anew: {_NEVER[key]}, {keep}"
        return ReplacementVerdict(recreate=False, reason=fixed, hint=hint)
    if said == "never":
        hint = f"its annotation `{RECREATE}: never` keeps it from being made anew; change that, {keep}"
        return ReplacementVerdict(recreate=False, reason=why or fixed, hint=hint)
    if why or said == "true":
        return ReplacementVerdict(recreate=True, reason=why or fixed)
    if key in _BY_THEMSELVES:
        return ReplacementVerdict(recreate=True, reason=f"{fixed}: {_BY_THEMSELVES[key]}")
    place = f"environments/{environment}/patches/{wanted.component}.yaml"
    hint = (
        f'let it be deleted and made anew by the annotation `{RECREATE}: "true"` on it'
        f" (in its manifest, or in {place}), {keep}"
    )
    return ReplacementVerdict(recreate=False, reason=fixed, hint=hint)


def unless_refused(verdict: ReplacementVerdict, fault: MlstackError) -> ReplacementVerdict:
    """Keep what would be refused when it is made anew: deleted, it would not come back."""
    is_taken = "already allocated" in fault.message  # by the very object that goes first
    if is_taken or (isinstance(fault, ForbiddenError) and fault.why == "rights"):
        return verdict
    causes = fault.causes if isinstance(fault, InvalidError) else ()
    told = "; ".join(f"`{cause.field}` {cause.message}".replace("`` ", "") for cause in causes)
    text = f"{verdict.reason}, and made anew it would be refused: {told or fault.message}"
    hint = "mend what the server says first, or let the files say what the cluster has"
    return ReplacementVerdict(recreate=False, reason=text, hint=hint)


def _annotation(wanted: KubeObject) -> str:
    said = str(wanted.annotations.get(RECREATE, ""))
    if said not in ("", "true", "never"):
        raise ConfigError(
            f'`{wanted.identity}`: annotation `{RECREATE}` must be "true" or "never", got "{said}"',
            where=str(wanted.source) if wanted.source else f"component {wanted.component}",
        )
    return said


def says_fixed(causes: Iterable[Cause]) -> bool:
    """Tell whether all that a server finds wrong with an update is that fields cannot change."""
    found = tuple(causes)
    return bool(found) and all(_FIXED.search(cause.message) for cause in found)


def sentence(wanted: KubeObject, causes: Sequence[Cause], changed: Sequence[FieldChange]) -> str:
    """Say which fields cannot change, and in the server's words why, where those say more than that."""
    named: dict[str, str] = {}
    for cause in causes:
        text = "" if _FIXED.search(cause.message) else cause.message.partition(": Invalid value:")[0]
        for name in _names(wanted, cause, changed):
            named.setdefault(name, text)
    listed = [f"`{name}`" for name in named] or [words(one) for one in changed]
    more = f" and {len(listed) - _RECREATED_NAMED} more" if len(listed) > _RECREATED_NAMED else ""
    told = "; ".join(dict.fromkeys(text for text in named.values() if text))
    what = f"{', '.join(listed[:_RECREATED_NAMED]) or 'a field'}{more} cannot change while the object exists"
    return f"{what} ({told})" if told else what


def _names(wanted: KubeObject, cause: Cause, changed: Sequence[FieldChange]) -> tuple[str, ...]:
    if cause.field not in ("", "spec"):
        return (cause.field,)
    free = _FREE.get((wanted.group, wanted.kind), ())
    meant = (one.path for one in changed if one.path.startswith("spec") and not one.path.startswith(free))
    return tuple(dict.fromkeys(meant)) or ((cause.field,) if cause.field else ())


# --- What a change of a CustomResourceDefinition would take away from the objects that are there ---
# The API server refuses some of it itself (scope, names, a stored version); the rest it accepts and then
# silently prunes fields, or refuses the next write of an object that was valid before.

ALLOW_ANNOTATION = "mlstack.dev/allow-destructive"

Schema = Mapping[str, Any]

# Keyword → whether a greater number allows more.
_BOUNDS = {
    "minimum": False,
    "minLength": False,
    "minItems": False,
    "minProperties": False,
    "maximum": True,
    "maxLength": True,
    "maxItems": True,
    "maxProperties": True,
}
_NUMERIC = ("int32", "int64", "float", "double")  # formats that the server does not hold numbers to
_NAMED = 5  # fields of one version that are listed


def losses(
    live: Mapping[str, Any], wanted: Mapping[str, Any], *, has_objects: bool = True
) -> tuple[str, ...]:
    """Say what would be lost; nothing if the change only adds or allows more."""
    before, after = _spec(live), _spec(wanted)
    found = [*_of_names(before, after), *_of_storage(live, after)]
    stored = {str(name) for name in (live.get("status") or {}).get("storedVersions") or ()}
    old, new = _versions(before), _versions(after)
    for name, version in old.items():
        if not _is_served(new.get(name)):
            if _is_served(version) and has_objects and not (name in stored and name not in new):
                found.append(f"version `{name}` would not be served any more")
            continue
        found += _listed(name, tuple(narrowed(_schema(version), _schema(new[name]))))
    return tuple(found)


def demands(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what a definition would newly demand of objects, where nobody can tell whether it allows less."""
    old, new = _versions(_spec(live)), _versions(_spec(wanted))
    both = [name for name, version in old.items() if _is_served(version) and _is_served(new.get(name))]
    return tuple(
        text
        for name in both
        for text in _listed(name, tuple(demanded(_schema(old[name]), _schema(new[name]))))
    )


def is_allowed(wanted: Mapping[str, Any]) -> bool:
    """Tell whether a definition says itself that it may take things away."""
    annotations = (wanted.get("metadata") or {}).get("annotations") or {}
    return annotations.get(ALLOW_ANNOTATION) == "true"


def _spec(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return data.get("spec") or {}


def _versions(spec: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {str(version.get("name", "")): version for version in spec.get("versions") or ()}


def _is_served(version: Mapping[str, Any] | None) -> bool:
    return bool(version and version.get("served"))


def _schema(version: Mapping[str, Any]) -> Schema:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _of_names(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    pairs = [(key, before.get(key), after.get(key)) for key in ("group", "scope")]
    names, others = before.get("names") or {}, after.get("names") or {}
    pairs += [(f"names.{key}", names.get(key), others.get(key)) for key in ("kind", "plural")]
    for what, old, new in pairs:
        if old != new:
            yield f"`{what}` would change from {old} to {new}: every object of the kind would be lost"


def _of_storage(live: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    known = _versions(after)
    for name in (live.get("status") or {}).get("storedVersions") or ():
        if name not in known:
            yield f"version `{name}` would be removed, and objects are stored in it"


def _listed(version: str, faults: Sequence[str]) -> Iterator[str]:
    for fault in faults[:_NAMED]:
        yield f"version `{version}`: {fault}"
    if len(faults) > _NAMED:
        yield f"version `{version}`: and {len(faults) - _NAMED} fields more"


def narrowed(old: Schema, new: Schema, path: str = "") -> Iterator[str]:
    """Say which fields of a schema would go, or allow less than before.

    Expressions (CEL), formats and combinations (`oneOf` …) are not compared: nobody can tell which of two
    allows more. `demanded` tells of them.
    """
    if _takes_anything(new) and "type" not in new:
        return
    yield from _of_type(old, new, path)
    if _is_open(old) and not _is_open(new):
        yield f"{_named(path)} would drop fields that the schema does not name"
    yield from _of_values(old, new, path)
    yield from _of_fields(old, new, path)
    for keyword, step in (("items", "[]"), ("additionalProperties", ".*")):
        inner, other = old.get(keyword), new.get(keyword)
        if isinstance(inner, Mapping) and isinstance(other, Mapping):
            yield from narrowed(inner, other, f"{path}{step}")


def demanded(old: Schema, new: Schema, path: str = "") -> Iterator[str]:
    """Say which fields of a schema get a rule (CEL), format, pattern or combination that they had not.

    Rules on a change (`oldSelf`) do not count: an object as it is cannot break them.
    """
    known = {rule.get("rule") for rule in old.get("x-kubernetes-validations") or ()}
    for check in new.get("x-kubernetes-validations") or ():
        if check.get("rule") not in known and "oldSelf" not in str(check.get("rule")):
            yield f"{_named(path)} has a new rule: {check.get('message') or check.get('rule')}"
    for keyword in ("format", "pattern", "not", "allOf", "anyOf", "oneOf"):
        was, becomes = old.get(keyword), new.get(keyword)
        is_told = keyword == "pattern" and was is None  # it is a loss
        if becomes not in (None, was, *_NUMERIC) and not is_told:
            shown = f" `{becomes}`" if isinstance(becomes, str) else ""
            yield f"{_named(path)} has another `{keyword}`{shown}"
    for name, schema in (old.get("properties") or {}).items():
        other = (new.get("properties") or {}).get(name)
        if isinstance(other, Mapping):
            yield from demanded(schema, other, f"{path}.{name}" if path else str(name))
    for keyword, step in (("items", "[]"), ("additionalProperties", ".*")):
        inner, other = old.get(keyword), new.get(keyword)
        if isinstance(inner, Mapping) and isinstance(other, Mapping):
            yield from demanded(inner, other, f"{path}{step}")


def _of_type(old: Schema, new: Schema, path: str) -> Iterator[str]:
    was, becomes = _type(old), _type(new)
    wider = (was, becomes) in (
        ("integer", "number"),
        ("integer", "int-or-string"),
        ("string", "int-or-string"),
    )
    if becomes and was != becomes and not wider:
        yield f"{_named(path)} would be {becomes} instead of {was or 'anything'}"
    if old.get("nullable") and not new.get("nullable"):
        yield f"{_named(path)} would not be null any more"


def _of_values(old: Schema, new: Schema, path: str) -> Iterator[str]:
    allowed, rest = old.get("enum"), new.get("enum")
    if rest is not None:
        gone = [value for value in allowed or () if value not in rest]
        if allowed is None:
            yield f"{_named(path)} would be one of {_values(rest)} alone"
        elif gone:
            yield f"{_named(path)} would not be {_values(gone)} any more"
    for keyword, more_is_wider in _BOUNDS.items():
        was, becomes = old.get(keyword), new.get(keyword)
        if becomes is not None and (was is None or (becomes < was if more_is_wider else becomes > was)):
            yield f"{_named(path)} would have `{keyword}` {becomes}" + (
                f", not {was}" if was is not None else ""
            )
    if new.get("pattern") is not None and old.get("pattern") is None:
        yield f"{_named(path)} would have to match `{new['pattern']}`"


def _of_fields(old: Schema, new: Schema, path: str) -> Iterator[str]:
    fields, others = old.get("properties") or {}, new.get("properties") or {}
    extra = new.get("additionalProperties")
    for name, schema in fields.items():
        inner = f"{path}.{name}" if path else str(name)
        if name in others:
            yield from narrowed(schema, others[name], inner)
        elif isinstance(extra, Mapping):
            yield from narrowed(schema, extra, inner)
        elif not (_takes_anything(new) or extra is True):
            yield f"{_named(inner)} would be removed"
    for name in new.get("required") or ():
        missing_default = "default" not in (others.get(name) or {})
        if name not in (old.get("required") or ()) and missing_default:
            yield f"{_named(f'{path}.{name}' if path else name)} would be required"


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    return str(schema.get("type") or "")


def _takes_anything(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def _is_open(schema: Schema) -> bool:
    extra = schema.get("additionalProperties")
    return _takes_anything(schema) or extra is True or isinstance(extra, Mapping)


def _values(values: Sequence[Any]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _named(path: str) -> str:
    return f"field `{path}`" if path else "the object"


# --- Whose an object is: that of another app or environment, or of another set of objects ---

# What several apps may bring at once, as long as they agree on it.
_SHARED = frozenset({("", "Namespace"), (CRD_GROUP, "CustomResourceDefinition")})
_MARKS = frozenset(
    path_text(("f:metadata", "f:labels", f"f:{name}"))
    for name in (*marks(app="", environment="", component=""), MEMBER_LABEL)
)


def other_owner(wanted: KubeObject, live: KubeObject) -> str:
    """Say whose an object is if it is not ours; empty if it is, or is nobody's."""
    app, environment = live.labels.get(APP_LABEL), live.labels.get(ENVIRONMENT_LABEL)
    if app:
        ours = (wanted.labels.get(APP_LABEL), wanted.labels.get(ENVIRONMENT_LABEL))
        return "" if (app, environment) == ours else f"environment `{environment}` of app `{app}`"
    found, own = live.labels.get(MEMBER_LABEL), wanted.labels.get(MEMBER_LABEL)
    return f"ApplySet `{found}`" if found and found != own else ""


def former_owner(wanted: KubeObject, live: KubeObject, environments: Collection[str]) -> str:
    """Give the environment that an object of our own app belongs to if the app does not have that one."""
    environment = live.labels.get(ENVIRONMENT_LABEL, "")
    same = live.labels.get(APP_LABEL) == wanted.labels.get(APP_LABEL)
    return environment if same and environment not in environments else ""


def is_shared(wanted: KubeObject, changed: Iterable[FieldChange]) -> bool:
    """Tell whether an object of another is just as we want it and may stay theirs: only marks differ."""
    is_mine_alone = (wanted.group, wanted.kind) not in _SHARED
    return not is_mine_alone and all(one.path in _MARKS for one in changed)


# --- Changes that must not be carried out: found as they are worked out, shown by diff, refused by
# apply

_ERRORS: Mapping[str, type[ClusterError]] = {
    "immutable": InvalidError,
    "destructive": InvalidError,
    "foreign": ConflictError,
    "invalid": InvalidError,
}


def is_definition(wanted: KubeObject) -> bool:
    """Tell whether an object is a CustomResourceDefinition."""
    return (wanted.group, wanted.kind) == (CRD_GROUP, "CustomResourceDefinition")


def foreign_owner(
    wanted: KubeObject, live: KubeObject, environments: Collection[str]
) -> tuple[str, Refusal] | None:
    """Give whose an object is, and the refusal to take it from them; None if it is ours or nobody's.

    `environments` are those of the app, as labels name them.
    """
    owner = other_owner(wanted, live)
    if not owner:
        return None
    hint = "rename it, or take it over with --adopt; it must then go from where it was"
    former = former_owner(wanted, live, environments)
    if former:
        owner = f"environment `{former}`, which app `{wanted.labels[APP_LABEL]}` does not have"
        hint = (
            f"if `{former}` is called `{wanted.labels[ENVIRONMENT_LABEL]}` now, take all of it over once with"
            f" --adopt; if another copy of the app has it, leave it (its inventory:"
            f" ConfigMap {name_of(wanted.labels[APP_LABEL], former)})"
        )
    return owner, Refusal(kind="foreign", reasons=(f"it belongs to {owner}",), hint=hint)


def refused(wanted: KubeObject, live: Mapping[str, Any], refusal: Refusal) -> Change:
    """Give a change of a live object that must not be carried out."""
    return Change(
        identity=wanted.identity,
        component=wanted.component,
        action="update",
        api_version=wanted.api_version,
        desired=wanted,
        live_uid=str(live["metadata"]["uid"]),
        refusal=refusal,
    )


def refuse_losses(cluster: Cluster, live: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what a change of a definition would take away."""
    found = losses(live, after)
    without = losses(live, after, has_objects=False)
    return found if found == without or _has_objects(cluster, live) else without


def refuse_demands(cluster: Cluster, live: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what a change of a definition would demand of the objects that are there."""
    found = demands(live, after)
    if not found or not _has_objects(cluster, live):
        return ()
    return tuple(
        f"{text}; objects that are there and break it may be refused when they change" for text in found
    )


def _has_objects(cluster: Cluster, definition: Mapping[str, Any]) -> bool:
    for kind in kinds_of_crd(definition):
        try:
            return bool(cluster.list(kind.api_version, kind.kind, metadata_only=True).items)
        except ClusterError:  # nobody can tell: there may be some
            continue
    return True


def destructive(wanted: KubeObject, reasons: Sequence[str]) -> Refusal:
    """Refuse a change of a definition that would take something away."""
    return Refusal(
        kind="destructive",
        reasons=tuple(reasons),
        hint=f"if that is wanted: --allow-destructive-crds, or the annotation"
        f' `{ALLOW_ANNOTATION}: "true"` on `{wanted.name}`',
    )


def is_of_object(error: MlstackError) -> bool:
    """Tell whether an error is about the one object that the server was asked about, and no other."""
    if isinstance(error, ForbiddenError):
        return error.why not in ("credentials", "rights")
    return isinstance(error, InvalidError | ConflictError | TransientError)


def invalid(wanted: KubeObject, live: Mapping[str, Any] | None, error: MlstackError) -> Change:
    """Give the change of an object that the server does not accept, as far as that is one."""
    name = f"`{wanted.identity}`"
    said = error.message.removeprefix(name).removeprefix(" is refused").removeprefix(": ").strip()
    refusal = Refusal(kind="invalid", reasons=(said,), hint=error.hint or "", error=error)
    if live is not None:
        return refused(wanted, live, refusal)
    return Change(
        identity=wanted.identity,
        component=wanted.component,
        action="create",
        api_version=wanted.api_version,
        desired=wanted,
        refusal=refusal,
    )


def unanswered(changes: Sequence[Change]) -> MlstackError | None:
    """Give what the server had against objects, so that no change could be worked out; None if nothing."""
    found = [_error(one) for one in changes if one.refusal is not None and one.refusal.kind == "invalid"]
    return parallel.together(found) if found else None


def refuse(changes: Sequence[Change]) -> None:
    """Raise if anything must not be done.

    Raises:
        ClusterError: naming every such object, each with its reasons.
    """
    found = [_error(change) for change in changes if change.refusal is not None]
    if found:
        raise parallel.together(found)


def _error(change: Change) -> MlstackError:
    refusal = change.refusal
    if refusal is None:
        raise ValueError(f"{change.identity} is not refused")
    where = f"component {change.component}" if change.component else None
    if refusal.error is not None:
        refusal.error.where = refusal.error.where or where
        return refusal.error
    return _ERRORS[refusal.kind](
        f"`{change.identity}`: {'; '.join(refusal.reasons)}",
        where=where,
        hint=refusal.hint or None,
    )
