"""Kubernetes objects as values: who they are, which marks they carry, which kinds there are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from mlstack.dataclass import Record, dataclass
from mlstack.errors import ConfigError

Data = Mapping[str, Any]
"""An object of Kubernetes as plain data."""

MANAGER = "mlstack"
APP_LABEL = "mlstack.dev/app"
ENVIRONMENT_LABEL = "mlstack.dev/environment"
COMPONENT_LABEL = "mlstack.dev/component"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
PART_OF_LABEL = "app.kubernetes.io/part-of"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAME_CHARACTERS = 200  # of 253: names of history and further parts are longer by a suffix


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


class Source(Record):
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


class KubeObject(Record):
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
        return KubeObject(data=data, component=self.component, source=self.source)


class DesiredState(Record):
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


def records_name(app: str, environment: str) -> str:
    """Give the name of everything that is kept in the cluster for one environment of an app.

    It is `mlstack-<app>.<environment>`, with `.` for `/`. Names that cannot be one in Kubernetes, and those
    whose parts could not be told apart, end with a hash.
    """
    parts = environment.split("/")
    plain = f"mlstack-{app}.{'.'.join(parts)}"
    if all(map(_NAME.fullmatch, (app, *parts))) and len(plain) <= _NAME_CHARACTERS:
        return plain
    digest = hashlib.sha256(f"{app}\n{environment}".encode()).hexdigest()[:10]
    name = re.sub(r"\.+", ".", re.sub(r"[^a-z0-9.]+", "-", plain.lower()))
    name = ".".join(part.strip("-") for part in name[: _NAME_CHARACTERS - 11].split("."))
    return f"{name.strip('.-')}-{digest}"


def environment_marks(app: str, environment: str) -> dict[str, str]:
    """Give the labels of what mlstack keeps of an environment: those of its objects, of no component."""
    labels = marks(app=app, environment=environment, component="")
    del labels[COMPONENT_LABEL]
    return labels


def belongs_to(live: Mapping[str, Any], *, app: str, environment: str) -> bool:
    """Tell whether an object says that it is of this environment of this app."""
    labels = live["metadata"].get("labels") or {}
    ours = environment_marks(app, environment)
    return all(labels.get(key) == ours[key] for key in (APP_LABEL, ENVIRONMENT_LABEL))


def selector(*, app: str, environment: str) -> str:
    """Give the label query that finds every object of one environment of an app."""
    return f"{APP_LABEL}={app},{ENVIRONMENT_LABEL}={label_of(environment)}"


def stamp(
    data: Mapping[str, Any], labels: Mapping[str, str], *, namespace: str, kinds: Kinds
) -> dict[str, Any]:
    """Give a copy with the namespace and the labels (`marks`) of an environment.

    A namespace that the object names itself stays. Labels are set on the object alone, never on
    pod templates or selectors: those cannot change later. A kind nobody knows is taken for namespaced.
    """
    known = kinds.lookup(str(data.get("apiVersion", "")), str(data.get("kind", "")))
    metadata = dict(data.get("metadata") or {})
    if known is not None and not known.namespaced:
        metadata.pop("namespace", None)
    elif not metadata.get("namespace"):
        metadata["namespace"] = namespace
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
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


# --- which kinds there are, how they are addressed, and the schemas of the built-in ones ---


CRD_GROUP = "apiextensions.k8s.io"


class Kind(Record):
    """One kind of object under one API version."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    # The first and last Kubernetes 1.x of the shipped table that serve a built-in kind; 0 where that is not
    # known (custom resources, kinds read from a cluster).
    first_minor: int = 0
    last_minor: int = 0
    # Whether it has a status that only its controller writes; None where that is not known.
    has_status: bool | None = field(default=None, compare=False)

    @property
    def api_version(self) -> str:
        """Give the text of the object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def is_served_by(self, minor: int) -> bool:
        """Say whether Kubernetes 1.`minor` serves this kind (custom resources: always)."""
        return not self.first_minor or self.first_minor <= minor <= self.last_minor


class Kinds:
    """A set of kinds, of which the later one counts where two have the same group, version and name."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._by_name = {(kind.api_version, kind.kind): kind for kind in kinds}

    @classmethod
    @cache
    def builtin(cls) -> Kinds:
        """Give the built-in kinds of Kubernetes 1.30 to 1.37, by group, version and kind."""
        kinds = []
        for row in Path(__file__).with_name("kinds.txt").read_text("utf-8").splitlines():
            if not row.startswith("#"):
                api_version, scope, minors, *names = row.split()
                group, _, version = api_version.rpartition("/")
                first, last = map(int, minors.split("-"))
                kinds += [
                    Kind(
                        group=group,
                        version=version,
                        kind=name,
                        plural=plural_of(name),
                        namespaced=scope == "n",
                        first_minor=first,
                        last_minor=last,
                    )
                    for name in names
                ]
        return cls(sorted(kinds, key=lambda kind: (kind.group, kind.version, kind.kind)))

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def lookup(self, api_version: str, kind: str) -> Kind | None:
        """Find a kind, None where it is unknown."""
        return self._by_name.get((api_version, kind))

    def of_group(self, group: str) -> tuple[Kind, ...]:
        """Give the kinds of one API group."""
        return tuple(kind for kind in self if kind.group == group)

    def with_crds(self, objects: Iterable[Mapping[str, Any]]) -> Kinds:
        """Give these kinds and those that the CustomResourceDefinitions among `objects` define."""
        return Kinds((*self, *(kind for data in objects for kind in kinds_of_crd(data))))


