"""What cannot simply change: objects to be made anew, those of others, and definitions that would lose."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlstack.deploy.changes import DESTRUCTIVE, Change, Refusal
from mlstack.deploy.inventory import MEMBER_LABEL, other_owner
from mlstack.deploy.prune import is_claim
from mlstack.errors import Cause, ClusterError, ConfigError, ForbiddenError, InvalidError, MlstackError
from mlstack.kube.client import Cluster
from mlstack.names import listed
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import (
    APP_LABEL,
    CRD_GROUP,
    ENVIRONMENT_LABEL,
    Data,
    DesiredState,
    KubeObject,
    kinds_of_crd,
    label_of,
    marks,
    records_name,
)
from mlstack.objects.managed_fields import FieldChange, path_text
from mlstack.objects.order import is_made_anew_as_hook, may_run_again
from mlstack.readiness.evaluate import replacement_of
from mlstack.readiness.ml import change_text
from mlstack.readiness.rule import Facts

RECREATE = "mlstack.dev/recreate"

# The words of Kubernetes 1.30 to 1.36; no code tells these refusals from others.
_FIXED = re.compile(
    r"(?i:immutable)|may not change|cannot change|may not be changed|updates to .* are forbidden"
    r"|missing from spec.versions"
)
_NAMED = 3


def judge(manifest: KubeObject, environment: str, *, fixed: str, why: str | None) -> str | Refusal:
    """Say why an object that cannot change in place is deleted and made anew, or refuse that."""
    annotation, kind = str(manifest.annotations.get(RECREATE, "")), replacement_of(manifest.data)
    if annotation not in ("", "true", "never"):
        raise ConfigError(
            f'`{manifest.identity}`: annotation `{RECREATE}` must be "true" or "never", got "{annotation}"',
            where=str(manifest.source) if manifest.source else f"component {manifest.component}",
        )
    keep = f"or let the files say there what the cluster has (`mlstack diff {environment}` shows both)"
    place = f"environments/{environment}/patches/{manifest.component}.yaml"
    hint = (
        f'let it be deleted and made anew by the annotation `{RECREATE}: "true"` on it'
        f" (in its manifest, or in {place}), {keep}"
    )
    if kind.never:
        hint = f"a {manifest.kind} is never made anew: {kind.never}, {keep}"
    elif annotation == "never":
        hint = f"its annotation `{RECREATE}: never` keeps it from being made anew; change that, {keep}"
    elif why or annotation == "true":
        return why or fixed
    elif kind.unasked or is_made_anew_as_hook(manifest):
        return f"{fixed}: {kind.unasked or 'a hook of Helm is made anew'}"
    return Refusal(kind="immutable", reasons=(why or fixed,), hint=hint)


def is_failed_hook(manifest: KubeObject, live: Data) -> bool:
    """Tell whether a hook of Helm has ended badly, which helm makes anew whether it changed or not."""
    if not may_run_again(manifest) or manifest.annotations.get(RECREATE) == "never":
        return False
    ended = Facts(data=live)
    return ended.has("Failed") or ended.status.get("phase") == "Failed"


def unless_refused(reason: str, error: MlstackError) -> str | Refusal:
    """Keep what would be refused when it is made anew: deleted, it would not come back."""
    is_taken = "already allocated" in error.message  # by the very object that goes first
    if is_taken or (isinstance(error, ForbiddenError) and error.why == "rights"):
        return reason
    causes = error.causes if isinstance(error, InvalidError) else ()
    faults = "; ".join(map(str, causes))
    text = f"{reason}, and made anew it would be refused: {faults or error.message}"
    hint = "mend what the server says first, or let the files say what the cluster has"
    return Refusal(kind="immutable", reasons=(text,), hint=hint)


def says_fixed(error: InvalidError) -> bool:
    """Tell whether all that a server finds wrong with an update is that fields cannot change."""
    return all(map(_FIXED.search, [cause.message for cause in error.causes] or [error.message]))


def sentence(manifest: KubeObject, causes: Sequence[Cause], changed: Sequence[FieldChange]) -> str:
    """Say which fields cannot change, and in the server's words why, where those say more than that."""
    mutable = replacement_of(manifest.data).mutable
    paths = [change.path for change in changed]
    meant = [path for path in paths if path.startswith("spec") and not path.startswith(mutable)]
    reasons: dict[str, str] = {}
    for cause in causes:
        text = "" if _FIXED.search(cause.message) else cause.message.partition(": Invalid value:")[0]
        named = [cause.field] if cause.field else []
        for path in named if cause.field not in ("", "spec") else meant or named:
            reasons.setdefault(path, text)
    fields = [f"`{path}`" for path in reasons] or [change_text(change) for change in changed]
    reason = "; ".join(dict.fromkeys(text for text in reasons.values() if text))
    what = f"{listed(fields, _NAMED) or 'a field'} cannot change while the object exists"
    return f"{what} ({reason})" if reason else what


