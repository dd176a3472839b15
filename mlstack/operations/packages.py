"""Packages of an app and their prototypes: installed, restored, listed, described, removed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mlstack.app.app import Component, PackageRef
from mlstack.app.app_dir import AppDir, Copy
from mlstack.app.prototype import Prototype
from mlstack.app.versions import KSONNET_PREFIX, IndexPackage, LockedPackage, RegistryIndex, newest
from mlstack.dataclass import Record, row
from mlstack.errors import MlstackError, UsageError
from mlstack.names import fits, not_found
from mlstack.registries import installation
from mlstack.registries.installation import Installation, covers, full_ref, read_package
from mlstack.registries.registry import find_usable, indexes, missing_prototype
from mlstack.registries.resolver import APP
from mlstack.render import kustomize


class InstalledPackage(Record):
    """One package that is in `vendor/` now."""

    package: str  # `registry/name`
    version: str
    digest: str  # `sha256:…` of its content
    state: str  # `installed`, `restored` if `vendor/` lacked it or was overwritten, `kept` if it was there
    environments: tuple[str, ...] = ()  # that have this version in place of the app's


class Installed(Record):
    """What an installation brought: the packages that are required first, the wanted ones last."""

    packages: tuple[InstalledPackage, ...]
    removed: tuple[str, ...] = ()  # versions that nothing needs any more
    copies: tuple[str, ...] = ()  # kustomizations of others, `URL@REF`, of which `vendor/` got a copy
    notes: tuple[str, ...] = ()  # what registries say against versions


class PackageRow(Record):
    """One package in a list; one version of it in a list of installed ones."""

    package: str  # `registry/name`
    version: str  # the newest of the registry; the installed one where no registry was asked
    installed: tuple[str, ...]  # the installed versions
    environments: tuple[str, ...] = ()  # that have this version in place of the app's
    summary: str


class PackageList(Record):
    """Packages by name, and which registries did not answer."""

    packages: tuple[PackageRow, ...]
    notes: tuple[str, ...] = ()


class PrototypeSummary(Record):
    """One prototype of a package."""

    name: str
    summary: str


class PackageDescription(PackageRow):
    """One package with its prototypes: in the version that is described, and installed if it is."""

    description: str
    license: str
    authors: tuple[str, ...]
    keywords: tuple[str, ...]
    repository: str
    bugs: str
    quick_start: str
    requires: tuple[str, ...]  # with the versions that fit
    requires_mlstack: str
    digest: str
    source: str  # address it comes from
    revision: str  # commit, or digest of an artifact
    needs: tuple[str, ...]  # kinds that must be in the cluster for its prototypes
    checked_with: Mapping[str, str]  # operator → version that they were tried with
    prototypes: tuple[PrototypeSummary, ...]
    notes: tuple[str, ...] = ()


class PackageRemoved(Record):
    """The packages that are gone, `registry/name@version`: the named one, and what only it required."""

    packages: tuple[str, ...]
    environment: str | None = None  # whose requirement went, where it was not the app's


def install_packages(
    app: AppDir, texts: Sequence[str] = (), *, environment: str | None = None, force: bool = False
) -> Installed:
    """Copy packages and what they require into `vendor/`, pinned by version and digest.

    Without packages, those that the app's files ask for: at the locked versions where these fit, fetched at
    their locked commits where `vendor/` lacks them; copies of other people's kustomizations likewise.
    `texts` are packages as typed, each with a version, range, branch, tag, commit or digest if wanted. They
    become requirements of the app, or of the environment; `force` fetches again what is there already.
    """
    refs = tuple(full_ref(app, text) for text in texts)
    if environment is not None:
        app.environment(environment)
        if not refs:
            hint = f"mlstack pkg install --env {environment} REGISTRY/PACKAGE@VERSION"
            raise UsageError("which package is that environment to have?", hint=hint)
    scope = environment or APP
    moving = [(scope, ref.full_name) for ref in refs if environment or not ref.is_exact]
    ranges = {ref.full_name: ref for ref in (*app.app.packages,) if not ref.is_exact}
    # Who names a package again without a version keeps the range that the file has.
    entered = tuple(
        ranges[ref.full_name] if not (ref.version or environment) and ref.full_name in ranges else ref
        for ref in refs
    )
    force_of = None if force and not refs else {ref.full_name for ref in refs} if force else ()
    copies = [] if refs else kustomize.missing_copies(app, force=force)
    changed = installation.change(app, {scope: entered} if refs else {}, free=moving, force=force_of)
    return _installed(app, changed, [ref.full_name for ref in refs], copies)


def restore_packages(app: AppDir, *, force: bool = False) -> Installed:
    """Bring `vendor/` to what `mlstack.lock` says; no other file of the app changes."""
    installation.refuse_stale(app)
    copies = kustomize.missing_copies(app, frozen=True, force=force)
    return _installed(app, installation.change(app, {}, force=None if force else ()), [], copies)


def _installed(app: AppDir, changed: Installation, named: Sequence[str], copies: Sequence[Copy]) -> Installed:
    """Write what is left, and tell what became of the named packages and what they require, or of all."""
    with app.locked():
        app.vendor_kustomizations(copies)
    before = {(package.ref, package.digest) for package in changed.before.packages}
    fetched = {package.locked.ref for package in changed.fetched}
    rows = {}
    for package in _required_first(changed.lock.packages, named):
        state = "kept" if (package.ref, package.digest) in before else "installed"
        state = "restored" if state == "kept" and package.ref in fetched else state
        rows[package.ref] = row(
            InstalledPackage, package, package=package.full_name, state=state, environments=package.only_in
        )
    gone = {package.ref for package in changed.before.packages} - {p.ref for p in changed.lock.packages}
    return Installed(
        packages=tuple(rows.values()),
        removed=tuple(sorted(map(str, gone))),
        copies=tuple(entry.source for entry, _ in copies),
        notes=changed.notes,
    )


def _required_first(packages: Iterable[LockedPackage], named: Sequence[str]) -> list[LockedPackage]:
    by_name: dict[str, list[LockedPackage]] = {}
    for package in packages:
        by_name.setdefault(package.full_name, []).append(package)
    ordered: list[LockedPackage] = []
    visited: set[str] = set()

    def visit(name: str) -> None:
        if name not in visited:
            visited.add(name)
            for needed in [
                needed for package in by_name.get(name, ()) for needed in sorted(package.requires)
            ]:
                visit(needed)
            ordered.extend(by_name.get(name, ()))

    for name in named or sorted(by_name):
        visit(name)
    return ordered


def list_packages(app: AppDir, *, installed_only: bool = False) -> PackageList:
    """List the packages of all registries and the installed ones, by name.

    A registry that does not answer is noted; with `installed_only` none is asked, and each version is a row.
    """
    versions: dict[str, tuple[str, ...]] = {}
    rows: dict[tuple[str, str], PackageRow] = {}
    for locked in app.lock.packages:
        name, version = locked.full_name, locked.version
        versions[name] = (*versions.get(name, ()), version)
        about = {"package": name, "installed": (version,), "environments": locked.only_in}
        rows[name, version] = row(PackageRow, app.vendor.package(locked), **about)
    if installed_only:
        return PackageList(packages=tuple(row for _, row in sorted(rows.items())))
    latest = newest(app.lock.packages).items()
    listed = {
        name: row(PackageRow, rows[name, locked.version], installed=versions[name]) for name, locked in latest
    }
    notes: list[str] = []
    for registry, index in indexes(app.app.registries, root=app.root, notes=notes):
        for short_name, offer in index.packages.items():
            name, version = f"{registry}/{short_name}", offer.newest.version
            listed[name] = PackageRow(
                package=name, version=version, installed=versions.get(name, ()), summary=offer.summary
            )
    return PackageList(packages=tuple(row for _, row in sorted(listed.items())), notes=tuple(notes))


def describe_package(app: AppDir, text: str) -> PackageDescription:
    """Describe a package, installed or not; its registry may be left out where only one has it."""
    package, locked, notes = read_package(app, full_ref(app, text))
    name = f"{package.registry}/{package.name}"
    requires = [
        f"{needed}@{how['version']}" if how.get("version") else needed
        for needed, how in package.requires.items()
    ]
    prototypes = [prototype for _, prototype in sorted(package.prototypes.items())]
    checked = {name: version for prototype in prototypes for name, version in prototype.checked_with.items()}
    return row(
        PackageDescription,
        package,
        package=name,
        installed=tuple(entry.version for entry in app.lock.packages if entry.full_name == name),
        environments=locked.only_in,
        requires=tuple(requires),
        needs=tuple(dict.fromkeys(need.kind for prototype in prototypes for need in prototype.needs)),
        checked_with=checked,
        source=locked.source,
        revision=locked.revision,
        prototypes=tuple(row(PrototypeSummary, prototype) for prototype in prototypes),
        notes=tuple(notes),
    )


def remove_packages(app: AppDir, texts: Sequence[str], *, environment: str | None = None) -> PackageRemoved:
    """Remove packages that no component uses, and what only they required; they may require each other.

    With an environment only its own requirements go, so that it has the app's versions again.
    """
    with app.locked():
        if environment is not None:
            gone = installation.leave_environment(app, texts, environment)
            return PackageRemoved(packages=gone, environment=environment)
        targets, packages = [full_ref(app, text, offline=True) for text in texts], app.lock.packages
        meant = [locked for locked in packages if any(covers(target, locked.ref) for target in targets)]
        removed: dict[PackageRef, None] = {}
        for target in targets:
            versions = [locked for locked in packages if locked.full_name == target.full_name]
            if not any(covers(target, locked.ref) for locked in versions):
                message, hint = f"package `{target}` is not installed", "mlstack pkg list --installed"
                known = [locked.full_name for locked in packages]
                raise not_found(message, target.full_name, known, hint=hint)
            left = [locked for locked in versions if locked not in meant]
            _refuse_needed(app, target, meant, left)
            own = [ref for ref in app.app.packages if ref.full_name == target.full_name]
            # What no requirement names by its version was brought by the one without: that goes with it.
            is_whole = target not in own or not left
            removed |= dict.fromkeys(
                ref for ref in own if covers(target, ref) or (is_whole and not ref.is_exact)
            )
        return PackageRemoved(packages=installation.remove(app, {APP: tuple(removed)}, gone=meant))


def _refuse_needed(
    app: AppDir, wanted: PackageRef, meant: Sequence[LockedPackage], left: Sequence[LockedPackage]
) -> None:
    """Refuse to remove what components, environments or other packages need; `left` are other versions."""
    if users := list(_users(app, wanted)):
        names = ", ".join(f"`{user}`" for user in users)
        hint = "\n      ".join(f"mlstack component rm {user}" for user in users)
        raise UsageError(f"package `{wanted}` is used by {names}", hint=hint)
    for name in app.environment_names:
        own = app.environment_chain(name)[-1].environment.packages
        if any(ref.full_name == wanted.full_name for ref in own) and (
            not left or any(name in locked.environments for locked in meant)
        ):
            hint = f"mlstack pkg rm --env {name} {wanted.full_name}"
            raise UsageError(f"package `{wanted}` is asked for by environment `{name}`", hint=hint)
    needing = [
        other
        for other in app.lock.packages
        if other not in meant
        and wanted.full_name in other.requires
        and not any(fits(locked.version, other.requires[wanted.full_name]) for locked in left)
    ]
    if needing:
        names = ", ".join(f"`{package}`" for package in dict.fromkeys(other.full_name for other in needing))
        hint = f"mlstack pkg rm {needing[0].full_name}"
        raise UsageError(f"package `{wanted}` is required by {names}", hint=hint)


def _users(app: AppDir, wanted: PackageRef) -> Iterator[str]:
    """Give the components that are made from a package."""
    for component in app.components():
        if not isinstance(component, Component):
            continue
        try:
            prototype = app.prototype_of(component)
            owner, version = f"{prototype.registry}/{prototype.package}", prototype.version
        except MlstackError:  # the package is broken, or gone: what the name says must do
            owner, _, version = component.prototype.rpartition("/")[0].partition("@")
        if owner == wanted.full_name and wanted.version in ("", version):
            yield component.full_name


# --- prototypes ---


class PrototypeRow(Record):
    """One prototype in a list; one of a package that is not installed stands for that package."""

    name: str
    package: str  # package and version, empty for a retired name
    full_name: str  # never ambiguous
    summary: str  # one line; why a name is retired, and what to do instead
    installed: bool = True  # components can be made from it now
    retired: bool = False  # its registry does not offer it any more


class PrototypeList(Record):
    """Prototypes by name, and what was in the way of finding more."""

    prototypes: tuple[PrototypeRow, ...]
    notes: tuple[str, ...] = ()


class ParameterRow(Record):
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


class PrototypeDescription(Record):
    """One prototype with all its parameters."""

    name: str
    full_name: str
    package: str
    summary: str
    description: str
    aliases: tuple[str, ...]
    alias_params: Mapping[str, Mapping[str, Any]]  # alias -> parameters that differ from the defaults
    # alias -> old names of parameters -> those of today
    alias_renames: Mapping[str, Mapping[str, str | None]]
    parameters: tuple[ParameterRow, ...]
    examples: Mapping[str, str]  # summaries of worked examples by name
    needs: tuple[str, ...]  # kinds that must be in the cluster, and how they come there
    checked_with: Mapping[str, str]  # operator → version that it was tried with


class PrototypeMatches(Record):
    """The prototypes that a name may mean, the nearest first."""

    prototypes: tuple[PrototypeDescription, ...]  # the one of that name, or without one all that match
    others: tuple[PrototypeRow, ...] = ()  # what else matches, where there is one of that name


def list_prototypes(app: AppDir) -> PrototypeList:
    """List the prototypes of the installed packages, and the built-in ones."""
    rows = [_prototype_row(prototype) for prototype in _sorted(app)]
    if built_in := installation.built_in_package(app):
        rows += _offered_rows(built_in[0].registry, built_in[1], "")
    return PrototypeList(prototypes=tuple(rows))


def _sorted(app: AppDir) -> list[Prototype]:
    return sorted(app.vendor.prototypes(), key=lambda prototype: (prototype.name, prototype.full_name))


def _prototype_row(prototype: Prototype) -> PrototypeRow:
    return row(PrototypeRow, prototype, package=prototype.package_version, installed=True, retired=False)


def matching_prototypes(app: AppDir, name: str) -> PrototypeMatches:
    """Find the prototypes that a name may mean: by name and package, by alias where nothing else fits.

    The one of that name comes first, then those of the package of that name, those whose name ends with
    it, and those that hold it anywhere.
    """
    name = name.removeprefix(KSONNET_PREFIX)
    prototypes = sorted(_sorted(app), key=lambda prototype: _rank(prototype, name))
    matches = [prototype for prototype in prototypes if _rank(prototype, name) < _NO_MATCH]
    matches = matches or [
        prototype for prototype in prototypes if any(name in alias for alias in prototype.aliases)
    ]
    if not matches and (built_in := installation.built_in_prototype(app, name)):
        matches = [built_in[0]]
    if not matches:
        names = [prototype.name for prototype in _sorted(app)]
        hint = "mlstack prototype list" if names else _INSTALL
        error = not_found(f"no prototype matches `{name}`", name, names, hint=hint)
        raise missing_prototype(app, name, error)
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
    """Find prototypes by name, alias and description, installed or not, and retired names.

    A registry that does not answer is left out and noted.
    """
    words = text.lower().removeprefix(KSONNET_PREFIX)
    rows = [
        _prototype_row(own)
        for own in _sorted(app)
        if words in "\n".join((own.name, own.full_name, *own.aliases, own.summary, own.description)).lower()
    ]
    notes: list[str] = []
    offered: list[PrototypeRow] = []
    retired: list[PrototypeRow] = []
    for registry, index in indexes(app.app.registries, root=app.root, notes=notes):
        installed = {locked.name for locked in app.lock.packages if locked.registry == registry}
        for _, package in sorted(index.packages.items()):
            if package.name not in installed:
                offered += _offered_rows(registry, package, words)
        retired += _retired_rows(registry, index, words)
    packages = list(dict.fromkeys(row.package.partition("@")[0] for row in offered))
    if packages:
        listed = "\n".join(f"  mlstack pkg install {package}" for package in packages)
        notes.append(f"not installed yet:\n{listed}")
    rows += [*offered, *retired]
    if not rows:
        notes.append(f"no prototype matches `{text}`: mlstack prototype list shows the installed ones")
    return PrototypeList(prototypes=tuple(rows), notes=tuple(notes))


def _offered_rows(registry: str, package: IndexPackage, words: str) -> Iterator[PrototypeRow]:
    """Give what matches of a package that is not installed; itself, where its index tells no prototypes."""
    full_name = f"{registry}/{package.name}"
    about = "\n".join((full_name, package.summary, *package.keywords)).lower()
    offered = {"package": f"{full_name}@{package.newest.version}", "installed": False, "retired": False}
    for prototype in package.prototypes:
        if words in about or words in "\n".join((*prototype.names, prototype.summary)).lower():
            yield row(PrototypeRow, prototype, full_name=f"{full_name}/{prototype.name}", **offered)
    if not package.prototypes and words in about:
        yield row(PrototypeRow, package, full_name=full_name, **offered)


def _retired_rows(registry: str, index: RegistryIndex, words: str) -> Iterator[PrototypeRow]:
    prototypes = [prototype for package in index.packages.values() for prototype in package.prototypes]
    offered = {name for prototype in prototypes for name in prototype.names}
    for entry in index.retired:
        summary = "; ".join(filter(None, (f"{entry.state}: {entry.reason}", entry.instead)))
        for name in entry.names:
            if words in name.lower() and name not in offered:
                about = {"name": name, "full_name": f"{registry}/{name}", "summary": summary}
                yield PrototypeRow(**about, package="", installed=False, retired=True)


def describe_prototype(app: AppDir, name: str) -> PrototypeDescription:
    """Describe one prototype."""
    return _prototype_description(find_usable(app, name)[0])


def _prototype_description(prototype: Prototype) -> PrototypeDescription:
    from mlstack.readiness.rule import need_text

    formats = {"csv": "list", "kv": "map"}
    parameters = tuple(
        row(
            ParameterRow,
            param,
            type=formats.get(param.format or "") or "|".join(sorted(param.types - {"null"})) or "any",
            default=param.default if param.has_default else None,
            limits="; ".join(_limits(param.schema)),
        )
        for param in prototype.params.values()
    )
    return row(
        PrototypeDescription,
        prototype,
        package=prototype.package_version,
        parameters=parameters,
        examples={name: example.summary for name, example in prototype.examples.items()},
        needs=tuple(need_text(need, "ENV") for need in prototype.needs),
    )


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
