"""An environment: where components go, what its cluster can do and costs, what one person has otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from mlstack import DEFAULT_KUBERNETES_VERSION
from mlstack.app.app import PackageRef, read_packages
from mlstack.app.document import (
    ANNOTATIONS,
    API_VERSION,
    DIGEST,
    ENVIRONMENT,
    FLAG,
    LABELS,
    MAP,
    NAMESPACE,
    REQUIREMENT,
    SHORT_NAME,
    TEXT,
    WORD,
    key,
    keys_of,
    list_of,
    map_of,
    record,
    records,
)
from mlstack.app.params import Layer
from mlstack.dataclass import dataclass
from mlstack.errors import ODD, SchemaError

ClusterScoped = Literal["allowed", "refused"]


@dataclass(frozen=True, kw_only=True)
class EnvironmentParams:
    """Parameter values of one environment."""

    globals: Mapping[str, Any] = key(MAP, "For every component whose prototype declares the name.")
    components: Mapping[str, Mapping[str, Any] | None] = key(
        map_of({"type": ["object", "null"]}), "By component name; `module.name` for components of modules."
    )


@dataclass(frozen=True, kw_only=True)
class ClusterIdentity:
    """What tells one cluster from another, whatever a context is called."""

    uid: str | None = key(TEXT, "UID of the namespace kube-system.", default=None)
    ca: str | None = key(DIGEST, "Hash of the server's CA bundle.", default=None)
    server: str | None = key(TEXT, "The address it was reached at; for people only.", default=None)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A kubectl context and namespace that components are deployed to."""

    name: str  # folder below `environments/`; may be nested (`us-west/staging`)
    context: str = key(TEXT, "The kubectl context.")
    namespace: str = key(NAMESPACE, "Where objects go that name no namespace.", default="default")
    kubernetes_version: str = key(
        {"type": "string", "pattern": r"^1\.[0-9]{1,3}$"},
        'The version that offline validation takes, such as "1.36".',
        default=DEFAULT_KUBERNETES_VERSION,
    )
    extends: str | None = key(
        {"type": "string", "pattern": ENVIRONMENT},
        "The environment whose values lie below this one's.",
        default=None,
    )
    targets: tuple[str, ...] = key(
        list_of(TEXT), "Components and modules to deploy; all when left out or empty."
    )
    packages: tuple[PackageRef, ...] = key(
        list_of(REQUIREMENT),
        "Requirements of this environment, which take the place of the app's for the same package.",
        reader=read_packages,
    )
    protected: bool = key(FLAG, "Every change wants the environment's name typed, or `--yes-i-mean ENV`.")
    allowed_namespaces: tuple[str, ...] = key(
        list_of(NAMESPACE),
        "The only namespaces it may write to, besides its own; any when left out or empty.",
    )
    cluster_scoped: ClusterScoped = key(
        {"enum": ["allowed", "refused"]},
        "Whether it may bring objects outside namespaces, such as CRDs and ClusterRoles.",
        default="allowed",
    )
    labels: Mapping[str, str | None] = key(
        LABELS, "As in app.yaml, and over what stands there; null takes a label away."
    )
    annotations: Mapping[str, str | None] = key(ANNOTATIONS, "As in app.yaml, and over what stands there.")
    pod_labels: Mapping[str, str | None] = key(LABELS, "As in app.yaml, and over what stands there.")
    pod_annotations: Mapping[str, str | None] = key(
        ANNOTATIONS, "As in app.yaml, and over what stands there."
    )
    wait_for_load_balancer: bool = key(
        FLAG, "A Service of type LoadBalancer is ready only when it has an address."
    )
    expires: str = key(
        {"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"},
        "When it is over, in UTC; `delete --expired` takes it out of its cluster then.",
    )
    cluster: ClusterIdentity | None = record(
        ClusterIdentity, "The cluster's identity, pinned at first contact."
    )
    file: str = ""  # below the app directory, with `/`


@dataclass(frozen=True)
class EnvironmentFiles:
    """One environment's own files, without what it extends."""

    environment: Environment
    given: frozenset[str]  # keys that its file sets
    globals: Layer  # for all components
    components: Mapping[str, Layer] = field(default_factory=dict)
    encrypted_globals: Layer | None = None  # over `globals`
    encrypted_components: Mapping[str, Layer] = field(default_factory=dict)

    @property
    def for_all(self) -> list[Layer]:
        """Give what it sets for all components, lowest first."""
        return [self.globals, *([self.encrypted_globals] if self.encrypted_globals else [])]

    def for_component(self, name: str) -> list[Layer]:
        """Give what it sets for one component, lowest first."""
        return [layers[name] for layers in (self.components, self.encrypted_components) if name in layers]


