"""Which kinds a memory cluster serves, and what it knows of each: fields, status, generations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.cluster import garbage, strategies
from mlstack.cluster.shapes import Schema, Shape, custom_root
from mlstack.cluster.store import Obj, Store, copied
from mlstack.model.kinds import Kind, Kinds, kinds_of_crd
from mlstack.model.schemas import Schemas

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


@dataclass(frozen=True, kw_only=True)
class Served:
    """One kind in one version.

    Attributes:
        kind: its names.
        shape: of its objects.
        has_status: `status` is a subresource: other writes leave it alone.
        has_scale: it can be scaled.
        counts_changes: it has a generation.
        custom: the schema of a custom resource, None for built-in kinds.
    """

    kind: Kind
    shape: Shape
    has_status: bool
    has_scale: bool
    counts_changes: bool
    custom: Schema | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Give group and kind."""
        return self.kind.group, self.kind.kind

    def shown(self, obj: Mapping[str, Any], *, metadata_only: bool = False) -> Obj:
        """Give an object in this version, apart from the stored one."""
        names = {"apiVersion": self.kind.api_version, "kind": self.kind.kind}
        if metadata_only:
            return names | {"metadata": copied(dict(obj["metadata"]))}
        shown: Obj = copied({**obj, **names})
        return shown


class Catalog:
    """Finds kinds: the built-in ones of a Kubernetes version, and those of the definitions in a store.

    Args:
        schemas: of the built-in kinds.
    """

    def __init__(self, schemas: Schemas) -> None:
        """Take the kinds that this Kubernetes serves."""
        self._schemas = schemas
        self._builtin = Kinds(kind for kind in Kinds.builtin() if kind.is_served_by(schemas.minor))

    def kinds(self, store: Store) -> Kinds:
        """Give all kinds."""
        return self._builtin.with_crds(crd for crd in _definitions(store))

    def find(self, store: Store, api_version: str, kind: str) -> Served | None:
        """Find a kind, None where it is not served."""
        builtin = self._builtin.lookup(api_version, kind)
        return self._built_in(builtin) if builtin else self._custom(store, api_version, kind)

    def _built_in(self, kind: Kind) -> Served:
        schema = self._schemas.root(kind.group, kind.version, kind.kind) or {}
        key = (kind.group, kind.kind)
        return Served(
            kind=kind,
            shape=Shape(schema, self._schemas.resolve),
            has_status="status" in (schema.get("properties") or {}),
            has_scale=key in strategies.SCALABLE,
            counts_changes=key in strategies.WITH_GENERATION,
        )

    def _custom(self, store: Store, api_version: str, name: str) -> Served | None:
        for crd in _definitions(store):
            for kind in kinds_of_crd(crd):
                if (kind.api_version, kind.kind) == (api_version, name):
                    return self._defined(crd, kind)
        return None

    def _defined(self, crd: Mapping[str, Any], kind: Kind) -> Served:
        version = next(row for row in crd["spec"]["versions"] if row["name"] == kind.version)
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        subresources = version.get("subresources") or {}
        metadata = Shape(self._schemas.definition(OBJECT_META), self._schemas.resolve)
        return Served(
            kind=kind,
            shape=custom_root(schema, metadata),
            has_status="status" in subresources,
            has_scale="scale" in subresources,
            counts_changes=True,
            custom=schema,
        )


def _definitions(store: Store) -> Iterator[Obj]:
    """Give the definitions that are established."""
    for _, crd in store.of_kind(*garbage.CRD):
        rows = (crd.get("status") or {}).get("conditions") or ()
        if any(row["type"] == "Established" and row["status"] == "True" for row in rows):
            yield crd
