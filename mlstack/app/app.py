"""The nouns of an app directory: app, its rules, registry, package, lock, component and environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from mlstack.app.declare import (
    FLAG,
    MAP,
    NAME,
    SHORT_NAME,
    TEXT,
    VERSION,
    WORD,
    key,
    list_of,
    record,
    records,
)
from mlstack.app.versions import check_range, is_range
from mlstack.errors import UsageError
from mlstack.names import names_a_package, version_key
from mlstack.objects.managed_fields import FieldPattern

if TYPE_CHECKING:
    from mlstack.app.document import FieldReader

API_VERSION = "mlstack.dev/v1"
DEFAULT_KUBERNETES_VERSION = "1.36"
ClusterScoped = Literal["allowed", "refused"]
Scalar = str | int | float | bool
Taker = Literal["ours", "theirs"]
Hooks = Literal["skip", "apply"]

_NAMESPACE = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
_ENVIRONMENT = "^[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?(/[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?)*$"
_PACKAGE = {"type": "string", "pattern": r"^[^/@\s]+/[^/@\s]+(@[^/@\s]+)?$"}
_RANGE = {
    **TEXT,
    "description": "A version, or a range: `^1.2`, `~1.2`, `1.x`, `>=1.0 <2`; any when left out.",
}
_REQUIREMENT = {
    "type": ["string", "object"],
    "pattern": _PACKAGE["pattern"],
    "required": ["name"],
    "additionalProperties": False,
    "properties": {"name": _PACKAGE, "version": _RANGE},
}
DIGEST = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
_LABEL_KEY = "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_OWN_LABELS = r"^(mlstack\.dev/.*|app\.kubernetes\.io/(managed-by|part-of))$"
_LABEL_VALUE = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
_LABELS = {
    "type": "object",
    "propertyNames": {"pattern": _LABEL_KEY},
    "patternProperties": {_OWN_LABELS: {"not": {}}},
    "additionalProperties": {"type": ["string", "null"], "maxLength": 63, "pattern": _LABEL_VALUE},
}
_ANNOTATIONS = {
    "type": "object",
    "propertyNames": {"pattern": _LABEL_KEY},
    "additionalProperties": {"type": ["string", "null"]},
}
_DURATION = {
    "type": ["string", "integer"],
    "pattern": "^([0-9.]+h)?([0-9.]+m)?([0-9.]+s)?$|^[0-9.]+$",
}

# --- rules of an app -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ConditionSign:
    """A condition that tells of a state."""

    condition: str
    status: str = "True"
    reason: str = ""  # empty for any


@dataclass(frozen=True, kw_only=True)
class FieldSign:
    """A field that tells of a state, by having one of these values."""

    path: FieldPattern
    values: tuple[Scalar, ...]


Sign = ConditionSign | FieldSign
_SCALAR = ["string", "number", "boolean"]
SIGN: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "description": "A condition, or a field with its value or values.",
    "properties": {
        "condition": {**WORD, "description": "Type of a condition in `status.conditions`."},
        "status": {
            "enum": ["True", "False", "Unknown", True, False],
            "description": "Status that the condition must have; `True` when left out.",
        },
        "reason": {**TEXT, "description": "Reason that the condition must have; any when left out."},
        "field": {
            **WORD,
            "description": "A field, as a diff writes it: `status.phase`, `status.workers[*].state`;"
            " one of several is enough.",
        },
        "value": {"type": _SCALAR, "description": "Value that the field must have."},
        "values": {
            "type": "array",
            "minItems": 1,
            "items": {"type": _SCALAR},
            "description": "Values of which the field must have one.",
        },
    },
}
"""How a file writes a sign."""
_SIGN = {"$ref": "#/$defs/sign"}
_SIGN_HINT = "write {condition: Ready} or {field: status.phase, value: Running}"
_STATUSES = ("True", "False", "Unknown")
_KIND = re.compile(r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*")


def _read_sign(rule: FieldReader, name: str) -> Sign | None:
    fields = rule.inner(name)
    if fields is None and name == "ready":
        rule.refuse(name, "is required: it says when an object works", hint=_SIGN_HINT)
    if fields is None:
        return None
    fields.only(*SIGN["properties"])
    has_condition, has_field = fields.has("condition"), fields.has("field")
    if has_condition == has_field:
        what = "has both `condition` and `field`" if has_field else "needs `condition` or `field`"
        fields.refuse((), what, hint=_SIGN_HINT)
    for other in ("value", "values") if has_condition else ("status", "reason"):
        if fields.has(other):
            owner = "condition" if has_condition else "field"
            fields.refuse(other, f"does not go with `{owner}`", hint=_SIGN_HINT)
    if has_condition:
        # YAML takes an unquoted True for a boolean, and everybody means the condition's status by it.
        status = str(fields.scalar("status")) if fields.has("status") else "True"
        if status not in _STATUSES:
            fields.refuse("status", f"must be one of {', '.join(_STATUSES)}, got `{status}`")
        reason = fields.text("reason", "")
        return ConditionSign(condition=fields.text("condition"), status=status, reason=reason)
    path = fields.pattern("field", "status.phase")
    if fields.has("value") == fields.has("values"):
        what = "needs `value` or `values`" if not fields.has("value") else "has both `value` and `values`"
        fields.refuse((), what, hint=_SIGN_HINT)
    values = (fields.scalar("value"),) if fields.has("value") else fields.scalars("values")
    if not values:
        fields.refuse("values", "must hold at least one value, got a list")
    return FieldSign(path=path, values=values)


def _read_kind(rule: FieldReader, name: str) -> str:
    kind = rule.text(name)
    if not _KIND.fullmatch(kind):
        hint = "write group and kind: example.com/Widget; core ones as: Pod"
        rule.refuse(name, f"is no kind: `{kind}`", hint=hint)
    return kind


def _read_rules(fields: FieldReader, name: str) -> tuple[ReadyRule, ...]:
    rules: dict[str, ReadyRule] = {}
    for entry in fields.each(name):
        rule = entry.record(ReadyRule)
        if rule.kind in rules:
            hint = "one rule a kind: remove one"
            entry.refuse("kind", f"has a rule already: `{rule.kind}`", hint=hint)
        rules[rule.kind] = rule
    return tuple(rules.values())


@dataclass(frozen=True, kw_only=True)
class ReadyRule:
    """Says when objects of one kind work, where no rule is known or another one is wanted."""

    kind: str = key(
        WORD,
        "Group and kind: `example.com/Widget`; kinds of the core group by the kind alone: `Pod`.",
        required=True,
        reader=_read_kind,
    )
    ready: Sign = key(_SIGN, "Tells that an object works.", required=True, reader=_read_sign)
    failed: Sign | None = key(
        _SIGN,
        "Tells that it will not work without a change; looked at first.",
        reader=_read_sign,
        default=None,
    )
    done: Sign | None = key(_SIGN, "Tells that its work has ended well.", reader=_read_sign, default=None)
    observed_generation: bool = key(
        FLAG,
        "Its controller writes `status.observedGeneration` (or one in the conditions named here): until that"
        " is the newest, the object is waited for. Where it stands it counts without this as well.",
        default=False,
    )


ReadyRules = Mapping[str, ReadyRule]
"""The rules of an app by kind."""


@dataclass(frozen=True, kw_only=True)
class ConflictRule:
    """Says who has a field that somebody else owns too, whatever the table of managers says."""

    path: FieldPattern = key(
        WORD,
        "A field and all below it, as a diff writes it: `spec.replicas`,"
        " `spec.template.spec.containers[*].resources`.",
        required=True,
        reader=lambda fields, name: fields.pattern(name, "spec.replicas"),
    )
    manager: str = key(
        WORD,
        "Field manager it speaks of; `*` stands for anything. All managers when left out.",
        default="*",
    )
    kinds: tuple[str, ...] = key(
        list_of(WORD), "Kinds of objects it holds for; all when left out.", default=()
    )
    take: Taker = key(
        {"enum": ["ours", "theirs"]},
        "`ours` takes the field from the other, `theirs` leaves it to them.",
        required=True,
        default="theirs",
    )

    def speaks_of(self, manager: str, path: Sequence[str]) -> bool:
        """Tell whether the rule decides about a field of a manager."""
        return fnmatchcase(manager, self.manager) and self.path.covers(path)


# --- registries, packages and the lock -----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RegistryRef:
    """A registry as `app.yaml` names it; protocols are `directory`, `git`, `helm` and `oci`."""

    name: str = key(SHORT_NAME, required=True)
    address: str = key(
        WORD,
        "A folder (relative to the app), a git URL, a GitHub or GitLab tree, `oci://HOST/PATH`, the address"
        " of a chart repository, or `bundled`.",
        required=True,
    )
    protocol: str = key(WORD, "How the address is read; found from the address when left out.", default="")


@dataclass(frozen=True, kw_only=True)
class SignaturePolicy:
    """Says that packages of a registry are let in only when a key has signed them."""

    registry: str = key(SHORT_NAME, "The app's name of the registry.", required=True)
    public_key: str = key(WORD, "The public key of cosign: a file of the app.", name="key", required=True)


@dataclass(frozen=True, kw_only=True)
class PackageRef:
    """A package requirement: `kubeflow/core`, `kubeflow/core@0.1.0` or a range of versions.

    Without a version it is for the newest at install.
    """

    registry: str
    name: str
    version: str = ""

    @property
    def full_name(self) -> str:
        """Give `registry/name`."""
        return f"{self.registry}/{self.name}"

    @property
    def is_exact(self) -> bool:
        """Tell whether it names one version, which stands beside others."""
        return bool(self.version) and not is_range(self.version)

    @property
    def entry(self) -> str | dict[str, str]:
        """Give what a file says for it."""
        if is_range(self.version):
            return {"name": self.full_name, "version": self.version}
        return str(self)

    def __str__(self) -> str:
        return f"{self.full_name}@{self.version}" if self.version else self.full_name


@dataclass(frozen=True, kw_only=True)
class Retired:
    """Names of packages and prototypes that a registry does not offer any more, or never will."""

    names: tuple[str, ...] = key({"type": "array", "minItems": 1, "items": NAME}, required=True)
    reason: str = key(WORD, "Why, as it follows `is retired: `.", required=True)
    instead: str = key(TEXT, "What to do now; left out when nothing takes their place.", default="")
    planned: bool = key(FLAG, "They are not offered yet; `reason` says what will bring them.", default=False)

    @property
    def state(self) -> str:
        """Give the word for what they are."""
        return "planned" if self.planned else "retired"


@dataclass(frozen=True, kw_only=True)
class LockedRegistry:
    """Where a registry was read from when a package of it was last installed."""

    name: str = key(SHORT_NAME, required=True)
    address: str = key(WORD, required=True)
    # What its index said of retired names, where asking it again would need a network.
    retired: tuple[Retired, ...] = records(
        Retired, "Names of packages and prototypes that are not offered any more.", default=()
    )


def _read_ranges(fields: FieldReader, name: str) -> dict[str, str]:
    ranges: dict[str, str] = {}
    for package, wanted in fields.map(name).items():
        try:
            ranges[package] = check_range(wanted)
        except ValueError as error:
            fields.refuse((name, package), str(error))
    return ranges


SIGNATURE = {"type": "string", "pattern": "^[A-Za-z0-9+/]+=*$"}


@dataclass(frozen=True, kw_only=True)
class LockedPackage:
    """One installed package: exact version and `sha256:…` of its content."""

    full_name: str = key(  # `registry/name`
        _PACKAGE, name="package", required=True, reader=lambda fields, name: fields.package(name).full_name
    )
    version: str = key(VERSION, required=True)
    digest: str = key(DIGEST, "Over the package folder's paths and bytes.", required=True)
    source: str = key(TEXT, "Address the package was fetched from.", default="")
    revision: str = key(TEXT, "Commit, or digest of an artifact, that it was read at.", default="")
    signature: str = key(SIGNATURE, "What cosign made of its name, version and digest.", default="")
    requires: Mapping[str, str] = key(
        {"type": "object", "additionalProperties": TEXT},
        "Packages that it requires, with the versions that fit.",
        reader=_read_ranges,
        default_factory=dict,
        hash=False,
    )
    # `*` for the app, else names of environments with requirements of their own
    environments: tuple[str, ...] = key(
        list_of(WORD),
        "Where the package's name without a version means this one: `*` for everywhere, names of environments"
        " that ask for another one than the app.",
        default=(),
    )
    files: Mapping[str, str] = key(
        {"type": "object", "additionalProperties": DIGEST},
        "Digest of each file, to name the one that was changed.",
        default_factory=dict,
        hash=False,
    )

    @property
    def registry(self) -> str:
        """Give the app's name of the registry it came from."""
        return self.full_name.partition("/")[0]

    @property
    def name(self) -> str:
        """Give its name in the registry."""
        return self.full_name.partition("/")[2]

    @property
    def ref(self) -> PackageRef:
        """Give the exact requirement that this package meets."""
        return PackageRef(registry=self.registry, name=self.name, version=self.version)

    @property
    def folder(self) -> str:
        """Give the package's folder in the app: `vendor/kubeflow/core@0.1.0`."""
        return f"vendor/{self.full_name}@{self.version}"