def inherited(chain: Sequence[EnvironmentFiles]) -> Environment:
    """Give the last environment of a chain with what it inherits of the others, the farthest ancestor first.

    The pinned cluster goes with the context: who names another context is not bound to it. An environment's
    own namespace is always among those it may write to.
    """
    merged = chain[0].environment
    for files in chain[1:]:
        own, fields = files.environment, dict[str, Any]()
        for declared in keys_of(Environment):
            name, lower = declared.field, getattr(merged, declared.field)
            if declared.shape.get("type") == "object" and declared.record is None:  # maps merge
                fields[name] = {**lower, **getattr(own, name)}
            elif declared.name not in (*files.given, "extends", "expires"):
                fields[name] = lower
        if own.context and own.context != merged.context and "cluster" in fields:
            fields["cluster"] = None
        packages = {ref.full_name: ref for ref in (*merged.packages, *own.packages)}
        merged = replace(own, **{**fields, "packages": tuple(packages.values())})
    allowed = merged.allowed_namespaces
    if allowed and merged.namespace not in allowed:
        merged = replace(merged, allowed_namespaces=(merged.namespace, *allowed))
    return merged


@dataclass(frozen=True, kw_only=True)
class ApprovedDifference:
    """A difference between environments that is meant."""

    subject: str = key(
        WORD, "As `env matrix` names it: `cnn num_gpus`; `*` stands for anything.", required=True
    )
    reason: str = key(TEXT, "Why.")


@dataclass(frozen=True, kw_only=True)
class ApprovedDifferences:
    """The differences between environments that are meant; `env matrix` finds the others."""

    approved: tuple[ApprovedDifference, ...] = records(ApprovedDifference)

    def reason(self, subject: str) -> str | None:
        """Say why a difference is meant; None if it is not."""
        fitting = (entry.reason for entry in self.approved if fnmatchcase(subject, entry.subject))
        return next(fitting, None)


_BY_NAME = map_of({"type": "number", "minimum": 0})


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What a cluster's provider asks for what an environment takes."""

    currency: str = key(WORD, "Of all prices, as people write it: `USD`.")
    requests: Mapping[str, float] = key(_BY_NAME, "Of a core, a GiB or a piece for an hour, by resource.")
    gpus: Mapping[str, float] = key(_BY_NAME, "Of a GPU for an hour, by product; `*` is any other.")
    storage: Mapping[str, float] = key(_BY_NAME, "Of a GiB for a month, by storage class; `*` is any other.")
    load_balancers: float | None = key({"type": "number", "minimum": 0}, "Of one, a month.", default=None)


@dataclass(frozen=True, kw_only=True)
class PersonalEnvironment:
    """What one person has otherwise about an environment."""

    name: str = key({"type": "string", "pattern": ENVIRONMENT}, required=True)
    context: str = key(TEXT, "Another kubectl context.")
    namespace: str = key(NAMESPACE, "Another namespace.")
    globals: Mapping[str, Any] = key(MAP, "For every component whose prototype declares the name.")
    components: Mapping[str, Mapping[str, Any] | None] = key(
        map_of({"type": ["object", "null"]}), "Values by component name."
    )
    cluster: ClusterIdentity | None = record(
        ClusterIdentity, "Identity of the cluster behind the other context."
    )


@dataclass(frozen=True, kw_only=True)
class PersonalRegistry:
    """Where one person reads a registry from, in place of its address."""

    name: str = key(SHORT_NAME, required=True)
    address: str = key(WORD, "As in app.yaml; what is locked stays what it is.", required=True)


@dataclass(frozen=True, kw_only=True)
class PersonalOverrides:
    """What one person has otherwise than the app's files say; git ignores it."""

    environments: tuple[PersonalEnvironment, ...] = records(PersonalEnvironment)
    registries: tuple[PersonalRegistry, ...] = records(PersonalRegistry)

    def environment(self, name: str) -> PersonalEnvironment | None:
        """Give what is otherwise about an environment."""
        return next((own for own in self.environments if own.name == name), None)


# --- policies: what objects are to keep, in CEL ---

_ID = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}


@dataclass(frozen=True, kw_only=True)
class PolicyMatch:
    """Which objects a policy is about."""

    kinds: tuple[str, ...] = key(
        list_of(WORD), "`Deployment`, or with its group `kubeflow.org/PyTorchJob`. Default: all."
    )


