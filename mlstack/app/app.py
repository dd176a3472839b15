"""The nouns of an app directory: app, its rules, registry, package, lock, component and environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from mlstack.app.document import (
    ANNOTATIONS,
    FLAG,
    LABELS,
    MAP,
    NAME,
    REQUIREMENT,
    SHORT_NAME,
    TEXT,
    WORD,
    FieldReader,
    key,
    list_of,
    map_of,
    record,
    records,
)
from mlstack.dataclass import dataclass
from mlstack.errors import UsageError
from mlstack.names import check_range, is_range, names_a_package
from mlstack.yaml.read import KeyPath

if TYPE_CHECKING:
    from mlstack.objects.managed_fields import FieldPattern

Taker = Literal["ours", "theirs"]
Hooks = Literal["skip", "apply"]

_DURATION = {"type": ["string", "integer"], "pattern": "^([0-9.]+h)?([0-9.]+m)?([0-9.]+s)?$|^[0-9.]+$"}

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
    values: tuple[str | int | float | bool, ...]


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
_KIND = r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*"


def _read_sign(rule: FieldReader, name: str) -> Sign | None:
    fields = rule.inner(name)
    if fields is None:
        return None
    has_condition, has_field = fields.has("condition"), fields.has("field")
    if has_condition == has_field:
        what = "has both `condition` and `field`" if has_field else "needs `condition` or `field`"
        fields.refuse((), what, hint=_SIGN_HINT)
    owner, others = ("condition", ("value", "values")) if has_condition else ("field", ("status", "reason"))
    for other in filter(fields.has, others):
        fields.refuse(other, f"does not go with `{owner}`", hint=_SIGN_HINT)
    if has_condition:
        # YAML takes an unquoted True for a boolean, and everybody means the condition's status by it.
        status, reason = str(fields.value("status", True)), fields.text("reason", "")
        return ConditionSign(condition=fields.text("condition"), status=status, reason=reason)
    path = fields.pattern("field", "status.phase")
    if fields.has("value") == fields.has("values"):
        what = "needs `value` or `values`" if not fields.has("value") else "has both `value` and `values`"
        fields.refuse((), what, hint=_SIGN_HINT)
    return FieldSign(path=path, values=tuple(fields.value("values", [fields.value("value")])))


def _read_kind(rule: FieldReader, name: str) -> str:
    kind = rule.text(name)
    if not re.fullmatch(_KIND, kind):
        hint = "write group and kind: example.com/Widget; core ones as: Pod"
        rule.refuse(name, f"is no kind: `{kind}`", hint=hint)
    return kind


def _read_rules(fields: FieldReader, name: str) -> tuple[ReadyRule, ...]:
    rules: dict[str, ReadyRule] = {}
    for entry in fields.each(name):
        rule = entry.record(ReadyRule)
        if rule.kind in rules:
            entry.refuse("kind", f"has a rule already: `{rule.kind}`", hint="one rule a kind: remove one")
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
        WORD, "Field manager it speaks of; `*` stands for anything. All managers when left out.", default="*"
    )
    kinds: tuple[str, ...] = key(list_of(WORD), "Kinds of objects it holds for; all when left out.")
    take: Taker = key(
        {"enum": ["ours", "theirs"]},
        "`ours` takes the field from the other, `theirs` leaves it to them.",
        required=True,
        default="theirs",
    )

    def speaks_of(self, manager: str, path: Sequence[str]) -> bool:
        """Tell whether the rule decides about a field of a manager."""
        return fnmatchcase(manager, self.manager) and self.path.covers(path)


_POLICY_HINT = "key: cosign.pub; or identity: ada@example.com and issuer: https://accounts.google.com"

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
    protocol: str = key(WORD, "How the address is read; found from the address when left out.")


@dataclass(frozen=True, kw_only=True)
class SignaturePolicy:
    """Says that packages of a registry are let in only when a key, or somebody known, has signed them."""

    registry: str = key(SHORT_NAME, "The app's name of the registry.", required=True)
    public_key: str = key(
        WORD,
        "The public key of cosign: a file of the app, or what cosign takes in its place:"
        " `awskms://…`, `k8s://NAMESPACE/SECRET`.",
        name="key",
    )
    identity: str = key(
        WORD, "Who signs without a key: the mail address or workflow in the certificate; needs `issuer`."
    )
    issuer: str = key(WORD, "Who vouches for `identity`: the address of its OpenID provider.")
    trusted_root: str = key(
        WORD,
        "Authorities that certify identities, in place of Sigstore's own: a file of the app that"
        " `cosign trusted-root create` writes. With it nothing is asked of a network.",
    )


def _read_policies(fields: FieldReader, name: str) -> tuple[SignaturePolicy, ...]:
    policies = []
    for entry in fields.each(name):
        policy = entry.record(SignaturePolicy)
        keyless = (policy.identity, policy.issuer)
        if any((*keyless, policy.trusted_root)) if policy.public_key else not all(keyless):
            entry.refuse((), "needs either `key`, or `identity` and `issuer`", hint=_POLICY_HINT)
        policies.append(policy)
    return tuple(policies)


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
    instead: str = key(TEXT, "What to do now; left out when nothing takes their place.")
    planned: bool = key(FLAG, "They are not offered yet; `reason` says what will bring them.")

    @property
    def state(self) -> str:
        """Give the word for what they are."""
        return "planned" if self.planned else "retired"


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


def read_package(fields: FieldReader, name: str) -> PackageRef:
    """Read a package reference such as `kubeflow/core@0.1.0`."""
    return _parsed(fields, (name,), fields.text(name))


def read_packages(fields: FieldReader, name: str) -> tuple[PackageRef, ...]:
    """Read a list of requirements: texts such as `kubeflow/core@0.1.0`, or maps of name and version."""
    packages = []
    for number, (text, entry) in enumerate(fields.named(name)):
        if entry is None:
            packages.append(_parsed(fields, (name, number), text))
        else:
            version = entry.text("version", "")
            packages.append(_parsed(entry, ("name",), f"{text}@{version}".removesuffix("@")))
    return tuple(packages)


def _parsed(fields: FieldReader, path: KeyPath, text: str) -> PackageRef:
    try:
        return parse_package_ref(text)
    except UsageError as error:
        fields.refuse(path, f"is no package: `{text}`", hint=error.hint)


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
    registries: tuple[RegistryRef, ...] = records(RegistryRef, "Where packages come from.")
    packages: tuple[PackageRef, ...] = key(
        list_of(REQUIREMENT),
        "Requirements: `registry/package`, `registry/package@version`, or a map with a range of versions.",
        reader=read_packages,
    )
    requires_mlstack: str = key(
        TEXT, "Versions of mlstack that this app works with: `>=0.1,<1`; any when left out."
    )
    verify: tuple[SignaturePolicy, ...] = records(
        SignaturePolicy, "Registries whose packages must be signed, and by whom.", reader=_read_policies
    )
    params: Mapping[str, Any] = key(MAP, "For every component whose prototype declares the name.")
    labels: Mapping[str, str | None] = key(LABELS, "Labels of every object that does not set them itself.")
    annotations: Mapping[str, str | None] = key(
        ANNOTATIONS, "Annotations of every object that does not set them itself."
    )
    pod_labels: Mapping[str, str | None] = key(
        LABELS, "Labels of every pod, in the templates of workloads and custom resources."
    )
    pod_annotations: Mapping[str, str | None] = key(ANNOTATIONS, "Annotations of every pod, as `podLabels`.")
    conflicts: tuple[ConflictRule, ...] = records(
        ConflictRule,
        "Who has fields that somebody else owns in the cluster too; the first rule that speaks decides.",
    )
    readiness: tuple[ReadyRule, ...] = records(
        ReadyRule,
        "When objects of kinds without a rule, or with another one than wanted, work; these rules come"
        " before the built-in ones. An object that is neither failed, done nor ready by its rule is waited"
        " for.",
        reader=_read_rules,
    )
    moved: tuple[Moved, ...] = records(
        Moved, "Components that were renamed, so that what was applied of them stays theirs."
    )

    def registry(self, name: str) -> RegistryRef | None:
        """Give the registry of a name, if the app knows it."""
        return next((ref for ref in self.registries if ref.name == name), None)


def _read_prototype_name(fields: FieldReader, name: str) -> str:
    if not fields.has("kustomize"):
        return fields.text(name)
    for other in filter(fields.has, (name, "params", "hooks")):
        hint = "patches change what a kustomization brings"
        fields.refuse(other, "does not go with `kustomize`", hint=hint)
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
    )
    kustomize: str = key(
        WORD,
        "A kustomization instead of a prototype: a folder (relative to the app), or an address with `@` and a"
        " branch, tag or commit, whose copy `mlstack import kustomize` makes.",
    )
    params: Mapping[str, Any] = key(MAP, "Values by parameter name; null removes a value of a lower layer.")
    depends_on: tuple[str, ...] = key(
        list_of(WORD, uniqueItems=True),
        "Components and modules that have to work before the objects of this one are written.",
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

    params: Mapping[str, Any] = key(MAP, "Values by parameter name; null removes a value of a lower layer.")


@dataclass(frozen=True, kw_only=True)
class PatchTarget:
    """The objects of a component that a patch changes."""

    kind: str = key(WORD, "Kind of the objects.", required=True)
    api_version: str = key(TEXT, "Their group and version; any group when left out.")
    name: str = key(TEXT, "Name of the one object; all of the kind when left out.")
    namespace: str = key(TEXT, "Their namespace; any when left out.")


_VERB = {"enum": ["add", "remove", "replace", "move", "copy", "test"]}
_OPERATION = {
    "type": "object",
    "required": ["op", "path"],
    "properties": {"op": _VERB, "path": TEXT, "from": TEXT},
}


@dataclass(frozen=True, kw_only=True)
class PatchFile:
    """A patch that says what it is, in `environments/ENV/patches/COMPONENT.yaml`."""

    target: PatchTarget = record(PatchTarget, "The objects to change.")
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
        map_of(WORD), "For a strategic patch: keys of lists whose schema names none, by the path of the list."
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
class StackComponent:
    """One component of a stack."""

    name: str = key(NAME, required=True)
    prototype: str = key(WORD, "A prototype of the bundled registry, as `package/prototype`.", required=True)
    example: str = key(TEXT, "The example of the prototype that it starts from.")
    params: Mapping[str, Any] = key(MAP)
    environments: Mapping[str, Mapping[str, Any]] = key(
        map_of(MAP), "Parameters in one environment alone, by its name."
    )


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Components and environments that belong together, for `mlstack init NAME --stack STACK`."""

    name: str = key(SHORT_NAME, required=True)
    summary: str = key(WORD, required=True)
    environments: tuple[str, ...] = key(list_of(NAME), "Presets of environments.", required=True)
    components: tuple[StackComponent, ...] = records(StackComponent, minItems=1, required=True)
