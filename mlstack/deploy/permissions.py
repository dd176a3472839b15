"""Whether we have the rights that a run needs: asked before anything is written, told all at once.

Somebody who may do everything is asked about once. For all others one list of rules for each namespace
answers most; what it does not give is asked about right by right, since rules are not all there is (webhooks
authorise, too).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from mlstack.app.app import Environment
from mlstack.deploy.changes import Change
from mlstack.deploy.inventory import Inventory, name_of
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ForbiddenError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef, Right, Rights
from mlstack.objects.kinds import Kinds

_EVERYTHING = Right(group="*", resource="*", verb="*")
# A role may name the objects it is for; to objects that are not there yet, and to lists, that does not apply.
_NAMELESS = frozenset({"create", "list", "watch"})
_LOCK = ("get", "create", "update", "delete")


@dataclass(frozen=True, kw_only=True)
class RequiredRight:
    """A verb on objects of one kind in one place."""

    right: Right  # the verb, the kind and the place
    names: frozenset[str] = frozenset()  # the objects

    def each(self) -> tuple[Right, ...]:
        """Give the right for each object alone; none where rights cannot be told apart by names."""
        if self.right.verb in _NAMELESS:
            return ()
        return tuple(replace(self.right, name=name) for name in sorted(self.names))


def may_everything(cluster: Cluster) -> bool:
    """Tell whether we may do everything; no where nobody can tell."""
    return _ask(cluster, [_EVERYTHING])[_EVERYTHING]


def check(
    cluster: Cluster,
    place: Environment,
    app: str,
    changes: Sequence[Change],
    inventory: Inventory,
    *,
    may_all: bool | None = None,
) -> None:
    """Make sure that we have the rights to everything a run is going to send.

    Args:
        cluster: where the run writes; it is only asked.
        place: the environment.
        app: name of the app.
        changes: what is to be done.
        inventory: what the environment has there, as it was read.
        may_all: whether we may do everything, where that was asked before.

    Raises:
        ForbiddenError: rights are missing; names all of them.
    """
    if may_everything(cluster) if may_all is None else may_all:
        return
    needs = [
        *_of_changes(cluster, changes),
        *_of_records(place, app, inventory, deletes=_deletes_all(changes)),
    ]
    _refuse(cluster, place, needs)


@contextmanager
def explaining(resolved: ResolvedTarget, *, writing: bool) -> Iterator[None]:
    """Say all that is missing where looking at a cluster ends at the first right that is.

    Raises:
        ForbiddenError: rights are missing; names all of them.
    """
    try:
        yield
    except ForbiddenError as error:
        if error.why != "rights":
            raise
        try:
            if not may_everything(resolved.cluster):
                _refuse(resolved.cluster, resolved.place, [*_of_looking(resolved, writing=writing)])
        except ForbiddenError as whole:
            raise whole from error
        raise


def _of_changes(cluster: Cluster, changes: Sequence[Change]) -> Iterator[RequiredRight]:
    plurals = _Plurals(cluster, [change.desired.data for change in changes if change.desired is not None])
    for change in changes:
        if change.writes:
            identity = change.identity
            verbs = _verbs(change)
            yield from plurals.needs(
                change.api_version, identity.kind, identity.namespace, identity.name, verbs
            )
            if _ends_pods(change):
                yield from plurals.needs("v1", "Pod", identity.namespace, "", ("list", "delete"))


def _verbs(change: Change) -> tuple[str, ...]:
    if change.action == "delete":
        return ("delete", "get")
    if change.action == "recreate":
        return ("delete", "get", "patch", "create")
    # Whether a definition is served, and whether an old object is gone, is waited for by reading it.
    reads = ("get",) if change.identity.kind == "CustomResourceDefinition" or change.live_uid else ()
    return ("patch", "create", *reads) if change.action == "create" else ("patch", *reads)


def _ends_pods(change: Change) -> bool:
    if (change.identity.kind, change.action) != ("StatefulSet", "recreate"):
        return False
    return any(field.path.startswith(("spec.selector", "spec.serviceName")) for field in change.fields)


def _deletes_all(changes: Sequence[Change]) -> bool:
    return all(change.desired is None for change in changes)


def _of_records(
    place: Environment, app: str, inventory: Inventory | None, *, deletes: bool
) -> Iterator[RequiredRight]:
    """Give what the lock and the inventory need."""
    names = frozenset({name_of(app, place.name)})
    for verb in _LOCK:
        right = Right(group="coordination.k8s.io", resource="leases", namespace=place.namespace, verb=verb)
        yield RequiredRight(right=right, names=names)
    verbs = ["get", "patch", *([] if inventory is not None and inventory.exists else ["create"])]
    for verb in ("get", "patch", "delete", "list") if deletes else verbs:
        yield RequiredRight(
            right=Right(group="", resource="configmaps", namespace=place.namespace, verb=verb), names=names
        )


def _of_looking(resolved: ResolvedTarget, *, writing: bool) -> Iterator[RequiredRight]:
    place, state = resolved.place, resolved.state
    plurals = _Plurals(resolved.cluster, [obj.data for obj in state.objects])
    answers = parallel.run(lambda obj: resolved.cluster.get(ObjectRef.of(obj.data)), state.objects)
    for obj, live in zip(state.objects, answers, strict=True):
        # New objects are tried out as well, so that looking needs the right to create them.
        verbs = ("get", "patch") if isinstance(live, Mapping) else ("get", "patch", "create")
        yield from plurals.needs(obj.api_version, obj.kind, obj.namespace, obj.name, verbs)
    if writing:
        yield from _of_records(place, state.app, None, deletes=False)
        return
    right = Right(group="", resource="configmaps", namespace=place.namespace, verb="get")
    yield RequiredRight(right=right, names=frozenset({name_of(state.app, place.name)}))


class _Plurals:
    """Knows how kinds are called where rights are given; kinds nobody knows are left out."""

    def __init__(self, cluster: Cluster, wanted: Iterable[Mapping[str, object]]) -> None:
        self._cluster = cluster
        self._known = Kinds.builtin().with_crds(wanted)

    def needs(
        self, api_version: str, kind: str, namespace: str, name: str, verbs: Iterable[str]
    ) -> Iterator[RequiredRight]:
        served = self._known.lookup(api_version, kind) or self._cluster.kinds().lookup(api_version, kind)
        if served is None:
            return
        place = namespace if served.namespaced else ""
        names = frozenset({name} if name else ())
        for verb in verbs:
            right = Right(group=served.group, resource=served.plural, namespace=place, verb=verb)
            yield RequiredRight(right=right, names=names)


def _refuse(cluster: Cluster, place: Environment, needs: Sequence[RequiredRight]) -> None:
    missing = grouped(_missing(cluster, needs))
    if not missing:
        return
    count = sum(len(one.verbs) for one in missing)
    lines = [f"  {one}" for one in missing]
    granting = "\n      ".join(commands(missing, name=f"mlstack-{place.name.replace('/', '-')}"))
    first = missing[0]
    where = f" -n {first.namespace}" if first.namespace else ""
    raise ForbiddenError(
        "\n".join(
            (
                f"{count} right{'s are' if count > 1 else ' is'} missing for this run on environment"
                f" `{place.name}` (context {place.context})",
                *lines,
            )
        ),
        hint=f"nothing was written; check one with `kubectl auth can-i {first.verbs[0]} {first.full_resource}"
        f"{where}`; an administrator can grant them:\n      {granting}",
    )


def _missing(cluster: Cluster, needs: Sequence[RequiredRight]) -> Iterator[Right]:
    """Give the rights that we do not have; where nobody can tell, the write itself will."""
    joined = _joined(needs)
    rules = _rules(cluster, {need.right.namespace for need in joined} - {""})
    left = [need for need in joined if not _given(need, rules.get(need.right.namespace, Rights()))]
    answers = _ask(cluster, [need.right for need in left])
    denied = [need for need in left if not answers[need.right]]
    alone = _ask(cluster, [right for need in denied for right in need.each()])
    for need in denied:
        rights = need.each()
        if not rights or not all(alone[right] for right in rights):
            yield need.right


def _joined(needs: Sequence[RequiredRight]) -> list[RequiredRight]:
    names: dict[Right, frozenset[str]] = {}
    for need in needs:
        names[need.right] = names.get(need.right, frozenset()) | need.names
    return [RequiredRight(right=right, names=objects) for right, objects in sorted(names.items())]


def _given(need: RequiredRight, rights: Rights) -> bool:
    single = need.each()
    return rights.allow(need.right) or (bool(single) and all(rights.allow(right) for right in single))


def _rules(cluster: Cluster, namespaces: Iterable[str]) -> dict[str, Rights]:
    names = sorted(namespaces)
    answers = zip(names, parallel.run(cluster.rights, names), strict=True)
    return {name: answer for name, answer in answers if isinstance(answer, Rights)}


def _ask(cluster: Cluster, rights: Sequence[Right]) -> dict[Right, bool]:
    """Ask about each right; a cluster that does not answer such questions is taken for a yes."""
    answers = zip(rights, parallel.run(cluster.may, rights), strict=True)
    return {right: answer if isinstance(answer, bool) else right != _EVERYTHING for right, answer in answers}


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Verbs that are missing for one kind in one namespace, or in the whole cluster where that is empty."""

    full_resource: str
    namespace: str
    verbs: tuple[str, ...]

    def __str__(self) -> str:
        """Write the sentence: `create, patch deployments.apps in namespace ml`."""
        place = f"in namespace {self.namespace}" if self.namespace else "in the whole cluster"
        return f"{', '.join(self.verbs)} {self.full_resource} {place}"


