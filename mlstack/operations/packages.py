"""What an app is made from: packages, registries, prototypes and components."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlstack.app import atomic, layout
from mlstack.app.app import (
    Component,
    Environment,
    Manifest,
    PackageRef,
    RegistryRef,
    newest,
    parse_package_ref,
)
from mlstack.app.app_dir import AppDir
from mlstack.app.draft import ComponentRequest, draft
from mlstack.app.package import PackageFolder
from mlstack.app.prototype import Package, Param, Prototype
from mlstack.app.schema import PassedStore
from mlstack.errors import ConfigError, MlstackError, NotFoundError, UsageError
from mlstack.names import check_registry_name, nearest, version_key
from mlstack.objects.kube_object import DesiredState
from mlstack.operations import row
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
class PackageDescription:
    """One package with its prototypes."""

    package: str  # `registry/name`
    version: str  # the version that is described
    installed: str | None  # that version if it is installed
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
        if _registry(app.app().registries, wanted.registry) != _registry(registries, wanted.registry):
            raise ConfigError(
                f"the registry `{wanted.registry}` was changed by another command meanwhile;"
                " nothing was installed",
                where=layout.APP_FILE,
                hint="try again",
            )
        before = {(locked.full_name, locked.version, locked.digest) for locked in app.lock().packages}
        app.install(wanted, fetched, registry)
    rows = []
    for package in fetched:
        name = f"{package.registry}/{package.name}"
        is_kept = (name, package.version, package.digest) in before and not force
        rows.append(row(InstalledPackage, package, package=name, state="kept" if is_kept else "installed"))
    return Installed(packages=(*rows[1:], rows[0]))


def _registry(registries: Sequence[RegistryRef], name: str) -> RegistryRef | None:
    return next((registry for registry in registries if registry.name == name), None)


def list_packages(app: AppDir, *, installed_only: bool = False) -> PackageList:
    """List the packages of all registries and the installed ones, by name.

    A registry that does not answer is noted; with `installed_only` none is asked.
    """
    rows = {}
    for package in app.packages():
        name = f"{package.registry}/{package.name}"
        rows[name] = row(PackageRow, package, package=name, installed=package.version)
    notes: list[str] = []
    if not installed_only:
        installed = newest(app.lock().packages)
        for registry, index in indexes(app.app().registries, root=app.root, notes=notes):
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
        for package in app.packages()
        if (package.registry, package.name) == (wanted.registry, wanted.name)
        and wanted.version in ("", package.version)
    ]
    if installed:
        newest_installed = max(installed, key=lambda package: version_key(package.version))
        return _package_description(newest_installed, installed=newest_installed.version)
    fetched, _ = fetch_all(app.app().registries, wanted, root=app.root)
    folder, *libraries = (
        PackageFolder(
            package.files,
            source=f"{package.registry}/{package.name}@{package.version}",
            registry=package.registry,
        )
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
        packages = app.lock().packages
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
    for locked in app.lock().packages:
        with suppress(MlstackError):  # a broken one must not keep another from being removed
            if locked.registry == wanted.registry and wanted.name in app.requires(locked):
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
    known = _registry(app.app().registries, ref.name)
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
    return RegistryList(registries=tuple(_registry_row(ref) for ref in app.app().registries))


def _registry_row(ref: RegistryRef) -> RegistryRow:
    protocol = ref.protocol or protocol_of(ref.address)
    return row(RegistryRow, ref, protocol=protocol, bundled=is_bundled(ref.address))


def describe_registry(app: AppDir, name: str) -> RegistryDescription:
    """Describe a registry and its packages.

    Raises:
        NotFoundError: the app knows no such registry; carries the nearest one.
        RegistryError: it does not answer.
    """
    ref = _registry(app.app().registries, name)
    if ref is None:
        near = nearest(name, [ref.name for ref in app.app().registries])
        hint = None if near else f"mlstack registry add {name} ADDRESS"
        raise NotFoundError(f"no registry `{name}`", near=near, hint=hint)
    index = open_registry(ref, root=app.root).index()
    locked = newest(app.lock().packages).values()
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


# --- prototypes ---


@dataclass(frozen=True, kw_only=True)
class PrototypeRow:
    """One prototype in a list; one of a package that is not installed stands for that package."""

    name: str
    package: str  # package and version, empty for a retired name
    full_name: str  # never ambiguous
    summary: str  # one line; why a name is retired, and what to do instead
    installed: bool = True  # components can be made from it now
    retired: bool = False  # its registry does not offer it any more


@dataclass(frozen=True, kw_only=True)
class PrototypeList:
    """Prototypes by name, and what was in the way of finding more."""

    prototypes: tuple[PrototypeRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParameterRow:
    """One parameter as a person has to know it."""

    name: str
    type: str  # its JSON types, `list` or `map`
    default: Any  # None if it is unset then
    required: bool
    unit: str  # what a number counts
    limits: str  # bounds and choices in words
    description: str
    aliases: tuple[str, ...]  # old spellings
    secret: bool  # its value is masked
    deprecated: str | None  # why, and what to use instead


@dataclass(frozen=True, kw_only=True)
class PrototypeDescription:
    """One prototype with all its parameters."""

    name: str
    full_name: str
    package: str
    summary: str
    description: str
    aliases: tuple[str, ...]
    alias_params: Mapping[str, Mapping[str, Any]]  # alias -> parameters that differ from the defaults
    parameters: tuple[ParameterRow, ...]
    examples: Mapping[str, str]  # summaries of worked examples by name


@dataclass(frozen=True, kw_only=True)
class PrototypeMatches:
    """The prototypes that a name may mean, the nearest first."""

    prototypes: tuple[PrototypeDescription, ...]  # the one of that name, or without one all that match
    others: tuple[PrototypeRow, ...] = ()  # what else matches, where there is one of that name


def list_prototypes(app: AppDir) -> PrototypeList:
    """List the prototypes of the installed packages."""
    return PrototypeList(prototypes=tuple(_prototype_row(prototype) for prototype in _sorted(app)))


def _sorted(app: AppDir) -> list[Prototype]:
    return sorted(app.prototypes(), key=lambda prototype: (prototype.name, prototype.full_name))


def _prototype_row(prototype: Prototype) -> PrototypeRow:
    return row(PrototypeRow, prototype, package=_package_of(prototype), installed=True, retired=False)


def _package_of(prototype: Prototype) -> str:
    return f"{prototype.registry}/{prototype.package}@{prototype.version}"


def matching_prototypes(app: AppDir, name: str) -> PrototypeMatches:
    """Find the prototypes that a name may mean: by name and package, by alias where nothing else fits.

    The one of that name comes first, then those of the package of that name, those whose name ends with
    it, and those that hold it anywhere.

    Raises:
        NotFoundError: there is none; carries the nearest name, or says that the name is retired.
    """
    prototypes = sorted(_sorted(app), key=lambda prototype: _rank(prototype, name))
    matches = [prototype for prototype in prototypes if _rank(prototype, name) < _NO_MATCH]
    matches = matches or [
        prototype for prototype in prototypes if any(name in alias for alias in prototype.aliases)
    ]
    if not matches:
        refuse_if_retired(app, name)
        names = [prototype.name for prototype in _sorted(app)]
        near = nearest(name, names)
        hint = f"did you mean `{near}`?" if near else "mlstack prototype list" if names else _INSTALL
        raise NotFoundError(f"no prototype matches `{name}`", near=near, hint=hint)
    exact = [prototype for prototype in matches if _rank(prototype, name) == 0]
    return PrototypeMatches(
        prototypes=tuple(_prototype_description(prototype) for prototype in exact or matches),
        others=tuple(_prototype_row(match) for match in matches if exact and match not in exact),
    )


_NO_MATCH = 4
_INSTALL = "no package is installed: mlstack pkg list, then mlstack pkg install REGISTRY/PACKAGE"


def _rank(prototype: Prototype, name: str) -> int:
    """Tell how well a name fits, 0 the best."""
    fits = (
        name in (prototype.name, prototype.full_name),
        name in (prototype.package, f"{prototype.registry}/{prototype.package}"),
        prototype.name.endswith(name),
        name in prototype.full_name,
    )
    return fits.index(True) if True in fits else _NO_MATCH


def search_prototypes(app: AppDir, text: str) -> PrototypeList:
    """Find prototypes by name and description, packages that are not installed, and retired names.

    A registry that does not answer is left out and noted.
    """
    text_sought = text.lower()
    rows = [
        _prototype_row(prototype)
        for prototype in _sorted(app)
        if text_sought
        in "\n".join(
            (
                prototype.name,
                prototype.full_name,
                *prototype.aliases,
                prototype.summary,
                prototype.description,
            )
        ).lower()
    ]
    notes: list[str] = []
    for registry, index in indexes(app.app().registries, root=app.root, notes=notes):
        installed = {locked.name for locked in app.lock().packages if locked.registry == registry}
        rows += _offered_prototypes(registry, index, text_sought, installed)
    if not rows:
        notes.append(f"no prototype matches `{text}`: mlstack prototype list shows the installed ones")
    return PrototypeList(prototypes=tuple(rows), notes=tuple(notes))


def _offered_prototypes(
    registry: str, index: RegistryIndex, text: str, installed: Collection[str]
) -> Iterator[PrototypeRow]:
    """Give what a registry has of that text: packages that are not installed, then retired names."""
    for _, package in sorted(index.packages.items()):
        if package.name not in installed and text in f"{package.name}\n{package.summary}".lower():
            name = f"{registry}/{package.name}"
            yield row(PrototypeRow, package, package=name, full_name=name, installed=False, retired=False)
    for retired in index.retired:
        summary = "; ".join(filter(None, (f"retired: {retired.reason}", retired.instead)))
        for name in retired.names:
            if text in name.lower():
                yield PrototypeRow(
                    name=name,
                    package="",
                    full_name=f"{registry}/{name}",
                    summary=summary,
                    installed=False,
                    retired=True,
                )


def describe_prototype(app: AppDir, name: str) -> PrototypeDescription:
    """Describe one prototype.

    Raises:
        NotFoundError: no such prototype, or several; of a retired name what to do instead.
    """
    return _prototype_description(find_prototype(app, name))


def _prototype_description(prototype: Prototype) -> PrototypeDescription:
    parameters = tuple(
        row(
            ParameterRow,
            param,
            type=_type(param),
            default=param.default if param.has_default else None,
            limits="; ".join(_limits(param.schema)),
        )
        for param in prototype.params.values()
    )
    return row(
        PrototypeDescription,
        prototype,
        package=_package_of(prototype),
        parameters=parameters,
        examples={name: example.summary for name, example in prototype.examples.items()},
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
    app: AppDir, request: ComponentRequest, *, environment: str | None = None, store: CodeStore | None = None
) -> DesiredState:
    """Give the objects that a component would bring; nothing is written.

    Without a name it takes the prototype's; without an environment the namespace `default` and no overrides.

    Raises:
        UsageError: an unknown parameter, or a required one missing.
        NotFoundError: no such prototype or environment; of a retired name what to do instead.
        ParamError: a value does not fit its parameter.
        TemplateError: a template does not render.
    """
    prototype = find_prototype(app, request.prototype)
    if request.name is None and "name" not in request.texts:
        request = replace(request, name=prototype.name)
    component = draft(app, request, prototype, passed=store)
    place = app.environment(environment) if environment is not None else Environment(name="preview")
    return render.preview(
        app, component.component, component.prototype, component.resolved, environment=place, store=store
    )


# --- components ---


@dataclass(frozen=True, kw_only=True)
class Generated:
    """A component that was made."""

    name: str
    prototype: str
    file: str  # below the app directory
    replaced: bool  # there was one of that name before
    notes: tuple[str, ...] = ()  # of its alias, deprecated parameters, and the prototype's own


@dataclass(frozen=True, kw_only=True)
class ComponentRow:
    """One component in a list."""

    name: str
    type: str  # `prototype` or `manifest`
    module: str  # empty at the root
    prototype: str | None
    package: str | None  # package and version of its prototype
    file: str  # below the app directory
    depends_on: tuple[str, ...] = ()  # what has to work before its objects are written


@dataclass(frozen=True, kw_only=True)
class ComponentList:
    """The components of an app, by name."""

    components: tuple[ComponentRow, ...]


@dataclass(frozen=True, kw_only=True)
class ComponentRemoved:
    """A component that is gone from the app."""

    name: str
    files: tuple[str, ...]  # those that were deleted or changed, below the app directory


def generate(
    app: AppDir, request: ComponentRequest, *, replace: bool = False, store: PassedStore | None = None
) -> Generated:
    """Make a component; only what was given is written, the rest follows the package.

    What an alias sets counts as given, below the options.

    Raises:
        UsageError: no name, an unknown parameter, a required one missing, or the component exists.
        NotFoundError: no such prototype; of a retired name what to do instead.
        ParamError: a value does not fit its parameter.
    """
    with app.locked():
        prototype = find_prototype(app, request.prototype)
        component = draft(app, request, prototype, passed=store)
        notes = (
            prototype.alias_note(request.prototype),
            *component.resolved.notes,
            *prototype.notes.splitlines(),
        )
        name = component.component.full_name
        exists = name in app.component_names()
        return Generated(
            name=name,
            prototype=component.prototype.full_name,
            file=app.add_component(component.component, replace=replace),
            replaced=exists,
            notes=tuple(note for note in notes if note.strip()),
        )


def list_components(app: AppDir) -> ComponentList:
    """List the components of an app, by name."""
    return ComponentList(components=tuple(_component_row(app, component) for component in app.components()))


def _component_row(app: AppDir, component: Component | Manifest) -> ComponentRow:
    about: dict[str, Any] = {"type": "manifest", "prototype": None, "package": None, "depends_on": ()}
    if isinstance(component, Component):
        prototype = app.prototype(component.prototype)
        about = {
            "type": "prototype",
            "prototype": prototype.name,
            "package": _package_of(prototype),
            "depends_on": component.depends_on,
        }
    return row(ComponentRow, component, name=component.full_name, **about)


def remove_component(app: AppDir, name: str) -> ComponentRemoved:
    """Remove a component's file and what every environment says about it.

    Raises:
        NotFoundError: no such component.
        ConfigError: another component depends on it.
    """
    with app.locked():
        full_name = app.component(name).full_name
        for other in app.components():
            if isinstance(other, Component) and full_name in other.depends_on:
                raise ConfigError(
                    f"component `{other.full_name}` depends on `{full_name}`",
                    where=app.files.position(other.file, ("dependsOn", other.depends_on.index(full_name))),
                    hint="take it out of `dependsOn` there first",
                )
        return ComponentRemoved(name=full_name, files=app.remove_component(full_name))
