"""Objects that cannot change in place, objects of others, and all that an apply refuses to do."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlstack.deploy.changes import Change, Refusal
from mlstack.deploy.definition import ALLOW_ANNOTATION
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
from mlstack.objects.kinds import CRD_GROUP
from mlstack.objects.kube_object import APP_LABEL, ENVIRONMENT_LABEL, KubeObject, marks
from mlstack.objects.managed_fields import FieldChange, path_text
from mlstack.readiness import assess
from mlstack.readiness.ml import change_text

# --- Objects whose change cannot be made in place: which are made anew, which never, and what to
# say

RECREATE = "mlstack.dev/recreate"

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
    said, kind = _annotation(wanted), assess.replacement_of(wanted.data)
    keep = f"or let the files say there what the cluster has (`mlstack diff {environment}` shows both)"
    if kind.never:
        hint = f"a {wanted.kind} is never made anew: {kind.never}, {keep}"
        return ReplacementVerdict(recreate=False, reason=fixed, hint=hint)
    if said == "never":
        hint = f"its annotation `{RECREATE}: never` keeps it from being made anew; change that, {keep}"
        return ReplacementVerdict(recreate=False, reason=why or fixed, hint=hint)
    if why or said == "true":
        return ReplacementVerdict(recreate=True, reason=why or fixed)
    if kind.unasked:
        return ReplacementVerdict(recreate=True, reason=f"{fixed}: {kind.unasked}")
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
    listed = [f"`{name}`" for name in named] or [change_text(one) for one in changed]
    more = f" and {len(listed) - _RECREATED_NAMED} more" if len(listed) > _RECREATED_NAMED else ""
    told = "; ".join(dict.fromkeys(text for text in named.values() if text))
    what = f"{', '.join(listed[:_RECREATED_NAMED]) or 'a field'}{more} cannot change while the object exists"
    return f"{what} ({told})" if told else what


def _names(wanted: KubeObject, cause: Cause, changed: Sequence[FieldChange]) -> tuple[str, ...]:
    if cause.field not in ("", "spec"):
        return (cause.field,)
    free = assess.replacement_of(wanted.data).mutable
    meant = (one.path for one in changed if one.path.startswith("spec") and not one.path.startswith(free))
    return tuple(dict.fromkeys(meant)) or ((cause.field,) if cause.field else ())


# --- Whose an object is: that of another app or environment, or of another set of objects ---

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
    return assess.replacement_of(wanted.data).shared and all(one.path in _MARKS for one in changed)


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
