"""What an app says about when objects of a kind work, where no rule is known or another one is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from mlstack.errors import UsageError
from mlstack.names import names_a_package, version_key
from mlstack.objects.managed_fields import FieldPattern

# --- What an app says about when objects of a kind work, where no rule is known or another one is
# wanted

Scalar = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class ConditionSign:
    """A condition that tells of a state."""

    condition: str  # its type
    status: str = "True"  # the status it must have
    reason: str = ""  # the reason it must have, empty for any


@dataclass(frozen=True, kw_only=True)
class FieldSign:
    """A field that tells of a state."""

    path: FieldPattern  # where it stands in the object
    values: tuple[Scalar, ...]  # it must have one of these


Sign = ConditionSign | FieldSign


@dataclass(frozen=True, kw_only=True)
class ReadyRule:
    """Says when objects of one kind work."""

    kind: str  # `example.com/Widget`, or `Pod` for the core group
    ready: Sign  # tells that an object works
    failed: Sign | None = None  # tells that it will not work without a change
    done: Sign | None = None  # tells that its work has ended well
    # its controller says which generation it has seen; until that is the newest, nothing else counts
    observed_generation: bool = False


ReadyRules = Mapping[str, ReadyRule]
"""The rules of an app by kind."""


# --- What an app says about fields that somebody else owns in its cluster as well ---

Taker = Literal["ours", "theirs"]


@dataclass(frozen=True, kw_only=True)
class ConflictRule:
    """Says who has a field, whatever the table of managers says."""

    path: FieldPattern  # the field, and all below it
    manager: str = "*"  # name of the manager it speaks of; `*` stands for anything
    kinds: tuple[str, ...] = ()  # kinds of objects it holds for, all if none
    take: Taker = "theirs"  # `ours` takes the field, `theirs` leaves it

    def speaks_of(self, manager: str, path: Sequence[str]) -> bool:
        """Tell whether the rule decides about a field of a manager."""
        return fnmatchcase(manager, self.manager) and self.path.covers(path)


# --- The nouns of an app directory: app, registry, package, component, environment, and the lock ---

API_VERSION = "mlstack.dev/v1"
DEFAULT_KUBERNETES_VERSION = "1.36"

ClusterScoped = Literal["allowed", "refused"]


@dataclass(frozen=True, kw_only=True)
class RegistryRef:
    """A registry as `app.yaml` names it."""

    name: str  # the app's own name for it
    address: str  # folder (relative to the app), git URL, GitHub tree address, or `bundled`
    protocol: str  # how the address is read (`directory`, `git`)


@dataclass(frozen=True, kw_only=True)
class PackageRef:
    """A package requirement: `kubeflow/core` or `kubeflow/core@0.1.0`; empty version = newest at install."""

    registry: str
    name: str
    version: str = ""

    @property
    def full_name(self) -> str:
        """Give `registry/name`."""
        return f"{self.registry}/{self.name}"

    def __str__(self) -> str:
        return f"{self.full_name}@{self.version}" if self.version else self.full_name


@dataclass(frozen=True, kw_only=True)
class Retired:
    """Names of packages and prototypes that a registry does not offer any more, or never will."""

    names: tuple[str, ...]  # which names; people know them from elsewhere
    reason: str  # why they are not there
    instead: str = ""  # what to do now; empty if the registry has nothing in their place


@dataclass(frozen=True, kw_only=True)
class LockedRegistry:
    """Where a registry was read from when a package of it was last installed."""

    name: str  # the app's name for it
    address: str  # as in `app.yaml`
    revision: str = ""  # the commit of a git registry, else empty
    # what its index said of retired names, where asking it again would need a network
    retired: tuple[Retired, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LockedPackage:
    """One installed package: exact version and `sha256:…` of its content."""

    registry: str
    name: str
    version: str
    digest: str
    source: str = ""

    @property
    def full_name(self) -> str:
        """Give `registry/name`."""
        return f"{self.registry}/{self.name}"

    @property
    def ref(self) -> PackageRef:
        """Give the exact requirement that this package meets."""
        return PackageRef(registry=self.registry, name=self.name, version=self.version)

    @property
    def folder(self) -> str:
        """Give the package's folder in the app: `vendor/kubeflow/core@0.1.0`."""
        return f"vendor/{self.registry}/{self.name}@{self.version}"


