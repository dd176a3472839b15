"""Packages of an app."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from mlstack.app import layout
from mlstack.app.app import Component, PackageRef, newest, parse_package_ref
from mlstack.app.app_dir import AppDir
from mlstack.app.package import PackageFolder
from mlstack.app.prototype import Package
from mlstack.errors import ConfigError, MlstackError, NotFoundError, UsageError
from mlstack.names import nearest, version_key
from mlstack.operations import row
from mlstack.registries.registry import fetch_all, indexes


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
    ref = app.app.registry(wanted.registry)
    fetched, registry = fetch_all(
        app.app.registries, wanted, root=app.root
    )  # takes its time: others may edit
    with app.locked():
        if app.app.registry(wanted.registry) != ref:
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