# --- ask the server what it would make of an object that is new ---

_NEW_UID = "(UID of the new object)"


def dry_run_copy(cluster: Cluster, data: Data, live: Data) -> Data | MlstackError:
    """Give what a creation would make of an object that exists, or what the server has against it.

    It is asked about under another name. In the answer stand its own name, and the live object's UID and
    addresses where the server puts those of the new one, so that only true differences are left. The name of
    a definition is fixed, so it is always refused.
    """
    name = str(data["metadata"]["name"])
    other = f"{name[:40]}-mlstack-probe"
    copy = {**data, "metadata": {**data["metadata"], "name": other}}
    try:
        try:
            answer = cluster.apply(copy, dry_run=True).object
        except InvalidError as error:
            if other not in repr((error.message, error.causes)):
                raise
            answer = cluster.apply(_labelled(copy, name, other), dry_run=True).object  # its labels name it
    except MlstackError as error:  # whatever speaks against the copy, the caller knows what to make of it
        error.message = error.message.replace(other, name)
        if isinstance(error, InvalidError):
            error.causes = tuple(
                replace(cause, message=cause.message.replace(other, name)) for cause in error.causes
            )
        return error
    uids = str(answer["metadata"]["uid"]), str(live["metadata"]["uid"])
    unsaid = [
        path
        for path in managed_fields.paths(managed_fields.owned(live))
        if is_allocated(path_text(path)) and not managed_fields.says(data, path)
    ]
    return managed_fields.cut(_as_itself(answer, live, (other, name), uids), unsaid)


def is_allocated(path: str) -> bool:
    """Tell whether the server gives a field its value itself, and keeps it when nobody owns it any more."""
    prefixes = ("spec.clusterIP", "spec.ipFamil", "spec.healthCheckNodePort", "spec.volumeName")
    return path.startswith(prefixes) or path.endswith(".nodePort") or "controller-uid" in path


def _labelled(value: Any, name: str, other: str, *, inside: bool = False) -> Any:
    """Give an object whose labels and selectors say another name where they said its own."""
    if isinstance(value, Mapping):
        return {
            key: _labelled(inner, name, other, inside=inside or key in ("labels", "matchLabels"))
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_labelled(inner, name, other, inside=inside) for inner in value]
    return other if inside and value == name else value


def _as_itself(value: Any, live: Any, names: tuple[str, str], uids: tuple[str, str]) -> Any:
    """Put an object's own name and UID where the server put those of a copy."""
    if isinstance(value, Mapping):
        beside = live if isinstance(live, Mapping) else {}
        return {key: _as_itself(inner, beside.get(key), names, uids) for key, inner in value.items()}
    if isinstance(value, list):
        others = live if isinstance(live, list) and len(live) == len(value) else [None] * len(value)
        return [_as_itself(inner, other, names, uids) for inner, other in zip(value, others, strict=True)]
    if not isinstance(value, str):
        return value
    uid = uids[1] if isinstance(live, str) and uids[1] in live else _NEW_UID
    return value.replace(*names).replace(uids[0], uid)


# --- whose an object is: that of another app or environment, or of another set of objects ---

_MARKS = frozenset(
    path_text(("f:metadata", "f:labels", f"f:{name}"))
    for name in (*marks(app="", environment="", component=""), MEMBER_LABEL)
)


