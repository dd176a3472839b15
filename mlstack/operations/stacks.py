"""Apps that begin with a stack: components and environments that belong together."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from mlstack.app import document, files
from mlstack.app.app import PackageRef
from mlstack.app.app_dir import AppDir
from mlstack.app.document import fields_of
from mlstack.app.draft import ComponentRequest, draft
from mlstack.app.edit import app_lock
from mlstack.app.files import read_folder
from mlstack.app.index import Stack
from mlstack.app.params import ParamScope, as_typed
from mlstack.app.reader import read_preset
from mlstack.app.schema import check_file
from mlstack.dataclass import dataclass
from mlstack.errors import MlstackError, NotFoundError
from mlstack.names import nearest
from mlstack.registries import installation
from mlstack.registries.registry import DEFAULT_REGISTRY
from mlstack.registries.resolver import APP


@dataclass(frozen=True, kw_only=True)
class StackBegun:
    """A new app that holds a stack."""

    app: str
    folder: str  # as given
    stack: str  # its name
    components: tuple[str, ...]  # full names
    environments: tuple[str, ...]  # none of them names a context yet


def init_stack(folder: Path, name: str, stack_name: str) -> StackBegun:
    """Create an app directory with the components and environments of a stack, which renders at once.

    Raises:
        NotFoundError: there is no such stack.
        UsageError: a name is unfit.
        ConfigError: there is an app already, or the folder cannot be written; a new folder goes again.
    """
    stack = _read_stack(stack_name)
    AppDir.check_new(folder, name)
    is_new = not folder.exists()
    try:
        with app_lock(folder):
            app = AppDir.create(folder, name, registries=(DEFAULT_REGISTRY,))
        _fill(app, stack)
    except (MlstackError, KeyboardInterrupt):
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    names = tuple(component.name for component in stack.components)
    return StackBegun(
        app=name, folder=str(folder), stack=stack.name, components=names, environments=stack.environments
    )


def _read_stack(name: str) -> Stack:
    if name not in files.stacks():
        near = nearest(name, files.stacks())
        hint = None if near else f"there are {', '.join(f'`{known}`' for known in files.stacks())}"
        raise NotFoundError(f"no stack `{name}`", near=near, hint=hint)
    file = files.folder("registry") / "stacks" / f"{name}.yaml"
    read = document.read(file.read_bytes(), file=file.name)
    check_file("Stack", read.value, source=file.name, document=read)
    return fields_of(read, "Stack").record(Stack)


def _fill(app: AppDir, stack: Stack) -> None:
    registry = DEFAULT_REGISTRY.name
    packages = dict.fromkeys(component.prototype.partition("/")[0] for component in stack.components)
    installation.change(app, {APP: tuple(PackageRef(registry=registry, name=own) for own in packages)})
    for component in stack.components:
        request = ComponentRequest(
            prototype=f"{registry}/{component.prototype}",
            name=component.name,
            example=component.example or None,
            texts={param: as_typed(value) for param, value in component.params.items()},
        )
        app.add_component(draft(app, request, app.prototype(request.prototype)).component)
    for name in stack.environments:
        preset = files.preset(name)
        if preset is None:
            raise NotFoundError(f"stack `{stack.name}` names no preset: `{name}`")
        seed = {str(path): data for path, data in read_folder(preset).items()}
        app.add_environment(replace(read_preset(preset).environment, name=name), seed=seed)
        for component in stack.components:
            for param, value in component.environments.get(name, {}).items():
                app.set_param(ParamScope(component=component.name, environment=name), (param,), value)
