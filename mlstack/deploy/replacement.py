"""Objects that cannot change in place (which are made anew, which stay), and objects of others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlstack.deploy.changes import Refusal
from mlstack.deploy.inventory import MEMBER_LABEL, name_of
from mlstack.errors import Cause, ConfigError, ForbiddenError, InvalidError, MlstackError
from mlstack.events import listed
from mlstack.kube.client import Cluster
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import APP_LABEL, ENVIRONMENT_LABEL, Data, KubeObject, label_of, marks
from mlstack.objects.managed_fields import FieldChange, path_text
from mlstack.objects.order import is_made_anew_as_hook, may_run_again
from mlstack.readiness.evaluate import replacement_of
from mlstack.readiness.ml import change_text
from mlstack.readiness.rule import Facts

RECREATE = "mlstack.dev/recreate"

# The words of Kubernetes 1.30 to 1.36; no code tells these refusals from others.
_FIXED = re.compile(
    r"immutable|may not change|cannot change|may not be changed|updates to .* are forbidden"
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
    if kind.never:
        hint = f"a {manifest.kind} is never made anew: {kind.never}, {keep}"
        return Refusal(kind="immutable", reasons=(fixed,), hint=hint)
    if annotation == "never":
        hint = f"its annotation `{RECREATE}: never` keeps it from being made anew; change that, {keep}"
        return Refusal(kind="immutable", reasons=(why or fixed,), hint=hint)
    if why or annotation == "true":
        return why or fixed
    if kind.unasked:
        return f"{fixed}: {kind.unasked}"
    if is_made_anew_as_hook(manifest):
        return f"{fixed}: a hook of Helm is made anew"
    place = f"environments/{environment}/patches/{manifest.component}.yaml"
    hint = (
        f'let it be deleted and made anew by the annotation `{RECREATE}: "true"` on it'
        f" (in its manifest, or in {place}), {keep}"
    )
    return Refusal(kind="immutable", reasons=(fixed,), hint=hint)


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
    said = "; ".join(f"`{cause.field}` {cause.message}".replace("`` ", "") for cause in causes)
    text = f"{reason}, and made anew it would be refused: {said or error.message}"
    hint = "mend what the server says first, or let the files say what the cluster has"
    return Refusal(kind="immutable", reasons=(text,), hint=hint)


def says_fixed(causes: Sequence[Cause]) -> bool:
    """Tell whether all that a server finds wrong with an update is that fields cannot change."""
    return bool(causes) and all(_FIXED.search(cause.message) for cause in causes)


def sentence(manifest: KubeObject, causes: Sequence[Cause], changed: Sequence[FieldChange]) -> str:
    """Say which fields cannot change, and in the server's words why, where those say more than that."""
    mutable = replacement_of(manifest.data).mutable
    meant = [
        change.path
        for change in changed
        if change.path.startswith("spec") and not change.path.startswith(mutable)
    ]
    reasons: dict[str, str] = {}
    for cause in causes:
        text = "" if _FIXED.search(cause.message) else cause.message.partition(": Invalid value:")[0]
        named = [cause.field] if cause.field else []
        for path in named if cause.field not in ("", "spec") else meant or named:
            reasons.setdefault(path, text)
    fields = [f"`{path}`" for path in reasons] or [change_text(change) for change in changed]
    said = "; ".join(dict.fromkeys(text for text in reasons.values() if text))
    what = f"{listed(fields, _NAMED) or 'a field'} cannot change while the object exists"
    return f"{what} ({said})" if said else what


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


def other_owner(manifest: KubeObject, live: Data) -> str:
    """Say whose an object is if it is not ours; empty if it is, or is nobody's."""
    labels = live["metadata"].get("labels") or {}
    app, environment = labels.get(APP_LABEL), labels.get(ENVIRONMENT_LABEL)
    if app:
        ours = (manifest.labels.get(APP_LABEL), manifest.labels.get(ENVIRONMENT_LABEL))
        return "" if (app, environment) == ours else f"environment `{environment}` of app `{app}`"
    applyset, own = labels.get(MEMBER_LABEL), manifest.labels.get(MEMBER_LABEL)
    return f"ApplySet `{applyset}`" if applyset and applyset != own else ""


def foreign_owner(
    manifest: KubeObject, live: Data, environments: Collection[str]
) -> tuple[str, Refusal] | None:
    """Give whose an object is, and the refusal to take it from them; None if it is ours or nobody's.

    `environments` are those of the app.
    """
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
            f" ConfigMap {name_of(ours[APP_LABEL], former)})"
        )
    return owner, Refusal(kind="foreign", reasons=(f"it belongs to {owner}",), hint=hint)


def is_shared(manifest: KubeObject, changed: Iterable[FieldChange]) -> bool:
    """Tell whether an object of another is just as we want it and may stay theirs: only marks differ."""
    return replacement_of(manifest.data).shared and all(change.path in _MARKS for change in changed)
