"""Packages of an app: install, list, describe, remove."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mlstack.errors import ConfigError, MlstackError, NotFoundError, UsageError
from mlstack.files import layout
from mlstack.files.appdir import AppDir
from mlstack.files.packages import FetchedPackage, PackageFolder
from mlstack.model.app import Component, LockedPackage, PackageRef, RegistryRef
from mlstack.model.names import nearest, newest, parse_package_ref, version_key
from mlstack.model.prototype import Package
from mlstack.registries.catalog import fetch_all, indexes


@dataclass(frozen=True, kw_only=True)
class InstalledPackage:
    """One package that is in `vendor/` now.

    Attributes:
        package: `registry/name`.
        version: exact version.
        digest: `sha256:…` of its content.
        state: `installed`, or `kept` if it was there before.
    """

    package: str
    version: str
    digest: str
    state: str


@dataclass(frozen=True, kw_only=True)
class Installed:
    """What an installation brought: the packages that are required first, the wanted one last."""

    packages: tuple[InstalledPackage, ...]


@dataclass(frozen=True, kw_only=True)
class PackageRow:
    """One package in a list.

    Attributes:
        package: `registry/name`.
        version: newest version of the registry; the installed one where no registry was asked.
        installed: newest installed version, None without any.
        summary: one line.
    """

    package: str
    version: str
    installed: str | None
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
class PackageDescription:
    """One package with its prototypes.

    Attributes:
        package: `registry/name`.
        version: the version that is described.
        installed: that version if it is installed, None if it is not.
        requires: packages of the same registry that it needs.
        digest: `sha256:…` of its content.
        prototypes: by name.
    """

    package: str
    version: str
    installed: str | None
    summary: str
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


def install(app: AppDir, text: str, *, force: bool = False) -> Installed:
    """Copy a package and what it requires into `vendor/`, pinned by version and digest.

    Args:
        app: the app directory.
        text: `registry/package`, or with `@` and a version, branch, tag or commit.
        force: write anew what is there already.

    Raises:
        UsageError: the text is no package.
        NotFoundError: no such registry, package or version.
        RegistryError: the registry does not answer, or a digest differs. Nothing is written then.
    """
    wanted = parse_package_ref(text)
    registries = app.app().registries
    fetched, registry = fetch_all(registries, wanted, root=app.root)  # takes its time: others may edit
    with app.locked():
        _refuse_other_registry(app, wanted.registry, registries)
        before = {(locked.full_name, locked.version, locked.digest) for locked in app.lock().packages}
        app.install(wanted, fetched, registry)
    rows = [
        InstalledPackage(
            package=f"{each.registry}/{each.name}",
            version=each.version,
            digest=each.digest,
            state="kept" if _key(each) in before and not force else "installed",
        )
        for each in fetched
    ]
    return Installed(packages=(*rows[1:], rows[0]))


def _refuse_other_registry(app: AppDir, name: str, before: Sequence[RegistryRef]) -> None:
    now, then = (
        next((each for each in refs if each.name == name), None) for refs in (app.app().registries, before)
    )
    if now != then:
        raise ConfigError(
            f"the registry `{name}` was changed by another command meanwhile; nothing was installed",
            where=layout.APP_FILE,
            hint="try again",
        )


def _key(fetched: FetchedPackage) -> tuple[str, str, str]:
    return f"{fetched.registry}/{fetched.name}", fetched.version, fetched.digest


def list_all(app: AppDir, *, installed_only: bool = False) -> PackageList:
    """List the packages of all registries and the installed ones, by name.

    Args:
        app: the app directory.
        installed_only: ask no registry.
    """
    notes: list[str] = []
    rows = {row.package: row for row in _installed_rows(app)}
    if not installed_only:
        for row in _offered_rows(app, notes):
            rows[row.package] = row
    return PackageList(packages=tuple(row for _, row in sorted(rows.items())), notes=tuple(notes))


def _installed_rows(app: AppDir) -> Iterator[PackageRow]:
    for package in app.packages():
        yield PackageRow(
            package=f"{package.registry}/{package.name}",
            version=package.version,
            installed=package.version,
            summary=package.summary,
        )


def _offered_rows(app: AppDir, notes: list[str]) -> Iterator[PackageRow]:
    installed = newest(app.lock().packages)
    for registry, index in indexes(app.app().registries, root=app.root, notes=notes):
        for name, package in index.packages.items():
            full_name = f"{registry}/{name}"
            yield PackageRow(
                package=full_name,
                version=package.newest.version,
                installed=installed[full_name].version if full_name in installed else None,
                summary=package.summary,
            )


def describe(app: AppDir, text: str) -> PackageDescription:
    """Describe a package, installed or not.

    Raises:
        UsageError: the text is no package.
        NotFoundError: no such registry, package or version.
        RegistryError: it is not installed, and its registry does not answer.
    """
    wanted = parse_package_ref(text)
    installed = _find_installed(app, wanted)
    if installed is not None:
        return _described(installed, installed=True)
    fetched, _ = fetch_all(app.app().registries, wanted, root=app.root)
    first, *libraries = (
        PackageFolder(
            each.files, source=f"{each.registry}/{each.name}@{each.version}", registry=each.registry
        )
        for each in fetched
    )
    return _described(first.package({each.head.name: each for each in libraries}), installed=False)


def _find_installed(app: AppDir, wanted: PackageRef) -> Package | None:
    """Give the newest installed version that meets a requirement."""
    found = [
        package
        for package in app.packages()
        if (package.registry, package.name) == (wanted.registry, wanted.name)
        and wanted.version in ("", package.version)
    ]
    return max(found, key=lambda package: version_key(package.version), default=None)


def _described(package: Package, *, installed: bool) -> PackageDescription:
    return PackageDescription(
        package=f"{package.registry}/{package.name}",
        version=package.version,
        installed=package.version if installed else None,
        summary=package.summary,
        description=package.description,
        license=package.license,
        keywords=package.keywords,
        requires=package.requires,
        digest=package.digest,
        prototypes=tuple(
            PrototypeSummary(name=prototype.name, summary=prototype.summary)
            for _, prototype in sorted(package.prototypes.items())
        ),
    )


def remove(app: AppDir, text: str) -> PackageRemoved:
    """Remove a package that no component uses, and what only it required.

    Raises:
        UsageError: the text is no package, or something still needs it.
        NotFoundError: it is not installed; carries the nearest installed one.
    """
    wanted = parse_package_ref(text)
    with app.locked():
        if not any(wanted.version in ("", each.version) for each in _locked(app, wanted)):
            known = sorted({locked.full_name for locked in app.lock().packages})
            near = nearest(wanted.full_name, known)
            hint = None if near else "mlstack pkg list --installed"
            raise NotFoundError(f"package `{wanted}` is not installed", near=near, hint=hint)
        _refuse_used(app, wanted)
        return PackageRemoved(packages=tuple(str(locked.ref) for locked in app.remove_package(wanted)))


def _refuse_used(app: AppDir, wanted: PackageRef) -> None:
    users = [
        component.full_name
        for component in app.components()
        if isinstance(component, Component) and _is_of(app, component, wanted)
    ]
    if users:
        named = ", ".join(f"`{user}`" for user in users)
        raise UsageError(f"package `{wanted}` is used by {named}", hint=f"mlstack component rm {users[0]}")
    others = [each for each in _locked(app, wanted) if wanted.version not in ("", each.version)]
    needing = [] if others else list(_needing(app, wanted))
    if needing:
        named = ", ".join(f"`{package}`" for package in needing)
        raise UsageError(f"package `{wanted}` is required by {named}", hint=f"mlstack pkg rm {needing[0]}")


def _locked(app: AppDir, wanted: PackageRef) -> list[LockedPackage]:
    return [each for each in app.lock().packages if each.full_name == wanted.full_name]


def _needing(app: AppDir, wanted: PackageRef) -> Iterator[str]:
    for locked in app.lock().packages:
        with suppress(MlstackError):  # a broken one must not keep another from being removed
            if locked.registry == wanted.registry and wanted.name in app.requires(locked):
                yield locked.full_name


def _is_of(app: AppDir, component: Component, wanted: PackageRef) -> bool:
    try:
        prototype = app.prototype(component.prototype)
    except MlstackError:  # the package is broken, or gone: what the name says must do
        owner, _, version = component.prototype.rpartition("/")[0].partition("@")
        return owner == wanted.full_name and wanted.version in ("", version)
    return (prototype.registry, prototype.package) == (wanted.registry, wanted.name) and wanted.version in (
        "",
        prototype.version,
    )
