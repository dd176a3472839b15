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
    """A condition that tells of a state.

    Attributes:
        condition: its type.
        status: the status it must have.
        reason: the reason it must have, empty for any.
    """

    condition: str
    status: str = "True"
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class FieldSign:
    """A field that tells of a state.

    Attributes:
        path: where it stands in the object.
        values: it must have one of these.
    """

    path: FieldPattern
    values: tuple[Scalar, ...]


Sign = ConditionSign | FieldSign


@dataclass(frozen=True, kw_only=True)
class ReadyRule:
    """Says when objects of one kind work.

    Attributes:
        kind: `example.com/Widget`, or `Pod` for the core group.
        ready: tells that an object works.
        failed: tells that it will not work without a change.
        done: tells that its work has ended well.
        observed_generation: its controller says which generation it has seen; until that is the newest,
            nothing else counts.
    """

    kind: str
    ready: Sign
    failed: Sign | None = None
    done: Sign | None = None
    observed_generation: bool = False


ReadyRules = Mapping[str, ReadyRule]
"""The rules of an app by kind."""


# --- What an app says about fields that somebody else owns in its cluster as well ---

Taker = Literal["ours", "theirs"]


@dataclass(frozen=True, kw_only=True)
class ConflictRule:
    """Says who has a field, whatever the table of managers says.

    Attributes:
        path: the field, and all below it.
        manager: name of the manager it speaks of; `*` stands for anything.
        kinds: kinds of objects it holds for, all if none.
        take: `ours` takes the field, `theirs` leaves it.
    """

    path: FieldPattern
    manager: str = "*"
    kinds: tuple[str, ...] = ()
    take: Taker = "theirs"

    def speaks_of(self, manager: str, path: Sequence[str]) -> bool:
        """Tell whether the rule decides about a field of a manager."""
        return fnmatchcase(manager, self.manager) and self.path.covers(path)


# --- The nouns of an app directory: app, registry, package, component, environment, and the lock ---

API_VERSION = "mlstack.dev/v1"
DEFAULT_KUBERNETES_VERSION = "1.36"

ClusterScoped = Literal["allowed", "refused"]


@dataclass(frozen=True, kw_only=True)
class RegistryRef:
    """A registry as `app.yaml` names it.

    Args:
        name: the app's own name for it.
        address: folder (relative to the app), git URL, GitHub tree address, or `bundled`.
        protocol: how the address is read (`directory`, `git`).
    """

    name: str
    address: str
    protocol: str


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
    """Names of packages and prototypes that a registry does not offer any more, or never will.

    Args:
        names: which names; people know them from elsewhere.
        reason: why they are not there.
        instead: what to do now; empty if the registry has nothing in their place.
    """

    names: tuple[str, ...]
    reason: str
    instead: str = ""


@dataclass(frozen=True, kw_only=True)
class LockedRegistry:
    """Where a registry was read from when a package of it was last installed.

    Args:
        name: the app's name for it.
        address: as in `app.yaml`.
        revision: the commit of a git registry, else empty.
        retired: what its index said of retired names, where asking it again would need a network.
    """

    name: str
    address: str
    revision: str = ""
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
    """What `app.yaml` holds.

    Args:
        name: becomes a label of every object.
        registries: where packages come from.
        packages: which are needed.
        params: for every component whose prototype declares the name.
        conflicts: who has fields that others own in a cluster too; the first rule that speaks decides.
        readiness: when objects of some kinds work; they come before the rules that are built in.
    """

    name: str
    registries: tuple[RegistryRef, ...] = ()
    packages: tuple[PackageRef, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    conflicts: tuple[ConflictRule, ...] = ()
    readiness: tuple[ReadyRule, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Component:
    """A prototype used under a name, with the parameters that were set for it.

    Args:
        name: the file's name without suffix.
        module: dotted folder below `components/`, empty at the root.
        prototype: as written: full name, unique suffix or alias.
        params: the values set in the component's own file.
        depends_on: components and modules that have to work before its objects are written.
        timeout_s: how long to wait until its objects work, None for as long as for others.
        file: its place below the app directory, with `/`.
    """

    name: str
    module: str = ""
    prototype: str
    params: Mapping[str, Any] = field(default_factory=dict)
    depends_on: tuple[str, ...] = ()
    timeout_s: float | None = None
    file: str

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
    """What tells one cluster from another, whatever a context is called.

    Args:
        uid: UID of the namespace kube-system.
        ca: `sha256:…` of the server's CA bundle.
        server: the address it was reached at; shown to people, never compared.
    """

    uid: str | None = None
    ca: str | None = None
    server: str | None = None


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A kubectl context and namespace that components are deployed to.

    Args:
        name: folder below `environments/`; may be nested (`us-west/staging`).
        context: the kubectl context.
        namespace: where namespaced objects go when they name none.
        kubernetes_version: the minor version offline validation takes (`1.36`).
        extends: the environment whose values lie below this one's.
        targets: components and modules to deploy; empty means all.
        protected: every change wants the environment's name typed.
        allowed_namespaces: the only namespaces it may write to, its own among them; empty means any.
        cluster_scoped: `refused` if it may bring no objects outside namespaces.
        wait_for_load_balancer: a Service of type LoadBalancer is ready only with an address.
        cluster: identity pinned at first contact.
        file: its place below the app directory, with `/`.
    """

    name: str
    context: str = ""
    namespace: str = "default"
    kubernetes_version: str = DEFAULT_KUBERNETES_VERSION
    extends: str | None = None
    targets: tuple[str, ...] = ()
    protected: bool = False
    allowed_namespaces: tuple[str, ...] = ()
    cluster_scoped: ClusterScoped = "allowed"
    wait_for_load_balancer: bool = False
    cluster: ClusterIdentity | None = None
    file: str = ""


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
