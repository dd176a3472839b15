"""What surrounds the objects of a run in the cluster: which kinds and namespaces there are."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.engine import parallel
from mlstack.errors import ForbiddenError, MlstackError, ObjectNotFoundError
from mlstack.model import names, objects
from mlstack.model.kinds import Kind, Kinds, kinds_of_crd
from mlstack.model.objects import DesiredState, KubeObject
from mlstack.model.readiness import operators

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
        labels = objects.marks(app=self.state.app, environment=self.state.environment, component="")
        del labels[objects.COMPONENT_LABEL]
        metadata = {"name": name, "labels": labels}
        return KubeObject(data={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def _certain(answer: bool | MlstackError) -> bool:
    if isinstance(answer, MlstackError):
        raise answer
    return answer


def _kind_hint(unknown: KubeObject, served: Kinds, environment: str) -> str:
    """Say how the cluster comes to know a kind, or what was meant."""
    api_version, kind, group = unknown.api_version, unknown.kind, unknown.group
    operator = operators.operator_of(api_version, kind)
    there = [one for one in served.of_group(group) if one.kind == kind]
    versions = [one.api_version for one in there if _is_same_operator(operator, one)]
    if versions:
        return f"the cluster serves `{kind}` as {' and '.join(versions)}: write that `apiVersion`"
    if why := operators.retired(api_version, kind):
        return f"nobody serves `{kind}` any more: {why}"
    if operator is not None:
        today = f"the {operator.name} serves {operator.instead} today; " if operator.instead else ""
        install = operators.how_to_install(operator, environment)
        return f"`{kind}` is served by the {operator.name}: {today}{install}"
    near = operators.likely_kind(api_version, kind) or names.nearest(kind, _kinds_there(group, served))
    if near and near != kind:
        return f"did you mean `{near}`?"
    if "." in group and not group.endswith(".k8s.io"):
        return f"install the definitions of `{group}` first, or make them part of the app"
    elsewhere = sorted({one.api_version for one in Kinds.builtin() if one.kind == kind})
    if elsewhere:
        return f"Kubernetes serves `{kind}` as {' and '.join(elsewhere)}: write that `apiVersion`"
    return f"Kubernetes has no such kind: kubectl api-resources{f' --api-group={group}' if group else ''}"


def _is_same_operator(operator: operators.Operator | None, kind: Kind) -> bool:
    other = operators.operator_of(kind.api_version, kind.kind)
    return operator is None or (other is not None and other.name == operator.name)


def _kinds_there(group: str, served: Kinds) -> list[str]:
    return [one.kind for one in served.of_group(group)]