def foreign_owner(
    manifest: KubeObject, live: Data, environments: Collection[str]
) -> tuple[str, Refusal] | None:
    """Give whose an object is where it is not ours, and its refusal; `environments` are those of the app."""
    owner = other_owner(manifest, live)
    if not owner:
        return None
    hint = "rename it, or take it over with --adopt; it must then go from where it was"
    labels, ours = live["metadata"].get("labels") or {}, manifest.labels
    former = labels.get(ENVIRONMENT_LABEL, "")
    if former and labels.get(APP_LABEL) == ours.get(APP_LABEL) and former not in map(label_of, environments):
        owner = f"environment `{former}`, which app `{ours[APP_LABEL]}` does not have"
        hint = (
            f"if `{former}` is called `{ours[ENVIRONMENT_LABEL]}` now, take all of it over once with"
            f" --adopt; if another copy of the app has it, leave it (its inventory:"
            f" ConfigMap {records_name(ours[APP_LABEL], former)})"
        )
    return owner, Refusal(kind="foreign", reasons=(f"it belongs to {owner}",), hint=hint)


def is_shared(manifest: KubeObject, changed: Iterable[FieldChange]) -> bool:
    """Tell whether an object of another is just as we want it and may stay theirs: only marks differ."""
    return replacement_of(manifest.data).shared and all(change.path in _MARKS for change in changed)


# --- what a change of a definition would take away from the objects that are there ---

ALLOW_ANNOTATION = "mlstack.dev/allow-destructive"


# Keyword → whether a greater number allows more.
_BOUNDS = {
    **dict.fromkeys(("minimum", "minLength", "minItems", "minProperties"), False),
    **dict.fromkeys(("maximum", "maxLength", "maxItems", "maxProperties"), True),
}
_NUMERIC = ("int32", "int64", "float", "double")  # formats that the server does not hold numbers to
_WIDER = (("integer", "number"), ("integer", "int-or-string"), ("string", "int-or-string"))
_FIELDS_NAMED = 5  # fields of one version that are listed


def is_definition(manifest: KubeObject) -> bool:
    """Tell whether an object is a CustomResourceDefinition."""
    return (manifest.group, manifest.kind) == (CRD_GROUP, "CustomResourceDefinition")


def is_allowed(data: Data) -> bool:
    """Tell whether a definition says itself that it may take things away."""
    annotations = (data.get("metadata") or {}).get("annotations") or {}
    return annotations.get(ALLOW_ANNOTATION) == "true"


def losses_of(cluster: Cluster, live: Data, after: Data) -> tuple[str, ...]:
    """Say what a change of a definition would take away from what is there."""
    at_most, at_least = losses(live, after), losses(live, after, has_objects=False)
    return at_most if at_most == at_least or _has_objects(cluster, live) else at_least


def demands_of(cluster: Cluster, live: Data, after: Data) -> tuple[str, ...]:
    """Say what a change of a definition would demand of the objects that are there."""
    texts = demands(live, after)
    if not texts or not _has_objects(cluster, live):
        return ()
    return tuple(
        f"{text}; objects that are there and break it may be refused when they change" for text in texts
    )


def _has_objects(cluster: Cluster, definition: Data) -> bool:
    for kind in kinds_of_crd(definition):
        try:
            return bool(cluster.list(kind.api_version, kind.kind, metadata_only=True).items)
        except ClusterError:  # nobody can tell: there may be some
            continue
    return True


def losses(live: Data, after: Data, *, has_objects: bool = True) -> tuple[str, ...]:
    """Say what would be lost; nothing if the change only adds or allows more."""
    before, desired = live.get("spec") or {}, after.get("spec") or {}
    names, other_names = before.get("names") or {}, desired.get("names") or {}
    pairs = [(key, before.get(key), desired.get(key)) for key in ("group", "scope")]
    pairs += [(f"names.{key}", names.get(key), other_names.get(key)) for key in ("kind", "plural")]
    texts = [
        f"`{what}` would change from {old} to {new}: every object of the kind would be lost"
        for what, old, new in pairs
        if old != new
    ]
    versions, others = _versions(live), _versions(after)
    stored = list((live.get("status") or {}).get("storedVersions") or ())
    texts += [
        f"version `{name}` would be removed, and objects are stored in it; once all are written anew in"
        " another, take it from `status.storedVersions` of the definition"
        for name in stored
        if name not in others
    ]
    for name, version in versions.items():
        if others.get(name, {}).get("served"):
            texts += _listed(name, narrowed(_schema(version), _schema(others[name])))
        elif version.get("served") and has_objects and not (name in stored and name not in others):
            texts.append(f"version `{name}` would not be served any more")
    return tuple(texts)


