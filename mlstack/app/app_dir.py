"""The app directory: the one face of all that an app's files say, and of every change to them.

Reading stands here; the changes stand in the modules on `editing` and are reached through the same object.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mlstack.app import document, files, layout, params
from mlstack.app.app import App, Component, Environment, Lock, LockedPackage, Manifest, RegistryRef
from mlstack.app.document import AppDocument, layer_of, read_text_value
from mlstack.app.edit import AppEdits, ComponentEdits, EnvironmentEdits, Installs, ParamEdits
from mlstack.app.files import AppFiles, EnvironmentFiles, merged_environment, preset_globals
from mlstack.app.layout import component_file
from mlstack.app.params import (
    Declared,
    Layer,
    Origin,
    Overrides,
    ParamFault,
    Resolved,
    merge,
    param_error,
    spelling_table,
)
from mlstack.app.params import KeyPath as ValuePath
from mlstack.app.prototype import Package, Param, Prototype
from mlstack.app.schema import PassedStore, check_params
from mlstack.app.vendor import Vendor
from mlstack.errors import ConfigError, MlstackError, NotFoundError, ParamError, UsageError
from mlstack.names import check_component_name, check_module_name, nearest
from mlstack.objects.order import closure

# --- The app directory: the one face of all that an app's files say, and of every change to them ---
# Reading stands here; the changes stand in the modules on `editing` and are reached through the same object.

NO_OVERRIDES = Overrides()


class AppDir(ParamEdits, ComponentEdits, EnvironmentEdits, AppEdits, Installs):
    """An app directory. Every file is read at most once; a change makes it be read anew.

    Args:
        root: the folder with `app.yaml`.
        store: remembers which files have passed their schema before.
    """

    def __init__(self, root: Path, *, store: PassedStore | None = None) -> None:
        self.root = root
        self.store = store

    @classmethod
    def find(cls, start: Path, *, store: PassedStore | None = None) -> AppDir:
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
    def create(cls, root: Path, name: str, *, registries: Sequence[RegistryRef] = ()) -> AppDir:
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
                read=document.read_text_value,
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

    def read_manifest(self, component: Manifest) -> tuple[AppDocument, ...]:
        """Give all documents of a plain manifest, with places."""
        return self.files.manifest(component.file)

    def patches(self, environment: str, component: str) -> tuple[AppDocument, ...]:
        """Give the patches of an environment, and of those it extends, for a component; ancestors first."""
        found: list[AppDocument] = []
        for each in self.files.environment_chain(environment):
            file = layout.patch_file(each.environment.name, component)
            data = self.files.bytes(file)
            found += document.read_all(data, file=file) if data is not None else ()
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


# --- Components that an app does not have yet: their parameters as given, resolved and checked ---


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A component as it was asked for."""

    prototype: str  # full name, alias or unique end of a name
    # the component's name, with its module in front (`serving.inception`); None takes it from the parameter
    # `name`
    name: str | None = None
    module: str | None = None  # the module it goes to, None for the one in its name
    # text by parameter as typed; None for an option without a value
    texts: Mapping[str, str | None] = field(default_factory=dict)
    # YAML files of parameters; later ones win over earlier, options over all
    values_files: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A component that could be added to an app as it is."""

    component: Component  # with the parameters that were given, and no others
    prototype: Prototype  # what it is made from
    resolved: Resolved  # its parameters as they would count, checked


def draft(app: AppDir, wanted: Wanted, prototype: Prototype, *, passed: PassedStore | None = None) -> Draft:
    """Work out a component from what was asked for; nothing is written.

    Args:
        app: the app directory.
        wanted: what was asked for.
        prototype: what the name that was asked for stands for.
        passed: parameter sets that have passed before are not checked again.

    Raises:
        UsageError: no name, an unknown parameter, or a required one missing.
        ParamError: a value does not fit its parameter.
    """
    values, origins = _values(prototype, wanted)
    module, name = _name(wanted, values)
    if values.get("name") == name:
        del values["name"]  # a component's name is the default
    component = Component(
        name=name,
        module=module,
        prototype=_written(prototype, wanted.prototype),
        params=values,
        file=component_file(module, name),
    )
    layers = [Layer("app", app.app().params), Layer("component", values, origins)]
    return Draft(component=component, prototype=prototype, resolved=_resolved(prototype, layers, passed))


def _written(prototype: Prototype, asked: str) -> str:
    """Give the name by which a component refers to its prototype; a version that was asked for stays."""
    if "@" not in asked:
        return prototype.full_name
    return f"{prototype.registry}/{prototype.package}@{prototype.version}/{prototype.name}"


def _values(prototype: Prototype, wanted: Wanted) -> tuple[dict[str, Any], dict[ValuePath, Origin]]:
    """Give the values by canonical name, and where each was given."""
    alias = prototype.alias(wanted.prototype) or ""
    values: dict[str, Any] = dict(prototype.alias_params.get(alias, {}))
    origins: dict[ValuePath, Origin] = {(name,): Origin(f"prototype {alias}") for name in values}
    for file, layer in _file_layers(wanted):
        for key, value in layer.values.items():
            origin = layer.origins.get((key,), Origin(str(file)))
            try:
                name = params.canonical_name(prototype, key)
            except NotFoundError as error:
                error.where = str(origin)
                raise
            known = values.get(name)
            values[name] = merge(known, value) if isinstance(known, Mapping) else value
            origins[(name,)] = origin
    for name, value in params.typed(prototype, wanted.texts, read=read_text_value).items():
        values[name], origins[(name,)] = value, Origin(f"--{name}")
    return values, origins


def _file_layers(wanted: Wanted) -> Iterator[tuple[Path, Layer]]:
    for file in wanted.values_files:
        found = files.read_values(file)
        own = found.components.get(wanted.name or "")
        yield from ((file, layer) for layer in (found.globals, own) if layer is not None)


def _name(wanted: Wanted, values: Mapping[str, Any]) -> tuple[str, str]:
    full_name = wanted.name or str(values.get("name") or "")
    if not full_name:
        raise UsageError("what is the component called?", hint=f"mlstack generate {wanted.prototype} NAME")
    module, _, name = full_name.rpartition(".")
    parts = [(wanted.module or "").replace("/", ".").strip("."), module]
    module = ".".join(part for part in parts if part)
    if "/" in full_name or ".." in full_name or full_name.startswith("."):
        check_component_name(full_name)  # names no path, and no part of one is empty
    return check_module_name(module) if module else "", check_component_name(name)


def _resolved(prototype: Prototype, layers: Sequence[Layer], passed: PassedStore | None) -> Resolved:
    resolved = params.resolve(prototype.params, layers, prototype=prototype.full_name)
    lacking = params.missing(prototype, resolved.values)
    if lacking:
        names = ", ".join(f"`{param.name}`" for param in lacking)
        options = " ".join(f"--{param.name}=VALUE" for param in lacking)
        raise UsageError(f"prototype `{prototype.name}` needs {names}", hint=f"add {options}")
    try:
        check_params(prototype, resolved, passed=passed)
    except ParamError as error:
        hint = f"`mlstack generate {prototype.name} --help` lists what it takes"
        raise type(error)(error.message, where=error.where, hint=hint) from error
    return resolved


# --- What a render was made from: each file of the app that was read for it, and the packages ---

_ENVIRONMENT = re.compile(rf"{layout.ENVIRONMENTS}/.+/{re.escape(layout.ENVIRONMENT)}")


def digests(app: AppDir) -> dict[str, str]:
    """Give the hash of each file that was read since the app was opened; empty for files that are not there.

    Which cluster an environment is bound to is no input: an apply itself writes it into the file.
    """
    return {
        file: _without_cluster(app, file) if digest and _ENVIRONMENT.fullmatch(file) else digest
        for file, digest in sorted(app.files.digests.items())
        if file != layout.CURRENT_ENVIRONMENT
    }


def _without_cluster(app: AppDir, file: str) -> str:
    document = app.files.document(file, "Environment")
    value: Mapping[str, object] = document.value if document else {}
    kept = {key: inner for key, inner in value.items() if key != "cluster"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def packages(app: AppDir) -> dict[str, str]:
    """Give the digest of each installed package, by name and version."""
    return {str(each.ref): each.digest for each in app.lock().packages}
