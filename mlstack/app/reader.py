"""What an app directory says: its components, environments and prototypes, and parameters resolved."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from mlstack.app import layout
from mlstack.app.app import App, Component, Environment, Lock, LockedPackage, Manifest
from mlstack.app.app_files import AppFiles, EnvironmentFiles, merged_environment, preset_globals
from mlstack.app.document import AppDocument, layer_of
from mlstack.app.params import (
    Declared,
    Layer,
    Origin,
    Overrides,
    ParamFault,
    Resolved,
    param_error,
    spelling_table,
)
from mlstack.app.prototype import Package, Param, Prototype
from mlstack.app.schema import PassedStore
from mlstack.app.vendor import Vendor
from mlstack.errors import MlstackError, NotFoundError, UsageError
from mlstack.names import nearest
from mlstack.objects.order import closure

NO_OVERRIDES = Overrides()
_ENVIRONMENT_FILE = re.compile(rf"{layout.ENVIRONMENTS}/.+/{re.escape(layout.ENVIRONMENT)}")


class AppReader:
    """The reading side of an app directory; every file is read at most once until `forget`."""

    def __init__(self, root: Path, *, store: PassedStore | None = None) -> None:
        self.root = root
        self.store = store

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

    @cached_property
    def _declarations(self) -> dict[str, Declared]:
        return {}

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

    # --- components ---

    def components(self) -> tuple[Component | Manifest, ...]:
        """Give all components by full name."""
        return tuple(self.files.component(name) for name in self.files.component_files)

    def component(self, name: str) -> Component | Manifest:
        """Give the component of a full name.

        Raises:
            NotFoundError: with the nearest known one.
        """
        return self.files.component(name)

    def component_with_params(self, name: str) -> Component:
        """Give a component that is made from a prototype.

        Raises:
            UsageError: it is a plain manifest.
            NotFoundError: there is none of that name.
        """
        component = self.component(name)
        if isinstance(component, Component):
            return component
        raise UsageError(
            f"`{name}` is a plain manifest, which has no parameters",
            hint=f"edit {component.file}, or patch it in environments/ENV/patches/{name}.yaml",
        )

    def component_names(self) -> tuple[str, ...]:
        """Give the full names of all components, sorted, without reading their files."""
        return tuple(self.files.component_files)

    def modules(self) -> tuple[str, ...]:
        """Give the dotted names of all modules, sorted."""
        return self.files.modules

    def selected(
        self, environment: Environment | None, names: Sequence[str] = ()
    ) -> tuple[Component | Manifest, ...]:
        """Give the components to deploy: those named (or of modules named), else the environment's targets.

        Without either, all.

        Raises:
            NotFoundError: a name is neither component nor module; with the nearest known one.
        """
        targets = names or (environment.targets if environment else ())
        where = None if names or environment is None else environment.file
        chosen = {member for name in targets for member in self._members(name, where)}
        every = self.component_names()
        return tuple(self.component(name) for name in every if not targets or name in chosen)

    def _members(self, name: str, where: str | None) -> list[str]:
        every = self.component_names()
        if name in every:
            return [name]
        if name in self.modules():
            return [component for component in every if component.startswith(f"{name}.")]
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
            component = rest.pop()
            name = component.full_name
            if name not in direct:
                direct[name] = self._dependencies(component) if isinstance(component, Component) else ()
                rest += [self.component(dependency) for dependency in direct[name]]
        return closure(direct, {name: self.files.component_files[name][0] for name in direct})

    def _dependencies(self, component: Component) -> tuple[str, ...]:
        named: dict[str, None] = {}
        for number, name in enumerate(component.depends_on):
            members = self._members(name, self.files.position(component.file, ("dependsOn", number)))
            named |= dict.fromkeys(full for full in members if full != component.full_name or full == name)
        return tuple(named)

    def read_manifest(self, component: Manifest) -> tuple[AppDocument, ...]:
        """Give all documents of a plain manifest, with source positions."""
        return self.files.manifest(component.file)

    # --- environments ---

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

    def patches(self, environment: str, component: str) -> tuple[AppDocument, ...]:
        """Give the patches of an environment, and of those it extends, for a component; ancestors first."""
        return self.files.patches(environment, component)

    def check_patches(self, environment: str) -> None:
        """Refuse patches of an environment, or of those it extends, that belong to no component.

        Raises:
            NotFoundError: there is no such component; with the nearest one.
        """
        self.files.check_patches(environment)

    # --- packages ---

    def packages(self) -> tuple[Package, ...]:
        """Give all installed packages with their prototypes.

        Raises:
            RegistryError: one is missing, or is not what the lock says.
        """
        return self._vendor.packages()

    def requires(self, locked: LockedPackage) -> tuple[str, ...]:
        """Give the packages that an installed one requires."""
        return self._vendor.folder(locked).head.requires

    def prototypes(self) -> tuple[Prototype, ...]:
        """Give all prototypes of installed packages, by full name."""
        every = (prototype for package in self.packages() for prototype in package.prototypes.values())
        return tuple(sorted(every, key=lambda prototype: (prototype.full_name, prototype.version)))

    def prototype(self, name: str, *, where: str | None = None) -> Prototype:
        """Find a prototype by full name, exact name, alias, or an end that only one has.

        Raises:
            NotFoundError: none, or several, with their full names; at `where` the name is written.
        """
        return self._vendor.prototype(name, where=where)

    def crds(self) -> Mapping[str, str]:
        """Give the texts of custom resource definitions in installed packages, by file."""
        return self._vendor.crds()

    def declared_params(self) -> dict[str, Param]:
        """Give every spelling that an installed prototype declares, with the first declaration found."""
        declared: dict[str, Param] = {}
        for prototype in self.prototypes():
            for spelling, name in spelling_table(prototype.params).items():
                declared.setdefault(spelling, prototype.params[name])
        return declared

    # --- parameters ---

    def layers(
        self, component: Component, environment: str | None = None, overrides: Overrides = NO_OVERRIDES
    ) -> list[Layer]:
        """Give the layers of a component's parameters above the prototype's defaults, lowest first."""
        prototype, name = self._prototype_of(component), component.full_name
        layers = [*_alias_layer(component, prototype), self.files.app_layer]
        layers += [*self._module_layers(_enclosing(component.module)), self.files.component_layer(component)]
        chain = self._chain(environment)
        layers += [files.globals for files in chain]
        layers += [files.components[name] for files in chain if name in files.components]
        if overrides:
            every = self.component_names()
            layers += overrides.layers(name, prototype.params, components=every)
        return layers

    def _chain(self, environment: str | None) -> tuple[EnvironmentFiles, ...]:
        return self.files.environment_chain(environment) if environment is not None else ()

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
        key = f"{prototype.full_name}@{prototype.version}"
        if key not in self._declarations:
            self._declarations[key] = Declared(prototype.params, prototype=prototype.full_name)
        resolved = self._declarations[key].resolve(layers)
        note = prototype.alias_note(component.prototype)
        notes = (f"{note} ({component.file})",) if note else ()
        return Resolved(resolved.values, resolved.chains, (*notes, *resolved.notes))

    def _prototype_of(self, component: Component) -> Prototype:
        return self.prototype(component.prototype, where=component.file)

    def _spellings_of(self, components: Iterable[Component | Manifest]) -> set[str]:
        """Give every spelling that the prototypes of components declare."""
        own = (component for component in components if isinstance(component, Component))
        used = {component.prototype: component for component in own}.values()
        return {name for component in used for name in spelling_table(self._prototype_of(component).params)}

    def _check_overrides(self, overrides: Overrides) -> None:
        """Refuse parameters given for one run that no component declares: a typed name is meant."""
        if not overrides:
            return
        every = self.component_names()
        declared: set[str] = set()
        for owner, name, origin in overrides.keys(every):
            if owner is not None:
                if owner not in every:
                    near = nearest(owner, every)
                    raise NotFoundError(f"no component `{owner}`", near=near, where=str(origin))
                continue
            declared = declared or self._spellings_of(self.components())
            if name in declared:
                continue
            message = f"no component has a parameter `{name}`"
            near = nearest(name, [*declared, *every])
            hint = f"did you mean `{near}`?" if near else "mlstack param list"
            if name in every:
                message = f"`{name}` is a component, no parameter"
                hint = f"--set {name}.PARAM=VALUE, or in a file `components: {{{name}: {{PARAM: VALUE}}}}`"
            raise param_error([ParamFault(message, str(origin), hint)])

    def undeclared_globals(
        self, environment: str | None, components: Iterable[Component | Manifest]
    ) -> tuple[str, ...]:
        """Tell which values for all of these components no installed prototype declares: most are misspelt.

        What stands as a preset of mlstack has it is for packages that may not be installed. Packages are
        asked only for names that the prototypes of these components do not declare.
        """
        components = list(components)
        known = self._spellings_of(components)
        modules = sorted({module for component in components for module in _enclosing(component.module)})
        layers = [self.files.app_layer, *self._module_layers(modules)]
        layers += [files.globals for files in self._chain(environment)]
        others = [(layer, name) for layer in layers for name in layer.values if name not in known]
        try:
            declared = self._vendor.spellings() if others else frozenset()
            others = [(layer, name) for layer, name in others if name not in declared]
            presets = preset_globals() if others else ()
        except MlstackError:  # a broken package is an error where it is used, not for a remark
            return ()
        return tuple(
            _undeclared_note(layer, name, declared)
            for layer, name in others
            if not any(name in preset and preset[name] == layer.values[name] for preset in presets)
        )


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


# --- what a render was made from -----------------------------------------------------------------------


def digests(app: AppReader) -> dict[str, str]:
    """Give the hash of each file that was read since the app was opened; empty for files that are not there.

    Which cluster an environment is bound to is no input: an apply itself writes it into the file.
    """
    hashes = {}
    for file, digest in sorted(app.files.digests.items()):
        if digest and _ENVIRONMENT_FILE.fullmatch(file):
            document = app.files.document(file, "Environment")
            value: Mapping[str, object] = document.value if document else {}
            inputs = {key: inner for key, inner in value.items() if key != "cluster"}
            digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
        if file != layout.CURRENT_ENVIRONMENT:
            hashes[file] = digest
    return hashes


def packages(app: AppReader) -> dict[str, str]:
    """Give the digest of each installed package, by name and version."""
    return {str(package.ref): package.digest for package in app.lock().packages}
