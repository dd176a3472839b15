"""What is live before a run: everything that is asked of the cluster beforehand, in one step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any

from mlstack import names
from mlstack.deploy import adopt, history_store, inventory_store, permissions
from mlstack.deploy.autoscaling import SCALABLE, PrunedLabels, Scalers
from mlstack.deploy.changes import ApplyOptions
from mlstack.deploy.history import UNNAMED, Revision
from mlstack.deploy.history_store import History
from mlstack.deploy.inventory import Inventory, Member, owned_hash, payload_hash, shared_hash
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ClusterError, ForbiddenError, MlstackError, ObjectNotFoundError, UnreachableError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.kube.parallel import PendingResult, prefetch
from mlstack.objects import kube_object
from mlstack.objects.kinds import Kind, Kinds, kinds_of_crd
from mlstack.objects.kube_object import DesiredState, Identity, KubeObject
from mlstack.readiness import operators

Manifest = Mapping[str, Any]
Group = tuple[str, str, str]
"""API version, kind and namespace."""

_MOST_HINTS = 3


@dataclass(frozen=True, kw_only=True)
class LiveState:
    """What is live before a run.

    `objects` are those wanted, in their namespaces; `created` the namespace that the run makes first.
    `metadata` stands for whole objects where lists told enough, `live` for those that were asked for alone:
    None if an object is not there, an error if it cannot be told.
    """

    objects: tuple[KubeObject, ...]
    created: tuple[KubeObject, ...]
    inventory: Inventory
    absent_namespaces: frozenset[str]
    metadata: MetadataIndex
    live: Mapping[Identity, Manifest | MlstackError | None]
    scalers: Scalers
    may_all: bool | None = None  # whether we may do everything; None if that was not asked
    was_deployed: bool = True  # whether there was a run before, so that a missing inventory was lost
    elsewhere: tuple[str, ...] = ()  # other namespaces in which the environment has an inventory

    def get(self, wanted: KubeObject) -> Manifest | None:
        """Give an object that was asked for.

        Raises:
            ClusterError: the server did not tell.
        """
        found = self.live[wanted.identity]
        if isinstance(found, MlstackError):
            raise found
        return found


def fetch(
    resolved: ResolvedTarget,
    options: ApplyOptions,
    *,
    inventory: Inventory | None = None,
    writing: bool = False,
) -> LiveState:
    """Read all that a comparison needs: few lists, then single objects, side by side; nothing is written.

    Args:
        resolved: what is wanted, and where to look.
        options: how it is to be done.
        inventory: what the environment has there, where it is known.
        writing: ask also whether we may do everything.

    Raises:
        ObjectNotFoundError: a kind or namespace is neither there nor part of this run.
        ClusterError: the cluster cannot be asked.
    """
    state, cluster = resolved.state, resolved.cluster
    reading = prefetch(partial(_inventory, cluster, state)) if inventory is None else None
    needed = namespaces_of(state.objects, state)
    namespaces = prefetch(partial(parallel.run, partial(_has_namespace, cluster), needed))
    groups = [group for group in large_groups(state.objects) if Kinds.builtin().lookup(*group[:2])]
    lists = {group: prefetch(partial(list_metadata, cluster, group)) for group in groups}
    known = inventory or (reading() if reading else _empty(state))
    scalers = Scalers(state.objects, cluster, pruned=pruned_labels(resolved, options))
    past = _Past.ask(resolved, known, writing=writing) if reading and not known.exists else _Past()
    if reading and not known.exists:
        prefetch(cluster.kinds)  # whoever asks meanwhile waits for this answer
        scalers.prefetch({one.namespace for one in state.objects if (one.group, one.kind) in SCALABLE})
    wanted = placed(state.objects, cluster)
    refuse_unknown_kinds(wanted, state, cluster)
    there = dict(zip(needed, namespaces(), strict=True))
    absent, created = _missing_namespaces(wanted, state, there, create=options.create)
    reachable = [one for one in (*created, *wanted) if is_reachable(one, cluster, absent)]
    metadata = MetadataIndex.read(cluster, state, known, reachable, lists, scalers, adopt=options.adopt)
    single = [one for one in reachable if not metadata.is_absent(one) and metadata.unchanged(one) is None]
    answers = parallel.run(lambda one: cluster.get(ObjectRef.of(one.data)), single)
    return LiveState(
        objects=wanted,
        created=created,
        inventory=known,
        absent_namespaces=absent,
        metadata=metadata,
        live=dict(zip((one.identity for one in single), answers, strict=True)),
        scalers=scalers,
        may_all=past.may_all() if past.may_all else None,
        was_deployed=past.has_history() if past.has_history else True,
        elsewhere=past.elsewhere() if past.elsewhere else (),
    )


def _empty(state: DesiredState) -> Inventory:
    return Inventory(app=state.app, environment=state.environment, namespace=state.namespace)


def _inventory(cluster: Cluster, state: DesiredState) -> Inventory:
    return inventory_store.load(
        cluster, app=state.app, environment=state.environment, namespace=state.namespace
    )


@dataclass(frozen=True, kw_only=True)
class _Past:
    """Questions about an environment without an inventory, under way."""

    has_history: PendingResult[bool] | None = None
    elsewhere: PendingResult[tuple[str, ...]] | None = None
    may_all: PendingResult[bool] | None = None

    @classmethod
    def ask(cls, resolved: ResolvedTarget, inventory: Inventory, *, writing: bool) -> _Past:
        cluster = resolved.cluster
        return cls(
            has_history=prefetch(partial(history_store.exists, inventory.app, resolved.place, cluster)),
            elsewhere=prefetch(partial(inventory_store.other_namespaces, cluster, inventory)),
            may_all=prefetch(partial(permissions.may_everything, cluster)) if writing else None,
        )


def pruned_labels(resolved: ResolvedTarget, options: ApplyOptions) -> PrunedLabels | None:
    """Give what tells of an object that the run does not bring whether it deletes it."""
    if not options.prune:
        return None
    state = resolved.state
    marks = kube_object.marks(app=state.app, environment=state.environment, component="")
    ours = {key: marks[key] for key in (kube_object.APP_LABEL, kube_object.ENVIRONMENT_LABEL)}
    components = frozenset(kube_object.label_of(name) for name in state.components)
    return PrunedLabels(marks=ours, components=components if resolved.selective else None)


# --- kinds and namespaces ---


def placed(wanted: Sequence[KubeObject], cluster: Cluster) -> tuple[KubeObject, ...]:
    """Take the namespace off objects whose kind only the server knows to be cluster-scoped."""
    known = Kinds.builtin().with_crds(one.data for one in wanted)
    return tuple(
        one if known.lookup(one.api_version, one.kind) else _placed(one, cluster.kinds()) for one in wanted
    )


def _placed(wanted: KubeObject, served: Kinds) -> KubeObject:
    kind = served.lookup(wanted.api_version, wanted.kind)
    if kind is None or kind.namespaced:
        return wanted
    metadata = {key: value for key, value in wanted.metadata.items() if key != "namespace"}
    return wanted.with_data({**wanted.data, "metadata": metadata})


def namespaces_of(wanted: Sequence[KubeObject], state: DesiredState) -> list[str]:
    """Give the namespaces that a run needs, in order.

    The inventory is kept in the environment's own namespace, even where no object goes there.
    """
    return sorted({one.namespace for one in wanted if one.namespace} | {state.namespace})


def is_reachable(
    wanted: KubeObject, cluster: Cluster, absent_namespaces: frozenset[str] = frozenset()
) -> bool:
    """Tell whether the server can be asked about an object now, in the scope it is written for."""
    if wanted.namespace in absent_namespaces:
        return False
    if Kinds.builtin().lookup(wanted.api_version, wanted.kind):
        return True
    kind = cluster.kinds().lookup(wanted.api_version, wanted.kind)
    return kind is not None and not (kind.namespaced and not wanted.namespace)


def refuse_unknown_kinds(wanted: Sequence[KubeObject], state: DesiredState, cluster: Cluster) -> None:
    """Raise for kinds that neither the server nor this run has.

    Raises:
        ObjectNotFoundError: naming all of them.
    """
    known = Kinds.builtin().with_crds(one.data for one in state.objects if kinds_of_crd(one.data))
    strange = [one for one in wanted if known.lookup(one.api_version, one.kind) is None]
    served = cluster.kinds() if strange else known
    unknown = [one for one in strange if served.lookup(one.api_version, one.kind) is None]
    if not unknown:
        return
    kinds = sorted({f"{one.kind} ({one.api_version})" for one in unknown})
    hints = [_kind_hint(one, served, state.environment) for one in unknown]
    raise ObjectNotFoundError(
        f"the cluster has no kind {', '.join(f'`{kind}`' for kind in kinds)}",
        what="kind",
        where=f"component {unknown[0].component}",
        hint="; ".join(list(dict.fromkeys(hints))[:_MOST_HINTS]),
    )


def _missing_namespaces(
    wanted: Sequence[KubeObject],
    state: DesiredState,
    there: Mapping[str, bool | MlstackError],
    *,
    create: bool,
) -> tuple[frozenset[str], tuple[KubeObject, ...]]:
    """Give the namespaces that are not there, and the environment's as an object if the run makes it.

    Raises:
        ObjectNotFoundError: another namespace is missing: nobody said that it should exist.
    """
    brought = {one.name for one in wanted if (one.group, one.kind) == ("", "Namespace")}
    absent = []
    for name in namespaces_of(wanted, state):
        answer = there[name]
        if isinstance(answer, MlstackError):
            raise answer
        absent += [] if answer else [name]
    lacking = [name for name in absent if name not in brought]
    strange = [name for name in lacking if name != state.namespace]
    if strange:
        raise ObjectNotFoundError(
            f"namespace `{strange[0]}` does not exist, or is being deleted",
            what="namespace",
            where=str(next(one.identity for one in wanted if one.namespace == strange[0])),
            hint=f"kubectl create namespace {strange[0]}",
        )
    return frozenset(absent), tuple(_namespace(name, state) for name in lacking if create)


def _has_namespace(cluster: Cluster, name: str) -> bool:
    """Tell whether a namespace is there to stay: one that is being deleted takes nothing in."""
    try:
        live = cluster.get(ObjectRef("v1", "Namespace", "", name))
    except ForbiddenError:  # whoever may work in one namespace only may not read namespaces
        return True
    return live is not None and not live["metadata"].get("deletionTimestamp")


def _namespace(name: str, state: DesiredState) -> KubeObject:
    labels = kube_object.marks(app=state.app, environment=state.environment, component="")
    del labels[kube_object.COMPONENT_LABEL]
    metadata = {"name": name, "labels": labels}
    return KubeObject(data={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def _kind_hint(unknown: KubeObject, served: Kinds, environment: str) -> str:
    """Say how the cluster comes to know a kind, or what was meant."""
    api_version, kind, group = unknown.api_version, unknown.kind, unknown.group
    operator = operators.operator_of(api_version, kind)
    others = [other for other in served.of_group(group) if other.kind == kind]
    versions = [other.api_version for other in others if _is_same_operator(operator, other)]
    if versions:
        return f"the cluster serves `{kind}` as {' and '.join(versions)}: write that `apiVersion`"
    if why := operators.retired(api_version, kind):
        return f"nobody serves `{kind}` any more: {why}"
    if operator is not None:
        today = f"the {operator.name} serves {operator.instead} today; " if operator.instead else ""
        install = operators.how_to_install(operator, environment)
        return f"`{kind}` is served by the {operator.name}: {today}{install}"
    same_group = [other.kind for other in served.of_group(group)]
    likely = operators.likely_kind(api_version, kind) or names.nearest(kind, same_group)
    if likely and likely != kind:
        return f"did you mean `{likely}`?"
    if "." in group and not group.endswith(".k8s.io"):
        return f"install the definitions of `{group}` first, or make them part of the app"
    elsewhere = sorted({other.api_version for other in Kinds.builtin() if other.kind == kind})
    if elsewhere:
        return f"Kubernetes serves `{kind}` as {' and '.join(elsewhere)}: write that `apiVersion`"
    return f"Kubernetes has no such kind: kubectl api-resources{f' --api-group={group}' if group else ''}"


def _is_same_operator(operator: operators.Operator | None, kind: Kind) -> bool:
    other = operators.operator_of(kind.api_version, kind.kind)
    return operator is None or (other is not None and other.name == operator.name)


# --- lists of metadata: which objects are not there, which are as we left them ---
# Whoever changes or removes a value that we applied takes its path from our entry in `managedFields`. So an
# object whose UID and whose entry are as they were after our last write, and of which we want what we sent
# then, is as we want it: no dry run is needed, and none of a definition, which takes seconds.


@dataclass(frozen=True, kw_only=True)
class MetadataIndex:
    """What lists of metadata alone tell of a run's objects."""

    adopt: bool = False  # whether objects that other tools applied as well are to be looked at
    candidates: Mapping[Identity, Member] = field(default_factory=dict)  # sent then what is wanted now
    metadata: Mapping[Identity, Manifest] = field(default_factory=dict)
    listed: frozenset[Group] = frozenset()  # all of these are in `metadata`

    @classmethod
    def read(
        cls,
        cluster: Cluster,
        state: DesiredState,
        inventory: Inventory,
        wanted: Sequence[KubeObject],
        lists: Mapping[Group, PendingResult[tuple[Manifest, ...]]],
        scalers: Scalers,
        *,
        adopt: bool,
    ) -> MetadataIndex:
        """List what the run has many objects of, or some that may be unchanged; `lists` are under way."""
        candidates = {
            one.identity: member
            for one in wanted
            if (member := inventory.members.get(one.identity)) is not None
            and (member.payload_hash and member.uid and member.api_version == one.api_version)
            and payload_hash(scalers.payload(one)) == member.payload_hash
        }
        many = set(large_groups(wanted))
        groups = sorted(many | {_group(one) for one in wanted if one.identity in candidates})
        marks = kube_object.selector(app=state.app, environment=state.environment)

        def items(group: Group) -> tuple[Manifest, ...]:
            if group in lists and group in many:
                return lists[group]()
            return list_metadata(cluster, group, labels="" if group in many else marks)

        answers = dict(zip(groups, parallel.run(items, groups), strict=True))
        # Whoever may not list asks for each object.
        told = {group: answer for group, answer in answers.items() if isinstance(answer, tuple)}
        return cls(
            adopt=adopt,
            candidates=candidates,
            metadata={_identity(group, item): item for group, answer in told.items() for item in answer},
            listed=frozenset(group for group in told if group in many),
        )

    def is_absent(self, wanted: KubeObject) -> bool:
        """Tell whether an object is known not to be there."""
        return _group(wanted) in self.listed and wanted.identity not in self.metadata

    def unchanged(self, wanted: KubeObject) -> Manifest | None:
        """Give the metadata of an object that is known to be as we want it, None if that is not known."""
        item = self.metadata.get(wanted.identity)
        return item if item is not None and self.is_as_left(wanted, item) else None

    def is_as_left(self, wanted: KubeObject, live: Manifest) -> bool:
        """Tell whether a live object is what we left, and we want what we sent then."""
        member = self.candidates.get(wanted.identity)
        metadata = live["metadata"]
        if member is None or metadata.get("uid") != member.uid or metadata.get("deletionTimestamp"):
            return False
        if not wanted.labels.items() <= (metadata.get("labels") or {}).items():
            # Another environment writes the same fields under the same name.
            return bool(member.owned_hash) and not self.adopt and shared_hash(live) == member.owned_hash
        if self.adopt and adopt.adoptable(live):
            return False
        return bool(member.owned_hash) and owned_hash(live) == member.owned_hash