def demands(live: Data, after: Data) -> tuple[str, ...]:
    """Say what a definition would newly demand of objects, where nobody can tell whether it allows less."""
    others = _versions(after)
    return tuple(
        text
        for name, version in _versions(live).items()
        if version.get("served") and others.get(name, {}).get("served")
        for text in _listed(name, demanded(_schema(version), _schema(others[name])))
    )


def _versions(data: Data) -> dict[str, Data]:
    versions = (data.get("spec") or {}).get("versions") or ()
    return {str(version.get("name", "")): version for version in versions}


def _schema(version: Data) -> Data:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _listed(version: str, texts: Iterable[str]) -> Iterator[str]:
    lines = [f"version `{version}`: {text}" for text in texts]
    yield from lines[:_FIELDS_NAMED]
    if len(lines) > _FIELDS_NAMED:
        yield f"version `{version}`: and {len(lines) - _FIELDS_NAMED} fields more"


def narrowed(old: Data, new: Data, path: str = "") -> Iterator[str]:
    """Say which fields of a schema would go, or allow less than before.

    Expressions (CEL), formats and combinations (`oneOf` …) are not compared: nobody can tell which of two
    allows more. `demanded` tells of them.
    """
    if _takes_anything(new) and "type" not in new:
        return
    field = _named(path)
    was, becomes = _type(old), _type(new)
    if becomes and was != becomes and (was, becomes) not in _WIDER:
        yield f"{field} would be {becomes} instead of {was or 'anything'}"
    if old.get("nullable") and not new.get("nullable"):
        yield f"{field} would not be null any more"
    if _is_open(old) and not _is_open(new):
        yield f"{field} would drop fields that the schema does not name"
    yield from _narrowed_values(old, new, field)
    fields, others = old.get("properties") or {}, new.get("properties") or {}
    extra = new.get("additionalProperties")
    for name, schema in fields.items():
        inner = f"{path}.{name}" if path else str(name)
        other = others.get(name, extra)
        if isinstance(other, Mapping):
            yield from narrowed(schema, other, inner)
        elif not (_takes_anything(new) or extra is True):
            yield f"{_named(inner)} would be removed"
    for name in new.get("required") or ():
        if name not in (old.get("required") or ()) and "default" not in (others.get(name) or {}):
            yield f"{_named(f'{path}.{name}' if path else name)} would be required"
    for before, after, inner in _items(old, new, path):
        yield from narrowed(before, after, inner)


def _narrowed_values(old: Data, new: Data, field: str) -> Iterator[str]:
    allowed, rest = old.get("enum"), new.get("enum")
    if rest is not None:
        gone = [value for value in allowed or () if value not in rest]
        if allowed is None:
            yield f"{field} would be one of {_values(rest)} alone"
        elif gone:
            yield f"{field} would not be {_values(gone)} any more"
    for keyword, more_is_wider in _BOUNDS.items():
        was, becomes = old.get(keyword), new.get(keyword)
        if becomes is not None and (was is None or (becomes < was if more_is_wider else becomes > was)):
            yield f"{field} would have `{keyword}` {becomes}" + (f", not {was}" if was is not None else "")
    if new.get("pattern") is not None and old.get("pattern") is None:
        yield f"{field} would have to match `{new['pattern']}`"


