"""Which workloads an autoscaler scales, and how the number of replicas is handed over to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

from mlstack.deploy.conflicts import FORCE_FIELDS, annotated
from mlstack.errors import ForbiddenError, ObjectNotFoundError
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.kube.parallel import PendingResult, prefetch
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import COMPONENT_LABEL, MANAGER, Identity, KubeObject, group_of
from mlstack.objects.managed_fields import MISSING, Path

SCALABLE = frozenset(
    {("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "ReplicaSet"), ("", "ReplicationController")}
)
REPLICAS = ("f:spec", "f:replicas")
_AUTOSCALERS = (("autoscaling/v2", "HorizontalPodAutoscaler"), ("keda.sh/v1alpha1", "ScaledObject"))


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """An autoscaler, as people name it (`HorizontalPodAutoscaler web`), and the workload it scales."""

    name: str
    target: Identity


def autoscaler(data: Mapping[str, Any]) -> Autoscaler | None:
    """Read what an object scales: a HorizontalPodAutoscaler, or a ScaledObject of KEDA.

    Deployment is what KEDA scales where the kind is not said.
    """
    kind, group = str(data.get("kind", "")), group_of(str(data.get("apiVersion", "")))
    if (group, kind) not in (("autoscaling", "HorizontalPodAutoscaler"), ("keda.sh", "ScaledObject")):
        return None
    target = (data.get("spec") or {}).get("scaleTargetRef") or {}
    if not isinstance(target, Mapping) or not target.get("name"):
        return None
    metadata = data.get("metadata") or {}
    keda = group == "keda.sh"
    workload = Identity(
        group_of(str(target.get("apiVersion") or ("apps/v1" if keda else ""))),
        str(target.get("kind") or ("Deployment" if keda else "")),
        str(metadata.get("namespace") or ""),
        str(target["name"]),
    )
    return Autoscaler(name=f"{kind} {metadata.get('name', '')}", target=workload)


def _by_target(objects: Iterable[Mapping[str, Any]]) -> dict[Identity, Autoscaler]:
    return {scaler.target: scaler for data in objects if (scaler := autoscaler(data)) is not None}


def replicas_path(definition: Mapping[str, Any] | None, version: str) -> Path:
    """Give the field that the scale subresource of a custom resource writes, empty if it has none."""
    for row in ((definition or {}).get("spec") or {}).get("versions") or ():
        if row.get("name") == version:
            path = ((row.get("subresources") or {}).get("scale") or {}).get("specReplicasPath") or ""
            return tuple(f"f:{name}" for name in path.strip(".").split(".") if name)
    return ()


@dataclass(frozen=True, kw_only=True)
class PrunedLabels:
    """Tells by its labels of an object that a run does not bring whether the run deletes it.

    `marks` are those of the app and environment; `components` those that are looked at, None for all.
    """

    marks: Mapping[str, str]
    components: frozenset[str] | None

    def match(self, labels: Mapping[str, str]) -> bool:
        """Tell whether an object with these labels is deleted."""
        component = labels.get(COMPONENT_LABEL)
        is_ours = self.marks.items() <= labels.items() and component is not None
        return is_ours and (self.components is None or component in self.components)


@dataclass(frozen=True, kw_only=True)
class _Listed:
    """The autoscalers of a namespace by their targets: those that stay, and those that the run deletes."""

    staying: Mapping[Identity, Autoscaler]
    going: Mapping[Identity, Autoscaler]
    complete: bool


class Scalers:
    """Finds the autoscaler of a workload: the run's own, or the cluster's (listed once a namespace).

    Args:
        brought: every object of the run.
        cluster: where to look for others, only if somebody asks.
        pruned: what the run deletes; None if it deletes nothing.
    """

    def __init__(
        self, brought: Sequence[KubeObject], cluster: Cluster, *, pruned: PrunedLabels | None
    ) -> None:
        self._cluster, self._pruned, self._lock = cluster, pruned, Lock()
        self._brought = _by_target(found.data for found in brought)
        self._definitions = {
            found.name: found.data for found in brought if found.kind == "CustomResourceDefinition"
        }
        self._pending: dict[str, PendingResult[_Listed]] = {}

    def brought(self, workload: KubeObject) -> Autoscaler | None:
        """Give the autoscaler that the run itself brings for a workload."""
        return self._brought.get(workload.identity)

    def loses(self, workload: KubeObject) -> bool:
        """Tell whether the run takes the autoscaler of a workload away."""
        return workload.identity in self._listed(workload.namespace).going

    def has_none(self, workload: KubeObject) -> bool:
        """Tell whether nothing scales a workload after the run; false where one may not look."""
        if self.brought(workload) is not None:
            return False
        listed = self._listed(workload.namespace)
        return workload.identity not in listed.staying and listed.complete

    def scaler(self, workload: KubeObject, *, live: bool = True) -> Autoscaler | None:
        """Give what a workload's number is left to; nothing where the object says that it is ours.

        `live` looks into the cluster too, for autoscalers that stay there after the run.
        """
        path = self.path(workload)
        if any(pattern.covers(path) for pattern in annotated(workload, FORCE_FIELDS)):
            return None
        found = self.brought(workload)
        return found or (self._listed(workload.namespace).staying.get(workload.identity) if live else None)

    def path(self, workload: KubeObject) -> Path:
        """Give the field that holds a workload's number; empty for kinds that cannot be scaled."""
        if (workload.group, workload.kind) in SCALABLE:
            return REPLICAS
        if self.brought(workload) is None:
            return ()
        return replicas_path(self._definition(workload), workload.version)

    def is_set(self, workload: KubeObject) -> bool:
        """Tell whether the files say a workload's number."""
        path = self.path(workload)
        return bool(path) and managed_fields.value_at(workload.data, path) is not MISSING

    def payload(self, wanted: KubeObject) -> Mapping[str, Any]:
        """Give what we will own of an object: all but the number that an autoscaler of the run sets."""
        path = self.path(wanted) if self.scaler(wanted, live=False) else ()
        return managed_fields.cut(wanted.data, [path]) if path else wanted.data

    def replicas(self, wanted: KubeObject, live: Mapping[str, Any]) -> Replicas:
        """Tell how the number of a live workload is to be treated."""
        path, data = self.path(wanted), self.payload(wanted)
        scaler = self.scaler(wanted) if self.is_set(wanted) else None
        if scaler is not None:
            data = managed_fields.cut(wanted.data, [path])
        kept: Any = MISSING
        if path and managed_fields.value_at(data, path) is MISSING:
            ours = path in set(managed_fields.paths(managed_fields.owned(live, MANAGER)))
            kept = managed_fields.value_at(live, path) if ours else MISSING
        is_theirs = scaler is not None and self.brought(wanted) is None
        name = scaler.name if scaler else ""
        return Replicas(path=path, data=data, scaler=name, is_theirs=is_theirs, kept=kept)

    def prefetch(self, namespaces: Iterable[str]) -> None:
        """Begin to list the autoscalers of some namespaces."""
        for namespace in namespaces:
            self._begun(namespace)

    def _begun(self, namespace: str) -> PendingResult[_Listed]:
        with self._lock:
            if namespace not in self._pending:
                self._pending[namespace] = prefetch(partial(self._list, namespace))
            return self._pending[namespace]

    def _listed(self, namespace: str) -> _Listed:
        pending = self._begun(namespace)
        try:
            return pending()
        except BaseException:
            with self._lock:  # whoever asks next asks the cluster again
                if self._pending.get(namespace) is pending:
                    del self._pending[namespace]
            raise

    def _list(self, namespace: str) -> _Listed:
        staying: list[Mapping[str, Any]] = []
        going: list[Mapping[str, Any]] = []
        complete = True
        for api_version, kind in _AUTOSCALERS:
            if api_version.startswith("keda") and not self._cluster.kinds().lookup(api_version, kind):
                continue
            try:
                items = self._cluster.list(api_version, kind, namespace=namespace).items
            except ObjectNotFoundError:
                continue
            except ForbiddenError:  # conflicts show whom the number belongs to
                complete = False
                continue
            for item in items:
                is_going = self._pruned is not None and self._pruned.match(
                    item["metadata"].get("labels") or {}
                )
                (going if is_going else staying).append(item)
        return _Listed(staying=_by_target(staying), going=_by_target(going), complete=complete)

    def _definition(self, workload: KubeObject) -> Mapping[str, Any] | None:
        kind = self._cluster.kinds().lookup(workload.api_version, workload.kind)
        name = f"{kind.plural}.{workload.group}" if kind else ""
        for data in self._candidates(name):
            if data["spec"]["group"] == workload.group and data["spec"]["names"]["kind"] == workload.kind:
                return data
        try:
            ref = ObjectRef("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name)
            return self._cluster.get(ref) if name else None
        except ForbiddenError:  # then the number is taken for an ordinary field
            return None

    def _candidates(self, name: str) -> Iterator[Mapping[str, Any]]:
        if name in self._definitions:
            yield self._definitions[name]
        else:
            yield from self._definitions.values()


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """How a workload's number of replicas is to be treated.

    Without an owner the number would go to 1, so it changes hands: another manager of ours holds the live
    value until the autoscaler writes its own.
    """

    path: Path  # empty if the kind cannot be scaled
    data: Mapping[str, Any]  # what is to be sent, without the number where it is not ours
    scaler: str  # what sets the number, empty if nothing does
    is_theirs: bool  # whether that is none of this run's
    kept: Any  # the live number, where we own it and let go of it; else missing

    @property
    def note(self) -> tuple[str, ...]:
        """Say to whom the number is left."""
        return (f"leaves `{managed_fields.path_text(self.path)}` to `{self.scaler}`",) if self.scaler else ()

    @property
    def left(self) -> tuple[tuple[str, str], ...]:
        """Give path and autoscaler where the number is left to one that is none of this run's."""
        return ((managed_fields.path_text(self.path), self.scaler),) if self.is_theirs else ()

    @property
    def changes_hands(self) -> bool:
        """Tell whether we own the number and let go of it."""
        return self.kept is not MISSING

    @property
    def asked(self) -> Mapping[str, Any]:
        """Give what a dry run is asked about: as if the number were held already."""
        return managed_fields.put(self.data, self.path, self.kept) if self.changes_hands else self.data

    def sent(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give what is really sent of what was asked about."""
        return managed_fields.cut(payload, [self.path]) if self.changes_hands else payload

    @property
    def handover(self) -> Mapping[str, Any] | None:
        """Give the number alone, for the manager that holds it meanwhile."""
        return only_field(self.data, self.path, self.kept) if self.changes_hands else None

    @property
    def spared(self) -> tuple[Path, ...]:
        """Give the fields that no adoption may make ours."""
        unsaid = self.path and managed_fields.value_at(self.data, self.path) is MISSING
        return (self.path,) if unsaid else ()


def only_field(data: Mapping[str, Any], path: Path, value: Any) -> Mapping[str, Any]:
    """Give an object that says nothing but one field."""
    names = {key: data["metadata"][key] for key in ("name", "namespace") if key in data["metadata"]}
    bare = {"apiVersion": data["apiVersion"], "kind": data["kind"], "metadata": names}
    return managed_fields.put(bare, path, value)
