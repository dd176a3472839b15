"""Build sets and revisions of a history."""

from __future__ import annotations

from mlstack.deploy.history import Revision, RevisionStatus
from mlstack.objects.kube_object import DesiredState, KubeObject


def state(**components: str) -> DesiredState:
    """Build a set: a ConfigMap of a name for each component."""
    objects = tuple(obj(name, component) for component, names in components.items() for name in names.split())
    return DesiredState(
        app="demo", environment="gke", namespace="ml", objects=objects, components=tuple(sorted(components))
    )


def obj(name: str, component: str = "a", kind: str = "ConfigMap", **spec: str) -> KubeObject:
    """Build an object of a component."""
    metadata = {"name": name, "namespace": "ml"}
    data = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
    return KubeObject(data=data, component=component)


def revision(
    number: int, *, result: RevisionStatus = "done", unsettled: tuple[str, ...] = (), parts: int = 1
) -> Revision:
    """Build what is known of a revision."""
    return Revision(
        number=number,
        time="2026-11-22T02:25:46Z",
        who="ada@laptop",
        what="apply",
        result=result,
        unsettled=unsettled,
        parts=parts,
    )
