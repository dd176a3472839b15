"""Kubernetes objects as values: who they are, where they came from, which marks they carry."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError

if TYPE_CHECKING:
    from mlstack.objects.kinds import Kinds

Data = Mapping[str, Any]
"""An object of Kubernetes as plain data."""

MANAGER = "mlstack"
APP_LABEL = "mlstack.dev/app"
ENVIRONMENT_LABEL = "mlstack.dev/environment"
COMPONENT_LABEL = "mlstack.dev/component"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
PART_OF_LABEL = "app.kubernetes.io/part-of"


@dataclass(frozen=True, order=True)
class Identity:
    """What makes an object this object and no other: the version of its API is no part of it."""

    group: str  # API group, empty for the core group
    kind: str  # kind, as `Deployment`
    namespace: str  # namespace, empty for cluster-scoped objects
    name: str  # name of the object

    def __str__(self) -> str:
        """Write the object as people name it: `Deployment kubeflow/tf-hub`."""
        prefix = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {prefix}{self.name}"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where an object stands in the files of an app or package."""

    component: str  # full name of the component
    file: str  # template or manifest
    line: int | None = None  # first line of the object in that file, if it is known
    # `file:line` of each part of the object, by its path; empty unless it was asked for
    places: Mapping[tuple[str | int, ...], str] = field(default_factory=dict)

    def at(self, path: Sequence[str | int]) -> str:
        """Give the place of a part of the object, or of the nearest thing around it."""
        for length in range(len(path), 0, -1):
            position = self.places.get(tuple(path[:length]))
            if position is not None:
                return position
        return str(self)

    def __str__(self) -> str:
        """Write the place as `file:line`."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class KubeObject:
    """One object as it is sent to a cluster, and the component it belongs to."""

    data: Mapping[str, Any]  # the object as plain values; never changed in place
    component: str = ""  # full name of the component that brings it
    source: Source | None = None  # the place it was written at

    @property
    def api_version(self) -> str:
        """Give `apps/v1`, or `v1` for the core group."""
        return str(self.data.get("apiVersion", ""))

    @property
    def group(self) -> str:
        """Give the API group, empty for the core group."""
        return group_of(self.api_version)

    @property
    def version(self) -> str:
        """Give the version inside the API group."""
        return self.api_version.rpartition("/")[2]

    @property
    def kind(self) -> str:
        """Give the kind."""
        return str(self.data.get("kind", ""))

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """Give the metadata, empty if there is none."""
        metadata = self.data.get("metadata")
        return metadata if isinstance(metadata, Mapping) else {}

    @property
    def name(self) -> str:
        """Give the name."""
        return str(self.metadata.get("name") or "")

    @property
    def namespace(self) -> str:
        """Give the namespace, empty for cluster-scoped objects."""
        return str(self.metadata.get("namespace") or "")

    @cached_property
    def identity(self) -> Identity:
        """Give what makes this object itself."""
        return Identity(self.group, self.kind, self.namespace, self.name)

    @property
    def labels(self) -> Mapping[str, str]:
        """Give the labels of the object itself."""
        return self.metadata.get("labels") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        """Give the annotations of the object itself."""
        return self.metadata.get("annotations") or {}

    def with_data(self, data: Mapping[str, Any]) -> KubeObject:
        """Give the same object with other content."""
        return replace(self, data=data)


@dataclass(frozen=True, kw_only=True)
class DesiredState:
    """Everything that one environment of an app wants to see in its cluster."""

    app: str  # name of the app
    environment: str  # name of the environment
    namespace: str  # the environment's namespace
    objects: tuple[KubeObject, ...]  # what is wanted, in the order it is applied
    components: tuple[str, ...] = ()  # full names of the components that were rendered, sorted
    formerly: tuple[str, ...] = ()  # names that these components had before they were renamed
    notes: tuple[str, ...] = ()  # remarks for people, as deprecated parameters in use
    # a Secret is among the objects, or a secret parameter is set: not to be kept elsewhere
    has_secrets: bool = False
    uses_programs: bool = False  # helm or kustomize had a part in it, which may be another one next time
    # for each component all components it depends on, through others as well
    depends: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # seconds to wait until a component's objects work, where it says so
    timeouts: Mapping[str, float] = field(default_factory=dict)
    # texts of secret parameters, to be masked wherever they stand
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def known_as(self) -> tuple[str, ...]:
        """Give the names under which a cluster may know its components: those of today and earlier ones."""
        return (*self.components, *self.formerly)


def group_of(api_version: str) -> str:
    """Give the API group of an `apiVersion`, empty for the core group."""
    group, slash, _ = api_version.partition("/")
    return group if slash else ""


def label_of(name: str) -> str:
    """Write the name of an environment or component as a label may hold it."""
    return name.replace("/", ".")


def marks(*, app: str, environment: str, component: str) -> dict[str, str]:
    """Give the labels that say whose object this is."""
    return {
        MANAGED_BY_LABEL: MANAGER,
        PART_OF_LABEL: app,
        APP_LABEL: app,
        ENVIRONMENT_LABEL: label_of(environment),
        COMPONENT_LABEL: label_of(component),
    }


def selector(*, app: str, environment: str) -> str:
    """Give the label query that finds every object of one environment of an app."""
    return f"{APP_LABEL}={app},{ENVIRONMENT_LABEL}={label_of(environment)}"


def stamp(
    data: Mapping[str, Any], *, app: str, environment: str, component: str, namespace: str, kinds: Kinds
) -> dict[str, Any]:
    """Give a copy with the namespace and the labels of an environment.

    A namespace that the object names itself stays. Labels are set on the object alone, never on
    pod templates or selectors: those cannot change later. A kind nobody knows is taken for namespaced.
    """
    known = kinds.lookup(str(data.get("apiVersion", "")), str(data.get("kind", "")))
    metadata = dict(data.get("metadata") or {})
    if known is not None and not known.namespaced:
        metadata.pop("namespace", None)
    elif not metadata.get("namespace"):
        metadata["namespace"] = namespace
    own = marks(app=app, environment=environment, component=component)
    metadata["labels"] = {**(metadata.get("labels") or {}), **own}
    return {**data, "metadata": metadata}


def refuse_duplicates(objects: Iterable[KubeObject]) -> None:
    """Raise if two objects are the same one."""
    known: dict[Identity, KubeObject] = {}
    for manifest in objects:
        first = known.setdefault(manifest.identity, manifest)
        if first is not manifest and first.component == manifest.component:
            places = f"{first.source} and {manifest.source}"
            raise ConfigError(
                f"component `{manifest.component}` brings `{manifest.identity}` twice",
                where=places,
                hint="rename or remove one of them",
            )
        if first is not manifest:
            raise ConfigError(
                f"`{manifest.identity}` comes from component `{first.component}` ({first.source})"
                f" and from component `{manifest.component}` ({manifest.source})",
                hint="rename one of them, or take one component out of the environment's targets",
            )


# --- an object the way the API server keeps it, so that what is rendered is what is applied ---
# Where a form would make server-side apply misbehave, it is replaced by an equal one: `stringData` (a key
# dropped from it would stay in the Secret for ever), empty maps (they would own the whole map), fields
# that only the server sets (a manifest exported by `kubectl get -o yaml` carries them).

SERVER_METADATA = frozenset(
    {"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}
)
"""What the server alone sets in an object's metadata."""
_EMPTY_IS_ABSENT = frozenset(
    {"annotations", "args", "binaryData", "command", "data", "env", "envFrom", "finalizers"}
    | {"imagePullSecrets", "initContainers", "labels", "limits", "nodeSelector", "ownerReferences"}
    | {"requests", "tolerations", "volumeMounts", "volumes"}
)
_TEXT_MAPS = frozenset({"data", "stringData", "binaryData"})
_NESTED = (dict, list)


