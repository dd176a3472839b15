"""Objects whose change cannot be made in place: which are made anew, which never, and what to say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mlstack.errors import Cause, ConfigError, ForbiddenError, InvalidError, MlstackError
from mlstack.model.fields import FieldChange
from mlstack.model.kinds import CRD_GROUP
from mlstack.model.objects import KubeObject
from mlstack.model.replacement import words

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
_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What becomes of an object that cannot change as it is wanted.

    Attributes:
        recreate: whether it is deleted and made anew, once that is confirmed.
        reason: why, or what cannot change.
        hint: what to do where it is not made anew.
    """

    recreate: bool
    reason: str
    hint: str = ""


def judge(wanted: KubeObject, environment: str, *, fixed: str, why: str | None) -> Verdict:
    """Tell what becomes of an object that cannot change in place.

    Args:
        wanted: the object as it is wanted; its annotation `mlstack.dev/recreate` decides first.
        environment: name of the environment, for the hint.
        fixed: what cannot change, as a sentence.
        why: why a rule wants it made anew, None if none does.

    Raises:
        ConfigError: the annotation says neither `true` nor `never`.
    """
    key = (wanted.group, wanted.kind)
    said = _annotation(wanted)
    keep = f"or let the files say there what the cluster has (`mlstack diff {environment}` shows both)"
    if key in _NEVER:
        hint = f"a {wanted.kind} is never made anew: {_NEVER[key]}, {keep}"
        return Verdict(recreate=False, reason=fixed, hint=hint)
    if said == "never":
        hint = f"its annotation `{RECREATE}: never` keeps it from being made anew; change that, {keep}"
        return Verdict(recreate=False, reason=why or fixed, hint=hint)
    if why or said == "true":
        return Verdict(recreate=True, reason=why or fixed)
    if key in _BY_THEMSELVES:
        return Verdict(recreate=True, reason=f"{fixed}: {_BY_THEMSELVES[key]}")
    place = f"environments/{environment}/patches/{wanted.component}.yaml"
    hint = (
        f'let it be deleted and made anew by the annotation `{RECREATE}: "true"` on it'
        f" (in its manifest, or in {place}), {keep}"
    )
    return Verdict(recreate=False, reason=fixed, hint=hint)


def unless_refused(verdict: Verdict, fault: MlstackError) -> Verdict:
    """Keep what would be refused when it is made anew: deleted, it would not come back.

    Args:
        verdict: that it is to be made anew.
        fault: what the server says against a copy of another name.
    """
    is_taken = "already allocated" in fault.message  # by the very object that goes first
    if is_taken or (isinstance(fault, ForbiddenError) and fault.why == "rights"):
        return verdict
    causes = fault.causes if isinstance(fault, InvalidError) else ()
    told = "; ".join(f"`{cause.field}` {cause.message}".replace("`` ", "") for cause in causes)
    text = f"{verdict.reason}, and made anew it would be refused: {told or fault.message}"
    hint = "mend what the server says first, or let the files say what the cluster has"
    return Verdict(recreate=False, reason=text, hint=hint)


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
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    told = "; ".join(dict.fromkeys(text for text in named.values() if text))
    what = f"{', '.join(listed[:_NAMED]) or 'a field'}{more} cannot change while the object exists"
    return f"{what} ({told})" if told else what


def _names(wanted: KubeObject, cause: Cause, changed: Sequence[FieldChange]) -> tuple[str, ...]:
    if cause.field not in ("", "spec"):
        return (cause.field,)
    free = _FREE.get((wanted.group, wanted.kind), ())
    meant = (one.path for one in changed if one.path.startswith("spec") and not one.path.startswith(free))
    return tuple(dict.fromkeys(meant)) or ((cause.field,) if cause.field else ())
