"""Set and take back parameters at every level of an app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mlstack.errors import NotFoundError, TypedValueError, UsageError
from mlstack.files import layout
from mlstack.files.editing import Editing
from mlstack.model.app import Component, Manifest
from mlstack.model.params import ParamScope, spelling_table
from mlstack.model.values import Path as ValuePath
from mlstack.model.values import refused_characters

if TYPE_CHECKING:
    from mlstack.files.edited import EditedFile


class ParamEdits(Editing):
    """Changes of parameters; `AppDir` is the class to use."""

    def set_param(self, scope: ParamScope, path: Sequence[str], value: Any) -> tuple[str, bool]:
        """Set a value; nothing else in the file changes. A spelling that the file uses already is kept.

        Args:
            scope: the level.
            path: the parameter's name, then keys inside its value; a number is the index of a list.
            value: plain data; None removes what lower levels say.

        Returns:
            The file, and whether it changed.

        Raises:
            NotFoundError: no such component, module or environment.
            ParamError: the value holds a control character.
            ConfigError: the file cannot be edited or written.
        """
        for found, character in refused_characters(value):
            name = ".".join(map(str, (*path, *found)))
            message = f"`{name}` holds the control character {character}, which no object can carry"
            raise TypedValueError(message, hint="remove it from the value")
        edited, full = self._place(scope, path)
        edited.set(full, value)
        return edited.file, self.save(edited)

    def unset_param(self, scope: ParamScope, path: Sequence[str]) -> str | None:
        """Take a value back, so that the next lower level counts again.

        Returns:
            The file, or None when nothing was set there.

        Raises:
            NotFoundError: no such component, module or environment.
        """
        edited, full = self._place(scope, path)
        if not edited.unset(full):
            return None
        self.save(edited)
        return edited.file

    def _place(self, scope: ParamScope, path: Sequence[str]) -> tuple[EditedFile, ValuePath]:
        file, kind, section = self._section(scope)
        edited = self.edited(file, kind)
        return edited, edited.actual_path((*section, *self._spelled(scope, edited, section, path)))

    def _section(self, scope: ParamScope) -> tuple[str, str, ValuePath]:
        """Give the file, its kind, and the path of the map that holds a level's values."""
        if scope.kind == "app":
            return layout.APP_FILE, "App", ("params",)
        if scope.kind == "module":
            return self._module_file(str(scope.module)), "ModuleParams", ("params",)
        if scope.kind == "component":
            return self._own_component(str(scope.component)).file, "Component", ("params",)
        environment = str(scope.environment)
        self.files.environment_chain(environment)
        file = layout.environment_params_file(environment)
        if scope.kind == "environment globals":
            return file, "EnvironmentParams", ("globals",)
        component = self._own_component(str(scope.component))
        return file, "EnvironmentParams", ("components", component.full_name)

    def _module_file(self, module: str) -> str:
        if module not in self.files.modules:
            raise NotFoundError(
                f"no module `{module}`", hint=f"mlstack generate PROTOTYPE {module}.NAME makes it"
            )
        return layout.module_params_file(module)

    def _own_component(self, name: str) -> Component:
        found = self.component(name)
        if isinstance(found, Manifest):
            raise UsageError(
                f"`{name}` is a plain manifest, which has no parameters",
                where=found.file,
                hint=f"edit it, or patch it for one environment in environments/ENV/patches/{name}.yaml",
            )
        return found

    def _spelled(
        self, scope: ParamScope, edited: EditedFile, section: ValuePath, path: Sequence[str]
    ) -> tuple[str, ...]:
        """Spell a parameter as the file does already: two spellings in one layer are an error."""
        present = edited.at(section)
        if not isinstance(present, Mapping) or path[0] in present or not present:
            return tuple(path)
        spellings = self._spellings(scope, path[0])
        return (next((name for name in present if name in spellings), path[0]), *path[1:])

    def _spellings(self, scope: ParamScope, name: str) -> frozenset[str]:
        if scope.component is not None:
            params = self.prototype(self._own_component(scope.component).prototype).params
            param = params.get(spelling_table(params).get(name, ""))
        else:
            param = self.declared_params().get(name)
        return frozenset((param.name, *param.aliases)) if param else frozenset((name,))