def normalised(data: Mapping[str, Any], *, built_in: bool) -> dict[str, Any]:
    """Give an equal object in the form the server keeps.

    In custom resources a null or an empty map may mean something to their controller, so only the metadata of
    kinds that are not `built_in` to Kubernetes is touched.
    """
    result = dict(data)
    if "metadata" in result:
        result["metadata"] = _metadata(result["metadata"])
    kind = data.get("kind")
    if not built_in:
        return {key: _without_null_times(value) for key, value in result.items()}
    result.pop("status", None)
    if kind == "CustomResourceDefinition":
        return result
    if kind in ("Secret", "ConfigMap"):
        return _text_maps(result)
    result = dict(_pruned(result))
    if kind == "ClusterRole" and result.get("aggregationRule") is not None:
        # The aggregating controller owns the rules; an empty list of ours would fight with it for ever.
        result.pop("rules", None)
    if kind == "NetworkPolicy" and isinstance(result.get("spec"), dict):
        result["spec"] = _network_policy(result["spec"])
    return result


def _metadata(metadata: Any) -> Any:
    if not isinstance(metadata, Mapping):
        return metadata
    kept = {key: value for key, value in metadata.items() if key not in SERVER_METADATA}
    return {key: value for key, value in kept.items() if value not in (None, {}, [])}


