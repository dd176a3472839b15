"""Imports: manifests and apps of others become components of an app."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlstack.app import layout
from mlstack.app.app_dir import AppDir
from mlstack.errors import UsageError
from mlstack.importers import manifests
from mlstack.importers.plan import ImportPlan, PlannedComponent
from mlstack.names import check_component_name, check_module_name, check_new_name
from mlstack.yaml import write


@dataclass(frozen=True, kw_only=True)
class ImportedRow:
    """One component that was made."""

    name: str
    file: str  # below the app directory
    objects: int
    kinds: tuple[str, ...]
    replaced: bool = False  # there was one of that name before


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import added to an app."""

    components: tuple[ImportedRow, ...]
    environments: tuple[str, ...] = ()  # those that were added
    patches: tuple[str, ...] = ()  # files with what differs between environments
    notes: tuple[str, ...] = ()


def import_manifests(
    app: AppDir,
    places: Sequence[str],
    *,
    module: str = "",
    name: str | None = None,
    split: bool = False,
    replace: bool = False,
) -> Imported:
    """Make components of manifests: files, folders, or `-` for standard input.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: a file is no manifest, or cannot be read.
        UsageError: nothing to import, or a component of that name is there (unless `replace`).
    """
    sources = [source for place in places for source in manifests.read_sources(place)]
    planned, notes = manifests.components(sources, module=module, name=name, split=split)
    with app.locked():
        return write_plan(app, ImportPlan(components=tuple(planned), notes=tuple(notes)), replace=replace)


def write_plan(app: AppDir, plan: ImportPlan, *, replace: bool = False) -> Imported:
    """Write what an import has worked out, all of it or nothing; the app is locked.

    Raises:
        UsageError: a component is there already, and is not to be replaced.
    """
    rows = [_row(app, component, replace=replace) for component in plan.components]
    files: dict[str, bytes | str] = {component.file: component.text for component in plan.components}
    stale = [app.component_files[row.name][0] for row in rows if row.replaced]
    patches = {
        layout.patch_file(environment, component): write.to_yaml_documents(objects)
        for environment, components in plan.patches.items()
        for component, objects in components.items()
    }
    app.write({**files, **patches}, [file for file in stale if file not in files])
    return Imported(components=tuple(rows), patches=tuple(patches), notes=plan.notes)


def _row(app: AppDir, component: PlannedComponent, *, replace: bool) -> ImportedRow:
    module, _, name = component.name.rpartition(".")
    check_component_name(name)
    if module:
        check_module_name(module)
        check_new_name(module, app.modules, "a module")
    known = app.component_files.get(component.name)
    if known and not replace:
        message = f"there is a component `{component.name}` already"
        raise UsageError(message, where=known[0], hint="--force replaces it, --module puts it elsewhere")
    check_new_name(component.name, app.component_files, "a component")
    return ImportedRow(
        name=component.name,
        file=component.file,
        objects=len(component.objects),
        kinds=component.kinds,
        replaced=known is not None,
    )
