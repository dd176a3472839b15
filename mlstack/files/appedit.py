"""Changes to the files of an app directory: each command's whole set of files, or none of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlstack.errors import NotFoundError, ParamError, UsageError
from mlstack.files import atomic, layout, lockfile
from mlstack.model import emit
from mlstack.model.app import (
    API_VERSION,
    App,
    ClusterIdentity,
    Component,
    Environment,
    Lock,
    Manifest,
    RegistryRef,
)
from mlstack.model.names import (
    check_app_name,
    check_component_name,
    check_environment_name,
    check_module_name,
    check_registry_name,
)
from mlstack.model.params import ParamScope, spelling_table
from mlstack.model.values import Path as ValuePath
from mlstack.model.values import refused_characters

if TYPE_CHECKING:
    from mlstack.files.appread import AppFiles
    from mlstack.files.edited import EditedFile
    from mlstack.model.prototype import Param, Prototype

_GITIGNORE = """\
# Which environment commands take when none is named; everybody's own.
/.mlstack/
"""


class Edits:
    """What changes an app directory; `AppDir` is the class to use."""

    root: Path

    if TYPE_CHECKING:  # what the edits need of the reading side

        @property
        def files(self) -> AppFiles:
            """Give the reader of the app's files."""

        def app(self) -> App:
            """Give what `app.yaml` says."""

        def lock(self) -> Lock:
            """Give what `mlstack.lock` says."""

        def component(self, name: str) -> Component | Manifest:
            """Give the component of a full name."""

        def prototype(self, name: str, *, where: str | None = None) -> Prototype:
            """Find a prototype."""

        def declared_params(self) -> Mapping[str, Param]:
            """Give every spelling that an installed prototype declares."""

        def forget(self) -> None:
            """Read every file anew from now on."""

    def write(self, files: Mapping[str, bytes | str], delete: Sequence[str] = ()) -> None:
        """Write and delete files below the app directory, all of them or none.

        Raises:
            ConfigError: the disk is full, the folder read-only …; nothing was changed.
        """
        contents = {self.root / file: content for file, content in files.items()}
        atomic.write_files(contents, delete=[self.root / file for file in delete])
        self.forget()

    def edited(self, file: str, kind: str) -> EditedFile:
        """Begin to edit a file of a kind; one that is not there begins with its kind alone.

        Raises:
            SchemaError: it does not fit its kind.
            YamlError: it is no YAML.
        """
        from mlstack.files.edited import EditedFile

        data = self.files.bytes(file)
        if data is None:
            start = emit.to_yaml({"apiVersion": API_VERSION, "kind": kind})
            return EditedFile(file, start)
        self.files.document(file, kind)
        return EditedFile.of(file, data)

    def _save(self, edited: EditedFile) -> bool:
        """Write an edited file when it changed; tell whether it did."""
        if not edited.changed:
            return False
        self.write({edited.file: edited.content})
        return True

    # Parameters

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
            raise ParamError(message, hint="remove it from the value")
        edited, full = self._place(scope, path)
        edited.set(full, value)
        return edited.file, self._save(edited)

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
        self._save(edited)
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

    # Components

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

    # Environments

    def add_environment(
        self,
        environment: Environment,
        *,
        globals_: Mapping[str, Any] | None = None,
        components: Mapping[str, Any] | None = None,
    ) -> str:
        """Write a new environment's files and give the name of the first.

        Raises:
            UsageError: the name cannot be an environment's, or it is taken.
        """
        name = check_environment_name(environment.name)
        if name in self.files.environment_names:
            raise UsageError(f"there is an environment `{name}` already", hint=f"mlstack env describe {name}")
        file = layout.environment_file(name)
        settings = {"apiVersion": API_VERSION, "kind": "Environment", **_settings(environment)}
        files: dict[str, bytes | str] = {file: emit.to_yaml(settings)}
        # No empty maps: a later edit would fill them inside their braces, all values on one line.
        params = {"globals": dict(globals_ or {}), "components": dict(components or {})}
        params = {key: values for key, values in params.items() if values}
        if params:
            head = {"apiVersion": API_VERSION, "kind": "EnvironmentParams"}
            files[layout.environment_params_file(name)] = emit.to_yaml({**head, **params})
        self.write(files)
        return file

    def edit_environment(self, name: str, changes: Mapping[str, Any]) -> tuple[str, bool]:
        """Change fields of an environment's own file.

        Args:
            name: the environment.
            changes: new values by the key of the file (`kubernetesVersion`); None removes the field.

        Returns:
            The file, and whether it changed.

        Raises:
            NotFoundError: no such environment.
        """
        self.files.environment_chain(name)
        edited = self.edited(layout.environment_file(name), "Environment")
        for key, value in changes.items():
            if value is None:
                edited.unset((key,))
            else:
                edited.set((key,), value)
        return edited.file, self._save(edited)

    def pin_identity(self, name: str, identity: ClusterIdentity) -> None:
        """Bind an environment to a cluster, in its own file.

        Raises:
            NotFoundError: no such environment.
        """
        known = {"uid": identity.uid, "ca": identity.ca, "server": identity.server}
        self.edit_environment(
            name, {"cluster": {key: value for key, value in known.items() if value is not None}}
        )

    def rename_environment(self, name: str, new: str) -> None:
        """Give an environment another name; those that extend it follow.

        Raises:
            NotFoundError: no such environment.
            UsageError: the new name cannot be an environment's, or it is taken.
        """
        self.files.environment_chain(name)
        check_environment_name(new)
        if new in self.files.environment_names:
            raise UsageError(f"there is an environment `{new}` already", hint=f"mlstack env describe {new}")
        old_folder, new_folder = (f"{layout.ENVIRONMENTS}/{each}" for each in (name, new))
        own = self._own_files(name)
        written = {
            f"{new_folder}{file.removeprefix(old_folder)}": (self.root / file).read_bytes() for file in own
        }
        follow = {edited.file: edited.content for edited in self._following(name, new)}
        current = self._current(name, f"{new}\n")
        self.write({**written, **follow, **current}, own)

    def _following(self, name: str, new: str) -> list[EditedFile]:
        found = []
        for environment in self.files.environment_names:
            edited = self.edited(layout.environment_file(environment), "Environment")
            if environment != name and edited.at(("extends",)) == name:
                edited.set(("extends",), new)
                found.append(edited)
        return found

    def remove_environment(self, name: str) -> None:
        """Remove an environment's files; the cluster is not touched.

        Raises:
            NotFoundError: no such environment.
            UsageError: another environment extends it.
        """
        self.files.environment_chain(name)
        heirs = [
            each for each in self.files.environment_names if self._extends(each) == name and each != name
        ]
        if heirs:
            listed = ", ".join(f"`{heir}`" for heir in heirs)
            raise UsageError(f"`{name}` is extended by {listed}", hint="change or remove those first")
        current = self._current(name, "")
        self.write({}, [*self._own_files(name), *current])

    def _extends(self, name: str) -> str | None:
        return self.files.environment_chain(name)[-1].environment.extends

    def _own_files(self, name: str) -> list[str]:
        """Give the files of an environment, not those of environments nested in its folder."""
        folder = self.root / layout.ENVIRONMENTS / name
        nested = [each for each in self.files.environment_names if each.startswith(f"{name}/")]
        found = [
            path.relative_to(self.root).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()
        ]
        return [
            file
            for file in found
            if not any(file.startswith(f"{layout.ENVIRONMENTS}/{each}/") for each in nested)
        ]

    def _current(self, name: str, content: str) -> dict[str, bytes | str]:
        """Give the file of the current environment with new content, when that environment is `name`."""
        data = self.files.bytes(layout.CURRENT_ENVIRONMENT) or b""
        return {layout.CURRENT_ENVIRONMENT: content} if data.decode(errors="replace").strip() == name else {}

    def set_current_environment(self, name: str | None) -> None:
        """Choose the environment that commands take when none is named; None takes the choice back.

        Raises:
            NotFoundError: no such environment.
        """
        if name is None:
            self.write({}, [layout.CURRENT_ENVIRONMENT])
            return
        self.files.environment_chain(name)
        self.write({layout.CURRENT_ENVIRONMENT: f"{name}\n"})

    # Registries

    def add_registry(self, registry: RegistryRef) -> None:
        """Enter a registry in `app.yaml`.

        Raises:
            UsageError: the name is taken, or cannot be a registry's.
        """
        check_registry_name(registry.name)
        if any(known.name == registry.name for known in self.app().registries):
            raise UsageError(
                f"there is a registry `{registry.name}` already",
                hint=f"mlstack registry describe {registry.name}",
            )
        edited = self.edited(layout.APP_FILE, "App")
        edited.append(("registries",), _registry_map(registry))
        self._save(edited)

    def remove_registry(self, name: str) -> None:
        """Take a registry out of `app.yaml` and the lock.

        Raises:
            NotFoundError: no such registry.
            UsageError: packages of it are installed.
        """
        if all(known.name != name for known in self.app().registries):
            raise NotFoundError(f"no registry `{name}`", hint="mlstack registry list")
        needed = [str(package) for package in self.app().packages if package.registry == name]
        if needed:
            raise UsageError(
                f"packages of `{name}` are installed: {', '.join(needed)}", hint=f"mlstack pkg rm {needed[0]}"
            )
        edited = self.edited(layout.APP_FILE, "App")
        edited.remove(("registries",), [known.name for known in self.app().registries].index(name))
        self._save(edited)

    @classmethod
    def write_new(cls, root: Path, name: str, *, registries: Sequence[RegistryRef] = ()) -> None:
        """Write the files of a new app directory.

        Raises:
            UsageError: the name cannot be an app's, or there is an app already.
        """
        check_app_name(name)
        if (root / layout.APP_FILE).exists():
            raise UsageError(f"there is an app at `{root}` already", hint="choose another folder")
        content: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "App", "name": name}
        if registries:
            content["registries"] = [_registry_map(registry) for registry in registries]
        ignored = root / ".gitignore"
        files: dict[Path, bytes | str] = {root / layout.APP_FILE: emit.to_yaml(content)}
        files[root / layout.LOCK_FILE] = lockfile.write_lock(Lock())
        if not ignored.exists():
            files[ignored] = _GITIGNORE
        atomic.write_files(files)


def _registry_map(registry: RegistryRef) -> dict[str, str]:
    return {"name": registry.name, "address": registry.address, "protocol": registry.protocol}


def _settings(environment: Environment) -> dict[str, Any]:
    """Give the fields of an environment's file; what is as when left out is left out."""
    plain = Environment(name=environment.name)
    context = {"context": environment.context} if environment.context else {}
    namespace = (
        {}
        if environment.extends and environment.namespace == plain.namespace
        else {"namespace": environment.namespace}
    )
    rest = {
        key: getattr(environment, name)
        for key, name in _SETTINGS.items()
        if getattr(environment, name) != getattr(plain, name)
    }
    if environment.targets:
        rest["targets"] = list(environment.targets)
    return {**context, **namespace, **rest}


_SETTINGS = {
    "kubernetesVersion": "kubernetes_version",
    "extends": "extends",
    "protected": "protected",
    "waitForLoadBalancer": "wait_for_load_balancer",
}