def list_metadata(cluster: Cluster, group: Group, *, labels: str = "") -> tuple[Manifest, ...]:
    """List the metadata of one kind in one namespace."""
    api_version, kind, namespace = group
    return cluster.list(
        api_version, kind, namespace=namespace or None, labels=labels, metadata_only=True
    ).items


def large_groups(wanted: Iterable[KubeObject]) -> list[Group]:
    """Give the groups of which there are so many objects that a list is cheaper than asking for each."""
    counts = Counter(_group(one) for one in wanted)
    return sorted(group for group, count in counts.items() if count >= parallel.LIST_FROM)


def _group(wanted: KubeObject) -> Group:
    return wanted.api_version, wanted.kind, wanted.namespace


def _identity(group: Group, item: Manifest) -> Identity:
    metadata = item["metadata"]
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "")
    return Identity(kube_object.group_of(group[0]), group[1], namespace, name)


# --- what was applied before, from the history: it tells which fields of others were once ours ---


class LastApplied:
    """The sets that were applied to an environment; read when somebody asks first, and each once.

    `fault` says why the history cannot be read; empty if it can be, or nobody asked.
    """

    def __init__(self, resolved: ResolvedTarget) -> None:
        self._cluster, self._lock, self.fault = resolved.cluster, Lock(), ""
        self._history = History.of(resolved.state.app, resolved.place, resolved.cluster, clock=_Still())
        self._revisions: tuple[Revision, ...] | None = None
        self._sets: dict[int, Mapping[Identity, Manifest]] = {}

    def of(self, wanted: KubeObject) -> tuple[Manifest, ...]:
        """Give an object as it was applied before, newest first; nothing if that is not known.

        What was wanted by a run that did not end well may not have been written, so the sets before it count
        too, back to one that ended well.
        """
        with self._lock:
            if self.fault:
                return ()
            try:
                return tuple(self._of(wanted))
            except UnreachableError:
                raise
            except ClusterError as error:
                self.fault = error.message
                return ()

    def _of(self, wanted: KubeObject) -> Iterator[Manifest]:
        if self._revisions is None:
            self._revisions = self._history.revisions()
        for revision in reversed(self._revisions):
            if revision.number not in self._sets:
                objects = placed(self._history.load(revision).objects, self._cluster)
                self._sets[revision.number] = {one.identity: one.data for one in objects}
            applied = self._sets[revision.number].get(wanted.identity)
            if applied is not None:
                yield applied
            if not {wanted.component, UNNAMED} & {*revision.unsettled}:
                return


class _Still:
    """A clock for who only reads."""

    def now_s(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        pass