def _without_null_times(value: Any) -> Any:
    """Drop `creationTimestamp: null`, which Go programs write into pod templates and no CRD declares."""
    if isinstance(value, Mapping):
        kept = {k: v for k, v in value.items() if not (k == "creationTimestamp" and v is None)}
        return {key: _without_null_times(item) for key, item in kept.items()}
    if isinstance(value, list):
        return [_without_null_times(item) for item in value]
    return value


def _text_maps(data: dict[str, Any]) -> dict[str, Any]:
    """Fold `stringData` into `data`; a null value is the empty text, as the API server reads it."""
    result = {key: value for key, value in data.items() if value is not None}
    for name in _TEXT_MAPS & result.keys():
        if isinstance(result[name], Mapping):
            result[name] = {key: "" if value is None else value for key, value in result[name].items()}
    strings, texts = result.get("stringData"), result.get("data", {})
    # Where either is no map, both stay as they are for validation to speak of.
    if data.get("kind") == "Secret" and isinstance(strings, Mapping) and isinstance(texts, Mapping):
        del result["stringData"]
        result["data"] = dict(texts)
        for key, value in strings.items():
            is_text = isinstance(value, str)
            result["data"][key] = base64.b64encode(value.encode()).decode() if is_text else value
    return {key: value for key, value in result.items() if key not in _TEXT_MAPS or value != {}}


def _pruned(value: Any) -> Any:
    """Drop nulls, and the empty maps and lists that mean the same as none."""
    if isinstance(value, list):
        return [_pruned(item) if item.__class__ in _NESTED else item for item in value]
    result = {}
    for key, item in value.items():
        if item.__class__ in _NESTED:
            item = _pruned(item)
            if not item and key in _EMPTY_IS_ABSENT:
                continue
        if item is not None:
            result[key] = item
    return result


def _network_policy(spec: dict[str, Any]) -> dict[str, Any]:
    """Drop empty peers and ports; an empty rule list means "deny all" and goes only if the type says it."""
    types = spec.get("policyTypes") or []
    result = dict(spec)
    for name, peer, policy_type in (("ingress", "from", "Ingress"), ("egress", "to", "Egress")):
        rules = result.get(name)
        if rules == [] and policy_type in types:
            del result[name]
        elif isinstance(rules, list):
            empty: tuple[tuple[str, list[object]], ...] = ((peer, []), ("ports", []))
            result[name] = [
                {key: value for key, value in rule.items() if (key, value) not in empty}
                if isinstance(rule, Mapping)
                else rule
                for rule in rules
            ]
    return result