@dataclass(frozen=True, kw_only=True)
class PolicyFile:
    """What the objects of an app must keep, for `mlstack validate ENV --policy`."""

    id: str = key(_ID, "Its name in messages and waivers.", required=True)
    reason: str = key(WORD, "Why it is wanted.", required=True)
    fix: str = key(WORD, "What to do about an object that does not keep it.", required=True)
    severity: Literal["error", "warning"] = key(
        {"type": "string", "enum": ["error", "warning"]},
        "Whether `validate` fails where it is not kept. Default: error.",
        default="error",
    )
    sets: tuple[str, ...] = key(list_of(_ID), "Sets that it belongs to. Default: own.")
    match: PolicyMatch | None = record(PolicyMatch, "Which objects it is about. Default: all.")
    each: Literal["object", "pod", "container"] = key(
        {"type": "string", "enum": ["object", "pod", "container"]},
        "What it is asked of: the object, the spec of each of its pods, each container. Default: object.",
        default="object",
    )
    expression: str = key(
        WORD,
        "CEL that is true where it is kept: of `object`, `environment` and `component`, and of `pod` and"
        " `container` where it is asked of those.",
        required=True,
    )
    message: str = key(WORD, "What is said of an object that does not keep it.")


# --- snapshots of clusters: what an environment's can do, kept in one file, so that it is known unasked ---

_SNAPSHOT_KIND = "ClusterSnapshot"


@dataclass(frozen=True, kw_only=True)
class ClusterSnapshot:
    """A cluster as it was at one time."""

    taken: str  # when, in UTC
    version: str  # of its API server, as `v1.36.2`
    # kinds that it serves, by API version, sorted
    apis: Mapping[str, tuple[str, ...]]
    definitions: tuple[Mapping[str, Any], ...]  # its CustomResourceDefinitions, with name and spec alone
    # each shape of node: `count`, `allocatable` by resource, `labels` that tell accelerators and machines
    # apart, `taints`
    nodes: tuple[Mapping[str, Any], ...]
    quotas: tuple[Mapping[str, Any], ...]  # ResourceQuotas of the environment's namespace: `name` and `hard`
    limits: tuple[Mapping[str, Any], ...] = ()  # LimitRanges of that namespace: `name` and their `limits`
    # what moves all the time, None where nobody may see it: `nodes` that take pods (`shape` in the list of
    # these, `count`, `free`), number of pods that are `waiting`, terms of those `repelling` others, what is
    # `used` of quotas, and `pools` that an autoscaler may grow
    room: Mapping[str, Any] | None = None

    @property
    def api_versions(self) -> tuple[str, ...]:
        """Give API versions and kinds as helm takes them: `apps/v1`, `apps/v1/Deployment`."""
        served = ((version, *(f"{version}/{kind}" for kind in kinds)) for version, kinds in self.apis.items())
        return tuple(name for names in served for name in names)

    def text(self) -> str:
        """Write the file; the same cluster gives the same text but for the time."""
        return json.dumps({"apiVersion": API_VERSION, "kind": _SNAPSHOT_KIND, **vars(self)}, indent=1) + "\n"


def is_kept_label(name: str) -> bool:
    """Tell whether a snapshot keeps a label of nodes: all but those that name one machine."""
    return not name.endswith(("/hostname", "/instance-id", "/node-id"))


@contextmanager
def reading_snapshot(environment: str, file: str | None = None) -> Iterator[None]:
    """Raise SchemaError where a snapshot holds what `env snapshot` never writes."""
    try:
        yield
    except ODD:
        hint = f"take it anew: mlstack env snapshot {environment}"
        raise SchemaError("the file is no snapshot of a cluster", where=file, hint=hint) from None


def parse_snapshot(data: bytes, file: str, environment: str) -> ClusterSnapshot:
    """Read what a snapshot's file holds.

    Raises:
        SchemaError: it is not what `env snapshot` writes.
    """
    with reading_snapshot(environment, file):
        content = json.loads(data)
        if (content.pop("apiVersion"), content.pop("kind")) != (API_VERSION, _SNAPSHOT_KIND):
            raise ValueError
        apis = {str(version): tuple(map(str, kinds)) for version, kinds in content["apis"].items()}
        lists = {name: tuple(map(dict, content[name])) for name in ("definitions", "nodes", "quotas")}
        limits = tuple(map(dict, content.get("limits", ())))
        snapshot = ClusterSnapshot(**{**content, **lists, "apis": apis, "limits": limits})
        if not all(isinstance(text, str) for text in (snapshot.taken, snapshot.version)):
            raise TypeError
        return snapshot
