"""Changes that must not be carried out: found as they are worked out, shown by diff, refused by apply."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlstack.cluster.api import Cluster
from mlstack.engine import parallel
from mlstack.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    MlstackError,
    TransientError,
)
from mlstack.model import definitions, ownership
from mlstack.model.definitions import ALLOW_ANNOTATION
from mlstack.model.diff import Change, Refusal
from mlstack.model.inventory import name_of
from mlstack.model.kinds import CRD_GROUP, kinds_of_crd
from mlstack.model.objects import APP_LABEL, ENVIRONMENT_LABEL, KubeObject

_ERRORS: Mapping[str, type[ClusterError]] = {
    "immutable": InvalidError,
    "destructive": InvalidError,
    "foreign": ConflictError,
    "invalid": InvalidError,
}


def is_definition(wanted: KubeObject) -> bool:
    """Tell whether an object is a CustomResourceDefinition."""
    return (wanted.group, wanted.kind) == (CRD_GROUP, "CustomResourceDefinition")


def of_others(
    wanted: KubeObject,
    live: Mapping[str, Any],
    change_of: Callable[[], Change],
    *,
    adopt: bool,
    environments: Collection[str],
) -> Change:
    """Give a change that refuses to take an object from another app or environment.

    Definitions and namespaces that both want alike stay whose they are.

    Args:
        wanted: the object as it is wanted.
        live: the object as it is.
        change_of: works out the change.
        adopt: whether objects of others are taken over.
        environments: those of the app, as labels name them.
    """
    owner = ownership.other_owner(wanted, wanted.with_data(live))
    if not owner:
        return change_of()
    hint = "rename it, or take it over with --adopt; it must then go from where it was"
    former = ownership.former(wanted, wanted.with_data(live), environments)
    if former:
        owner = f"environment `{former}`, which app `{wanted.labels[APP_LABEL]}` does not have"
        hint = (
            f"if `{former}` is called `{wanted.labels[ENVIRONMENT_LABEL]}` now, take all of it over once with"
            f" --adopt; if another copy of the app has it, leave it (its inventory:"
            f" ConfigMap {name_of(wanted.labels[APP_LABEL], former)})"
        )
    refusal = Refusal(kind="foreign", reasons=(f"it belongs to {owner}",), hint=hint)
    try:
        change = change_of()
    except (ConflictError, InvalidError):
        if adopt:
            raise
        return _refused(wanted, live, refusal)
    if adopt:
        return replace(change, notes=(f"takes it from {owner}", *change.notes))
    if ownership.is_shared(wanted, change.fields):
        note = f"is the same there as here and stays with {owner}"
        return replace(
            change, action="unchanged", fields=(), writes=False, notes=(note,), prepare=(), payload=None
        )
    return replace(change, refusal=refusal)


def _refused(wanted: KubeObject, live: Mapping[str, Any], refusal: Refusal) -> Change:
    return Change(
        identity=wanted.identity,
        component=wanted.component,
        action="update",
        api_version=wanted.api_version,
        desired=wanted,
        live_uid=str(live["metadata"]["uid"]),
        refusal=refusal,
    )


def losses(cluster: Cluster, live: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what a change of a definition would take away.

    Args:
        cluster: asked for objects of the kind, where it matters whether there are any.
        live: the definition as it is.
        after: as it would be.
    """
    found = definitions.losses(live, after)
    without = definitions.losses(live, after, has_objects=False)
    return found if found == without or _has_objects(cluster, live) else without


def demands(cluster: Cluster, live: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what a change of a definition would demand of the objects that are there."""
    found = definitions.demands(live, after)
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
    """Give the change of an object that the server does not accept, as far as that is one.

    Args:
        wanted: the object as it is wanted.
        live: the object as it is, None if it is not there.
        error: what the server said.
    """
    name = f"`{wanted.identity}`"
    said = error.message.removeprefix(name).removeprefix(" is refused").removeprefix(": ").strip()
    refusal = Refusal(kind="invalid", reasons=(said,), hint=error.hint or "", error=error)
    if live is not None:
        return _refused(wanted, live, refusal)
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
