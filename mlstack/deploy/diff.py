"""What an apply would make of all objects of a run: a `Change` each, and what is said of them as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlstack.deploy import replacement
from mlstack.deploy.changes import ApplyOptions, Change, Changes
from mlstack.deploy.live import LastApplied, LiveState, is_reachable
from mlstack.deploy.object_diff import DiffContext, change_of_new_definition, context_of, diff_object
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ClusterError, ConfigError, ForbiddenError, InvalidError, MlstackError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.objects import order
from mlstack.objects.kinds import Kind, Kinds, kinds_of_crd
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.objects.order import DEPENDS_ON, outside

Manifest = Mapping[str, Any]

_NAMED = 8
_USUAL = ApplyOptions()


def diff(
    resolved: ResolvedTarget, live: LiveState, options: ApplyOptions = _USUAL, *, check_new: bool = False
) -> Changes:
    """Compare what is wanted with what is there; nothing is written.

    An object that the server does not accept is a change that is refused. With `check_new` the server is
    asked about new objects too, where it can tell already.

    Raises:
        ForbiddenError: rights to look are missing.
        ConfigError: an object depends on one that is neither in this run nor in the cluster.
    """
    state, cluster = resolved.state, resolved.cluster
    _refuse_absent_targets((*live.created, *live.objects), cluster)
    wanted = order.ordered((*live.created, *live.objects), state.depends)
    context = replace(
        context_of(resolved, options, live.inventory), live=live, scalers=live.scalers, check_new=check_new
    )
    results = parallel.run(lambda one: diff_object(context, one), wanted)
    if not check_new:
        results = _with_new_checked(results, wanted, context, hasty=not live.inventory.exists)
    changes = tuple(_with_refusals(_with_redefined(results, wanted, context), wanted, context))
    return Changes(
        app=state.app,
        environment=state.environment,
        namespace=state.namespace,
        context=resolved.place.context,
        cluster=resolved.identity,
        changes=changes,
        depends=state.depends,
        secrets=state.secrets,
        notes=(
            *state.notes,
            *(f"namespace `{one.name}` is created first" for one in live.created),
            *_left_notes(changes),
            *kept_labels((change.identity, change.labels) for change in changes),
            *_unread_notes(context.applied),
        ),
    )


# --- what the server had against objects: asked about in time, and told of each without hiding the others ---

_Results = Sequence[Change | MlstackError]


def _with_new_checked(
    results: list[Change | MlstackError], wanted: Sequence[KubeObject], context: DiffContext, *, hasty: bool
) -> list[Change | MlstackError]:
    """Ask about new objects too: what is wrong with them is better told before anything is written.

    It costs a request each, so many are asked about only where something else is wrong, and those of a new
    environment (`hasty`) too. Only what the server says of fields counts: other objects of the run may be
    all that a webhook or a quota waits for.
    """
    new = [
        place
        for place, found in enumerate(results)
        if isinstance(found, Change) and found.action == "create" and not kinds_of_crd(wanted[place].data)
    ]
    wrong = any(not isinstance(found, Change) or found.refusal for found in results)
    if not new or not (wrong or (len(new) <= parallel.WORKERS and not hasty)):
        return results
    asking = replace(context, check_new=True)
    answers = parallel.run(lambda place: diff_object(asking, wanted[place]), new)
    faults = {
        place: answer
        for place, answer in zip(new, answers, strict=True)
        if isinstance(answer, InvalidError) and answer.causes and "webhook" not in answer.message
    }
    return [faults.get(place, found) for place, found in enumerate(results)]


def _with_redefined(
    results: _Results, wanted: Sequence[KubeObject], context: DiffContext
) -> list[Change | MlstackError]:
    """Look without the server at objects that only a new version of their definition may let pass."""
    redefined = {
        (kind.group, kind.kind)
        for found in results
        if isinstance(found, Change) and found.writes and not found.refusal and found.desired
        for kind in kinds_of_crd(found.desired.data)
    }
    return [
        change_of_new_definition(context, one)
        if isinstance(found, InvalidError) and (one.group, one.kind) in redefined
        else found
        for found, one in zip(results, wanted, strict=True)
    ]


def _with_refusals(results: _Results, wanted: Sequence[KubeObject], context: DiffContext) -> Iterator[Change]:
    """Give a change for every object, for one that the server does not accept a change that is refused.

    Raises:
        MlstackError: something is not the fault of one object.
    """
    others = [
        found for found in results if not isinstance(found, Change) and not replacement.is_of_object(found)
    ]
    if others:
        raise parallel.together(others)
    for found, one in zip(results, wanted, strict=True):
        if isinstance(found, Change):
            yield found
        else:
            yield replacement.invalid(one, _live_if_known(context, one), found)


def _live_if_known(context: DiffContext, wanted: KubeObject) -> Manifest | None:
    absent = context.live.absent_namespaces if context.live else frozenset[str]()
    try:
        reachable = is_reachable(wanted, context.cluster, absent)
        return context.cluster.get(ObjectRef.of(wanted.data)) if reachable else None
    except ClusterError:  # what is wrong is known already
        return None


# --- what objects of a run depend on outside of it: it has to be there before anything is written ---


def _refuse_absent_targets(wanted: Sequence[KubeObject], cluster: Cluster) -> None:
    for one, target in outside(wanted):
        if not _is_there(target, one, cluster):
            raise ConfigError(
                f"`{one.identity}` depends on `{target}`, which is neither in this run nor in the cluster",
                where=str(one.source) if one.source else f"component {one.component}",
                hint=f"see its annotation `{DEPENDS_ON}`: group `{target.group}`, kind `{target.kind}`",
            )


def _is_there(target: Identity, wanted: KubeObject, cluster: Cluster) -> bool:
    kind = _kind(target, Kinds.builtin()) or _kind(target, cluster.kinds())
    if kind is None:
        return False
    namespace = (target.namespace or wanted.namespace) if kind.namespaced else ""
    try:
        return cluster.get(ObjectRef(kind.api_version, kind.kind, namespace, target.name)) is not None
    except ForbiddenError:  # whoever may not look cannot be told
        return True


def _kind(target: Identity, kinds: Kinds) -> Kind | None:
    return next((kind for kind in kinds.of_group(target.group) if kind.kind == target.kind), None)


# --- what is said of a run as a whole ---


def _left_notes(changes: Sequence[Change]) -> tuple[str, ...]:
    """Say of objects that nobody would look at whose fields stay with others."""
    silent = (change for change in changes if change.action == "unchanged" and change.left)
    return tuple(
        f"`{change.identity}` {note}" for change in silent for note in change.notes if "leaves" in note
    )


def kept_labels(labels: Iterable[tuple[Identity, Sequence[tuple[str, str]]]]) -> tuple[str, ...]:
    """Say in one line which labels and annotations of people stay; nothing if there are none."""
    texts = [f"`{path}` of `{identity}` ({manager})" for identity, rows in labels for path, manager in rows]
    if not texts:
        return ()
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return (f"labels and annotations that people added stay: {', '.join(texts[:_NAMED])}{more}",)


def _unread_notes(applied: LastApplied) -> tuple[str, ...]:
    if not applied.fault:
        return ()
    return (
        "what was applied before cannot be read, so fields that others changed and the files no longer have"
        f" may stay: {applied.fault}",
    )