def demanded(old: Data, new: Data, path: str = "") -> Iterator[str]:
    """Say which fields of a schema get a rule (CEL), format, pattern or combination that they had not.

    Rules on a change (`oldSelf`) do not count: an object as it is cannot break them.
    """
    rules = {rule.get("rule") for rule in old.get("x-kubernetes-validations") or ()}
    for rule in new.get("x-kubernetes-validations") or ():
        if rule.get("rule") not in rules and "oldSelf" not in str(rule.get("rule")):
            yield f"{_named(path)} has a new rule: {rule.get('message') or rule.get('rule')}"
    for keyword in ("format", "pattern", "not", "allOf", "anyOf", "oneOf"):
        was, becomes = old.get(keyword), new.get(keyword)
        is_loss = keyword == "pattern" and was is None
        if becomes not in (None, was, *_NUMERIC) and not is_loss:
            shown = f" `{becomes}`" if isinstance(becomes, str) else ""
            yield f"{_named(path)} has another `{keyword}`{shown}"
    for name, schema in (old.get("properties") or {}).items():
        other = (new.get("properties") or {}).get(name)
        if isinstance(other, Mapping):
            yield from demanded(schema, other, f"{path}.{name}" if path else str(name))
    for before, after, inner in _items(old, new, path):
        yield from demanded(before, after, inner)


def _items(old: Data, new: Data, path: str) -> Iterator[tuple[Data, Data, str]]:
    """Give the schemas of what is in lists and open maps, where both have one."""
    for keyword, step in (("items", "[]"), ("additionalProperties", ".*")):
        before, after = old.get(keyword), new.get(keyword)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield before, after, f"{path}{step}"


def _type(schema: Data) -> str:
    return "int-or-string" if schema.get("x-kubernetes-int-or-string") else str(schema.get("type") or "")


def _takes_anything(schema: Data) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def _is_open(schema: Data) -> bool:
    extra = schema.get("additionalProperties")
    return _takes_anything(schema) or extra is True or isinstance(extra, Mapping)


def _values(values: Sequence[Any]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _named(path: str) -> str:
    return f"field `{path}`" if path else "the object"


# --- what does not go back with a rollback ---


def earlier_state(
    earlier: DesiredState, now: DesiredState, *, may_lose: bool = False
) -> tuple[DesiredState, tuple[str, ...]]:
    """Give an earlier set as far as one can go back to it, and say what stays as it is today."""
    # A claim holds data: it is neither replaced nor made smaller. A definition that would lose fields or
    # versions would take along what is stored in them; it goes back only if it `may_lose` them.
    current = {obj.identity: obj for obj in now.objects}
    objects, notes = [], []
    for obj in earlier.objects:
        today, why = current.get(obj.identity), ""
        if today is not None and today.data != obj.data:
            may_go_back = may_lose or not kinds_of_crd(obj.data) or is_allowed(obj.data)
            if is_claim(obj.identity):
                why = "a claim is not rolled back"
            elif not may_go_back and (lost := losses(today.data, obj.data)):
                why = f"going back would lose something ({lost[0]})"
                why += "; if that is wanted: --allow-destructive-crds"
        objects.append(today if today is not None and why else _replaceable_as(today, obj))
        if why:
            notes.append(f"{obj.identity} stays as it is: {why}")
    return replace(earlier, objects=tuple(objects)), tuple(notes)


def _replaceable_as(today: KubeObject | None, obj: KubeObject) -> KubeObject:
    """Give an earlier object that may be made anew if today's may: nobody can annotate an earlier set."""
    if today is None or RECREATE not in today.annotations or RECREATE in obj.annotations:
        return obj
    annotations = {**obj.annotations, RECREATE: today.annotations[RECREATE]}
    return obj.with_data({**obj.data, "metadata": {**obj.metadata, "annotations": annotations}})


def sparing_claims(changes: Iterable[Change], now: DesiredState) -> tuple[Change, ...]:
    """Give the changes of a rollback without those that would take volume claims along."""
    # What is listed for deletion may be known by its metadata alone, so the set of today is asked as well.
    holding = {obj.identity for obj in now.objects if _takes_claims_along(obj)}
    along = "its volume claims would be deleted with it (persistentVolumeClaimRetentionPolicy)"
    return tuple(
        replace(change, action="kept", reason=along, writes=False, desired=None)
        if change.action in DESTRUCTIVE and (change.identity in holding or _takes_claims_along(change.live))
        else change
        for change in changes
    )


def _takes_claims_along(live: KubeObject | None) -> bool:
    if live is None or live.kind != "StatefulSet":
        return False
    policy = (live.data.get("spec") or {}).get("persistentVolumeClaimRetentionPolicy") or {}
    return bool(policy.get("whenDeleted") == "Delete")
