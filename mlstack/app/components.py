"""Components and modules that come, go and get other names, with all that the app says of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from mlstack.app import layout, overrides, params
from mlstack.app.app import Component, Moved
from mlstack.app.app_dir import AppDir, write_lock
from mlstack.app.document import Origin, decode, to_map
from mlstack.app.edit import EditedFile, changed_texts
from mlstack.app.files import renamed
from mlstack.app.layout import component_file
from mlstack.app.params import Layer, Resolved, merge
from mlstack.app.prototype import NO_EFFECT, Example, Prototype
from mlstack.app.reader import AppReader
from mlstack.app.schema import check_params
from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError, NotFoundError, ParamError, UsageError
from mlstack.names import check_component_name, check_module_name, not_found
from mlstack.yaml.read import KeyPath


@dataclass(frozen=True, kw_only=True)
class ComponentRequest:
    """A component as it was asked for."""

    prototype: str  # full name, alias or unique end of a name
    name: str | None = None  # with its module in front (`serving.inception`), else the parameter `name`
    module: str | None = None  # None for the one in its name
    texts: Mapping[str, str | None] = field(default_factory=dict)  # as typed; None: option without a value
    values_files: tuple[Path, ...] = ()  # later ones win over earlier, `texts` over all
    example: str | None = None  # of the prototype's, to start from


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A component that could be added to an app as it is, with the parameters that were given."""

    component: Component
    prototype: Prototype
    resolved: Resolved  # as the parameters would count, checked
    notes: tuple[str, ...] = ()  # of parameters that have no effect any more


def draft(app: AppReader, request: ComponentRequest, prototype: Prototype) -> Draft:
    """Work out a component from what was asked for, checked; nothing is written."""
    values, origins, notes = _values(prototype, request)
    module, name = _name(request, values)
    if values.get("name") == name:
        del values["name"]  # a component's name is the default
    full_name = prototype.full_name
    if "@" in request.prototype:  # a version that was asked for stays
        full_name = f"{prototype.package_version}/{prototype.name}"
    file = component_file(module, name)
    component = Component(name=name, module=module, prototype=full_name, params=values, file=file)
    is_chart = prototype.chart is not None
    shared = [] if is_chart else app.shared_layers(layout.enclosing(module))
    layers = [*shared, Layer("component", values, origins)]
    resolved = params.Declared.of(prototype).resolve(layers)
    missing = overrides.missing(prototype, resolved.values)
    if missing:
        names = ", ".join(f"`{param.name}`" for param in missing)
        options = " ".join(f"--{param.name}=VALUE" for param in missing)
        raise UsageError(f"prototype `{prototype.name}` needs {names}", hint=f"add {options}")
    try:
        check_params(prototype, resolved, passed=app.store)
    except ParamError as error:
        hint = f"`mlstack generate {prototype.name} --help` lists what it takes"
        raise type(error)(error.message, where=error.where, hint=hint) from error
    return Draft(component=component, prototype=prototype, resolved=resolved, notes=notes)


def _values(
    prototype: Prototype, request: ComponentRequest
) -> tuple[dict[str, Any], dict[KeyPath, Origin], tuple[str, ...]]:
    """Give the values by canonical name, where each was given, and notes of old names and idle values."""
    called, alias = prototype.called(request.prototype), prototype.alias(request.prototype) or ""
    values: dict[str, Any] = dict(prototype.alias_params.get(alias, {}))
    origins: dict[KeyPath, Origin] = {(name,): Origin(f"prototype {alias}") for name in values}
    if request.example is not None:
        for key, value in _example(prototype, request.example).params.items():
            name = params.canonical_name(prototype, key)
            if name != "name" or request.name is None:
                values[name], origins[(name,)] = value, Origin(f"example {request.example}")
    for key, value, origin in _of_files(request):
        try:
            name = params.canonical_name(called, key)
        except NotFoundError as error:
            error.where = str(origin)
            raise
        known = values.get(name)
        values[name] = merge(known, value) if isinstance(known, Mapping) else value
        origins[(name,)] = origin
    for name, value in overrides.typed(called, request.texts).items():
        values[name], origins[(name,)] = value, Origin(f"--{name}")
        # `null` is what ksonnet wrote where nothing was set.
        if value is None and (alias or name in prototype.schema.get("required", ())):
            del values[name]
    idle = [name for name in values if called.param(name).deprecated == NO_EFFECT]
    values = {name: value for name, value in values.items() if name not in idle}
    typed = [name.partition(".")[0] for name in request.texts]
    notes = [note for name in typed for note in params.renamed(name, params.canonical_name(called, name))]
    return values, origins, (*notes, *(f"`{name}` has no effect any more" for name in idle))