@dataclass(frozen=True, kw_only=True)
class LockedKustomization:
    """A kustomization of somebody else's, copied into `vendor/` with all that it refers to."""

    source: str = key(
        WORD, "As components name it: an address with its branch, tag or commit.", required=True
    )
    folder: str = key(WORD, "Where its copy stands, below the app.", required=True)
    root: str = key(TEXT, "The kustomization in that folder.", default="")
    revision: str = key(WORD, "The commit that was copied.", required=True)
    digest: str = key(DIGEST, "Over the paths and bytes of the copy.", required=True)


@dataclass(frozen=True, kw_only=True)
class Lock:
    """Exact versions and digests of the installed packages; written by mlstack alone."""

    registries: tuple[LockedRegistry, ...] = records(LockedRegistry, default=())
    packages: tuple[LockedPackage, ...] = records(LockedPackage, default=())
    kustomizations: tuple[LockedKustomization, ...] = records(LockedKustomization, default=())


def parse_package_ref(text: str) -> PackageRef:
    """Read `registry/package`, with `@` and a version, a range, a branch, tag, commit or digest if wanted.

    Raises:
        UsageError: the text has another shape.
    """
    path, at, version = text.partition("@")
    registry, slash, name = path.partition("/")
    hint = "write `registry/package`, `registry/package@1.2.0` or `registry/package@^1.2`"
    if slash and version and is_range(version):
        try:
            check_range(version)
        except ValueError as error:
            raise UsageError(f"`{text}` is not a package: {error}", hint=hint) from error
        plain = ""
    else:
        plain = version.removeprefix("sha256:")
    if not slash or (at and not version) or not names_a_package(registry, name, plain.replace("/", ".")):
        raise UsageError(f"`{text}` is not a package", hint=hint)
    return PackageRef(registry=registry, name=name, version=version)


