"""Components and modules that come, go and get other names, with all that the app says of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from mlstack.app import layout
from mlstack.app.app import API_VERSION, Moved
from mlstack.app.app_dir import AppDir, write_lock
from mlstack.app.declare import to_map
from mlstack.app.document import decode
from mlstack.app.edit import EditedFile
from mlstack.app.secret_sources import renamed
from mlstack.errors import ConfigError, UsageError
from mlstack.yaml import write


def create_module(app: AppDir, name: str) -> str:
    """Make a module, whose parameter file keeps its folder in git; give that file."""
    app.check_module(name)
    file = layout.module_params_file(name)
    if app.files.bytes(file) is not None:
        raise UsageError(f"there is a module `{name}` already", where=file, hint="mlstack module list")
    app.write({file: write.to_yaml({"apiVersion": API_VERSION, "kind": "ModuleParams"})})
    return file


def remove(app: AppDir, names: Collection[str], *, modules: Sequence[str] = ()) -> tuple[str, ...]:
    """Remove components, and modules with their folders; give the files that were deleted or changed.

    The first of the modules holds the others, if there are any.

    Raises:
        ConfigError: other components depend on them, or an environment would be left without a target.
    """
    gone = {*names, *modules}
    _refuse_needed(app, gone, names)
    deleted = [layout.module_folder(modules[0])] if modules else [app.component(name).file for name in names]
    changed: dict[str, bytes | str] = {}
    for environment in app.environment_names:
        patches = [layout.patch_file(environment, name) for name in sorted(names)]
        deleted += [patch for patch in patches if app.files.bytes(patch) is not None]
        params = app.edited(layout.environment_params_file(environment), "EnvironmentParams")
        for name in names:
            params.unset(("components", name))
        settings = app.edited(layout.environment_file(environment), "Environment")
        _remove_targets(settings, environment, gone)
        changed |= {edited.file: edited.text for edited in (params, settings) if edited.changed}
    entered = _without_moved(app, names)
    changed |= {entered.file: entered.text} if entered.changed else {}
    personal = app.edited(layout.OVERRIDES, "PersonalOverrides")
    for number in range(len(app.personal.environments)):
        for name in names:
            personal.unset(("environments", number, "components", name))
    changed |= {personal.file: personal.text} if personal.changed else {}
    used = {component.source for component in app.kustomizations() if component.full_name not in names}
    sources = {component.source for component in app.kustomizations()} - used
    if copies := [entry for entry in app.lock.kustomizations if entry.source in sources]:
        kept = tuple(entry for entry in app.lock.kustomizations if entry not in copies)
        changed[layout.LOCK_FILE] = write_lock(replace(app.lock, kustomizations=kept))
        deleted += [entry.folder for entry in copies]
    changed |= _encrypted(app, dict.fromkeys(names))
    app.write(changed, deleted)
    return tuple(sorted([*deleted, *changed]))


def _encrypted(app: AppDir, names: Mapping[str, str | None]) -> dict[str, bytes]:
    """Give encrypted files of environments in which components have other names, or are gone (None)."""
    changed = {}
    for environment in app.environment_names:
        file = layout.encrypted_params_file(environment)
        document = app.files.encrypted(file)
        components = document.value.get("components") if document is not None else None
        if document is not None and (own := names.keys() & (components or {}).keys()):
            changed[file] = renamed(app.root / file, name=file, names={old: names[old] for old in own})
    return changed


def _without_moved(app: AppDir, names: Collection[str]) -> EditedFile:
    """Give `app.yaml` without what components that go were called before."""
    edited, entries = app.edited(layout.APP_FILE, "App"), app.app.moved
    gone = {*names, *app.formerly(names)}
    for number in reversed(range(len(entries))):
        if entries[number].new in gone:
            edited.remove(("moved",), number)
    if entries and not edited.at(("moved",)):
        edited.unset(("moved",))
    return edited


def _refuse_needed(app: AppDir, gone: Collection[str], components: Collection[str]) -> None:
    for other, file, number, needed in _dependencies(app):
        if needed in gone and other not in components:
            raise ConfigError(
                f"component `{other}` depends on `{needed}`",
                where=app.position(file, ("dependsOn", number)),
                hint="take it out of `dependsOn` there first",
            )


def _dependencies(app: AppDir) -> Iterator[tuple[str, str, int, str]]:
    """Give each component with its file, and the number and name of each thing that it depends on."""
    for component in app.components():
        for number, needed in enumerate(getattr(component, "depends_on", ())):
            yield component.full_name, component.file, number, needed


def _remove_targets(settings: EditedFile, environment: str, gone: Collection[str]) -> None:
    targets = settings.at(("targets",)) or []
    if targets and not set(targets) - set(gone):  # no targets would be all there are
        last = "`, `".join(dict.fromkeys(targets))
        raise ConfigError(
            f"`{last}` is the last target of `{environment}`; without one everything would be deployed",
            where=settings.file,
            hint=f"name others first: mlstack env targets {environment} NAME, or --all",
        )
    for target in [target for target in targets if target in gone]:
        settings.remove(("targets",), (settings.at(("targets",)) or []).index(target))


def rename(app: AppDir, old: str, new: str, *, named: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Give a component another name, in another module if its name says so.

    Args:
        app: the app directory.
        old: its full name.
        new: the one it gets.
        named: what its parameter `name` is set to, so that its objects keep their names; None for nothing.

    Returns:
        Its new file, and all files that were written or deleted.
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
    edits = [*_elsewhere(app, old, new), _moved(app, old, new)]
    for _, other, number, needed in _dependencies(app):
        if needed == old:
            edited = own if other == file else next((e for e in edits if e.file == other), None)
            if edited is None:
                edited = app.edited(other, "Component")
                edits.append(edited)
            edited.set(("dependsOn", number), new)
    files: dict[str, bytes | str] = {edited.file: edited.text for edited in edits if edited.changed}
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
    """Give what environments say of a component, said of its new name."""
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


def _moved(app: AppDir, old: str, new: str) -> EditedFile:
    """Enter in `app.yaml` what the component was called."""
    edited = app.edited(layout.APP_FILE, "App")
    entries = app.app.moved
    for number in reversed(range(len(entries))):  # who comes back to a name has not moved from it
        if entries[number].old == new:
            edited.remove(("moved",), number)
    if not edited.at(("moved",)):
        edited.unset(("moved",))
    edited.append(("moved",), to_map(Moved(old=old, new=new)))
    return edited
