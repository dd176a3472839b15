"""Registries of an app: add, list, describe; and the index of a registry of one's own."""

from dataclasses import dataclass
from pathlib import Path

from mlstack.errors import NotFoundError, UsageError
from mlstack.files import atomic
from mlstack.files.appdir import AppDir
from mlstack.model.app import RegistryRef
from mlstack.model.names import check_registry_name, nearest, newest
from mlstack.registries.base import RegistryIndex
from mlstack.registries.catalog import is_bundled, open_registry, protocol_of
from mlstack.registries.index import build_index
from mlstack.registries.tree import INDEX_FILE


@dataclass(frozen=True, kw_only=True)
class RegistryAdded:
    """A registry that the app knows now.

    Attributes:
        name: the app's own name for it.
        address: where it is, as `app.yaml` says it.
        protocol: how it is read.
        packages: how many packages it offers.
        bundled: whether the address leads to the registry that comes with mlstack.
        known: whether the app knew it before; nothing was changed then.
    """

    name: str
    address: str
    protocol: str
    packages: int
    bundled: bool
    known: bool


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
    """One package of a registry.

    Attributes:
        name: its name in the registry.
        version: the newest version.
        versions: all versions, ascending.
        installed: the newest installed version, None without any.
        summary: one line.
    """

    name: str
    version: str
    versions: tuple[str, ...]
    installed: str | None
    summary: str


@dataclass(frozen=True, kw_only=True)
class RegistryDescription:
    """A registry and its packages by name."""

    name: str
    protocol: str
    address: str
    bundled: bool
    revision: str
    packages: tuple[OfferedPackage, ...]


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """The index of a registry's folder.

    Attributes:
        ok: false if it is stale and was left so.
        folder: the registry's folder, as given.
        stale: whether it differed from what the packages say.
        written: whether it was rewritten.
        packages: how many packages it lists.
    """

    ok: bool
    folder: str
    stale: bool
    written: bool
    packages: int


def add(app: AppDir, name: str, address: str) -> RegistryAdded:
    """Add a registry, once its index could be read; adding the same one again changes nothing.

    Raises:
        UsageError: the name is unfit, or stands for another registry.
        RegistryError: the address leads to no registry, or it does not answer.
    """
    check_registry_name(name)
    ref = RegistryRef(name=name, address=address, protocol=protocol_of(address))
    _known(app, ref)
    index = open_registry(ref, root=app.root).index()  # it may take its time: others may edit meanwhile
    with app.locked():
        known = _known(app, ref)
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


def _known(app: AppDir, ref: RegistryRef) -> RegistryRef | None:
    known = next((each for each in app.app().registries if each.name == ref.name), None)
    if known is not None and not _same(known.address, ref.address):
        raise UsageError(
            f"`{ref.name}` is the registry {known.address} already", hint="choose another name for this one"
        )
    return known


def _same(one: str, other: str) -> bool:
    return one == other or (is_bundled(one) and is_bundled(other))


def list_all(app: AppDir) -> RegistryList:
    """List the registries of an app; none of them is asked."""
    return RegistryList(
        registries=tuple(
            RegistryRow(
                name=ref.name,
                protocol=ref.protocol or protocol_of(ref.address),
                address=ref.address,
                bundled=is_bundled(ref.address),
            )
            for ref in app.app().registries
        )
    )


def describe(app: AppDir, name: str) -> RegistryDescription:
    """Describe a registry and its packages.

    Raises:
        NotFoundError: the app knows no such registry; carries the nearest one.
        RegistryError: it does not answer.
    """
    refs = {each.name: each for each in app.app().registries}
    if name not in refs:
        near = nearest(name, refs)
        hint = None if near else f"mlstack registry add {name} ADDRESS"
        raise NotFoundError(f"no registry `{name}`", near=near, hint=hint)
    ref = refs[name]
    index = open_registry(ref, root=app.root).index()
    return RegistryDescription(
        name=name,
        protocol=ref.protocol or protocol_of(ref.address),
        address=ref.address,
        bundled=is_bundled(ref.address),
        revision=index.revision,
        packages=_offers(app, name, index),
    )


def _offers(app: AppDir, registry: str, index: RegistryIndex) -> tuple[OfferedPackage, ...]:
    locked = newest(app.lock().packages).values()
    installed = {each.name: each.version for each in locked if each.registry == registry}
    return tuple(
        OfferedPackage(
            name=name,
            version=package.newest.version,
            versions=tuple(each.version for each in package.versions),
            installed=installed.get(name),
            summary=package.summary,
        )
        for name, package in sorted(index.packages.items())
    )


def index(folder: Path, *, check: bool = False) -> Indexed:
    """Rewrite a registry's index from its package folders.

    Args:
        folder: the one with `registry.yaml`.
        check: write nothing, only tell whether the index is stale.

    Raises:
        RegistryError: the folder is no registry, or a package is wrong.
        ConfigError: the index cannot be written.
    """
    file = folder / INDEX_FILE
    wanted = build_index(folder)
    stale = not file.is_file() or file.read_text(encoding="utf-8") != wanted
    if stale and not check:
        atomic.write_files({file: wanted})
    return Indexed(
        ok=not (stale and check),
        folder=str(folder),
        stale=stale,
        written=stale and not check,
        packages=wanted.count("\n- name: "),
    )
