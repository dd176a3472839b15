"""Which kinds of object exist, how their addresses are spelt and whether they live in a namespace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from mlstack.model.kinds_table import BUILTIN

CRD_GROUP = "apiextensions.k8s.io"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of object under one API version.

    `first_minor` and `last_minor` are the first and last Kubernetes 1.x that serve a built-in kind, as far
    as the shipped table reaches; 0 where that is not known (custom resources, kinds read from a cluster).
    `has_status` says whether it has a status that only its controller writes; None where that is not known.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    first_minor: int = 0
    last_minor: int = 0
    has_status: bool | None = field(default=None, compare=False)

    @property
    def api_version(self) -> str:
        """Give the text of the object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def is_served_by(self, minor: int) -> bool:
        """Say whether Kubernetes 1.`minor` serves this kind (custom resources: always)."""
        return not self.first_minor or self.first_minor <= minor <= self.last_minor


class Kinds:
    """A set of kinds to look up by what an object says of itself.

    Args:
        kinds: later ones replace earlier ones of the same group, version and kind.
    """

    def __init__(self, kinds: Iterable[Kind]) -> None:
        """Index the kinds by API version and kind."""
        self._by_name = {(kind.api_version, kind.kind): kind for kind in kinds}

    @classmethod
    def builtin(cls) -> Kinds:
        """Give the built-in kinds of Kubernetes 1.30 to 1.37."""
        return _builtin()

    def __iter__(self) -> Iterator[Kind]:
        """Go through the kinds in the order they were given."""
        return iter(self._by_name.values())

    def __len__(self) -> int:
        """Count the kinds."""
        return len(self._by_name)

    def lookup(self, api_version: str, kind: str) -> Kind | None:
        """Find a kind, None where it is unknown."""
        return self._by_name.get((api_version, kind))

    def of_group(self, group: str) -> tuple[Kind, ...]:
        """Give the kinds of one API group."""
        return tuple(kind for kind in self if kind.group == group)

    def with_kinds(self, kinds: Iterable[Kind]) -> Kinds:
        """Give these kinds and more."""
        return Kinds((*self, *kinds))

    def with_crds(self, objects: Iterable[Mapping[str, Any]]) -> Kinds:
        """Give these kinds and those that the CustomResourceDefinitions among `objects` define."""
        return self.with_kinds(kind for data in objects for kind in kinds_of_crd(data))


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


@cache
def _builtin() -> Kinds:
    return Kinds(
        Kind(
            group=group,
            version=version,
            kind=kind,
            plural=plural,
            namespaced=namespaced,
            first_minor=first,
            last_minor=last,
        )
        for group, version, kind, plural, namespaced, first, last in BUILTIN
    )
