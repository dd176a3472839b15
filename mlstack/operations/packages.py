"""Packages and registries of an app, and the index of a registry of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mlstack.app import atomic, layout
from mlstack.app.app import Component, PackageRef, RegistryRef, newest, parse_package_ref
from mlstack.app.app_dir import AppDir
from mlstack.app.package import PackageFolder
from mlstack.app.prototype import Package
from mlstack.errors import ConfigError, MlstackError, NotFoundError, UsageError
from mlstack.names import check_registry_name, nearest, version_key
from mlstack.operations import row
from mlstack.registries.directory import build_index
from mlstack.registries.registry import (
    INDEX_FILE,
    fetch_all,
    indexes,
    is_bundled,
    open_registry,
    protocol_of,
)

# --- packages ---


@dataclass(frozen=True, kw_only=True)
class InstalledPackage:
    """One package that is in `vendor/` now."""

    package: str  # `registry/name`
    version: str
    digest: str  # `sha256:…` of its content
    state: str  # `installed`, or `kept` if it was there before


@dataclass(frozen=True, kw_only=True)
class Installed:
    """What an installation brought: the packages that are required first, the wanted one last."""

    packages: tuple[InstalledPackage, ...]


@dataclass(frozen=True, kw_only=True)
class PackageRow:
    """One package in a list."""

    package: str  # `registry/name`
    version: str  # the newest of the registry; the installed one where no registry was asked
    installed: str | None  # the newest installed version
    summary: str


@dataclass(frozen=True, kw_only=True)
class PackageList:
    """Packages by name, and which registries did not answer."""

    packages: tuple[PackageRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PrototypeSummary:
    """One prototype of a package."""

    name: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class PackageDescription(PackageRow):
    """One package with its prototypes: in the version that is described, and installed if it is."""

    description: str
    license: str
    keywords: tuple[str, ...]
    requires: tuple[str, ...]
    digest: str
    prototypes: tuple[PrototypeSummary, ...]


@dataclass(frozen=True, kw_only=True)
class PackageRemoved:
    """The packages that are gone, `registry/name@version`: the named one, and what only it required."""

    packages: tuple[str, ...]


def install_package(app: AppDir, text: str, *, force: bool = False) -> Installed:
    """Copy a package and what it requires into `vendor/`, pinned by version and digest.

    `text` is `registry/package`, or with `@` and a version, branch, tag or commit; `force` writes anew what
    is there already.

    Raises:
        UsageError: the text is no package.
        NotFoundError: no such registry, package or version.
        RegistryError: the registry does not answer, or a digest differs. Nothing is written then.
    """
    wanted = parse_package_ref(text)
    registries = app.app.registries
    fetched, registry = fetch_all(registries, wanted, root=app.root)  # takes its time: others may edit
    with app.locked():
        if _registry(app.app.registries, wanted.registry) != _registry(registries, wanted.registry):
            raise ConfigError(
                f"the registry `{wanted.registry}` was changed by another command meanwhile;"
                " nothing was installed",
                where=layout.APP_FILE,
                hint="try again",
            )
        before = {(locked.full_name, locked.version, locked.digest) for locked in app.lock.packages}
        app.install(wanted, fetched, registry)
    rows = []
    for locked in (package.locked for package in fetched):
        is_kept = (locked.full_name, locked.version, locked.digest) in before and not force
        state = "kept" if is_kept else "installed"
        rows.append(row(InstalledPackage, locked, package=locked.full_name, state=state))
    return Installed(packages=(*rows[1:], rows[0]))


def _registry(registries: Sequence[RegistryRef], name: str) -> RegistryRef | None:
    return next((registry for registry in registries if registry.name == name), None)


def list_packages(app: AppDir, *, installed_only: bool = False) -> PackageList:
    """List the packages of all registries and the installed ones, by name.

    A registry that does not answer is noted; with `installed_only` none is asked.
    """
    rows = {}
    for package in app.vendor.packages():
        name = f"{package.registry}/{package.name}"
        rows[name] = row(PackageRow, package, package=name, installed=package.version)
    notes: list[str] = []
    if not installed_only:
        installed = newest(app.lock.packages)
        for registry, index in indexes(app.app.registries, root=app.root, notes=notes):
            for short_name, offer in index.packages.items():
                name = f"{registry}/{short_name}"
                rows[name] = PackageRow(
                    package=name,
                    version=offer.newest.version,
                    installed=installed[name].version if name in installed else None,
                    summary=offer.summary,
                )
    return PackageList(packages=tuple(row for _, row in sorted(rows.items())), notes=tuple(notes))


def describe_package(app: AppDir, text: str) -> PackageDescription:
    """Describe a package, installed or not.

    Raises:
        UsageError: the text is no package.
        NotFoundError: no such registry, package or version.
        RegistryError: it is not installed, and its registry does not answer.
    """
    wanted = parse_package_ref(text)
    installed = [
        package
        for package in app.vendor.packages()
        if (package.registry, package.name) == (wanted.registry, wanted.name)
        and wanted.version in ("", package.version)
    ]
    if installed:
        newest_installed = max(installed, key=lambda package: version_key(package.version))
        return _package_description(newest_installed, installed=newest_installed.version)
    fetched, _ = fetch_all(app.app.registries, wanted, root=app.root)
    folder, *libraries = (
        PackageFolder(package.files, source=str(package.locked.ref), registry=package.locked.registry)
        for package in fetched
    )
    package = folder.package({library.head.name: library for library in libraries})
    return _package_description(package, installed=None)


def _package_description(package: Package, *, installed: str | None) -> PackageDescription:
    prototypes = sorted(package.prototypes.items())
    return row(
        PackageDescription,
        package,
        package=f"{package.registry}/{package.name}",
        installed=installed,
        prototypes=tuple(row(PrototypeSummary, prototype) for _, prototype in prototypes),
    )


def remove_package(app: AppDir, text: str) -> PackageRemoved:
    """Remove a package that no component uses, and what only it required.

    Raises:
        UsageError: the text is no package, or something still needs it.
        NotFoundError: it is not installed; carries the nearest installed one.
    """
    wanted = parse_package_ref(text)
    with app.locked():
        packages = app.lock.packages
        versions = [locked for locked in packages if locked.full_name == wanted.full_name]
        meant = [locked for locked in versions if wanted.version in ("", locked.version)]
        if not meant:
            near = nearest(wanted.full_name, sorted({locked.full_name for locked in packages}))
            hint = None if near else "mlstack pkg list --installed"
            raise NotFoundError(f"package `{wanted}` is not installed", near=near, hint=hint)
        if users := list(_users(app, wanted)):
            names = ", ".join(f"`{user}`" for user in users)
            hint = f"mlstack component rm {users[0]}"
            raise UsageError(f"package `{wanted}` is used by {names}", hint=hint)
        needing = list(_needing(app, wanted)) if len(meant) == len(versions) else []
        if needing:
            names = ", ".join(f"`{package}`" for package in needing)
            hint = f"mlstack pkg rm {needing[0]}"
            raise UsageError(f"package `{wanted}` is required by {names}", hint=hint)
        return PackageRemoved(packages=tuple(str(locked.ref) for locked in app.remove_package(wanted)))


def _users(app: AppDir, wanted: PackageRef) -> Iterator[str]:
    """Give the components that are made from a package."""
    for component in app.components():
        if not isinstance(component, Component):
            continue
        try:
            prototype = app.prototype(component.prototype)
            owner, version = f"{prototype.registry}/{prototype.package}", prototype.version
        except MlstackError:  # the package is broken, or gone: what the name says must do
            owner, _, version = component.prototype.rpartition("/")[0].partition("@")
        if owner == wanted.full_name and wanted.version in ("", version):
            yield component.full_name


def _needing(app: AppDir, wanted: PackageRef) -> Iterator[str]:
    for locked in app.lock.packages:
        with suppress(MlstackError):  # a broken one must not keep another from being removed
            if locked.registry == wanted.registry and wanted.name in app.vendor.folder(locked).head.requires:
                yield locked.full_name


# --- registries ---


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
    known = _registry(app.app.registries, ref.name)
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
    ref = _registry(app.app.registries, name)
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