def _of_files(request: ComponentRequest) -> Iterator[tuple[str, Any, Origin]]:
    """Give the values of all `--values` files, those for every component first, in their order."""
    for file in request.values_files:
        read = overrides.read_values(file)
        for layer in filter(None, (read.globals, read.components.get(request.name or ""))):
            for key, value in layer.values.items():
                yield key, value, layer.origins.get((key,), Origin(str(file)))


def _example(prototype: Prototype, name: str) -> Example:
    if name not in prototype.examples:
        message = f"prototype `{prototype.name}` has no example `{name}`"
        hint = f"it has {', '.join(map('`{}`'.format, prototype.examples)) or 'none'}"
        raise not_found(message, name, prototype.examples, hint=hint)
    return prototype.examples[name]


def _name(request: ComponentRequest, values: Mapping[str, Any]) -> tuple[str, str]:
    full_name = request.name or str(values.get("name") or "")
    if not full_name:
        raise UsageError("what is the component called?", hint=f"mlstack generate {request.prototype} NAME")
    module, _, name = full_name.rpartition(".")
    parts = [(request.module or "").replace("/", ".").strip("."), module]
    module = ".".join(part for part in parts if part)
    if "/" in full_name or "" in full_name.split("."):
        check_component_name(full_name)  # names no path, and no part of one is empty
    return check_module_name(module) if module else "", check_component_name(name)


# --- what goes, and what gets other names ---


def remove(app: AppDir, names: Collection[str], *, modules: Sequence[str] = ()) -> tuple[str, ...]:
    """Remove components, and modules with their folders; give the files that were deleted or changed.

    The first of the modules holds the others, if there are any. What other components depend on stays, and so
    does the last target of an environment.
    """
    gone = {*names, *modules}
    _refuse_needed(app, gone, names)
    deleted = [layout.module_folder(modules[0])] if modules else [app.component(name).file for name in names]
    personal = app.edited(layout.OVERRIDES, "PersonalOverrides")
    former, moved = {*names, *app.formerly(names)}, app.edited(layout.APP_FILE, "App")
    moved.drop(("moved",), lambda entry: entry["to"] in former)
    edits = [personal, moved]
    for environment in app.environment_names:
        patches = [layout.patch_file(environment, name) for name in sorted(names)]
        deleted += [patch for patch in patches if app.files.bytes(patch) is not None]
        params = app.edited(layout.environment_params_file(environment), "EnvironmentParams")
        params.unset_all(("components",), names)
        settings = app.edited(layout.environment_file(environment), "Environment")
        _remove_targets(settings, environment, gone)
        edits += [params, settings]
    for number in range(len(app.personal.environments)):
        personal.unset_all(("environments", number, "components"), names)
    changed = changed_texts(edits) | _encrypted(app, dict.fromkeys(names))
    used = {component.source for component in app.kustomizations() if component.full_name not in names}
    sources = {component.source for component in app.kustomizations()} - used
    if copies := [entry for entry in app.lock.kustomizations if entry.source in sources]:
        kept = tuple(entry for entry in app.lock.kustomizations if entry not in copies)
        changed[layout.LOCK_FILE] = write_lock(replace(app.lock, kustomizations=kept))
        deleted += [entry.folder for entry in copies]
    app.write(changed, deleted)
    return tuple(sorted([*deleted, *changed]))


