"""What surrounds the objects of a run in the cluster: which kinds, namespaces and names there are."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.engine import parallel
from mlstack.errors import ForbiddenError, ObjectNotFoundError
from mlstack.model import objects
from mlstack.model.kinds import Kind, Kinds, kinds_of_crd
from mlstack.model.objects import DesiredState, KubeObject


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


# From so many objects of one kind and namespace on, one list of names is cheaper than asking for each.
_MANY = 5

_Group = tuple[str, str, str]


class Surroundings:
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
        self._names: dict[_Group, frozenset[str]] = {}

    def _served(self, found: KubeObject) -> Kind | None:
        return self.cluster.kinds().lookup(found.api_version, found.kind)

    def is_served(self, found: KubeObject) -> bool:
        """Tell whether the server can be asked about an object of this kind now."""
        if Kinds.builtin().lookup(found.api_version, found.kind):
            return True
        return self._served(found) is not None

    def look_around(self, wanted: Sequence[KubeObject]) -> None:
        """List the names there are of kinds that the run has many objects of."""
        counts = Counter(_group(found) for found in wanted if self.is_reachable(found))
        groups = sorted(group for group, count in counts.items() if count >= _MANY)
        for group, names in zip(groups, parallel.run(self._list_names, groups), strict=True):
            if isinstance(names, frozenset):  # whoever may not list asks for each object
                self._names[group] = names

    def _list_names(self, group: _Group) -> frozenset[str]:
        api_version, kind, namespace = group
        items = self.cluster.list(api_version, kind, namespace=namespace or None, metadata_only=True).items
        return frozenset(str(item["metadata"]["name"]) for item in items)

    def is_reachable(self, found: KubeObject) -> bool:
        """Tell whether the server can be asked about an object before the run has begun."""
        return found.namespace not in self.absent_namespaces and self.is_served(found)

    def live(self, found: KubeObject) -> Mapping[str, Any] | None:
        """Read an object, None if it is not there."""
        names = self._names.get(_group(found))
        if names is not None and found.name not in names:
            return None
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
        raise ObjectNotFoundError(
            f"the cluster has no kind {', '.join(f'`{kind}`' for kind in kinds)}",
            what="kind",
            where=f"component {unknown[0].component}",
            hint=_kind_hint(unknown[0], self.state.environment),
        )

    def missing_namespace(self, wanted: Sequence[KubeObject], *, create: bool) -> tuple[KubeObject, ...]:
        """Give the environment's namespace as an object if it is needed and not there.

        Raises:
            ObjectNotFoundError: another namespace is missing: nobody said that it should exist.
        """
        brought = {found.name for found in wanted if (found.group, found.kind) == ("", "Namespace")}
        # The inventory is kept in the environment's own namespace, even where no object goes there.
        needed = sorted({found.namespace for found in wanted if found.namespace} | {self.state.namespace})
        absent = [name for name in needed if not self._namespace_exists(name)]
        self.absent_namespaces = set(absent)
        lacking = [name for name in absent if name not in brought]
        strange = [name for name in lacking if name != self.state.namespace]
        if strange:
            raise ObjectNotFoundError(
                f"namespace `{strange[0]}` does not exist",
                what="namespace",
                where=str(next(found.identity for found in wanted if found.namespace == strange[0])),
                hint=f"kubectl create namespace {strange[0]}",
            )
        return tuple(self._namespace(name) for name in lacking if create)

    def _namespace_exists(self, name: str) -> bool:
        try:
            return self.cluster.get(ObjectRef("v1", "Namespace", "", name)) is not None
        except ForbiddenError:  # whoever may work in one namespace only may not read namespaces
            return True

    def _namespace(self, name: str) -> KubeObject:
        labels = objects.marks(app=self.state.app, environment=self.state.environment, component="")
        del labels[objects.COMPONENT_LABEL]
        metadata = {"name": name, "labels": labels}
        return KubeObject(data={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def _group(found: KubeObject) -> _Group:
    return found.api_version, found.kind, found.namespace


def _kind_hint(unknown: KubeObject, environment: str) -> str:
    if unknown.group == "kubeflow.org":
        return f"install the operator's definitions first: `mlstack apply {environment} -c kubeflow-core`"
    return f"install the definitions of `{unknown.group}` first, or make them part of the app"
