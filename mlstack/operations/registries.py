"""Registries of an app, and the index of a registry of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlstack.app import atomic
from mlstack.app.app import RegistryRef, newest
from mlstack.app.app_dir import AppDir
from mlstack.errors import NotFoundError, UsageError
from mlstack.names import check_registry_name, nearest
from mlstack.operations import row
from mlstack.registries.directory import build_index
from mlstack.registries.registry import INDEX_FILE, is_bundled, open_registry, protocol_of


@dataclass(frozen=True, kw_only=True)
class RegistryAdded:
    """A registry that the app knows now."""

    name: str
    address: str  # as `app.yaml` says it
    protocol: str
    packages: int  # how many it offers
    bundled: bool  # the address leads to the registry that comes with mlstack
    known: bool  # the app knew it before; nothing was changed then


@dataclass(frozen=True, kw_only=True)
class RegistryRow:
    """One registry in a list."""

    name: str
    protocol: str
    address: str
    bundled: bool


@dataclass(frozen=True, kw_only=True)
class RegistryList:
    """The registries of an app, in the order of `app.yaml`."""

    registries: tuple[RegistryRow, ...]


@dataclass(frozen=True, kw_only=True)
class OfferedPackage:
    """One package of a registry."""

    name: str
    version: str  # the newest
    versions: tuple[str, ...]  # ascending
    installed: str | None  # the newest installed version
    summary: str


@dataclass(frozen=True, kw_only=True)
class RegistryDescription(RegistryRow):
    """A registry and its packages by name."""

    revision: str
    packages: tuple[OfferedPackage, ...]


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """The index of a registry's folder."""

    ok: bool  # false if it is stale and was left so
    folder: str  # as given
    stale: bool  # it differed from what the packages say
    written: bool
    packages: int


def add_registry(app: AppDir, name: str, address: str) -> RegistryAdded:
    """Add a registry, once its index could be read; adding the same one again changes nothing.

    Raises:
        UsageError: the name is unfit, or stands for another registry.
        RegistryError: the address leads to no registry, or it does not answer.
    """
    check_registry_name(name)
    ref = RegistryRef(name=name, address=address, protocol=protocol_of(address))
    _known_registry(app, ref)
    index = open_registry(ref, root=app.root).index()  # it may take its time: others may edit meanwhile
    with app.locked():
        known = _known_registry(app, ref)
        if known is None:
            app.add_registry(ref)
    return RegistryAdded(
        name=name,
        address=address if known is None else known.address,
        protocol=ref.protocol,
        packages=len(index.packages),
        bundled=is_bundled(address),
        known=known is not None,
    )


def _known_registry(app: AppDir, ref: RegistryRef) -> RegistryRef | None:
    known = app.app.registry(ref.name)
    if (
        known is None
        or known.address == ref.address
        or (is_bundled(known.address) and is_bundled(ref.address))
    ):
        return known
    hint = "choose another name for this one"
    raise UsageError(f"`{ref.name}` is the registry {known.address} already", hint=hint)


def list_registries(app: AppDir) -> RegistryList:
    """List the registries of an app; none of them is asked."""
    return RegistryList(registries=tuple(_registry_row(ref) for ref in app.app.registries))


def _registry_row(ref: RegistryRef) -> RegistryRow:
    protocol = ref.protocol or protocol_of(ref.address)
    return row(RegistryRow, ref, protocol=protocol, bundled=is_bundled(ref.address))


def describe_registry(app: AppDir, name: str) -> RegistryDescription:
    """Describe a registry and its packages.

    Raises:
        NotFoundError: the app knows no such registry; carries the nearest one.
        RegistryError: it does not answer.
    """
    ref = app.app.registry(name)
    if ref is None:
        near = nearest(name, [ref.name for ref in app.app.registries])
        hint = None if near else f"mlstack registry add {name} ADDRESS"
        raise NotFoundError(f"no registry `{name}`", near=near, hint=hint)
    index = open_registry(ref, root=app.root).index()
    locked = newest(app.lock.packages).values()
    installed = {package.name: package.version for package in locked if package.registry == name}
    offers = tuple(
        OfferedPackage(
            name=package_name,
            version=package.newest.version,
            versions=tuple(release.version for release in package.versions),
            installed=installed.get(package_name),
            summary=package.summary,
        )
        for package_name, package in sorted(index.packages.items())
    )
    return row(RegistryDescription, _registry_row(ref), revision=index.revision, packages=offers)


def index_registry(folder: Path, *, check: bool = False) -> Indexed:
    """Rewrite a registry's index from its package folders.

    Args:
        folder: the one with `registry.yaml`.
        check: write nothing, only tell whether the index is stale.

    Raises:
        RegistryError: the folder is no registry, or a package is wrong.
        ConfigError: the index cannot be written.
    """
    file = folder / INDEX_FILE
    index = build_index(folder)
    stale = not file.is_file() or file.read_text(encoding="utf-8") != index
    if stale and not check:
        atomic.write_files({file: index})
    return Indexed(
        ok=not (stale and check),
        folder=str(folder),
        stale=stale,
        written=stale and not check,
        packages=index.count("\n- name: "),
    )
