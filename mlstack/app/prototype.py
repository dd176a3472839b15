"""Packages, their prototypes, the parameters that a prototype declares, and where secret ones have values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Literal

from mlstack.app.document import (
    MAP,
    SHORT_NAME,
    TEXT,
    VERSION,
    WORD,
    FieldReader,
    key,
    list_of,
    map_of,
    records,
    schema_types,
)
from mlstack.dataclass import dataclass
from mlstack.names import check_range, names_a_package
from mlstack.objects.masking import MASK
from mlstack.yaml import write


@dataclass(frozen=True, kw_only=True)
class Param:
    """One parameter of a prototype."""

    name: str  # canonical spelling, the one that is shown
    # JSON Schema of the value; `x-merge: append` in it lets higher layers add to a list
    schema: Mapping[str, Any]
    default: Any = None  # value when nothing sets it; meaningful with `has_default`
    has_default: bool = False
    required: bool = False
    unit: str = ""  # what a number counts (`GPUs`, `seconds`), for messages and help
    description: str = ""
    aliases: tuple[str, ...] = ()  # old spellings that mean the same
    secret: bool = False  # its value must not be shown
    deprecated: str | None = None  # why, and what to use instead
    # also takes one string, split at commas (`csv`) or as `k=v,k2=v2` (`kv`)
    format: Literal["csv", "kv"] | None = None
    # old spellings of values, mapped to what they mean now
    value_aliases: Mapping[str, Any] = field(default_factory=dict)
    examples: tuple[Any, ...] = ()  # values to show in help

    @property
    def types(self) -> frozenset[str]:
        """Give the JSON types the schema allows; empty when it does not say."""
        return schema_types(self.schema)


def mask_value(value: Any, param: Param | None) -> Any:
    """Give the value; of a secret parameter that is set where its value stands, or the mask."""
    return shown_secret(value) if param is not None and param.secret and value is not None else value


# --- values of secret parameters: in environment variables, and in files that SOPS encrypted ---
# The files of an app say where; a value is read when objects are rendered, and stands nowhere on disk.

FROM_ENV = "fromEnv"
SOPS = "sops"
"""The key under which SOPS keeps what it needs to decrypt a file."""


@dataclass(frozen=True)
class SecretRef:
    """Where the value of a secret parameter stands."""

    variable: str = ""  # an environment variable, or
    file: str = ""  # a file of the app that SOPS has encrypted, and
    path: tuple[str | int, ...] = ()  # the place in it

    @property
    def shown(self) -> Any:
        """Give what people see: the name of a variable is no secret."""
        return {FROM_ENV: self.variable} if self.variable else MASK


def map_references(value: Any, change: Callable[[SecretRef], Any]) -> Any:
    """Give a value with something else in the place of each reference."""
    if isinstance(value, SecretRef):
        return change(value)
    if isinstance(value, Mapping):
        is_reference = value.keys() == {FROM_ENV} and isinstance(value[FROM_ENV], str)
        if is_reference and value[FROM_ENV]:
            return change(SecretRef(variable=value[FROM_ENV]))
        return type(value)({key: map_references(inner, change) for key, inner in value.items()})  # type: ignore[call-arg]
    return [map_references(inner, change) for inner in value] if isinstance(value, list) else value


def with_references(value: Any) -> Any:
    """Give the value of a secret parameter with references for what names an environment variable."""
    return map_references(value, lambda reference: reference)


def shown_secret(value: Any) -> Any:
    """Give what people may see of the value of a secret parameter: where it stands, else the mask."""
    return value.shown if isinstance(value := with_references(value), SecretRef) else MASK


def secret_literals(value: Any) -> Any:
    """Give a value without its references, for those who must know what is not to be printed."""
    return map_references(value, lambda reference: None)


def reference_paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Give the paths of the references in a value."""
    if isinstance(value, SecretRef):
        yield path
    items = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    )
    for step, inner in items:
        if inner.__class__ is not str:  # as most values are
            yield from reference_paths(inner, (*path, step))


def encrypted_values(value: Any, file: str, path: tuple[str | int, ...] = ()) -> Any:
    """Give what a file that SOPS has encrypted says, with a reference in the place of each value."""
    if isinstance(value, Mapping):
        return {name: encrypted_values(inner, file, (*path, name)) for name, inner in value.items()}
    if isinstance(value, list):
        return [encrypted_values(inner, file, (*path, index)) for index, inner in enumerate(value)]
    return None if value is None else SecretRef(file=file, path=path)


# --- packages and prototypes, as their files say them ---