@dataclass(frozen=True, kw_only=True)
class Lock:
    """What `mlstack.lock` holds; only `pkg` and `registry` commands write it."""

    registries: tuple[LockedRegistry, ...] = ()
    packages: tuple[LockedPackage, ...] = ()


@dataclass(frozen=True, kw_only=True)
class App:
    """What `app.yaml` holds."""

    name: str  # becomes a label of every object
    registries: tuple[RegistryRef, ...] = ()  # where packages come from
    packages: tuple[PackageRef, ...] = ()  # which are needed
    # for every component whose prototype declares the name
    params: Mapping[str, Any] = field(default_factory=dict)
    # who has fields that others own in a cluster too; the first rule that speaks decides
    conflicts: tuple[ConflictRule, ...] = ()
    # when objects of some kinds work; they come before the rules that are built in
    readiness: tuple[ReadyRule, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Component:
    """A prototype used under a name, with the parameters that were set for it."""

    name: str  # the file's name without suffix
    module: str = ""  # dotted folder below `components/`, empty at the root
    prototype: str  # as written: full name, unique suffix or alias
    params: Mapping[str, Any] = field(default_factory=dict)  # the values set in the component's own file
    # components and modules that have to work before its objects are written
    depends_on: tuple[str, ...] = ()
    timeout_s: float | None = None  # how long to wait until its objects work, None for as long as for others
    file: str  # its place below the app directory, with `/`

    @property
    def full_name(self) -> str:
        """Give `module.name`, the name used on the command line and in environments."""
        return f"{self.module}.{self.name}" if self.module else self.name


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A component that is a plain YAML or JSON file of Kubernetes objects."""

    name: str
    module: str = ""
    file: str

    @property
    def full_name(self) -> str:
        """Give `module.name`."""
        return f"{self.module}.{self.name}" if self.module else self.name


@dataclass(frozen=True, kw_only=True)
class ClusterIdentity:
    """What tells one cluster from another, whatever a context is called."""

    uid: str | None = None  # UID of the namespace kube-system
    ca: str | None = None  # `sha256:…` of the server's CA bundle
    server: str | None = None  # the address it was reached at; shown to people, never compared


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A kubectl context and namespace that components are deployed to."""

    name: str  # folder below `environments/`; may be nested (`us-west/staging`)
    context: str = ""  # the kubectl context
    namespace: str = "default"  # where namespaced objects go when they name none
    # the minor version offline validation takes (`1.36`)
    kubernetes_version: str = DEFAULT_KUBERNETES_VERSION
    extends: str | None = None  # the environment whose values lie below this one's
    targets: tuple[str, ...] = ()  # components and modules to deploy; empty means all
    protected: bool = False  # every change wants the environment's name typed
    # the only namespaces it may write to, its own among them; empty means any
    allowed_namespaces: tuple[str, ...] = ()
    cluster_scoped: ClusterScoped = "allowed"  # `refused` if it may bring no objects outside namespaces
    wait_for_load_balancer: bool = False  # a Service of type LoadBalancer is ready only with an address
    cluster: ClusterIdentity | None = None  # identity pinned at first contact
    file: str = ""  # its place below the app directory, with `/`


def parse_package_ref(text: str) -> PackageRef:
    """Read `registry/package` or `registry/package@version`.

    Raises:
        UsageError: the text has another shape.
    """
    path, at, version = text.partition("@")
    registry, slash, name = path.partition("/")
    if not slash or (at and not version) or not names_a_package(registry, name, version):
        raise UsageError(
            f"`{text}` is not a package", hint="write `registry/package` or `registry/package@version`"
        )
    return PackageRef(registry=registry, name=name, version=version)


def newest(packages: Iterable[LockedPackage]) -> dict[str, LockedPackage]:
    """Give the newest version of each package by full name, sorted by it."""
    ordered = sorted(packages, key=lambda each: (each.full_name, version_key(each.version)))
    return {each.full_name: each for each in ordered}
