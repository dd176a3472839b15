"""What surrounds the objects of a run in the cluster: which kinds and namespaces there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

from mlstack import names
from mlstack.deploy import adopt
from mlstack.deploy.autoscaling import AUTOSCALER, SCALABLE
from mlstack.deploy.history import UNNAMED, History, Revision
from mlstack.deploy.inventory import Inventory, Member, owned_hash, payload_hash, shared_hash
from mlstack.deploy.target import Reached
from mlstack.errors import ClusterError, ForbiddenError, MlstackError, ObjectNotFoundError, UnreachableError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.kube.parallel import PrefetchingCluster, prefetch
from mlstack.objects import kube_object
from mlstack.objects.kinds import Kind, Kinds, kinds_of_crd
from mlstack.objects.kube_object import DesiredState, Identity, KubeObject
from mlstack.readiness import rule

# --- What surrounds the objects of a run in the cluster: which kinds and namespaces there are ---

_MOST_HINTS = 3


def placed(wanted: Sequence[KubeObject], cluster: Cluster) -> tuple[KubeObject, ...]:
    """Take the namespace off objects whose kind only the server knows to be cluster-scoped."""
    known = Kinds.builtin().with_crds(found.data for found in wanted)
    return tuple(
        found if known.lookup(found.api_version, found.kind) else _placed(found, cluster.kinds())
        for found in wanted
    )


def _placed(found: KubeObject, served: Kinds) -> KubeObject:
    kind = served.lookup(found.api_version, found.kind)
    if kind is None or kind.namespaced:
        return found
    metadata = {key: value for key, value in found.metadata.items() if key != "namespace"}
    return found.with_data({**found.data, "metadata": metadata})


def namespaces_of(wanted: Sequence[KubeObject], state: DesiredState) -> list[str]:
    """Give the namespaces that a run needs, in order.

    The inventory is kept in the environment's own namespace, even where no object goes there.
    """
    return sorted({found.namespace for found in wanted if found.namespace} | {state.namespace})


class ClusterFacts:
    """What holds for a run as a whole: kinds, namespaces, what the run brings itself.

    Args:
        state: what is wanted.
        cluster: where to look; nothing is written.
    """

    def __init__(self, state: DesiredState, cluster: Cluster) -> None:
        """Begin with nothing read."""
        self.state, self.cluster = state, cluster
        definitions = [found.data for found in state.objects if kinds_of_crd(found.data)]
        self.brought = Kinds(kind for data in definitions for kind in kinds_of_crd(data))
        self.absent_namespaces: set[str] = set()

    def _served(self, found: KubeObject) -> Kind | None:
        return self.cluster.kinds().lookup(found.api_version, found.kind)

    def is_served(self, found: KubeObject) -> bool:
        """Tell whether the server can be asked about an object of this kind now."""
        if Kinds.builtin().lookup(found.api_version, found.kind):
            return True
        return self._served(found) is not None

    def _is_served_there(self, found: KubeObject) -> bool:
        """Tell whether the server has the kind in the scope that the object is written for."""
        if Kinds.builtin().lookup(found.api_version, found.kind):
            return True
        kind = self._served(found)
        return kind is not None and not (kind.namespaced and not found.namespace)

    def is_reachable(self, found: KubeObject) -> bool:
        """Tell whether the server can be asked about an object before the run has begun."""
        return found.namespace not in self.absent_namespaces and self._is_served_there(found)

    def live(self, found: KubeObject) -> Mapping[str, Any] | None:
        """Read an object, None if it is not there."""
        return self.cluster.get(ObjectRef.of(found.data))

    def refuse_unknown_kinds(self, wanted: Sequence[KubeObject]) -> None:
        """Raise for kinds that neither the server nor this run has.

        Raises:
            ObjectNotFoundError: naming all of them.
        """
        unknown = [
            found
            for found in wanted
            if not self.is_served(found) and self.brought.lookup(found.api_version, found.kind) is None
        ]
        if not unknown:
            return
        kinds = sorted({f"{found.kind} ({found.api_version})" for found in unknown})
        served = self.cluster.kinds()
        hints = [_kind_hint(found, served, self.state.environment) for found in unknown]
        raise ObjectNotFoundError(
            f"the cluster has no kind {', '.join(f'`{kind}`' for kind in kinds)}",
            what="kind",
            where=f"component {unknown[0].component}",
            hint="; ".join(list(dict.fromkeys(hints))[:_MOST_HINTS]),
        )

    def missing_namespace(self, wanted: Sequence[KubeObject], *, create: bool) -> tuple[KubeObject, ...]:
        """Give the environment's namespace as an object if it is needed and not there.

        Raises:
            ObjectNotFoundError: another namespace is missing: nobody said that it should exist.
        """
        brought = {found.name for found in wanted if (found.group, found.kind) == ("", "Namespace")}
        needed = namespaces_of(wanted, self.state)
        answers = parallel.run(self._namespace_exists, needed)
        absent = [name for name, there in zip(needed, answers, strict=True) if _certain(there) is False]
        self.absent_namespaces = set(absent)
        lacking = [name for name in absent if name not in brought]
        strange = [name for name in lacking if name != self.state.namespace]
        if strange:
            raise ObjectNotFoundError(
                f"namespace `{strange[0]}` does not exist, or is being deleted",
                what="namespace",
                where=str(next(found.identity for found in wanted if found.namespace == strange[0])),
                hint=f"kubectl create namespace {strange[0]}",
            )
        return tuple(self._namespace(name) for name in lacking if create)

    def _namespace_exists(self, name: str) -> bool:
        """Tell whether a namespace is there to stay: one that is being deleted takes nothing in."""
        try:
            live = self.cluster.get(ObjectRef("v1", "Namespace", "", name))
        except ForbiddenError:  # whoever may work in one namespace only may not read namespaces
            return True
        return live is not None and not live["metadata"].get("deletionTimestamp")

    def _namespace(self, name: str) -> KubeObject:
        labels = kube_object.marks(app=self.state.app, environment=self.state.environment, component="")
        del labels[kube_object.COMPONENT_LABEL]
        metadata = {"name": name, "labels": labels}
        return KubeObject(data={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def _certain(answer: bool | MlstackError) -> bool:
    if isinstance(answer, MlstackError):
        raise answer
    return answer


def _kind_hint(unknown: KubeObject, served: Kinds, environment: str) -> str:
    """Say how the cluster comes to know a kind, or what was meant."""
    api_version, kind, group = unknown.api_version, unknown.kind, unknown.group
    operator = rule.operator_of(api_version, kind)
    there = [one for one in served.of_group(group) if one.kind == kind]
    versions = [one.api_version for one in there if _is_same_operator(operator, one)]
    if versions:
        return f"the cluster serves `{kind}` as {' and '.join(versions)}: write that `apiVersion`"
    if why := rule.retired(api_version, kind):
        return f"nobody serves `{kind}` any more: {why}"
    if operator is not None:
        today = f"the {operator.name} serves {operator.instead} today; " if operator.instead else ""
        install = rule.how_to_install(operator, environment)
        return f"`{kind}` is served by the {operator.name}: {today}{install}"
    near = rule.likely_kind(api_version, kind) or names.nearest(kind, _kinds_there(group, served))
    if near and near != kind:
        return f"did you mean `{near}`?"
    if "." in group and not group.endswith(".k8s.io"):
        return f"install the definitions of `{group}` first, or make them part of the app"
    elsewhere = sorted({one.api_version for one in Kinds.builtin() if one.kind == kind})
    if elsewhere:
        return f"Kubernetes serves `{kind}` as {' and '.join(elsewhere)}: write that `apiVersion`"
    return f"Kubernetes has no such kind: kubectl api-resources{f' --api-group={group}' if group else ''}"


def _is_same_operator(operator: rule.Operator | None, kind: Kind) -> bool:
    other = rule.operator_of(kind.api_version, kind.kind)
    return operator is None or (other is not None and other.name == operator.name)


def _kinds_there(group: str, served: Kinds) -> list[str]:
    return [one.kind for one in served.of_group(group)]


# --- What lists of metadata alone tell of a run's objects: which are not there, which are as we
# left them
# Whoever changes or removes a value that we applied takes its path from our entry in `managedFields`. So an
# object whose UID and whose entry are as they were after our last write, and of which we want what we sent
# then, is as we want it: no dry run is needed, and none of a definition, which takes seconds.

Group = tuple[str, str, str]
"""API version, kind and namespace."""
Payload = Callable[[KubeObject], Mapping[str, Any]]


class MetadataIndex:
    """What is known of the objects of a run before any of them is looked at.

    Args:
        cluster: where to look; nothing is written.
        state: whose marks our objects carry.
        inventory: hashes of the last write; None if there are none.
        adopt: whether objects that other tools applied as well are to be looked at.
    """

    def __init__(
        self, cluster: Cluster, state: DesiredState, inventory: Inventory | None, *, adopt: bool
    ) -> None:
        """Begin with nothing read."""
        self._cluster, self._adopt = cluster, adopt
        self._marks = kube_object.selector(app=state.app, environment=state.environment)
        self._members: Mapping[Identity, Member] = inventory.members if inventory else {}
        self._candidates: dict[Identity, Member] = {}
        self._metadata: dict[Identity, Mapping[str, Any]] = {}
        self._listed: set[Group] = set()

    def look_around(self, wanted: Sequence[KubeObject], payload: Payload) -> None:
        """List the metadata of kinds that the run has many objects of, or some that may be unchanged.

        Args:
            wanted: objects that the server can be asked about.
            payload: gives what would be sent of one.
        """
        for found in wanted:
            member = self._members.get(found.identity)
            if member and member.payload_hash and member.uid and _fits(member, found, payload):
                self._candidates[found.identity] = member
        many = set(large_groups(wanted))
        hopeful = {_group(found) for found in wanted if found.identity in self._candidates}
        groups = sorted(many | hopeful)
        lists = parallel.run(lambda group: self._list(group, every=group in many), groups)
        for group, items in zip(groups, lists, strict=True):
            if isinstance(items, tuple):  # whoever may not list asks for each object
                self._listed.update([group] if group in many else ())
                for item in items:
                    self._metadata[_identity(group, item)] = item

    def _list(self, group: Group, *, every: bool) -> tuple[Mapping[str, Any], ...]:
        api_version, kind, namespace = group
        return self._cluster.list(
            api_version,
            kind,
            namespace=namespace or None,
            labels="" if every else self._marks,
            metadata_only=True,
        ).items

    def is_absent(self, found: KubeObject) -> bool:
        """Tell whether an object is known not to be there."""
        return _group(found) in self._listed and found.identity not in self._metadata

    def unchanged(self, found: KubeObject) -> Mapping[str, Any] | None:
        """Give the metadata of an object that is known to be as we want it, None if that is not known."""
        item = self._metadata.get(found.identity)
        return item if item is not None and self.is_as_left(found, item) else None

    def is_as_left(self, found: KubeObject, live: Mapping[str, Any]) -> bool:
        """Tell whether a live object is what we left, and we want what we sent then."""
        member = self._candidates.get(found.identity)
        metadata = live["metadata"]
        if member is None or metadata.get("uid") != member.uid or metadata.get("deletionTimestamp"):
            return False
        if not found.labels.items() <= (metadata.get("labels") or {}).items():
            # Another environment writes the same fields under the same name.
            return bool(member.owned_hash) and not self._adopt and shared_hash(live) == member.owned_hash
        if self._adopt and adopt.adoptable(live):
            return False
        return bool(member.owned_hash) and owned_hash(live) == member.owned_hash


def large_groups(wanted: Sequence[KubeObject]) -> list[Group]:
    """Give the groups of which there are so many objects that a list is cheaper than asking for each."""
    counts = Counter(_group(found) for found in wanted)
    return sorted(group for group, count in counts.items() if count >= parallel.LIST_FROM)


def _fits(member: Member, found: KubeObject, payload: Payload) -> bool:
    same = member.api_version == found.api_version
    return same and payload_hash(payload(found)) == member.payload_hash


def _group(found: KubeObject) -> Group:
    return found.api_version, found.kind, found.namespace


def _identity(group: Group, item: Mapping[str, Any]) -> Identity:
    api_version, kind, _ = group
    metadata = item["metadata"]
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "")
    return Identity(kube_object.group_of(api_version), kind, namespace, name)


# --- What a comparison is going to ask, as far as that is known before: asked at once, not one by
# one

T = TypeVar("T")

_MOST = 8  # of one sort; more are asked for side by side when they are needed


def foresee(cluster: PrefetchingCluster, state: DesiredState, inventory: Inventory) -> None:
    """Ask for the inventory, the namespaces, and lists of what there are many of.

    Args:
        cluster: who is asked.
        state: what is wanted.
        inventory: the environment's, not read yet.
    """
    known = Kinds.builtin()
    cluster.foresee_get(ObjectRef("v1", "ConfigMap", inventory.namespace, inventory.name))
    for name in _some(namespaces_of(state.objects, state)):
        cluster.foresee_get(ObjectRef("v1", "Namespace", "", name))
    for api_version, kind, namespace in _some(large_groups(state.objects)):
        if known.lookup(api_version, kind):  # the server may have others elsewhere
            cluster.foresee_list(api_version, kind, namespace=namespace or None, metadata_only=True)


def foresee_creation(cluster: PrefetchingCluster, state: DesiredState) -> None:
    """Ask for what a first deploy needs beyond that: the kinds, and autoscalers of workloads."""
    prefetch(cluster.kinds)  # whoever asks meanwhile waits for this answer
    scaled = {found.namespace for found in state.objects if (found.group, found.kind) in SCALABLE}
    for namespace in _some(sorted(scaled)):
        cluster.foresee_list(*AUTOSCALER, namespace=namespace)


def _some(sorts: Sequence[T]) -> Sequence[T]:
    return sorts[:_MOST]


# --- What was applied before, from the history: it tells which fields of others were once ours ---

_Set = Mapping[Identity, Mapping[str, Any]]


class LastApplied:
    """The sets that were applied to an environment; read when somebody asks first, and each once.

    Args:
        reached: the environment, and the cluster that keeps them.
    """

    def __init__(self, reached: Reached) -> None:
        """Begin with nothing read."""
        self._reached, self._lock = reached, Lock()
        self._history = History.of(reached.state.app, reached.place, reached.cluster, clock=_Still())
        self._known: tuple[Revision, ...] | None = None
        self._sets: dict[int, _Set] = {}
        self._fault = ""

    @property
    def fault(self) -> str:
        """Say why the history cannot be read; empty if it can be, or nobody asked."""
        return self._fault

    def of(self, wanted: KubeObject) -> tuple[Mapping[str, Any], ...]:
        """Give an object as it was applied before, newest first; nothing if that is not known.

        What was wanted by a run that did not end well may not have been written, so the sets before it count
        too, back to one that ended well.
        """
        with self._lock:
            if self._fault:
                return ()
            try:
                return tuple(self._of(wanted))
            except UnreachableError:
                raise
            except ClusterError as error:
                self._fault = error.message
                return ()

    def _of(self, wanted: KubeObject) -> Iterator[Mapping[str, Any]]:
        for revision in reversed(self._revisions()):
            found = self._set(revision).get(wanted.identity)
            if found is not None:
                yield found
            if not {wanted.component, UNNAMED} & {*revision.unsettled}:
                return

    def _revisions(self) -> tuple[Revision, ...]:
        if self._known is None:
            self._known = self._history.revisions()
        return self._known

    def _set(self, revision: Revision) -> _Set:
        if revision.number not in self._sets:
            objects = placed(self._history.load(revision).objects, self._reached.cluster)
            self._sets[revision.number] = {one.identity: one.data for one in objects}
        return self._sets[revision.number]


class _Still:
    """A clock for who only reads."""

    def now_s(self) -> float:
        """Give no time in particular."""
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Wait for nothing."""