def plural_of(kind: str) -> str:
    """Give the plural that Kubernetes uses in addresses (every built-in kind follows these rules)."""
    lower = kind.lower()
    if lower.endswith("y"):
        return f"{lower[:-1]}ies"
    suffix = "" if lower == "endpoints" else "es" if lower.endswith(("s", "x", "ch")) else "s"
    return lower + suffix


def kinds_of_crd(data: Mapping[str, Any]) -> tuple[Kind, ...]:
    """Give the kinds, one a served version, that an object defines; none when it is no (sound) CRD."""
    if data.get("kind") != "CustomResourceDefinition" or not is_group(data, CRD_GROUP):
        return ()
    spec = data.get("spec")
    names = spec.get("names") if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(names, Mapping):
        return ()
    return tuple(
        Kind(
            group=str(spec.get("group", "")),
            version=str(version.get("name", "")),
            kind=str(names.get("kind", "")),
            plural=str(names.get("plural", "")),
            namespaced=spec.get("scope") != "Cluster",
            has_status="status" in (version.get("subresources") or {}),
        )
        for version in spec.get("versions") or ()
        if isinstance(version, Mapping) and version.get("served")
    )


def is_group(data: Mapping[str, Any], group: str) -> bool:
    """Say whether an object's `apiVersion` is of this group."""
    return str(data.get("apiVersion", "")).rpartition("/")[0] == group


# --- schemas of the built-in kinds of one Kubernetes version, each decoded when first asked for --------

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class ListType:
    """How server-side apply merges a list."""

    type: str  # `map` (items are told apart by `keys`), `set` (by their value) or `atomic` (replaced whole)
    keys: tuple[str, ...] = ()  # the fields that together name an item of a `map` list


class Schemas:
    """The definitions of one Kubernetes version, 36 for 1.36.

    They come as lines of definition name, minor versions (`30-33,35-37`) and JSON, separated by tabs.
    """

    def __init__(self, text: str, *, minor: int) -> None:
        self.minor = minor
        self._lines: dict[str, str] = {}
        self._decoded: dict[str, Schema] = {}
        self._roots: dict[tuple[str, str, str], str] = {}
        for line in text.splitlines():
            name, runs, encoded = line.split("\t", 2)
            bounds = (run.split("-") for run in runs.split(","))
            if any(int(first) <= minor <= int(last) for first, last in bounds):
                self._lines[name] = encoded
                if encoded.startswith('{"gvk":'):
                    gvk, _, _ = encoded.removeprefix('{"gvk":').partition("]")
                    group, version, kind = json.loads(f"{gvk}]")
                    self._roots[group, version, kind] = name

    @property
    def version(self) -> str:
        """Give the Kubernetes version as people write it: `1.36`."""
        return f"1.{self.minor}"

    def definition(self, name: str) -> Schema:
        """Decode one definition; an unknown name is an open schema."""
        if name not in self._decoded:
            self._decoded[name] = json.loads(self._lines.get(name, "{}"))
        return self._decoded[name]

    def root(self, group: str, version: str, kind: str) -> Schema | None:
        """Give the schema of a kind's objects, None where this Kubernetes does not have it."""
        name = self._roots.get((group, version, kind))
        return None if name is None else self.definition(name)

    def resolve(self, schema: Schema) -> Schema:
        """Follow the reference of a schema, if it is one."""
        return self.definition(schema["$ref"]) if "$ref" in schema else schema


def list_type_of(schema: Schema) -> ListType:
    """Read the list type of a schema, built-in or of a CustomResourceDefinition."""
    return ListType(
        schema.get("x-kubernetes-list-type", "atomic"), tuple(schema.get("x-kubernetes-list-map-keys", ()))
    )


def items_of(value: object) -> Iterable[tuple[Any, Any]]:
    """Give what a map or list holds, by key or place; nothing of anything else."""
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()


def without_nulls(value: Any) -> Any:
    """Give a copy of a value whose maps hold no null."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
