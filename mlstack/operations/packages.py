"""Packages of an app: install, list, describe, remove."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlstack.app import atomic, layout
from mlstack.app.app import (
    Component,
    Environment,
    LockedPackage,
    Manifest,
    PackageRef,
    RegistryRef,
    newest,
    parse_package_ref,
)
from mlstack.app.app_dir import AppDir
from mlstack.app.draft import ComponentRequest, draft
from mlstack.app.package import FetchedPackage, PackageFolder
from mlstack.app.prototype import Package, Param, Prototype
from mlstack.app.schema import PassedStore
from mlstack.errors import ConfigError, MlstackError, NotFoundError, UsageError
from mlstack.names import check_registry_name, nearest, version_key
from mlstack.objects.kube_object import DesiredState
from mlstack.registries.registry import (
    INDEX_FILE,
    RegistryIndex,
    build_index,
    fetch_all,
    find_prototype,
    indexes,
    is_bundled,
    open_registry,
    protocol_of,
    refuse_if_retired,
)
from mlstack.render import render
from mlstack.render.template import CodeStore

# --- Packages of an app: install, list, describe, remove ---


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


def install_package(app: AppDir, text: str, *, force: bool = False) -> Installed:
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


def list_packages(app: AppDir, *, installed_only: bool = False) -> PackageList:
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


def describe_package(app: AppDir, text: str) -> PackageDescription:
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


def remove_package(app: AppDir, text: str) -> PackageRemoved:
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


# --- Registries of an app: add, list, describe; and the index of a registry of one's own ---


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


def add_registry(app: AppDir, name: str, address: str) -> RegistryAdded:
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


def list_registries(app: AppDir) -> RegistryList:
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


def describe_registry(app: AppDir, name: str) -> RegistryDescription:
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


# --- Prototypes: what is there, what a prototype takes, and what would come of it ---


@dataclass(frozen=True, kw_only=True)
class PrototypeRow:
    """One prototype in a list; one of a package that is not installed stands for that package.

    Attributes:
        name: short name.
        package: package and version, empty for a retired name.
        full_name: name that is never ambiguous.
        summary: one line; why a name is retired, and what to do instead.
        installed: whether components can be made from it now.
        retired: whether its registry does not offer it any more.
    """

    name: str
    package: str
    full_name: str
    summary: str
    installed: bool = True
    retired: bool = False


@dataclass(frozen=True, kw_only=True)
class PrototypeList:
    """Prototypes by name, and what was in the way of finding more."""

    prototypes: tuple[PrototypeRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParameterRow:
    """One parameter as a person has to know it.

    Attributes:
        name: canonical name.
        type: its JSON types, `list` or `map`.
        default: what it is when nothing sets it, None if it is unset then.
        required: whether it must be set.
        unit: what a number counts.
        limits: bounds and choices in words, empty without any.
        description: what it does.
        aliases: old spellings.
        secret: whether its value is masked.
        deprecated: why, and what to use instead.
    """

    name: str
    type: str
    default: Any
    required: bool
    unit: str
    limits: str
    description: str
    aliases: tuple[str, ...]
    secret: bool
    deprecated: str | None


@dataclass(frozen=True, kw_only=True)
class PrototypeDescription:
    """One prototype with all its parameters.

    Attributes:
        aliases: its other names.
        alias_params: what it is under some of them: alias → parameters that differ from the defaults.
        examples: summaries of worked examples by name.
    """

    name: str
    full_name: str
    package: str
    summary: str
    description: str
    aliases: tuple[str, ...]
    alias_params: Mapping[str, Mapping[str, Any]]
    parameters: tuple[ParameterRow, ...]
    examples: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class PrototypeMatches:
    """The prototypes that a name may mean, the nearest first.

    Attributes:
        prototypes: the one of that name, or without one all that match.
        others: what else matches, where there is one of that name.
    """

    prototypes: tuple[PrototypeDescription, ...]
    others: tuple[PrototypeRow, ...] = ()


def list_prototypes(app: AppDir) -> PrototypeList:
    """List the prototypes of the installed packages."""
    return PrototypeList(prototypes=tuple(_row(found) for found in _sorted(app)))


def _sorted(app: AppDir) -> list[Prototype]:
    return sorted(app.prototypes(), key=lambda found: (found.name, found.full_name))


def _row(found: Prototype) -> PrototypeRow:
    return PrototypeRow(
        name=found.name, package=_package(found), full_name=found.full_name, summary=found.summary
    )


def _package(found: Prototype) -> str:
    return f"{found.registry}/{found.package}@{found.version}"


def matching_prototypes(app: AppDir, name: str) -> PrototypeMatches:
    """Find the prototypes that a name may mean: by name and package, by alias where nothing else fits.

    The one of that name comes first, then those of the package of that name, those whose name ends with
    it, and those that hold it anywhere.

    Raises:
        NotFoundError: there is none; carries the nearest name, or says that the name is retired.
    """
    known = sorted(_sorted(app), key=lambda each: _rank(each, name))
    found = [each for each in known if _rank(each, name) < _NO_MATCH]
    found = found or [each for each in known if any(name in alias for alias in each.aliases)]
    if not found:
        refuse_if_retired(app, name)
        raise _nothing(app, name)
    exact = [each for each in found if _rank(each, name) == 0]
    return PrototypeMatches(
        prototypes=tuple(_describe(each) for each in exact or found),
        others=tuple(_row(each) for each in found if exact and each not in exact),
    )


_NO_MATCH = 4


def _rank(found: Prototype, name: str) -> int:
    """Tell how well a name fits, 0 the best."""
    fits = (
        name in (found.name, found.full_name),
        name in (found.package, f"{found.registry}/{found.package}"),
        found.name.endswith(name),
        name in found.full_name,
    )
    return fits.index(True) if True in fits else _NO_MATCH


def _names(found: Prototype) -> tuple[str, ...]:
    return (found.name, found.full_name, *found.aliases)


def _nothing(app: AppDir, name: str) -> NotFoundError:
    known = [each.name for each in _sorted(app)]
    near = nearest(name, known)
    hint = f"did you mean `{near}`?" if near else "mlstack prototype list" if known else _INSTALL
    return NotFoundError(f"no prototype matches `{name}`", near=near, hint=hint)


_INSTALL = "no package is installed: mlstack pkg list, then mlstack pkg install REGISTRY/PACKAGE"


def search_prototypes(app: AppDir, text: str) -> PrototypeList:
    """Find prototypes by name and description, packages that are not installed, and retired names.

    A registry that does not answer is left out and noted.
    """
    wanted = text.lower()
    rows = [_row(found) for found in _sorted(app) if wanted in _searched(found)]
    notes: list[str] = []
    for registry, index in indexes(app.app().registries, root=app.root, notes=notes):
        rows += _offered_prototypes(app, registry, index, wanted)
        rows += _retired(registry, index, wanted)
    if not rows:
        notes.append(f"no prototype matches `{text}`: mlstack prototype list shows the installed ones")
    return PrototypeList(prototypes=tuple(rows), notes=tuple(notes))


def _searched(found: Prototype) -> str:
    return "\n".join((*_names(found), found.summary, found.description)).lower()


def _offered_prototypes(
    app: AppDir, registry: str, index: RegistryIndex, wanted: str
) -> Iterator[PrototypeRow]:
    """Give the packages of a registry that are not installed and whose name or summary holds the text."""
    installed = {locked.name for locked in app.lock().packages if locked.registry == registry}
    for _, package in sorted(index.packages.items()):
        if package.name not in installed and wanted in f"{package.name}\n{package.summary}".lower():
            full_name = f"{registry}/{package.name}"
            yield PrototypeRow(
                name=package.name,
                package=full_name,
                full_name=full_name,
                summary=package.summary,
                installed=False,
            )


def _retired(registry: str, index: RegistryIndex, wanted: str) -> Iterator[PrototypeRow]:
    for retired in index.retired:
        for name in retired.names:
            if wanted in name.lower():
                yield PrototypeRow(
                    name=name,
                    package="",
                    full_name=f"{registry}/{name}",
                    summary="; ".join(filter(None, (f"retired: {retired.reason}", retired.instead))),
                    installed=False,
                    retired=True,
                )


def describe_prototype(app: AppDir, name: str) -> PrototypeDescription:
    """Describe one prototype.

    Raises:
        NotFoundError: no such prototype, or several; of a retired name what to do instead.
    """
    return _describe(find_prototype(app, name))


def _describe(found: Prototype) -> PrototypeDescription:
    return PrototypeDescription(
        name=found.name,
        full_name=found.full_name,
        package=_package(found),
        summary=found.summary,
        description=found.description,
        aliases=found.aliases,
        alias_params=found.alias_params,
        parameters=tuple(_parameter(param) for param in found.params.values()),
        examples={name: example.summary for name, example in found.examples.items()},
    )


def _parameter(param: Param) -> ParameterRow:
    return ParameterRow(
        name=param.name,
        type=_type(param),
        default=param.default if param.has_default else None,
        required=param.required,
        unit=param.unit,
        limits="; ".join(_limits(param.schema)),
        description=param.description,
        aliases=param.aliases,
        secret=param.secret,
        deprecated=param.deprecated,
    )


def _type(param: Param) -> str:
    return _FORMATS.get(param.format or "") or "|".join(sorted(param.types - {"null"})) or "any"


_FORMATS = {"csv": "list", "kv": "map"}


def _limits(schema: Mapping[str, Any]) -> Iterator[str]:
    if "enum" in schema:
        yield "one of " + ", ".join(json.dumps(choice) for choice in schema["enum"] if choice is not None)
    lowest, highest = schema.get("minimum"), schema.get("maximum")
    if lowest is not None and highest is not None:
        yield f"{lowest} to {highest}"
    elif lowest is not None:
        yield f"at least {lowest}"
    elif highest is not None:
        yield f"at most {highest}"
    if "maxLength" in schema:
        yield f"at most {schema['maxLength']} characters"


def preview_prototype(
    app: AppDir, wanted: ComponentRequest, *, environment: str | None = None, store: CodeStore | None = None
) -> DesiredState:
    """Give the objects that a component would bring; nothing is written.

    Args:
        app: the app directory.
        wanted: the component; without a name it takes the prototype's.
        environment: where it would be deployed; None takes the namespace `default` and no overrides.
        store: keeps compiled templates and passed parameter sets.

    Raises:
        UsageError: an unknown parameter, or a required one missing.
        NotFoundError: no such prototype or environment; of a retired name what to do instead.
        ParamError: a value does not fit its parameter.
        TemplateError: a template does not render.
    """
    prototype = find_prototype(app, wanted.prototype)
    if wanted.name is None and "name" not in wanted.texts:
        wanted = replace(wanted, name=prototype.name)
    found = draft(app, wanted, prototype, passed=store)
    place = app.environment(environment) if environment is not None else Environment(name="preview")
    return render.preview(
        app, found.component, found.prototype, found.resolved, environment=place, store=store
    )


# --- Components of an app: generate one from a prototype, list, remove ---


@dataclass(frozen=True, kw_only=True)
class Generated:
    """A component that was made.

    Attributes:
        name: its full name.
        prototype: full name of its prototype.
        file: its file below the app directory.
        replaced: whether there was one of that name before.
        notes: which prototype an alias stood for, deprecated parameters, and what the prototype says
            about its use.
    """

    name: str
    prototype: str
    file: str
    replaced: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ComponentRow:
    """One component in a list.

    Attributes:
        name: its full name.
        type: `prototype` or `manifest`.
        module: its module, empty at the root.
        prototype: full name of its prototype, None for manifests.
        package: package and version of its prototype, None for manifests.
        file: its file below the app directory.
        depends_on: components and modules that have to work before its objects are written.
    """

    name: str
    type: str
    module: str
    prototype: str | None
    package: str | None
    file: str
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ComponentList:
    """The components of an app, by name."""

    components: tuple[ComponentRow, ...]


@dataclass(frozen=True, kw_only=True)
class ComponentRemoved:
    """A component that is gone from the app.

    Attributes:
        name: its full name.
        files: the files that were deleted or changed, below the app directory.
    """

    name: str
    files: tuple[str, ...]


def generate(
    app: AppDir, wanted: ComponentRequest, *, replace: bool = False, store: PassedStore | None = None
) -> Generated:
    """Make a component; only what was given is written, the rest follows the package.

    What an alias sets counts as given, below the options.

    Raises:
        UsageError: no name, an unknown parameter, a required one missing, or the component exists.
        NotFoundError: no such prototype; of a retired name what to do instead.
        ParamError: a value does not fit its parameter.
    """
    with app.locked():
        prototype = find_prototype(app, wanted.prototype)
        found = draft(app, wanted, prototype, passed=store)
        told = (prototype.alias_note(wanted.prototype), *found.resolved.notes, *prototype.notes.splitlines())
        name = found.component.full_name
        exists = name in app.component_names()
        return Generated(
            name=name,
            prototype=found.prototype.full_name,
            file=app.add_component(found.component, replace=replace),
            replaced=exists,
            notes=tuple(line for line in told if line.strip()),
        )


def list_components(app: AppDir) -> ComponentList:
    """List the components of an app, by name."""
    return ComponentList(components=tuple(_component_row(app, component) for component in app.components()))


def _component_row(app: AppDir, component: Component | Manifest) -> ComponentRow:
    if not isinstance(component, Component):
        return ComponentRow(
            name=component.full_name,
            type="manifest",
            module=component.module,
            prototype=None,
            package=None,
            file=component.file,
        )
    prototype = app.prototype(component.prototype)
    return ComponentRow(
        name=component.full_name,
        type="prototype",
        module=component.module,
        prototype=prototype.name,
        package=f"{prototype.registry}/{prototype.package}@{prototype.version}",
        file=component.file,
        depends_on=component.depends_on,
    )


def remove_component(app: AppDir, name: str) -> ComponentRemoved:
    """Remove a component's file and what every environment says about it.

    Raises:
        NotFoundError: no such component.
        ConfigError: another component depends on it.
    """
    with app.locked():
        found = app.component(name).full_name
        for other in app.components():
            if isinstance(other, Component) and found in other.depends_on:
                raise ConfigError(
                    f"component `{other.full_name}` depends on `{found}`",
                    where=app.files.position(other.file, ("dependsOn", other.depends_on.index(found))),
                    hint="take it out of `dependsOn` there first",
                )
        return ComponentRemoved(name=found, files=app.remove_component(found))