def grouped(rights: Iterable[Right]) -> tuple[Missing, ...]:
    """Put the verbs of each kind and place together, sorted by place and kind."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for right in rights:
        verbs.setdefault((right.namespace, right.full_resource), set()).add(right.verb)
    return tuple(
        Missing(full_resource=resource, namespace=namespace, verbs=tuple(sorted(words)))
        for (namespace, resource), words in sorted(verbs.items())
    )


def commands(missing: Iterable[Missing], *, name: str) -> tuple[str, ...]:
    """Give the kubectl commands that would grant what is missing to `USER`.

    Kinds of one place that lack the same verbs share a role; each role is bound as well. A role is called
    after what it grants, so that two messages never name two roles alike.
    """
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for gap in missing:
        alike.setdefault((gap.namespace, gap.verbs), []).append(gap.full_resource)
    lines = []
    for (namespace, verbs), resources in sorted(alike.items()):
        content = f"{namespace} {verbs} {resources}"
        role = f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:6]}"
        kind, where = ("role", f" -n {namespace}") if namespace else ("clusterrole", "")
        lines.append(
            f"kubectl create {kind} {role}{where} --verb={','.join(verbs)} --resource={','.join(resources)}"
        )
        lines.append(f"kubectl create {kind}binding {role}{where} --{kind}={role} --user=USER")
    return tuple(lines)