@dataclass(frozen=True, kw_only=True)
class Example:
    """One worked example of a prototype: documentation, golden input and smoke test."""

    name: str
    summary: str = key(TEXT)
    params: Mapping[str, Any] = key(
        MAP,
        "Values by parameter name; null removes a value of a lower layer.",
        required=True,
        default_factory=dict,
    )
    namespace: str = key(TEXT)
    environment: str = key(TEXT)


@dataclass(frozen=True, kw_only=True)
class Alias:
    """Another name of a prototype, and what it is under that name."""

    name: str = key(WORD, required=True)
    params: Mapping[str, Any] = key(MAP, "Parameters that differ from the defaults under this name.")
    renames: Mapping[str, str | None] = key(
        map_of({"type": ["string", "null"]}),
        "What parameters were called under this name, and are now; null: they have no effect any more.",
    )


_KIND = {"type": "string", "pattern": r"^([^/\s]+/)?[^/\s]+/[A-Z][A-Za-z0-9]*$"}


@dataclass(frozen=True, kw_only=True)
class Need:
    """A kind that must be in the cluster where a component renders an object of it, and what brings it."""

    kind: str = key(_KIND, "`apiVersion` and kind: `kubeflow.org/v1/TFJob`.", required=True)
    brings: str = key(TEXT, "The prototype of the same registry that brings it.")
    params: Mapping[str, Any] = key(MAP, "Parameters with which that prototype brings it.", name="with")
    install: str = key(TEXT, "Upstream's command that installs it, where no prototype does.", name="or")


_PARAMETER = {
    "type": ["object", "boolean"],
    "properties": {
        "unit": TEXT,
        "description": TEXT,
        "aliases": {**list_of(TEXT), "description": "Old spellings."},
        "x-secret": {"type": "boolean"},
        "x-image": {
            "enum": [True, False, "end"],
            "description": "Whether it is a container image, or the end of one.",
        },
        "x-whole-images": {
            **TEXT,
            "description": "Parameter that takes whole images in place of this list of the ends of some.",
        },
        "x-deprecated": {**TEXT, "description": "Why, and what to use instead."},
        "x-format": {"enum": ["csv", "kv"]},
        "x-merge": {"enum": ["replace", "append"]},
        "x-value-aliases": {**MAP, "description": "Old spellings of values."},
        "examples": {"type": "array"},
    },
}
_PARAMETERS = {
    "type": "object",
    "description": "JSON Schema of the parameter set.",
    "properties": {"type": {"const": "object"}, "required": list_of(TEXT), "properties": map_of(_PARAMETER)},
}


def _read_aliases(fields: FieldReader, name: str) -> dict[str, Alias]:
    named = fields.named(name)
    return {alias: entry.record(Alias) if entry else Alias(name=alias) for alias, entry in named}


@dataclass(frozen=True, kw_only=True)
class PrototypeFile:
    """A template with declared parameters."""

    name: str = key(SHORT_NAME, required=True)
    summary: str = key(WORD, required=True)
    description: str = key(TEXT)
    aliases: Mapping[str, Alias] = records(
        Alias,
        "Other names of the prototype.",
        items={"type": ["string", "object"]},
        reader=_read_aliases,
        default_factory=dict,
    )
    blocks: tuple[str, ...] = key(
        list_of({"type": "string", "pattern": r"^[^/\s]+/[^/\s]+$"}), "Parameter blocks, as `package/block`."
    )
    parameters: Mapping[str, Any] = key(_PARAMETERS, required=True)
    needs: tuple[Need, ...] = records(Need, "Kinds that must be in the cluster.")
    checked_with: Mapping[str, str] = key(
        map_of(TEXT), "Operators and their versions that it was tried with."
    )
    notes: str = key(TEXT, "Told after `mlstack generate`.")


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A Helm chart that stands where a prototype's templates are."""

    files: Mapping[PurePosixPath, bytes]
    folder: str  # for messages: `vendor/bitnami/redis@20.0.0`


