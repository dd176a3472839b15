"""Add and remove components of an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlstack.errors import UsageError
from mlstack.files import layout
from mlstack.files.editing import Editing
from mlstack.model import emit
from mlstack.model.app import API_VERSION, Component
from mlstack.model.names import check_component_name, check_module_name

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
        if isinstance(targets, list) and name in targets:
            settings.remove(("targets",), targets.index(name))
        return [edited for edited in (params, settings) if edited.changed]