def newest(packages: Iterable[LockedPackage]) -> dict[str, LockedPackage]:
    """Give the newest version of each package by full name, sorted by it."""
    ordered = sorted(packages, key=lambda package: (package.full_name, version_key(package.version)))
    return {package.full_name: package for package in ordered}


# --- the app, its components and environments ----------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A component that has another name now; what was applied under the old one is its own."""

    old: str = key(WORD, "Full name it had.", name="from", required=True)
    new: str = key(WORD, "Full name it has.", name="to", required=True)


@dataclass(frozen=True, kw_only=True)
class App:
    """An app directory: its registries, the packages it needs, and parameters for all components."""

    name: str = key(SHORT_NAME, "Becomes a label of every object.", required=True)
    registries: tuple[RegistryRef, ...] = records(RegistryRef, "Where packages come from.", default=())
    packages: tuple[PackageRef, ...] = key(
        list_of(_REQUIREMENT),
        "Requirements: `registry/package`, `registry/package@version`, or a map with a range of versions.",
        reader=lambda fields, name: fields.packages(name),
        default=(),
    )
    requires_mlstack: str = key(
        TEXT, "Versions of mlstack that this app works with: `>=0.1,<1`; any when left out.", default=""
    )
    verify: tuple[SignaturePolicy, ...] = records(
        SignaturePolicy, "Registries whose packages must be signed, with whose key.", default=()
    )
    params: Mapping[str, Any] = key(
        MAP, "For every component whose prototype declares the name.", default_factory=dict
    )
    labels: Mapping[str, str | None] = key(
        _LABELS, "Labels of every object that does not set them itself.", default_factory=dict
    )
    annotations: Mapping[str, str | None] = key(
        _ANNOTATIONS, "Annotations of every object that does not set them itself.", default_factory=dict
    )
    pod_labels: Mapping[str, str | None] = key(
        _LABELS,
        "Labels of every pod, in the templates of workloads and custom resources.",
        default_factory=dict,
    )
    pod_annotations: Mapping[str, str | None] = key(
        _ANNOTATIONS, "Annotations of every pod, as `podLabels`.", default_factory=dict
    )
    conflicts: tuple[ConflictRule, ...] = records(
        ConflictRule,
        "Who has fields that somebody else owns in the cluster too; the first rule that speaks decides.",
        default=(),
    )
    readiness: tuple[ReadyRule, ...] = records(
        ReadyRule,
        "When objects of kinds without a rule, or with another one than wanted, work; these rules come"
        " before the built-in ones. An object that is neither failed, done nor ready by its rule is waited"
        " for.",
        reader=_read_rules,
        default=(),
    )
    moved: tuple[Moved, ...] = records(
        Moved, "Components that were renamed, so that what was applied of them stays theirs.", default=()
    )

    def registry(self, name: str) -> RegistryRef | None:
        """Give the registry of a name, if the app knows it."""
        return next((ref for ref in self.registries if ref.name == name), None)


