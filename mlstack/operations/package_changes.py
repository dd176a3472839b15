"""Newer versions of packages: which there are, what they would change, how they differ, what is intact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from mlstack.app.app import Component
from mlstack.app.app_dir import AppDir
from mlstack.app.files import read_folder
from mlstack.app.package import PackageFolder, Vendor, changed_files, digest, file_digests
from mlstack.app.params import spelling_table
from mlstack.app.prototype import Package, Param, Prototype, mask_value
from mlstack.app.reader import AppReader
from mlstack.app.versions import Lock, LockedPackage
from mlstack.dataclass import Record, row
from mlstack.deploy import history
from mlstack.errors import MlstackError, RegistryError, UsageError
from mlstack.names import best_first, not_found
from mlstack.readiness.evaluate import needs_new_run
from mlstack.registries import installation
from mlstack.registries.installation import Installation, full_ref, read_package, requirements_of
from mlstack.registries.publish import fixed_fields
from mlstack.registries.resolver import APP, AppCatalog, Requirements
from mlstack.render import render

# --- outdated ---


class OutdatedPackage(Record):
    """One installed package for which there is something newer, or against which something is said."""

    package: str  # `registry/name`
    installed: str
    wanted: str  # the newest that requirements of the app and of other packages let in
    newest: str  # the newest of the registry
    environments: tuple[str, ...] = ()  # that have this version in place of the app's
    note: str = ""  # why it is withdrawn or deprecated


class OutdatedList(Record):
    """Packages that are not the newest, by name, and which registries did not answer."""

    packages: tuple[OutdatedPackage, ...]
    notes: tuple[str, ...] = ()


def list_outdated(app: AppDir) -> OutdatedList:
    """List the installed packages for which their registries have newer versions; nothing is written."""
    catalog = AppCatalog(app.app.registries, app.lock.packages, root=app.root)
    notes: dict[str, None] = {}
    rows = []
    requirements = requirements_of(app)
    for locked in app.lock.packages:
        try:
            newest = next(iter(catalog.versions(locked.full_name, "")), locked.version)
            warnings = "; ".join(catalog.warnings(locked.full_name, locked.version))
        except MlstackError as error:
            notes[f"registry `{locked.registry}` was left out: {error}"] = None
            continue
        allowed = _wanted(app, catalog, locked, requirements)
        if newest != locked.version or warnings:
            about = {"package": locked.full_name, "installed": locked.version, "wanted": allowed}
            about |= {"newest": best_first({newest, locked.version})[0], "note": warnings.partition("` ")[2]}
            rows.append(OutdatedPackage(**about, environments=locked.only_in))
    return OutdatedList(packages=tuple(rows), notes=(*notes, *catalog.notes))


def _wanted(app: AppDir, catalog: AppCatalog, locked: LockedPackage, requirements: Requirements) -> str:
    """Give the newest version that all who ask for a package by a range take."""
    scopes = set(locked.environments)
    ranges = [requirements.scope(scope).get(locked.full_name) for scope in scopes]
    wishes = [ref.version for ref in ranges if ref is not None]
    wishes += [
        other.requires[locked.full_name]
        for other in app.lock.packages
        if locked.full_name in other.requires and scopes & set(other.environments)
    ]
    if not scopes:  # it stands beside the usual one, because it was asked for
        return locked.version
    versions = set(catalog.versions(locked.full_name, ""))
    for wish in filter(None, wishes):
        versions &= set(best_first(catalog.versions(locked.full_name, wish), wish))
    return best_first(versions or {locked.version})[0]


# --- update ---


class UpdatedPackage(Record):
    """One package that got another version."""

    package: str  # `registry/name`
    before: str | None  # None for one that is new
    after: str | None  # None for one that nothing requires any more
    environments: tuple[str, ...] = ()  # that have it in place of the app's


class ParameterEffect(Record):
    """What a newer version changes about a parameter of a component."""

    component: str
    environment: str | None  # None where the app has no environment
    parameter: str
    # `default`: another one counts now; `hidden`: another one, under a value of one's own; `gone`, `renamed`,
    # `new` and `required` as they say; `type`: other values are allowed
    kind: str
    before: Any = None
    after: Any = None
    origin: str = ""  # where the own value stands that hides a default, or that sets what is gone


class ObjectEffect(Record):
    """What a newer version changes about an object."""

    environment: str
    object: str
    component: str
    action: str  # `create`, `update`, `recreate`, `delete`
    reason: str = ""  # why it cannot change in place


class Updated(Record):
    """What an update brought, or would bring."""

    preview: bool  # nothing was written
    packages: tuple[UpdatedPackage, ...]
    parameters: tuple[ParameterEffect, ...] = ()
    objects: tuple[ObjectEffect, ...] = ()
    notes: tuple[str, ...] = ()


def update_packages(
    app: AppDir, texts: Sequence[str] = (), *, environment: str | None = None, preview: bool = False
) -> Updated:
    """Move packages to the newest versions that requirements let in; without `texts` all.

    A range that is typed behind a package becomes the requirement: the app's, or that of the environment. A
    `preview` writes nothing, and says per component and environment which defaults, parameters and objects
    would change.
    """
    refs = [full_ref(app, text, offline=True) for text in texts]
    installed = sorted({locked.full_name for locked in app.lock.packages})
    for ref in refs:
        if ref.full_name not in installed:
            message, hint = f"package `{ref.full_name}` is not installed", f"mlstack pkg install {ref}"
            raise not_found(message, ref.full_name, installed, hint=hint)
        if ref.is_exact:
            message = f"an update goes to the newest version, and `{ref}` names one"
            raise UsageError(message, hint=f"mlstack pkg install {ref}")
    scopes = [environment] if environment else [APP, *app.environment_names]
    names = [ref.full_name for ref in refs] or installed
    entered = {environment or APP: tuple(ref for ref in refs if ref.version)}
    free = [(scope, name) for scope in scopes for name in names]
    ranges = {ref.full_name for ref in app.app.packages if not ref.is_exact}
    notes = [
        f"`{ref.full_name}` stays at {ref.version}, which app.yaml names: mlstack pkg install {ref.full_name}"
        for ref in app.app.packages
        if ref.is_exact and ref.full_name in names and ref.full_name not in ranges
    ]
    if preview:
        catalog = AppCatalog(app.app.registries, app.lock.packages, root=app.root)
        return _preview(app, installation.plan(app, requirements_of(app, entered), catalog, free=free), notes)
    changed = installation.change(app, entered, free=free)
    packages = _moved(changed.before, changed.lock)
    for name in app.environment_names if packages else ():
        try:
            render.load(app, name, stand_ins=True)  # secrets of others are not asked for
        except MlstackError as error:
            notes.append(f"`{name}` does not render now: {error}")
    return Updated(preview=False, packages=packages, notes=(*notes, *changed.notes))


def _moved(before: Lock, after: Lock) -> tuple[UpdatedPackage, ...]:
    """Say which packages have other versions, scope by scope."""
    rows = []
    for name in sorted({package.full_name for package in (*before.packages, *after.packages)}):
        old, new = (
            {p.version: p.environments for p in lock.packages if p.full_name == name}
            for lock in (before, after)
        )
        gone, come = (best_first(first.keys() - second.keys()) for first, second in ((old, new), (new, old)))
        for left, version in zip_longest(gone, come):
            environments = tuple(scope for scope in new.get(version, ()) if scope != APP)
            rows.append(UpdatedPackage(package=name, before=left, after=version, environments=environments))
    return tuple(rows)


def _preview(app: AppDir, planned: Installation, notes: Sequence[str]) -> Updated:
    after = AppReader(app.root, store=app.store)  # the app as it would be; nothing is written
    after.lock = planned.lock
    after.vendor = Vendor(app.root, planned.lock.packages, app.store, fetched=planned.fetched)
    parameters: list[ParameterEffect] = []
    objects: list[ObjectEffect] = []
    remarks = list(notes)
    environments: list[str | None] = [*app.environment_names] or [None]
    for environment in environments:
        place = app.environment(environment) if environment else None
        for component in app.selected(place):
            if not isinstance(component, Component) or not component.prototype:
                continue
            old, new = (_prototype(reader, component, environment) for reader in (app, after))
            if old is not None and new is not None and old.digest == new.digest:
                continue  # its libraries are the same too, and so is all that comes of it
            parameters += _parameter_effects(app, component, environment, old, new)
            try:
                if environment:
                    objects += _object_effects(app, after, environment, component.full_name)
            except MlstackError as error:
                remarks.append(f"`{component.full_name}` would not render for `{environment}`: {error}")
    return Updated(
        preview=True,
        packages=_moved(app.lock, planned.lock),
        parameters=tuple(parameters),
        objects=tuple(objects),
        notes=(*remarks, *planned.notes),
    )


def _prototype(app: AppReader, component: Component, environment: str | None) -> Prototype | None:
    """Give what a component is made of; None for what is broken or gone."""
    with suppress(MlstackError):
        return app.prototype_of(component, environment)
    return None


def _parameter_effects(
    app: AppReader,
    component: Component,
    environment: str | None,
    old: Prototype | None,
    new: Prototype | None,
) -> Iterator[ParameterEffect]:
    """Say what another version of its prototype changes for a component."""
    about: dict[str, Any] = {"component": component.full_name, "environment": environment}
    if new is None:
        yield ParameterEffect(**about, parameter="", kind="gone", before=component.prototype)
    if old is None or new is None:
        return
    try:
        resolved = app.resolve(component, environment)
    except MlstackError:  # what it has now does not render either
        return
    spellings = spelling_table(new.params)
    former = {spellings.get(name, name): name for name in old.params}
    for effect in _parameter_changes(old, new):
        setting = resolved.setting(former.get(effect.parameter, effect.parameter))
        origin = str(setting.origin) if setting is not None and setting.layer != "default" else ""
        if effect.kind == "default" and origin:
            yield row(ParameterEffect, effect, **about, kind="hidden", origin=origin)
        elif effect.kind in ("gone", "renamed") and not origin:
            continue  # nothing of the app names it
        elif effect.kind == "required" and origin:
            continue
        else:
            yield row(ParameterEffect, effect, **about, origin=origin)


def _parameter_changes(old: Prototype, new: Prototype) -> Iterator[ParameterEffect]:
    """Say which parameters two versions of a prototype declare differently."""
    spellings = spelling_table(new.params)
    about: dict[str, Any] = {"component": "", "environment": None}
    for name, param in old.params.items():
        heir = new.params.get(spellings.get(name, ""))
        if heir is None:
            yield ParameterEffect(**about, parameter=name, kind="gone", before=_default(param))
            continue
        if heir.name != name:
            yield ParameterEffect(**about, parameter=name, kind="renamed", before=name, after=heir.name)
        if (param.has_default, param.default) != (heir.has_default, heir.default):
            defaults = {"before": _default(param), "after": _default(heir)}
            yield ParameterEffect(**about, parameter=heir.name, kind="default", **defaults)
        if heir.required and not param.required:
            yield ParameterEffect(**about, parameter=heir.name, kind="required")
        before, after = _allowed(param.schema), _allowed(heir.schema)
        if before != after:
            yield ParameterEffect(**about, parameter=heir.name, kind="type", before=before, after=after)
    kept = {spellings.get(name) for name in old.params}
    for name, param in new.params.items():
        if name not in kept:
            kind = "required" if param.required else "new"
            yield ParameterEffect(**about, parameter=name, kind=kind, after=_default(param))


def _default(param: Param) -> Any:
    return mask_value(param.default, param) if param.has_default else None


_LIMITS = ("type", "enum", "const", "minimum", "maximum", "minLength", "maxLength", "pattern")


def _allowed(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {word: schema[word] for word in _LIMITS if word in schema}


def _object_effects(
    app: AppReader, after: AppReader, environment: str, component: str
) -> Iterator[ObjectEffect]:
    """Say which objects of a component change, and which cannot in place."""
    states = [render.load(reader, environment, components=[component]) for reader in (app, after)]
    old_objects, new_objects = ({obj.identity: obj for obj in state.objects} for state in states)
    for change in history.changes_between(*states):
        if change.action not in ("create", "update", "delete"):
            continue
        old, new, reason = old_objects.get(change.identity), new_objects.get(change.identity), ""
        if old is not None and new is not None:  # by the API server's rules, else by those of its operator
            names = ", ".join(fixed_fields(old, new))
            reason = f"{names} cannot change while it exists" if names else ""
            reason = reason or needs_new_run(old.data, change.fields) or ""
        about = {"environment": environment, "object": str(change.identity), "reason": reason}
        yield row(ObjectEffect, change, **about, action="recreate" if reason else change.action)


# --- diff ---


class PrototypeChange(Record):
    """What two versions of a package declare differently."""

    prototype: str
    kind: str  # `new`, `gone`, `parameter` or `templates`
    parameter: str = ""
    change: str = ""  # as `ParameterEffect.kind`
    before: Any = None
    after: Any = None


class PackageDiff(Record):
    """Two versions of a package."""

    package: str
    first: str
    second: str
    changes: tuple[PrototypeChange, ...]  # in the order of prototypes and parameters
    files: tuple[str, ...]  # `path was changed`, `path is missing`, `path is new`
    requires: tuple[str, ...] = ()  # what is required differently


def diff_packages(app: AppDir, text: str, first: str, second: str) -> PackageDiff:
    """Compare two versions of a package, installed or not."""
    ref = full_ref(app, text)
    if ref.version:
        hint = f"mlstack pkg diff {ref.full_name} V1 V2"
        raise UsageError("name the versions behind the package", hint=hint)
    (old, old_locked, _), (new, new_locked, _) = (
        read_package(app, replace(ref, version=version)) for version in (first, second)
    )
    return PackageDiff(
        package=ref.full_name,
        first=old.version,
        second=new.version,
        changes=tuple(_prototype_changes(old, new)),
        files=changed_files(new_locked.files, old_locked.files),
        requires=tuple(_requirement_changes(old, new)),
    )


def _prototype_changes(old: Package, new: Package) -> Iterator[PrototypeChange]:
    for name in sorted({*old.prototypes, *new.prototypes}):
        before, after = old.prototypes.get(name), new.prototypes.get(name)
        if before is None or after is None:
            yield PrototypeChange(prototype=name, kind="new" if before is None else "gone")
            continue
        for effect in _parameter_changes(before, after):
            yield row(PrototypeChange, effect, prototype=name, kind="parameter", change=effect.kind)
        if before.templates != after.templates or before.files != after.files:
            yield PrototypeChange(prototype=name, kind="templates")


def _requirement_changes(old: Package, new: Package) -> Iterator[str]:
    for name in sorted({*old.requires, *new.requires}):
        needs = [package.requires.get(name) for package in (old, new)]
        if needs[0] != needs[1]:
            words = ["nothing" if need is None else need.get("version") or "any" for need in needs]
            yield f"{name}: {' → '.join(words)}"


# --- verify ---


class VerifyFault(Record):
    """What is wrong with an installed package."""

    package: str  # `registry/name@version`; of a kustomization its address
    fault: str


class Verified(Record):
    """Whether `vendor/` holds exactly what is locked, signed where a policy asks."""

    ok: bool
    packages: int  # how many were looked at, copies of kustomizations among them
    signed: int  # how many of them by a key that `app.yaml` names
    faults: tuple[VerifyFault, ...]


def verify_packages(app: AppDir) -> Verified:
    """Check every byte of `vendor/` against `mlstack.lock`, and signatures where `app.yaml` asks for them."""
    faults: list[VerifyFault] = []
    signed = 0
    for locked in app.lock.packages:
        reasons = list(_faults(app, locked))
        if not reasons:
            try:
                if artifact := installation.check_signed(app, locked):
                    catalog = AppCatalog(app.app.registries, app.lock.packages, root=app.root)
                    catalog.fetch(locked.full_name, locked.version)  # it must hold what is locked
                signed += artifact is not None
            except RegistryError as error:
                reasons.append(error.message)
        faults += [VerifyFault(package=str(locked.ref), fault=reason) for reason in reasons]
    for copy in app.lock.kustomizations:
        if not (app.root / copy.folder).is_dir():
            faults.append(VerifyFault(package=copy.source, fault="is missing from vendor/"))
        elif digest(read_folder(app.root / copy.folder, source=copy.folder)) != copy.digest:
            faults.append(VerifyFault(package=copy.source, fault=f"{copy.folder} is not what was copied"))
    lacks = "is in vendor/, and mlstack.lock does not name it"
    left = [folder.removeprefix("vendor/") for folder in app.unlocked(app.lock)]
    faults += [VerifyFault(package=name, fault=lacks) for name in left]
    count = len(app.lock.packages) + len(app.lock.kustomizations)
    return Verified(ok=not faults, packages=count, signed=signed, faults=tuple(faults))


def _faults(app: AppDir, locked: LockedPackage) -> Iterator[str]:
    path = app.root / locked.folder
    if not path.is_dir():
        yield "is missing from vendor/"
        return
    try:
        files = read_folder(path, source=locked.folder)
    except MlstackError as error:
        yield f"is refused: {error}"
        return
    changed = changed_files(file_digests(files), locked.files) if locked.files else ()
    yield from changed
    if not changed and PackageFolder(files, source=locked.folder).digest != locked.digest:
        yield "is not what mlstack.lock says, whose digests contradict each other"