@dataclass(frozen=True, kw_only=True)
class Prototype:
    """A template with declared parameters."""

    name: str  # short name (`tf-cnn`)
    package: str  # the package's name (`tf-job`)
    registry: str  # the app's name of the registry the package came from
    version: str = ""  # the package's version
    summary: str = ""
    description: str = ""
    aliases: tuple[str, ...] = ()  # other names of the prototype
    # what it is under some of them: alias → parameters that differ from the defaults
    alias_params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # alias → what parameters were called under it → their names now, None for those without effect
    alias_renames: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    # by canonical name, in the order they are declared
    params: Mapping[str, Param] = field(default_factory=dict)
    # JSON Schema of the whole parameter set, references inlined
    schema: Mapping[str, Any] = field(default_factory=dict)
    # text by name; libraries of the package and of those it requires included
    templates: Mapping[str, str] = field(default_factory=dict)
    # template name → file below the app directory or package, for messages
    sources: Mapping[str, str] = field(default_factory=dict)
    # further text files by name, for `file("…")` in templates
    files: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, Example] = field(default_factory=dict)  # by name
    needs: tuple[Need, ...] = ()
    checked_with: Mapping[str, str] = field(default_factory=dict)  # operator → version
    notes: str = ""  # what to tell after `generate`
    chart: Chart | None = None  # rendered by helm instead of `templates`; its parameters are the values
    digest: str = ""  # stands for all content it was read from; empty when it was not read from a package

    @property
    def full_name(self) -> str:
        """Give `registry/package/name`, as component files write it."""
        return f"{self.registry}/{self.package}/{self.name}"

    @property
    def package_version(self) -> str:
        """Give `registry/package@version`, which it comes from."""
        return f"{self.registry}/{self.package}@{self.version}"

    @property
    def is_open(self) -> bool:
        """Tell whether it takes parameters that it does not declare, as charts do."""
        return self.chart is not None and self.schema.get("additionalProperties") is not False

    def param(self, name: str) -> Param:
        """Give what is declared under a canonical name; of an open prototype, anything under any other."""
        return self.params.get(name) or Param(name=name, schema={})

    def secret_values(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Give those values that belong to secret parameters; what stands elsewhere is not known."""
        secret = (name for name, param in self.params.items() if param.secret and name in values)
        return tuple(secret_literals(values[name]) for name in secret)

    def has_secrets(self, values: Mapping[str, Any]) -> bool:
        """Tell whether a secret parameter is set."""
        return any(param.secret and values.get(name) is not None for name, param in self.params.items())

    def alias(self, name: str) -> str | None:
        """Give the alias that a name stands for, as typed or written; None for any other name."""
        short = name.rpartition("/")[2].removeprefix("io.ksonnet.pkg.")
        return short if short in self.aliases and short != self.name else None

    def called(self, name: str) -> Prototype:
        """Give it as it is under a name: under an alias, what parameters were called there means them.

        What has no effect any more is taken too, and deprecated.
        """
        alias = self.alias(name) or ""
        renames = self.alias_renames.get(alias)
        if not renames:
            return self
        params = {}
        for own, param in self.params.items():
            others = (alias for alias in param.aliases if alias not in renames)
            params[own] = replace(param, aliases=(*others, *_old_names(renames, own)))
        idle = {old: Param(name=old, schema={}, deprecated=NO_EFFECT) for old in _old_names(renames, None)}
        properties = {**self.schema.get("properties", {}), **{old: {} for old in idle}}
        schema, digest = (
            {**self.schema, "properties": properties},
            self.digest and f"{self.digest} as {alias}",
        )
        return replace(self, params={**idle, **params}, schema=schema, digest=digest)

    def current_names(self, name: str) -> set[str | None]:
        """Give what a parameter of its old names is called now; None is among them where it has no effect."""
        return {renames[name] for renames in self.alias_renames.values() if name in renames}

    def alias_note(self, name: str) -> str:
        """Tell which prototype an alias leads to, and what it is under that name; empty for other names."""
        alias = self.alias(name)
        if alias is None:
            return ""
        params = self.alias_params.get(alias, {})
        settings = " and ".join(f"`{param}: {write.to_flow(value)}`" for param, value in params.items())
        return f"`{alias}` is prototype `{self.name}`" + (f" with {settings}" if settings else "")


NO_EFFECT = "it has no effect any more"


def _old_names(renames: Mapping[str, str | None], name: str | None) -> tuple[str, ...]:
    """Give what a parameter was called; for None, what has no effect any more."""
    return tuple(old for old, current in renames.items() if current == name and old != name)


_REQUIRES = list_of(
    {
        "type": ["string", "object"],
        "pattern": r"^[^/@\s]+(/[^/@\s]+)?(@.+)?$",
        "required": ["name"],
        "additionalProperties": False,
        "properties": {
            "name": {**WORD, "description": "A package of the same registry, or `registry/package`."},
            "version": {**TEXT, "description": "A version or a range: `^1.2`; any when left out."},
            "registry": {**WORD, "description": "The address of the other registry."},
        },
    }
)


def _read_requires(fields: FieldReader, name: str) -> dict[str, Mapping[str, str]]:
    """Read what a package requires: by `package` or `registry/package` the keys `version` and `registry`."""
    requires: dict[str, Mapping[str, str]] = {}
    for number, (text, entry) in enumerate(fields.named(name)):
        package, _, version = text.partition("@")
        given = {"version": version} if version else {}
        if entry is not None:
            package = text
            given = {key: entry.text(key) for key in ("version", "registry") if entry.has(key)}
        try:
            check_range(given.get("version", ""))
        except ValueError as error:
            fields.refuse((name, number), str(error))
        registry, _, short = package.rpartition("/")
        if not names_a_package(registry or "own", short, ""):
            fields.refuse((name, number), f"is no package: `{package}`")
        if short in {known.rpartition("/")[2] for known in requires}:
            fields.refuse((name, number), f"names a package `{short}` twice")
        requires[package] = given
    return requires


@dataclass(frozen=True, kw_only=True)
class Package:
    """A folder of prototypes that are released together."""

    name: str = key(SHORT_NAME, required=True)  # the folder's as well
    version: str = key(VERSION, required=True)
    summary: str = key(TEXT)
    description: str = key(TEXT)
    license: str = key(TEXT)
    keywords: tuple[str, ...] = key(list_of(TEXT), "Words for `mlstack prototype search`.")
    requires: Mapping[str, Mapping[str, str]] = key(  # by name: range of versions, address of the registry
        _REQUIRES,
        "Packages whose definitions, blocks and templates are used.",
        reader=_read_requires,
        default_factory=dict,
    )
    requires_mlstack: str = key(
        TEXT, "Versions of mlstack that it works with: `>=0.1,<1`; any when left out."
    )
    authors: tuple[str, ...] = key(list_of(TEXT), "Who keeps the package.")
    repository: str = key(TEXT, "Where its source is.")
    bugs: str = key(TEXT, "Where its faults are told.")
    quick_start: str = key(TEXT, "The commands to begin with.")
    registry: str = ""  # the app's name of the registry it came from
    prototypes: Mapping[str, Prototype] = field(default_factory=dict)  # by short name
    # texts of `crds/*.yaml` by file name, for offline validation of custom resources
    crds: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""  # `sha256:…` over the folder's content


# --- schemas of parameters: references in them, replaced by what they mean ---

LARGEST_SCHEMA = 20_000  # values with everything inlined: references could ask for billions
_DEEPEST_REFERENCES = 50
NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords whose value maps names to schemas."""
DATA_KEYWORDS = frozenset({"default", "const", "enum", "examples", "x-value-aliases"})
"""Keywords whose value is data, whatever it looks like."""
# What would be looked up elsewhere, or changes what the other keywords mean.
_FOREIGN = ("$dynamicRef", "$recursiveRef", "$schema")


def with_inner(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Give a schema with each part of it changed that is a schema, or a list of them."""
    return {
        key: value
        if key in DATA_KEYWORDS
        else {name: change(inner) for name, inner in value.items()}
        if key in NAMED_SCHEMAS and isinstance(value, Mapping)
        else change(value)
        for key, value in schema.items()
    }


class Inliner:
    """Replaces references by what they mean; words beside a reference lie on top of it.

    Args:
        find: gives the schema of a reference; what is none says that it leads nowhere.
        refuse: raises, or gives what takes the place of what cannot be followed; the fault follows the words
            "its parameters".
    """

    def __init__(self, find: Callable[[str], Any], refuse: Callable[[str], Mapping[str, Any]]) -> None:
        self._find, self._refuse = find, refuse
        self._left = LARGEST_SCHEMA

    def schema(self, schema: Any, inside: tuple[str, ...] = ()) -> Any:
        """Inline a schema that stands inside some references."""
        self._left -= 1
        if self._left < 0:
            return self._refuse(f"hold more than {LARGEST_SCHEMA:,} values with references followed")
        if isinstance(schema, list):
            return [self.schema(entry, inside) for entry in schema]
        if not isinstance(schema, Mapping):
            return schema
        for keyword in _FOREIGN:
            if isinstance(schema.get(keyword), str):
                self._refuse(f"use `{keyword}: {schema[keyword]}`, which mlstack does not follow")
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return with_inner(schema, partial(self.schema, inside=inside))
        target = self._target(reference, inside)
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return {**self.schema(target, (*inside, reference)), **self.schema(beside, inside)}

    def _target(self, reference: str, inside: tuple[str, ...]) -> Mapping[str, Any]:
        if len(inside) > _DEEPEST_REFERENCES:
            return self._refuse(f"follow more than {_DEEPEST_REFERENCES} references, one into the next")
        if reference in inside:
            return self._refuse(f"refer to each other in a circle: {' → '.join([*inside, reference])}")
        target = self._find(reference)
        if isinstance(target, Mapping):
            return target
        return self._refuse(f"refer to `{reference}`, which is no definition of a required package")