def _read_prototype_name(fields: FieldReader, name: str) -> str:
    if not fields.has("kustomize"):
        return fields.text(name)
    for other in (name, "params", "hooks"):
        if fields.has(other):
            fields.refuse(
                other, "does not go with `kustomize`", hint="patches change what a kustomization brings"
            )
    return ""


@dataclass(frozen=True, kw_only=True)
class Component:
    """A prototype used under the name of this file, with the parameters set for it."""

    name: str
    module: str = ""  # dotted folder below `components/`, empty at the root
    prototype: str = key(
        WORD,
        "`registry/package/prototype`, or a name that is unique among the installed packages.",
        reader=_read_prototype_name,
        default="",
    )
    kustomize: str = key(
        WORD,
        "A kustomization instead of a prototype: a folder (relative to the app), or an address with `@` and a"
        " branch, tag or commit, whose copy `mlstack import kustomize` makes.",
        default="",
    )
    params: Mapping[str, Any] = key(
        MAP, "Values by parameter name; null removes a value of a lower layer.", default_factory=dict
    )
    depends_on: tuple[str, ...] = key(
        list_of(WORD, uniqueItems=True),
        "Components and modules that have to work before the objects of this one are written.",
        default=(),
    )
    hooks: Hooks = key(
        {"enum": ["skip", "apply"]},
        "What becomes of a chart's hooks, which helm would run by itself: `apply` keeps those of an install,"
        " in the order of their weights.",
        default="skip",
    )
    timeout_s: float | None = key(
        _DURATION,
        "How long `apply` waits until its objects work: `90s`, `10m`, `1h`.",
        name="timeout",
        reader=lambda fields, name: fields.duration_s(name),
        default=None,
    )
    file: str  # below the app directory, with `/`

    @property
    def full_name(self) -> str:
        """Give `module.name`, the name used on the command line and in environments."""
        return f"{self.module}.{self.name}" if self.module else self.name


