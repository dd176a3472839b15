"""Add and remove components of an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlstack.errors import ConfigError, UsageError
from mlstack.files import layout
from mlstack.files.editing import Editing
from mlstack.model import emit
from mlstack.model.app import API_VERSION, Component
from mlstack.model.names import check_component_name, check_module_name, check_new_name

if TYPE_CHECKING:
    from mlstack.files.edited import EditedFile


class ComponentEdits(Editing):
    """Changes of components; `AppDir` is the class to use."""

    def add_component(self, component: Component, *, replace: bool = False) -> str:
        """Write a component's file and give its name; a module's folder is made on the way.

        Raises:
            UsageError: the name cannot be a component's, or there is one and `replace` is false.
        """
        check_component_name(component.name)
        if component.module:
            check_module_name(component.module)
        if component.module and f"{component.name.lower()}.yaml" == layout.MODULE_PARAMS:
            raise UsageError(
                f"`{component.full_name}` cannot be a component: its file is that of the module's parameters",
                where=layout.module_params_file(component.module),
                hint="choose another name",
            )
        check_new_name(component.full_name, self.files.component_files, "a component")
        if component.module:
            check_new_name(component.module, self.files.modules, "a module")
        known = self.files.component_files.get(component.full_name)
        if known and not replace:
            raise UsageError(
                f"there is a component `{component.full_name}` already",
                where=known[0],
                hint="--force replaces it",
            )
        file = layout.component_file(component.module, component.name)
        content: dict[str, Any] = {
            "apiVersion": API_VERSION,
            "kind": "Component",
            "prototype": component.prototype,
        }
        if component.params:
            content["params"] = dict(component.params)
        stale = [known[0]] if known and known[0] != file else []
        self.write({file: emit.to_yaml(content)}, stale)
        return file

    def remove_component(self, name: str) -> tuple[str, ...]:
        """Remove a component and what environments say about it; the cluster is not touched.

        Returns:
            The files that were deleted or changed.

        Raises:
            NotFoundError: no such component.
            ConfigError: it is the last target of an environment.
        """
        file = self.component(name).file
        changed: dict[str, bytes | str] = {}
        deleted = [file]
        for environment in self.files.environment_names:
            patch = layout.patch_file(environment, name)
            deleted += [patch] if self.files.bytes(patch) is not None else []
            for edited in self._without_component(environment, name):
                changed[edited.file] = edited.content
        self.write(changed, deleted)
        return tuple(sorted([*deleted, *changed]))

    def _without_component(self, environment: str, name: str) -> list[EditedFile]:
        """Give an environment's files that spoke of a component, edited to be silent."""
        params = self.edited(layout.environment_params_file(environment), "EnvironmentParams")
        params.unset(("components", name))
        settings = self.edited(layout.environment_file(environment), "Environment")
        targets = settings.at(("targets",))
        if targets and all(each == name for each in targets):  # no targets would be all there are
            raise ConfigError(
                f"`{name}` is the last target of `{environment}`; without one everything would be deployed",
                where=str(self.files.environment_chain(environment)[-1].environment.file),
                hint=f"name others first: mlstack env set {environment} --targets NAME",
            )
        while name in (targets := settings.at(("targets",)) or ()):
            settings.remove(("targets",), targets.index(name))
        return [edited for edited in (params, settings) if edited.changed]
