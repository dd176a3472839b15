"""What is live before a run: everything that is asked of the cluster beforehand, in one step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from threading import Lock
from typing import Any

from mlstack.dataclass import Record
from mlstack.deploy.changes import ApplyOptions
from mlstack.deploy.history import UNNAMED, History, Revision
from mlstack.deploy.inventory import (
    Inventory,
    Member,
    load_inventory,
    other_namespaces,
    owned_hash,
    payload_hash,
    shared_hash,
)
from mlstack.deploy.target import ResolvedTarget, may_everything
from mlstack.errors import ClusterError, ForbiddenError, MlstackError, ObjectNotFoundError, UnreachableError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.kube.parallel import PendingResult, prefetch
from mlstack.objects import kube_object, managed_fields
from mlstack.objects.kube_object import (
    COMPONENT_LABEL,
    Data,
    DesiredState,
    Identity,
    Kind,
    Kinds,
    KubeObject,
    label_of,
)
from mlstack.objects.managed_fields import FORCE_FIELDS, MISSING, FieldPath, adoptable, annotated
from mlstack.objects.order import may_run_again
from mlstack.objects.references import scaled_workload
from mlstack.readiness.rule import kind_hint, need_text

# --- autoscalers: which workloads one scales, and how the number of replicas is handed over to it ---

SCALABLE = frozenset(
    {("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "ReplicaSet"), ("", "ReplicationController")}
)
REPLICAS = ("f:spec", "f:replicas")
_AUTOSCALERS = (("autoscaling/v2", "HorizontalPodAutoscaler"), ("keda.sh/v1alpha1", "ScaledObject"))


def _by_workload(objects: Iterable[Data]) -> dict[Identity, str]:
    """Name autoscalers as people do (`HorizontalPodAutoscaler web`), by the workload they scale."""
    return {
        workload: f"{data['kind']} {data['metadata'].get('name', '')}"
        for data in objects
        if (workload := scaled_workload(data)) is not None
    }


class _Listed(Record):
    """The autoscalers of a namespace by their workloads: those that stay, and those that the run deletes."""

    staying: Mapping[Identity, str]
    going: Mapping[Identity, str]
    complete: bool


class Scalers:
    """Finds the autoscaler of a workload: the run's own, or the cluster's (listed once a namespace).

    With `prune` the run deletes what the files no longer bring.
    """

    def __init__(self, resolved: ResolvedTarget, *, prune: bool) -> None:
        self._resolved, self._cluster, self._prune, self._lock = resolved, resolved.cluster, prune, Lock()
        objects = [manifest.data for manifest in resolved.state.objects]
        self._brought = _by_workload(objects)
        self._definitions = [data for data in objects if data.get("kind") == "CustomResourceDefinition"]
        self._pending: dict[str, PendingResult[_Listed]] = {}

    def loses(self, workload: KubeObject) -> bool:
        """Tell whether the run takes the autoscaler of a workload away."""
        return workload.identity in self._listed(workload.namespace).going

    def has_none(self, workload: KubeObject) -> bool:
        """Tell whether nothing scales a workload after the run; false where one may not look."""
        if workload.identity in self._brought:
            return False
        listed = self._listed(workload.namespace)
        return workload.identity not in listed.staying and listed.complete

    def scaler(self, workload: KubeObject, *, live: bool = True) -> str:
        """Name what a workload's number is left to; empty where the object says that it is ours.

        `live` looks into the cluster too, for autoscalers that stay there after the run.
        """
        path = self.path(workload)
        if any(pattern.covers(path) for pattern in annotated(workload, FORCE_FIELDS)):
            return ""
        name = self._brought.get(workload.identity, "")
        return name or (self._listed(workload.namespace).staying.get(workload.identity, "") if live else "")

    def path(self, workload: KubeObject) -> FieldPath:
        """Give the field that holds a workload's number; empty for kinds that cannot be scaled."""
        if (workload.group, workload.kind) in SCALABLE:
            return REPLICAS
        if workload.identity not in self._brought:
            return ()
        definition = self._definition(workload) or {}
        for version in (definition.get("spec") or {}).get("versions") or ():
            if version.get("name") == workload.version:
                path = ((version.get("subresources") or {}).get("scale") or {}).get("specReplicasPath") or ""
                return tuple(f"f:{name}" for name in path.strip(".").split(".") if name)
        return ()

    def is_set(self, workload: KubeObject) -> bool:
        """Tell whether the files say a workload's number."""
        path = self.path(workload)
        return bool(path) and managed_fields.value_at(workload.data, path) is not MISSING

    def payload(self, manifest: KubeObject) -> Data:
        """Give what we will own of an object: all but the number that an autoscaler of the run sets."""
        path = self.path(manifest) if self.scaler(manifest, live=False) else ()
        return managed_fields.cut(manifest.data, [path]) if path else manifest.data

    def replicas(self, manifest: KubeObject, live: Data) -> Replicas:
        """Tell how the number of a live workload is to be treated."""
        path, data = self.path(manifest), self.payload(manifest)
        scaler = self.scaler(manifest) if self.is_set(manifest) else ""
        if scaler:
            data = managed_fields.cut(manifest.data, [path])
        asked, handover = data, None
        is_unsaid = bool(path) and managed_fields.value_at(data, path) is MISSING
        if is_unsaid and path in set(managed_fields.paths(managed_fields.owned(live))):
            number = managed_fields.value_at(live, path)
            if number is not MISSING:
                asked, handover = managed_fields.put(data, path, number), only_field(data, path, number)
        is_others = bool(scaler) and manifest.identity not in self._brought
        return Replicas(
            path=path,
            data=data,
            asked=asked,
            handover=handover,
            notes=(f"leaves `{managed_fields.path_text(path)}` to `{scaler}`",) if scaler else (),
            left=((managed_fields.path_text(path), scaler),) if is_others else (),
            spared=(path,) if is_unsaid else (),
        )

    def prefetch(self, namespace: str) -> PendingResult[_Listed]:
        """Begin to list the autoscalers of a namespace."""
        with self._lock:
            if namespace not in self._pending:
                self._pending[namespace] = prefetch(partial(self._list, namespace))
            return self._pending[namespace]

    def _listed(self, namespace: str) -> _Listed:
        pending = self.prefetch(namespace)
        try:
            return pending()
        except BaseException:
            with self._lock:  # whoever asks next asks the cluster again
                if self._pending.get(namespace) is pending:
                    del self._pending[namespace]
            raise

    def _list(self, namespace: str) -> _Listed:
        items: list[Data] = []
        complete = True
        for api_version, kind in _AUTOSCALERS:
            if api_version.startswith("keda") and not self._cluster.kinds().lookup(api_version, kind):
                continue
            try:
                items += self._cluster.list(api_version, kind, namespace=namespace).items
            except ObjectNotFoundError:
                continue
            except ForbiddenError:  # conflicts show whom the number belongs to
                complete = False
        going = [item for item in items if self._is_pruned(item)]
        staying = [item for item in items if item not in going]
        return _Listed(staying=_by_workload(staying), going=_by_workload(going), complete=complete)

    def _is_pruned(self, live: Data) -> bool:
        """Tell whether the run deletes an object, if it does not bring it."""
        state, component = self._resolved.state, (live["metadata"].get("labels") or {}).get(COMPONENT_LABEL)
        is_ours = kube_object.belongs_to(live, app=state.app, environment=state.environment)
        is_meant = not self._resolved.selective or component in [label_of(name) for name in state.components]
        return self._prune and is_ours and component is not None and is_meant

    def _definition(self, workload: KubeObject) -> Data | None:
        kind = self._cluster.kinds().lookup(workload.api_version, workload.kind)
        for data in self._definitions:
            if data["spec"]["group"] == workload.group and data["spec"]["names"]["kind"] == workload.kind:
                return data
        if kind is None:
            return None
        name = f"{kind.plural}.{workload.group}"
        try:
            ref = ObjectRef("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name)
            return self._cluster.get(ref)
        except ForbiddenError:  # then the number is taken for an ordinary field
            return None


class Replicas(Record):
    """How a workload's number of replicas is to be treated.

    Without an owner the number would go to 1, so it changes hands: another manager of ours holds the live
    value until the autoscaler writes its own.
    """

    path: FieldPath  # empty if the kind cannot be scaled
    data: Data  # what is to be sent, without the number where it is not ours
    asked: Data  # what a dry run is asked about: as if the number were held already
    handover: Data | None  # the number alone, where we own it and let go of it
    notes: tuple[str, ...]  # to whom the number is left
    left: tuple[tuple[str, str], ...]  # path and autoscaler, where that is none of this run's
    spared: tuple[FieldPath, ...]  # fields that no adoption may make ours


def only_field(data: Data, path: FieldPath, value: Any) -> Data:
    """Give an object that says nothing but one field."""
    names = {key: data["metadata"][key] for key in ("name", "namespace") if key in data["metadata"]}
    bare = {"apiVersion": data["apiVersion"], "kind": data["kind"], "metadata": names}
    return dict(managed_fields.put(bare, path, value))


KindAndNamespace = tuple[str, str, str]
"""API version, kind and namespace."""

_MOST_HINTS = 3
_USUAL = ApplyOptions()


class DiffContext(Record):
    """What every object of a run is compared with: how it is to be done, and what is live before the run.

    Metadata stands for whole objects where lists tell enough; what was not read is asked for later.
    """

    resolved: ResolvedTarget
    cluster: Cluster
    options: ApplyOptions
    inventory: Inventory  # what was written last
    scalers: Scalers
    applied: LastApplied
    check_new: bool = False
    objects: tuple[KubeObject, ...] = ()  # what is wanted, in its namespaces
    created: tuple[KubeObject, ...] = ()  # the environment's namespace, if the run makes it first
    absent_namespaces: frozenset[str] = frozenset()
    candidates: Mapping[Identity, Member] = field(default_factory=dict)  # we want of them what we sent last
    metadata: Mapping[Identity, Data] = field(default_factory=dict)  # what lists of metadata tell
    listed: frozenset[KindAndNamespace] = frozenset()  # all of these are in `metadata`
    # Objects that were asked for alone: None if one is not there, an error if the server did not tell.
    live: Mapping[Identity, Data | MlstackError | None] = field(default_factory=dict)
    may_all: bool | None = None  # whether we may do everything; None if that was not asked
    was_deployed: bool = True  # whether there was a run before, so that a missing inventory was lost
    elsewhere: tuple[str, ...] = ()  # other namespaces in which the environment has an inventory

    def is_absent(self, manifest: KubeObject) -> bool:
        """Tell whether an object is known not to be there."""
        return _group(manifest) in self.listed and manifest.identity not in self.metadata

    def unchanged(self, manifest: KubeObject) -> Data | None:
        """Give the metadata of an object that is known to be as we want it, None if that is not known."""
        item = self.metadata.get(manifest.identity)
        return item if item is not None and self.is_as_left(manifest, item) else None

    def is_as_left(self, manifest: KubeObject, live: Data) -> bool:
        """Tell whether a live object is what we left, and we want what we sent then.

        Whoever changes or removes a value that we applied takes its path from our entry in `managedFields`.
        So an object whose UID and whose entry are as they were after our last write needs no dry run, and
        none of a definition, which takes seconds. A hook that may have failed since is looked at.
        """
        member, metadata, adopt = self.candidates.get(manifest.identity), live["metadata"], self.options.adopt
        if member is None or may_run_again(manifest):
            return False
        if metadata.get("uid") != member.uid or metadata.get("deletionTimestamp"):
            return False
        if not manifest.labels.items() <= (metadata.get("labels") or {}).items():
            # Another environment writes the same fields under the same name.
            return bool(member.owned_hash) and not adopt and shared_hash(live) == member.owned_hash
        if adopt and adoptable(live):
            return False
        return bool(member.owned_hash) and owned_hash(live) == member.owned_hash


def context_of(
    resolved: ResolvedTarget, options: ApplyOptions = _USUAL, inventory: Inventory | None = None
) -> DiffContext:
    """Give a context in which each object is asked for."""
    state = resolved.state
    empty = Inventory(app=state.app, environment=state.environment, namespace=state.namespace)
    return DiffContext(
        resolved=resolved,
        cluster=resolved.cluster,
        options=options,
        inventory=inventory or empty,
        scalers=Scalers(resolved, prune=options.prune),
        applied=LastApplied(resolved),
    )


def fetch(
    resolved: ResolvedTarget,
    options: ApplyOptions,
    *,
    inventory: Inventory | None = None,
    writing: bool = False,
) -> DiffContext:
    """Read all that a comparison needs: few lists, then single objects, side by side; nothing is written."""
    state, cluster = resolved.state, resolved.cluster
    reading = None if inventory else prefetch(partial(load_inventory, cluster, state))
    needed = namespaces_of(state.objects, state)
    namespaces = prefetch(partial(parallel.run, partial(has_namespace, cluster), needed))
    groups = [group for group in large_groups(state.objects) if Kinds.builtin().lookup(*group[:2])]
    lists = {group: prefetch(partial(list_metadata, cluster, group)) for group in groups}
    context = context_of(resolved, options, reading() if reading else inventory)
    stored, questions = context.inventory, dict[str, PendingResult[Any]]()
    if reading and not stored.exists:
        questions["was_deployed"] = prefetch(History.of(stored.app, resolved.place, cluster).exists)
        questions["elsewhere"] = prefetch(partial(other_namespaces, cluster, state))
        if writing:
            questions["may_all"] = prefetch(partial(may_everything, cluster))
        prefetch(cluster.kinds)  # whoever asks meanwhile waits for this answer
        for namespace in {obj.namespace for obj in state.objects if (obj.group, obj.kind) in SCALABLE}:
            context.scalers.prefetch(namespace)
    manifests = placed(state.objects, cluster, resolved.brought)
    refuse_unknown_kinds(manifests, resolved)
    answers = dict(zip(needed, namespaces(), strict=True))
    absent, created = _missing_namespaces(manifests, state, answers, create=options.create)
    context = replace(context, objects=manifests, created=created, absent_namespaces=absent)
    reachable = [obj for obj in (*created, *manifests) if is_reachable(obj, context)]
    context = _with_metadata(context, reachable, lists)
    single = [obj for obj in reachable if not context.is_absent(obj) and context.unchanged(obj) is None]
    objects = parallel.run(lambda obj: cluster.get(ObjectRef.of(obj.data)), single)
    live = dict(zip((obj.identity for obj in single), objects, strict=True))
    return replace(context, live=live, **{name: answer() for name, answer in questions.items()})


# --- kinds and namespaces ---


def placed(
    manifests: Sequence[KubeObject], cluster: Cluster, brought: Sequence[Kind] = ()
) -> tuple[KubeObject, ...]:
    """Take the namespace off objects of a cluster-scoped kind of the server, or that is `brought` there."""
    local_kinds = Kinds.builtin().with_crds(obj.data for obj in manifests)
    objects, served = list[KubeObject](), None
    for obj in manifests:
        kind = None
        if not local_kinds.lookup(obj.api_version, obj.kind):
            served = served or Kinds((*cluster.kinds(), *brought))
            kind = served.lookup(obj.api_version, obj.kind)
        if kind is not None and not kind.namespaced:
            metadata = {key: value for key, value in obj.metadata.items() if key != "namespace"}
            obj = obj.with_data({**obj.data, "metadata": metadata})
        objects.append(obj)
    return tuple(objects)


def namespaces_of(manifests: Sequence[KubeObject], state: DesiredState) -> list[str]:
    """Give the namespaces that a run needs, in order.

    The inventory is kept in the environment's own namespace, even where no object goes there.
    """
    return sorted({obj.namespace for obj in manifests if obj.namespace} | {state.namespace})


def is_reachable(manifest: KubeObject, context: DiffContext) -> bool:
    """Tell whether the server can be asked about an object now, in the scope it is written for."""
    if manifest.namespace in context.absent_namespaces:
        return False
    if Kinds.builtin().lookup(manifest.api_version, manifest.kind):
        return True
    kind = context.cluster.kinds().lookup(manifest.api_version, manifest.kind)
    return kind is not None and not (kind.namespaced and not manifest.namespace)


def refuse_unknown_kinds(manifests: Sequence[KubeObject], resolved: ResolvedTarget) -> None:
    """Raise for kinds that neither the server nor this run has; the hint says what brings them."""
    state, cluster = resolved.state, resolved.cluster
    local_kinds = Kinds.builtin().with_crds(obj.data for obj in state.objects)
    strange = [obj for obj in manifests if local_kinds.lookup(obj.api_version, obj.kind) is None]
    served = Kinds((*cluster.kinds(), *resolved.brought)) if strange else local_kinds
    unknown = [obj for obj in strange if served.lookup(obj.api_version, obj.kind) is None]
    if not unknown:
        return
    kinds = sorted({f"`{obj.kind} ({obj.api_version})`" for obj in unknown})
    hints = []
    for obj in unknown:
        need = resolved.target.app.need(obj.component, obj.api_version, obj.kind, state.environment)
        hint = kind_hint(obj.api_version, obj.kind, served, state.environment)
        brought = need and f"component `{obj.component}` {need_text(need, state.environment)}"
        hints.append(brought or hint)
    raise ObjectNotFoundError(
        f"the cluster has no kind {', '.join(kinds)}",
        what="kind",
        where=f"component {unknown[0].component}",
        hint="; ".join(list(dict.fromkeys(hints))[:_MOST_HINTS]),
    )


def has_namespace(cluster: Cluster, name: str) -> bool:
    """Tell whether a namespace is there to stay: one that is being deleted takes nothing in."""
    try:
        live = cluster.get(ObjectRef("v1", "Namespace", "", name))
    except ForbiddenError:  # whoever may work in one namespace only may not read namespaces
        return True
    return live is not None and not live["metadata"].get("deletionTimestamp")


def _missing_namespaces(
    manifests: Sequence[KubeObject],
    state: DesiredState,
    answers: Mapping[str, bool | MlstackError],
    *,
    create: bool,
) -> tuple[frozenset[str], tuple[KubeObject, ...]]:
    """Give the namespaces that are not there, and the environment's as an object if the run makes it."""
    absent = []
    for name in namespaces_of(manifests, state):
        is_there = answers[name]
        if isinstance(is_there, MlstackError):
            raise is_there
        absent += [] if is_there else [name]
    brought = {obj.name for obj in manifests if (obj.group, obj.kind) == ("", "Namespace")}
    lacking = [name for name in absent if name not in brought]
    strange = [name for name in lacking if name != state.namespace]
    if strange:
        raise ObjectNotFoundError(
            f"namespace `{strange[0]}` does not exist, or is being deleted",
            what="namespace",
            where=str(next(obj.identity for obj in manifests if obj.namespace == strange[0])),
            hint=f"kubectl create namespace {strange[0]}",
        )
    labels = kube_object.environment_marks(state.app, state.environment)
    metadata = {"name": state.namespace, "labels": labels}
    own = KubeObject(data={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return frozenset(absent), (own,) if create and lacking else ()


# --- lists of metadata: which objects are not there, which are as we left them ---


def _with_metadata(
    context: DiffContext,
    manifests: Sequence[KubeObject],
    lists: Mapping[KindAndNamespace, PendingResult[tuple[Data, ...]]],
) -> DiffContext:
    """List what the run has many objects of, or some that may be unchanged; `lists` are under way."""
    members, state = context.inventory.members, context.resolved.state
    candidates = {
        obj.identity: member
        for obj in manifests
        if (member := members.get(obj.identity)) is not None
        and (member.payload_hash and member.uid and member.api_version == obj.api_version)
        and payload_hash(context.scalers.payload(obj)) == member.payload_hash
    }
    many = set(large_groups(manifests))
    groups = sorted(many | {_group(obj) for obj in manifests if obj.identity in candidates})
    marks = kube_object.selector(app=state.app, environment=state.environment)

    def items(group: KindAndNamespace) -> tuple[Data, ...]:
        if group in lists and group in many:
            return lists[group]()
        return list_metadata(context.cluster, group, labels="" if group in many else marks)

    metadata, listed = {}, set()
    for group, answer in zip(groups, parallel.run(items, groups), strict=True):
        if isinstance(answer, MlstackError):
            continue  # whoever may not list asks for each object
        listed.add(group)
        for item in answer:
            name, namespace = str(item["metadata"]["name"]), str(item["metadata"].get("namespace") or "")
            metadata[Identity(kube_object.group_of(group[0]), group[1], namespace, name)] = item
    return replace(context, candidates=candidates, metadata=metadata, listed=frozenset(listed & many))


def list_metadata(cluster: Cluster, group: KindAndNamespace, *, labels: str = "") -> tuple[Data, ...]:
    """List the metadata of one kind in one namespace."""
    api_version, kind, namespace = group
    return cluster.list(
        api_version, kind, namespace=namespace or None, labels=labels, metadata_only=True
    ).items


def large_groups(manifests: Iterable[KubeObject]) -> list[KindAndNamespace]:
    """Give the groups of which there are so many objects that a list is cheaper than asking for each."""
    counts = Counter(_group(obj) for obj in manifests)
    return sorted(group for group, count in counts.items() if count >= parallel.LIST_FROM)


def _group(manifest: KubeObject) -> KindAndNamespace:
    return manifest.api_version, manifest.kind, manifest.namespace


# --- what was applied before, from the history: it tells which fields of others were once ours ---


class LastApplied:
    """The sets that were applied to an environment; read when somebody asks first, and each once.

    `fault` says why the history cannot be read; empty if it can be, or nobody asked.
    """

    def __init__(self, resolved: ResolvedTarget) -> None:
        self._cluster, self._lock, self.fault = resolved.cluster, Lock(), ""
        self._history = History.of(resolved.state.app, resolved.place, resolved.cluster)
        self._revisions: tuple[Revision, ...] | None = None
        self._sets: dict[int, Mapping[Identity, Data]] = {}

    def of(self, manifest: KubeObject) -> tuple[Data, ...]:
        """Give an object as it was applied before, newest first; nothing if that is not known.

        What was wanted by a run that did not end well may not have been written, so the sets before it count
        too, back to one that ended well.
        """
        with self._lock:
            if self.fault:
                return ()
            try:
                return tuple(self._of(manifest))
            except UnreachableError:
                raise
            except ClusterError as error:
                self.fault = error.message
                return ()

    def _of(self, manifest: KubeObject) -> Iterator[Data]:
        if self._revisions is None:
            self._revisions = self._history.revisions()
        for revision in reversed(self._revisions):
            if revision.number not in self._sets:
                objects = placed(self._history.load(revision).objects, self._cluster)
                self._sets[revision.number] = {obj.identity: obj.data for obj in objects}
            applied = self._sets[revision.number].get(manifest.identity)
            if applied is not None:
                yield applied
            if not {manifest.component, UNNAMED} & {*revision.unsettled}:
                return