def _encrypted(app: AppDir, names: Mapping[str, str | None]) -> dict[str, bytes | str]:
    """Give encrypted files of environments in which components have other names, or are gone (None)."""
    changed: dict[str, bytes | str] = {}
    for environment in app.environment_names:
        file = layout.encrypted_params_file(environment)
        document = app.files.encrypted(file)
        components = document.value.get("components") if document is not None else None
        if document is not None and (own := names.keys() & (components or {}).keys()):
            changed[file] = renamed(app.root / file, name=file, names={old: names[old] for old in own})
    return changed


def _refuse_needed(app: AppDir, gone: Collection[str], components: Collection[str]) -> None:
    for other, file, number, needed in _dependencies(app):
        if needed in gone and other not in components:
            message, where = f"component `{other}` depends on `{needed}`", ("dependsOn", number)
            hint = "take it out of `dependsOn` there first"
            raise ConfigError(message, where=app.position(file, where), hint=hint)


def _dependencies(app: AppDir) -> Iterator[tuple[str, str, int, str]]:
    """Give each component with its file, and the number and name of each thing that it depends on."""
    for component in app.components():
        for number, needed in enumerate(getattr(component, "depends_on", ())):
            yield component.full_name, component.file, number, needed


def _remove_targets(settings: EditedFile, environment: str, gone: Collection[str]) -> None:
    targets = settings.at(("targets",)) or []
    if targets and not set(targets) - set(gone):  # no targets would be all there are
        last = f"`{'`, `'.join(dict.fromkeys(targets))}` is the last target of `{environment}`"
        message = f"{last}; without one everything would be deployed"
        hint = f"name others first: mlstack env targets {environment} NAME, or --all"
        raise ConfigError(message, where=settings.file, hint=hint)
    settings.drop(("targets",), lambda target: target in gone)


def rename(app: AppDir, old: str, new: str, *, named: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Give a component another full name; give its new file, and all files that were written or deleted.

    `named` is what its parameter `name` is set to, so that its objects keep their names; None for nothing.
    """
    app.check_component(new)
    if new in app.component_files:
        where = app.component_files[new][0]
        raise UsageError(f"there is a component `{new}` already", where=where, hint="choose another name")
    file = app.component(old).file
    module, _, name = new.rpartition(".")
    target = layout.component_file(module, name).removesuffix(".yaml") + file[file.rindex(".") :]
    own = EditedFile(file, decode(app.files.bytes(file) or b"", file=file))
    if named is not None:
        own.set(("params", "name"), named)
    edits = [*_elsewhere(app, old, new)]
    for _, other, number, needed in _dependencies(app):
        if needed == old:
            edited = own if other == file else next((e for e in edits if e.file == other), None)
            if edited is None:
                edited = app.edited(other, "Component")
                edits.append(edited)
            edited.set(("dependsOn", number), new)
    files: dict[str, bytes | str] = {**changed_texts(edits)}
    deleted = [file]
    for environment in app.environment_names:
        patch = layout.patch_file(environment, old)
        content = app.files.bytes(patch)
        if content is not None:
            files[layout.patch_file(environment, new)] = content
            deleted.append(patch)
    files |= _encrypted(app, {old: new})
    app.write({target: own.text, **files}, deleted)
    return target, tuple(sorted({target, *files, *deleted}))


def _elsewhere(app: AppDir, old: str, new: str) -> Iterator[EditedFile]:
    """Give what environments say of a component, said of its new name, and what it was called."""
    for environment in app.environment_names:
        params = app.edited(layout.environment_params_file(environment), "EnvironmentParams")
        params.rename(("components", old), new)
        yield params
        settings = app.edited(layout.environment_file(environment), "Environment")
        for number, target in enumerate(settings.at(("targets",)) or ()):
            if target == old:
                settings.set(("targets", number), new)
        yield settings
    personal = app.edited(layout.OVERRIDES, "PersonalOverrides")
    for number in range(len(app.personal.environments)):
        personal.rename(("environments", number, "components", old), new)
    yield personal
    moved = app.edited(layout.APP_FILE, "App")
    moved.drop(("moved",), lambda entry: entry["from"] == new)  # who comes back has not moved from there
    moved.append(("moved",), to_map(Moved(old=old, new=new)))
    yield moved
