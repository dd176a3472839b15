"""`mlstack.lock`: exact versions, digests and commits; written by mlstack alone."""

from collections.abc import Mapping
from typing import Any

from mlstack.files.document import Document
from mlstack.files.fields import Fields, fields_of
from mlstack.files.retired import read_retired, retired_maps
from mlstack.model import emit
from mlstack.model.app import API_VERSION, Lock, LockedPackage, LockedRegistry
from mlstack.model.names import version_key

_HEADER = "# Written by mlstack. Commit it: it says exactly which packages this app renders with.\n"


def read_lock(document: Document) -> Lock:
    """Take a lock file apart.

    Raises:
        SchemaError: it is wrong.
    """
    fields = fields_of(document, "Lock").only("apiVersion", "kind", "registries", "packages")
    return Lock(
        registries=tuple(_registry(entry) for entry in fields.each("registries")),
        packages=tuple(_package(entry) for entry in fields.each("packages")),
    )


def _registry(fields: Fields) -> LockedRegistry:
    fields.only("name", "address", "revision", "retired")
    return LockedRegistry(
        name=fields.text("name"),
        address=fields.text("address"),
        revision=fields.text("revision", ""),
        retired=read_retired(fields),
    )


def _package(fields: Fields) -> LockedPackage:
    fields.only("package", "version", "digest", "source")
    ref = fields.package("package")
    return LockedPackage(
        registry=ref.registry,
        name=ref.name,
        version=fields.text("version"),
        digest=fields.text("digest"),
        source=fields.text("source", ""),
    )


def write_lock(lock: Lock) -> bytes:
    """Give the bytes of a lock file; the same packages in any order give the same bytes."""
    content: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Lock"}
    content["registries"] = [_registry_map(each) for each in sorted(lock.registries, key=lambda r: r.name)]
    content["packages"] = [_package_map(each) for each in sorted(lock.packages, key=_order)]
    return (_HEADER + emit.to_yaml(content)).encode()


def _order(package: LockedPackage) -> tuple[str, Any]:
    return package.full_name, version_key(package.version)


def _registry_map(registry: LockedRegistry) -> Mapping[str, Any]:
    found = {
        "name": registry.name,
        "address": registry.address,
        "revision": registry.revision,
        "retired": retired_maps(registry.retired),
    }
    return {key: value for key, value in found.items() if value}


def _package_map(package: LockedPackage) -> Mapping[str, str]:
    found = {
        "package": package.full_name,
        "version": package.version,
        "digest": package.digest,
        "source": package.source,
    }
    return {key: value for key, value in found.items() if value}
