"""The app directory: the one face of all that an app's files say, and of every change to them.

Reading stands here; the changes stand in the modules on `editing` and are reached through the same object.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from mlstack.errors import ConfigError, MlstackError, NotFoundError
from mlstack.files import document as documents
from mlstack.files import layout
from mlstack.files.appedit import AppEdits
from mlstack.files.appinstall import Installs
from mlstack.files.appread import AppFiles
from mlstack.files.componentedit import ComponentEdits
from mlstack.files.document import Document
from mlstack.files.environmentedit import EnvironmentEdits
from mlstack.files.environments import EnvironmentFiles, merged_environment
from mlstack.files.fields import layer_of
from mlstack.files.paramedit import ParamEdits
from mlstack.files.presets import preset_globals
from mlstack.files.schema import PassedStore
from mlstack.files.vendor import Vendor
from mlstack.model.app import App, Component, Environment, Lock, LockedPackage, Manifest, RegistryRef
from mlstack.model.dependencies import closure
from mlstack.model.faults import ParamFault, param_error
from mlstack.model.names import nearest
from mlstack.model.overrides import Overrides
from mlstack.model.params import Declared, Layer, Origin, ParamScope, Resolved, spelling_table
from mlstack.model.prototype import Package, Param, Prototype

__all__ = ["NO_OVERRIDES", "AppDir", "ParamScope"]

NO_OVERRIDES = Overrides()


class AppDir(ParamEdits, ComponentEdits, EnvironmentEdits, AppEdits, Installs):
    """An app directory. Every file is read at most once; a change makes it be read anew.

    Args:
        root: the folder with `app.yaml`.
        store: remembers which files have passed their schema before.
    """

    def __init__(self, root: Path, *, store: PassedStore | None = None) -> None:
        """Hold the place; nothing is read."""
        self.root = root
        self.store = store

    @classmethod
    def find(cls, start: Path, *, store: PassedStore | None = None) -> "AppDir":
        """Find the app directory that `start` lies in.

        Raises:
            NotFoundError: neither `start` nor a folder above it holds `app.yaml`.
        """
        root = layout.find_root(start)
        if root is None:
            raise NotFoundError(
                f"no app directory at `{start.absolute()}` or above", hint="mlstack init NAME makes one"
            )
        return cls(root, store=store)

    @classmethod
    def create(cls, root: Path, name: str, *, registries: Sequence[RegistryRef] = ()) -> "AppDir":
        """Make an app directory that can be used at once.

        Raises:
            UsageError: the name cannot be an app's, or there is an app already.
            ConfigError: the folder cannot be written; nothing was changed.
        """
        cls.write_new(root, name, registries=registries)
        return cls(root.absolute())

    @cached_property
    def files(self) -> AppFiles:
        """Give the reader of the app's files.

        Raises:
            NotFoundError: there is no `app.yaml`.
            SchemaError: it is another tool's, or one of a newer mlstack: nothing is read or written then.
        """
        files = AppFiles(self.root, self.store)
        files.app_document  # noqa: B018 # checked before anything else, whatever a command is about
        return files

    @cached_property
    def _vendor(self) -> Vendor:
        return Vendor(self.root, self.lock().packages, self.app().packages, self.store)

    def forget(self) -> None:
        """Read every file anew from now on."""
        for name in ("files", "_vendor", "_declarations"):
            self.__dict__.pop(name, None)

    def app(self) -> App:
        """Give what `app.yaml` says."""
        return self.files.app

    def lock(self) -> Lock:
        """Give what `mlstack.lock` says."""
        return self.files.lock

    def components(self) -> tuple[Component | Manifest, ...]:
        """Give all components by full name."""
        return tuple(self.files.component(name) for name in self.files.component_files)

    def component(self, name: str) -> Component | Manifest:
        """Give the component of a full name.

        Raises:
            NotFoundError: with the nearest known one.
        """
        return self.files.component(name)

    def component_names(self) -> tuple[str, ...]:
        """Give the full names of all components, sorted, without reading their files."""
        return tuple(self.files.component_files)

    def modules(self) -> tuple[str, ...]:
        """Give the dotted names of all modules, sorted."""
        return self.files.modules

    def selected(
        self, environment: Environment | None, names: Sequence[str] = ()
    ) -> tuple[Component | Manifest, ...]:
        """Give the components to deploy: those named, else the environment's targets, else all.

        Args:
            environment: whose targets count.
            names: full names of components and modules, as given with `-c`.

        Raises:
            NotFoundError: a name is neither; with the nearest known one.
        """
        wanted = names or (environment.targets if environment else ())
        where = None if names or environment is None else environment.file
        chosen = {full for name in wanted for full in self._members(name, where)}
        every = self.component_names()
        return tuple(self.component(name) for name in every if not wanted or name in chosen)

    def _members(self, name: str, where: str | None) -> list[str]:
        every = self.component_names()
        if name in every:
            return [name]
        if name in self.modules():
            return [each for each in every if each.startswith(f"{name}.")]
        near = nearest(name, [*every, *self.modules()])
        hint = None if near else "mlstack component list"
        raise NotFoundError(f"no component or module `{name}`", near=near, where=where, hint=hint)

    def depends(self, components: Sequence[Component | Manifest]) -> Mapping[str, tuple[str, ...]]:
        """Give for each of these components all components it depends on, through others as well.

        Raises:
            NotFoundError: `dependsOn` names neither a component nor a module; with the nearest known one.
            ConfigError: components depend on each other in a circle.
        """
        direct: dict[str, tuple[str, ...]] = {}
        rest = list(components)
        while rest:
            one = rest.pop()
            if one.full_name not in direct:
                direct[one.full_name] = self._direct(one) if isinstance(one, Component) else ()
                rest += [self.component(name) for name in direct[one.full_name]]
        return closure(direct, {name: self.files.component_files[name][0] for name in direct})

    def _direct(self, component: Component) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for number, name in enumerate(component.depends_on):
            members = self._members(name, self.files.place(component.file, ("dependsOn", number)))
            found.update(
                dict.fromkeys(each for each in members if each != component.full_name or each == name)
            )
        return tuple(found)

    def environments(self) -> tuple[Environment, ...]:
        """Give all environments by name, each with what it inherits."""
        return tuple(self.environment(name) for name in self.files.environment_names)

    def environment_names(self) -> tuple[str, ...]:
        """Give the names of all environments, sorted, without reading their files."""
        return self.files.environment_names

    def environment(self, name: str) -> Environment:
        """Give an environment with what it inherits.

        Raises:
            NotFoundError: with the nearest known one.
            ConfigError: environments extend each other in a circle.
        """
        return merged_environment(self.files.environment_chain(name))

    def current_environment(self) -> str | None:
        """Give the environment that commands take when none is named."""
        data = self.files.bytes(layout.CURRENT_ENVIRONMENT)
        return (data.decode("utf-8", errors="replace").strip() or None) if data else None

    def layers(
        self, component: Component, environment: str | None = None, overrides: Overrides = NO_OVERRIDES
    ) -> list[Layer]:
        """Give the layers of a component's parameters above the prototype's defaults, lowest first.

        Args:
            component: whose parameters.
            environment: None leaves the environment's layers out.
            overrides: given for this run.
        """
        prototype = self._prototype_of(component)
        modules = _enclosing(component.module)
        layers = [*_alias_layer(component, prototype), self.files.app_layer, *self._module_layers(modules)]
        layers.append(self.files.component_layer(component))
        chain, name = self._chain(environment), component.full_name
        layers += [each.globals for each in chain]
        layers += [each.components[name] for each in chain if name in each.components]
        if overrides:
            layers += overrides.layers(
                component.full_name,
                prototype.params,
                components=self.component_names(),
                read=documents.read_text_value,
            )
        return layers

    def _module_layers(self, modules: Iterable[str]) -> Iterator[Layer]:
        for module in modules:
            document = self.files.module_document(module)
            if document is not None:
                yield layer_of(document, ("params",), "module", f"--module={module}")

    def resolve(
        self, component: Component, environment: str | None = None, overrides: Overrides = NO_OVERRIDES
    ) -> Resolved:
        """Resolve a component's parameters; the prototype's schema is checked apart (`check_params`).

        Raises:
            ParamError: unknown names, spellings set twice, hostile characters, with file and line.
        """
        prototype = self._prototype_of(component)
        layers = self.layers(component, environment, overrides)
        self._check_overrides(overrides)
        resolved = self._declared(prototype).resolve(layers)
        note = prototype.alias_note(component.prototype)
        notes = (f"{note} ({component.file})",) if note else ()
        return Resolved(resolved.values, resolved.chains, (*notes, *resolved.notes))

    def _declared(self, prototype: Prototype) -> Declared:
        name = f"{prototype.full_name}@{prototype.version}"
        if name not in self._declarations:
            self._declarations[name] = Declared(prototype.params, prototype=prototype.full_name)
        return self._declarations[name]

    @cached_property
    def _declarations(self) -> dict[str, Declared]:
        return {}

    def _prototype_of(self, component: Component) -> Prototype:
        return self.prototype(component.prototype, where=component.file)

    def _check_overrides(self, overrides: Overrides) -> None:
        """Refuse parameters given for one run that no component declares: a typed name is meant."""
        keys = overrides.keys(self.component_names()) if overrides else []
        declared: set[str] = set()
        for owner, name, origin in keys:
            if owner is not None and owner not in self.component_names():
                near = nearest(owner, self.component_names())
                raise NotFoundError(f"no component `{owner}`", near=near, where=str(origin))
            if owner is None and name not in declared:
                declared = declared or self._spellings_in_use()
                if name not in declared and name in self.component_names():
                    hint = (
                        f"--set {name}.PARAM=VALUE, or in a file `components: {{{name}: {{PARAM: VALUE}}}}`"
                    )
                    raise param_error(
                        [ParamFault(f"`{name}` is a component, no parameter", str(origin), hint)]
                    )
                if name not in declared:
                    raise _undeclared([(name, origin)], [*declared, *self.component_names()])

    def _spellings_in_use(self) -> set[str]:
        used = (each for each in self.components() if isinstance(each, Component))
        return {name for each in used for name in spelling_table(self._prototype_of(each).params)}

    def packages(self) -> tuple[Package, ...]:
        """Give all installed packages with their prototypes.

        Raises:
            RegistryError: one is missing, or is not what the lock says.
        """
        return self._vendor.packages()

    def requires(self, locked: LockedPackage) -> tuple[str, ...]:
        """Give the packages that an installed one requires.

        Raises:
            RegistryError: it is missing, or is not what the lock says.
        """
        return self._vendor.folder(locked).head.requires

    def prototypes(self) -> tuple[Prototype, ...]:
        """Give all prototypes of installed packages, by full name."""
        found = (prototype for package in self.packages() for prototype in package.prototypes.values())
        return tuple(sorted(found, key=lambda prototype: (prototype.full_name, prototype.version)))

    def prototype(self, name: str, *, where: str | None = None) -> Prototype:
        """Find a prototype by full name, exact name, alias, or an end that only one has.

        Args:
            name: as typed or written.
            where: the place it is written at.

        Raises:
            NotFoundError: none, or several, with their full names.
        """
        return self._vendor.prototype(name, where=where)

    def crds(self) -> Mapping[str, str]:
        """Give the texts of custom resource definitions in installed packages, by file."""
        return self._vendor.crds()

    def read_manifest(self, component: Manifest) -> tuple[Document, ...]:
        """Give all documents of a plain manifest, with places."""
        return self.files.manifest(component.file)

    def patches(self, environment: str, component: str) -> tuple[Document, ...]:
        """Give the patches of an environment, and of those it extends, for a component; ancestors first."""
        found: list[Document] = []
        for each in self.files.environment_chain(environment):
            file = layout.patch_file(each.environment.name, component)
            data = self.files.bytes(file)
            found += documents.read_all(data, file=file) if data is not None else ()
        for patch in found:
            if not isinstance(patch.value, Mapping):
                raise ConfigError(
                    "a patch is a part of an object: apiVersion, kind, metadata.name and fields",
                    where=str(patch.origin()),
                )
        return tuple(found)

    def check_patches(self, environment: str) -> None:
        """Refuse patches of an environment, or of those it extends, that belong to no component.

        Raises:
            NotFoundError: there is no such component; with the nearest one.
        """
        for each in self.files.environment_chain(environment):
            for file, component in layout.patch_files(self.root, each.environment.name):
                if component not in self.files.component_files:
                    near = nearest(component, self.files.component_files)
                    hint = (
                        None
                        if near
                        else f"remove it, or name it as the component: {layout.patch_file('ENV', 'NAME')}"
                    )
                    raise NotFoundError(
                        f"no component `{component}` to patch", near=near, where=file, hint=hint
                    )

    def undeclared_globals(
        self, environment: str | None, components: Iterable[Component | Manifest]
    ) -> tuple[str, ...]:
        """Tell which values for all components no installed prototype declares: most are misspelt.

        What stands as a preset of mlstack has it is for packages that may not be installed.

        Args:
            environment: None leaves its values out.
            components: whose values are looked at; packages are asked only for names that their
                prototypes do not declare.
        """
        components = list(components)
        used = {each.prototype: each for each in components if isinstance(each, Component)}.values()
        known = {name for each in used for name in spelling_table(self._prototype_of(each).params)}
        modules = sorted({module for each in components for module in _enclosing(each.module)})
        layers = [self.files.app_layer, *self._module_layers(modules)]
        layers += [each.globals for each in self._chain(environment)]
        others = [(layer, name) for layer in layers for name in layer.values if name not in known]
        try:
            declared = self._vendor.spellings() if others else frozenset()
            others = [(layer, name) for layer, name in others if name not in declared]
            preset = preset_globals() if others else ()
        except MlstackError:  # a broken package is an error where it is used, not for a remark
            return ()
        return tuple(
            _undeclared_note(layer, name, declared)
            for layer, name in others
            if not any(name in each and each[name] == layer.values[name] for each in preset)
        )

    def _chain(self, environment: str | None) -> tuple[EnvironmentFiles, ...]:
        return self.files.environment_chain(environment) if environment is not None else ()

    def declared_params(self) -> dict[str, Param]:
        """Give every spelling that an installed prototype declares, with the first declaration found."""
        found: dict[str, Param] = {}
        for prototype in self.prototypes():
            for spelling, name in spelling_table(prototype.params).items():
                found.setdefault(spelling, prototype.params[name])
        return found


def _enclosing(module: str) -> list[str]:
    """Give a module and those it lies in, the outermost first; none for the root."""
    parts = module.split(".") if module else []
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _undeclared_note(layer: Layer, name: str, declared: Iterable[str]) -> str:
    near = nearest(name, declared)
    meant = f"; did you mean `{near}`?" if near else ""
    origin = layer.origins.get((name,), Origin(layer.kind))
    return f"no installed prototype declares `{name}` ({origin}){meant}"


def _alias_layer(component: Component, prototype: Prototype) -> Iterator[Layer]:
    """Give what a prototype's alias sets, where a component is written with one that does."""
    alias = prototype.alias(component.prototype) or ""
    params = prototype.alias_params.get(alias, {})
    if params:
        origin = Origin(f"prototype {prototype.full_name} as {alias}")
        yield Layer("default", params, {(name,): origin for name in params})


def _undeclared(names: Sequence[tuple[str, Any]], known: Iterable[str]) -> Exception:
    known = list(known)
    faults = []
    for name, origin in names:
        near = nearest(name, known)
        hint = f"did you mean `{near}`?" if near else "mlstack param list"
        faults.append(ParamFault(f"no component has a parameter `{name}`", where=str(origin), hint=hint))
    return param_error(faults)