@dataclass(frozen=True, kw_only=True)
class ModuleParams:
    """Parameters for all components of this folder and the folders below it."""

    params: Mapping[str, Any] = key(
        MAP, "Values by parameter name; null removes a value of a lower layer.", default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class EnvironmentParams:
    """Parameter values of one environment."""

    globals: Mapping[str, Any] = key(
        MAP, "For every component whose prototype declares the name.", default_factory=dict
    )
    components: Mapping[str, Mapping[str, Any] | None] = key(
        {"type": "object", "additionalProperties": {"type": ["object", "null"]}},
        "By component name; `module.name` for components of modules.",
        default_factory=dict,
    )


@dataclass(frozen=True, kw_only=True)
class PatchTarget:
    """The objects of a component that a patch changes."""

    kind: str = key(WORD, "Kind of the objects.", required=True)
    api_version: str = key(TEXT, "Their group and version; any group when left out.", default="")
    name: str = key(TEXT, "Name of the one object; all of the kind when left out.", default="")
    namespace: str = key(TEXT, "Their namespace; any when left out.", default="")


_OPERATION = {
    "type": "object",
    "required": ["op", "path"],
    "properties": {
        "op": {"enum": ["add", "remove", "replace", "move", "copy", "test"]},
        "path": TEXT,
        "from": TEXT,
    },
}


@dataclass(frozen=True, kw_only=True)
class PatchFile:
    """A patch that says what it is, in `environments/ENV/patches/COMPONENT.yaml`."""

    target: PatchTarget = record(PatchTarget, "The objects to change.", default=None)
    type: Literal["merge", "strategic", "json"] = key(
        {"enum": ["merge", "strategic", "json"]},
        "`merge` is RFC 7396, in which lists replace; in a `strategic` one items of lists are told apart by"
        " the keys of the schema, and `$patch`, `$retainKeys`, `$setElementOrder/LIST` and"
        " `$deleteFromPrimitiveList/LIST` say more; `json` is a list of operations (RFC 6902).",
        default="merge",
    )
    patch: Any = key(
        {"type": ["object", "array"], "items": _OPERATION}, "Part of an object, or operations.", required=True
    )
    merge_keys: Mapping[str, str] = key(
        {"type": "object", "additionalProperties": WORD},
        "For a strategic patch: keys of lists whose schema names none, by the path of the list.",
        default_factory=dict,
    )


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A component that is a plain YAML or JSON file of Kubernetes objects."""

    name: str
    module: str = ""
    file: str
    depends_on: tuple[str, ...] = ()
    timeout_s: float | None = None

    @property
    def full_name(self) -> str:
        """Give `module.name`."""
        return f"{self.module}.{self.name}" if self.module else self.name


@dataclass(frozen=True, kw_only=True)
class Kustomization(Manifest):
    """A component whose objects kustomize builds."""

    source: str  # a folder relative to the app, or an address with its revision

    @property
    def is_remote(self) -> bool:
        """Tell whether it is somebody else's, of which the app has a copy."""
        return "://" in self.source or self.source.startswith(("git@", "github.com/"))


@dataclass(frozen=True, kw_only=True)
class ClusterIdentity:
    """What tells one cluster from another, whatever a context is called."""

    # UID of the namespace kube-system.
    uid: str | None = key(TEXT, "UID of the namespace kube-system.", default=None)
    # `sha256:…` of the server's CA bundle.
    ca: str | None = key(DIGEST, "Hash of the server's CA bundle.", default=None)
    # the address it was reached at; shown to people, never compared.
    server: str | None = key(TEXT, "The address it was reached at; for people only.", default=None)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A kubectl context and namespace that components are deployed to."""

    name: str  # folder below `environments/`; may be nested (`us-west/staging`)
    context: str = key(TEXT, "The kubectl context.", default="")
    namespace: str = key(_NAMESPACE, "Where objects go that name no namespace.", default="default")
    kubernetes_version: str = key(
        {"type": "string", "pattern": r"^1\.[0-9]{1,3}$"},
        'The version that offline validation takes, such as "1.36".',
        default=DEFAULT_KUBERNETES_VERSION,
    )
    extends: str | None = key(
        {"type": "string", "pattern": _ENVIRONMENT},
        "The environment whose values lie below this one's.",
        default=None,
    )
    targets: tuple[str, ...] = key(
        list_of(TEXT), "Components and modules to deploy; all when left out or empty.", default=()
    )
    packages: tuple[PackageRef, ...] = key(
        list_of(_REQUIREMENT),
        "Requirements of this environment, which take the place of the app's for the same package.",
        reader=lambda fields, name: fields.packages(name),
        default=(),
    )
    protected: bool = key(
        FLAG, "Every change wants the environment's name typed, or `--yes-i-mean ENV`.", default=False
    )
    allowed_namespaces: tuple[str, ...] = key(
        list_of(_NAMESPACE),
        "The only namespaces it may write to, besides its own; any when left out or empty.",
        default=(),
    )
    cluster_scoped: ClusterScoped = key(
        {"enum": ["allowed", "refused"]},
        "Whether it may bring objects outside namespaces, such as CRDs and ClusterRoles.",
        default="allowed",
    )
    labels: Mapping[str, str | None] = key(
        _LABELS, "As in app.yaml, and over what stands there; null takes a label away.", default_factory=dict
    )
    annotations: Mapping[str, str | None] = key(
        _ANNOTATIONS, "As in app.yaml, and over what stands there.", default_factory=dict
    )
    pod_labels: Mapping[str, str | None] = key(
        _LABELS, "As in app.yaml, and over what stands there.", default_factory=dict
    )
    pod_annotations: Mapping[str, str | None] = key(
        _ANNOTATIONS, "As in app.yaml, and over what stands there.", default_factory=dict
    )
    wait_for_load_balancer: bool = key(
        FLAG, "A Service of type LoadBalancer is ready only when it has an address.", default=False
    )
    expires: str = key(
        {"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"},
        "When it is over, in UTC; `delete --expired` takes it out of its cluster then.",
        default="",
    )
    cluster: ClusterIdentity | None = record(
        ClusterIdentity, "The cluster's identity, pinned at first contact.", default=None
    )
    file: str = ""  # below the app directory, with `/`


@dataclass(frozen=True, kw_only=True)
class ApprovedDifference:
    """A difference between environments that is meant."""

    subject: str = key(
        WORD, "As `env matrix` names it: `cnn num_gpus`; `*` stands for anything.", required=True
    )
    reason: str = key(TEXT, "Why.", default="")


@dataclass(frozen=True, kw_only=True)
class ApprovedDifferences:
    """The differences between environments that are meant; `env matrix` finds the others."""

    approved: tuple[ApprovedDifference, ...] = records(ApprovedDifference, default=())

    def reason(self, subject: str) -> str | None:
        """Say why a difference is meant; None if it is not."""
        fitting = (entry.reason for entry in self.approved if fnmatchcase(subject, entry.subject))
        return next(fitting, None)


_BY_NAME = {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What a cluster's provider asks for what an environment takes."""

    currency: str = key(WORD, "Of all prices, as people write it: `USD`.", default="")
    requests: Mapping[str, float] = key(
        _BY_NAME, "Of a core, a GiB or a piece for an hour, by resource.", default_factory=dict
    )
    gpus: Mapping[str, float] = key(
        _BY_NAME, "Of a GPU for an hour, by product; `*` is any other.", default_factory=dict
    )
    storage: Mapping[str, float] = key(
        _BY_NAME, "Of a GiB for a month, by storage class; `*` is any other.", default_factory=dict
    )
    load_balancers: float | None = key({"type": "number", "minimum": 0}, "Of one, a month.", default=None)


@dataclass(frozen=True, kw_only=True)
class PersonalEnvironment:
    """What one person has otherwise about an environment."""

    name: str = key({"type": "string", "pattern": _ENVIRONMENT}, required=True)
    context: str = key(TEXT, "Another kubectl context.", default="")
    namespace: str = key(_NAMESPACE, "Another namespace.", default="")
    globals: Mapping[str, Any] = key(
        MAP, "For every component whose prototype declares the name.", default_factory=dict
    )
    components: Mapping[str, Mapping[str, Any] | None] = key(
        {"type": "object", "additionalProperties": {"type": ["object", "null"]}},
        "Values by component name.",
        default_factory=dict,
    )
    cluster: ClusterIdentity | None = record(
        ClusterIdentity, "Identity of the cluster behind the other context.", default=None
    )


@dataclass(frozen=True, kw_only=True)
class PersonalRegistry:
    """Where one person reads a registry from, in place of its address."""

    name: str = key(SHORT_NAME, required=True)
    address: str = key(WORD, "As in app.yaml; what is locked stays what it is.", required=True)


@dataclass(frozen=True, kw_only=True)
class PersonalOverrides:
    """What one person has otherwise than the app's files say; git ignores it."""

    environments: tuple[PersonalEnvironment, ...] = records(PersonalEnvironment, default=())
    registries: tuple[PersonalRegistry, ...] = records(PersonalRegistry, default=())

    def environment(self, name: str) -> PersonalEnvironment | None:
        """Give what is otherwise about an environment."""
        return next((own for own in self.environments if own.name == name), None)
