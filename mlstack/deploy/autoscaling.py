"""Which workloads an autoscaler scales, and how the number of replicas is handed over to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from threading import Lock
from typing import Any

from mlstack.dataclass import dataclass
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ForbiddenError, ObjectNotFoundError
from mlstack.kube.client import ObjectRef
from mlstack.kube.parallel import PendingResult, prefetch
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import (
    APP_LABEL,
    COMPONENT_LABEL,
    ENVIRONMENT_LABEL,
    Data,
    Identity,
    KubeObject,
    label_of,
    marks,
)
from mlstack.objects.managed_fields import FORCE_FIELDS, MISSING, Path, annotated
from mlstack.objects.references import scaled_workload

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


@dataclass(frozen=True, kw_only=True)
class _Listed:
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

    def path(self, workload: KubeObject) -> Path:
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
        going = [item for item in items if self._is_pruned(item["metadata"].get("labels") or {})]
        staying = [item for item in items if item not in going]
        return _Listed(staying=_by_workload(staying), going=_by_workload(going), complete=complete)

    def _is_pruned(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the run deletes an object with these labels, if it does not bring it."""
        state, component = self._resolved.state, labels.get(COMPONENT_LABEL)
        ours = marks(app=state.app, environment=state.environment, component="")
        is_ours = all(labels.get(name) == ours[name] for name in (APP_LABEL, ENVIRONMENT_LABEL))
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


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """How a workload's number of replicas is to be treated.

    Without an owner the number would go to 1, so it changes hands: another manager of ours holds the live
    value until the autoscaler writes its own.
    """

    path: Path  # empty if the kind cannot be scaled
    data: Data  # what is to be sent, without the number where it is not ours
    asked: Data  # what a dry run is asked about: as if the number were held already
    handover: Data | None  # the number alone, where we own it and let go of it
    notes: tuple[str, ...]  # to whom the number is left
    left: tuple[tuple[str, str], ...]  # path and autoscaler, where that is none of this run's
    spared: tuple[Path, ...]  # fields that no adoption may make ours


def only_field(data: Data, path: Path, value: Any) -> Data:
    """Give an object that says nothing but one field."""
    names = {key: data["metadata"][key] for key in ("name", "namespace") if key in data["metadata"]}
    bare = {"apiVersion": data["apiVersion"], "kind": data["kind"], "metadata": names}
    return dict(managed_fields.put(bare, path, value))
