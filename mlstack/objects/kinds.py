"""Which kinds of object exist, how they are addressed, and the schemas of the built-in ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache
from typing import Any

from mlstack.dataclass import dataclass
from mlstack.objects.kinds_table import BUILTIN

CRD_GROUP = "apiextensions.k8s.io"


@dataclass(frozen=True, kw_only=True)
class Kind:
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
        for row in BUILTIN.splitlines():
            api_version, scope, minors, *names = row.split()
            group, _, version = api_version.rpartition("/")
            first, last = map(int, minors.split("-"))
            for name in names:
                plural, is_namespaced = plural_of(name), scope == "n"
                kind = Kind(group=group, version=version, kind=name, plural=plural, namespaced=is_namespaced)
                kinds.append(replace(kind, first_minor=first, last_minor=last))
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
