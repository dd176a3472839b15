"""What an app directory says: its components, environments and prototypes, and parameters resolved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from mlstack.app import files, layout
from mlstack.app.app import App, Component, Kustomization, Manifest, ModuleParams
from mlstack.app.document import AppDocument, FieldReader, Origin, kind_of, read_all
from mlstack.app.environment import (
    ApprovedDifferences,
    ClusterSnapshot,
    Environment,
    EnvironmentFiles,
    EnvironmentParams,
    PersonalOverrides,
    PolicyFile,
    Prices,
    inherited,
    parse_snapshot,
)
from mlstack.app.files import AppFiles, SecretValues
from mlstack.app.package import Vendor
from mlstack.app.params import Declared, Layer, Resolved, layer_of, spelling_table
from mlstack.app.prototype import SOPS, Need, Prototype, encrypted_values
from mlstack.app.schema import check_file
from mlstack.app.versions import Lock
from mlstack.dataclass import row
from mlstack.disk_cache import NO_STORE, ByteStore
from mlstack.errors import ConfigError, MlstackError, UsageError
from mlstack.names import check_mlstack, did_you_mean, not_found
from mlstack.yaml.read import KeyPath

if TYPE_CHECKING:
    from mlstack.app.components import Overrides

_LABEL = r"[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"


class AppReader:
    """The reading side of an app directory; every file is read at most once until `forget`.

    `store` remembers files and parameter sets that have passed their schema, compiled templates and what they
    rendered; `environ` has the environment variables from which secret parameters may take their values.
    """

    _is_shared = False

    def __init__(
        self, root: Path, *, store: ByteStore = NO_STORE, environ: Mapping[str, str] | None = None
    ) -> None:
        self.root, self.store, self.environ = root, store, environ or {}
        self.forget()

    def forget(self) -> None:
        """Read every file anew from now on."""
        for name in set(vars(self)) - {"root", "store", "environ", "_is_locked", "_is_shared"}:
            del vars(self)[name]
        self._declarations: dict[str, Declared] = {}
        self._prototypes: dict[tuple[str, str | None], Prototype] = {}
        self._shared: dict[tuple[str, ...], tuple[Layer, ...]] = {}
        self._chains: dict[str, tuple[EnvironmentFiles, ...]] = {}
        self._patches: dict[str, Mapping[str, str]] = {}

    @cached_property
    def files(self) -> AppFiles:
        """Give the reader of the app's files, `app.yaml` checked before anything else.

        Raises:
            NotFoundError: there is no `app.yaml`.
            SchemaError: it is another tool's, or one of a newer mlstack: nothing is read or written then.
        """
        files = AppFiles(self.root, self.store)
        files.app_document  # noqa: B018 # whatever a command is about
        return files

    @cached_property
    def app(self) -> App:
        """Give what `app.yaml` says."""
        app = FieldReader(self.files.app_document).record(App)
        check_mlstack(app.requires_mlstack, what="this app", where=layout.APP_FILE)
        return app

    @cached_property
    def lock(self) -> Lock:
        """Give what `mlstack.lock` says; empty when there is none."""
        return self.files.record(layout.LOCK_FILE, Lock) or Lock()

    def without_personal(self) -> Self:
        """Give the same app as everybody has it: what goes into files of all knows no one person's values."""
        shared = copy(self)
        shared._is_shared = True
        shared.forget()
        return shared

    @cached_property
    def personal(self) -> PersonalOverrides:
        """Give what the person who works here has otherwise."""
        own = None if self._is_shared else self.files.record(layout.OVERRIDES, PersonalOverrides)
        return own or PersonalOverrides()

    @cached_property
    def approved(self) -> ApprovedDifferences:
        """Give the differences between environments that are meant."""
        return self.files.record(layout.APPROVED, ApprovedDifferences) or ApprovedDifferences()

    def prices(self, environment: str) -> Prices | None:
        """Give what an environment's cluster costs: its own file, else the one for all, if there is one."""
        folders = (f"{layout.ENVIRONMENTS}/{environment}", layout.ENVIRONMENTS)
        prices = (self.files.record(f"{folder}/{layout.PRICES}", Prices) for folder in folders)
        return next(filter(None, prices), None)

    def snapshot(self, environment: str) -> ClusterSnapshot | None:
        """Give what the cluster of an environment can do: its own snapshot, or one of the same context below.

        Raises:
            SchemaError: the file is not what `env snapshot` writes.
        """
        context = self.environment(environment).context
        for name in reversed(self.lineage(environment)):
            if self.environment(name).context != context:
                break
            file = f"{layout.ENVIRONMENTS}/{name}/{layout.SNAPSHOT}"
            if (data := self.files.bytes(file)) is not None:
                return parse_snapshot(data, file, name)
        return None

    @cached_property
    def policies(self) -> tuple[tuple[PolicyFile, AppDocument], ...]:
        """Give the app's own policies with their files."""
        documents = (self.files.document(file, "Policy") for file in layout.policy_files(self.files.root))
        return tuple((FieldReader(file).record(PolicyFile), file) for file in documents if file)

    # --- components ---

    @cached_property
    def component_files(self) -> Mapping[str, tuple[str, str, str]]:
        """Give full name → (file, module, name) of all components, sorted, without reading them."""
        components: dict[str, tuple[str, str, str]] = {}
        for file, module, name in layout.component_files(self.files.root):
            full_name = f"{module}.{name}" if module else name
            if not re.fullmatch(_LABEL, full_name) or "." in file.rpartition("/")[0]:
                message = f"`{full_name}` cannot be the name of a component, which becomes a label"
                hint = "name files and folders with up to 63 letters, digits, `-` and `_`"
                raise ConfigError(message, where=file, hint=hint)
            if full_name in components:
                both = f"`{components[full_name][0]}` and `{file}` both"
                raise ConfigError(f"{both} stand for the component `{full_name}`", hint="rename one of them")
            components[full_name] = (file, module, name)
        return dict(sorted(components.items()))

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """Give the dotted names of all modules, sorted."""
        base = self.files.root / layout.COMPONENTS
        folders = (Path(folder).relative_to(base).parts for folder, _, _ in layout.walk(base))
        return tuple(sorted(".".join(parts) for parts in folders if parts))

    def check_known_module(self, name: str) -> None:
        """Refuse a module that there is not; with the nearest known one."""
        if name not in self.modules:
            raise not_found(f"no module `{name}`", name, self.modules, hint="mlstack module list")

    def components(self) -> tuple[Component | Manifest, ...]:
        """Give all components by full name."""
        return tuple(map(self.component, self.component_files))

    def component(self, name: str) -> Component | Manifest:
        """Give the component of a full name.

        Raises:
            NotFoundError: with the nearest known one.
        """
        if name not in self.component_files:
            self._refuse_component(name, None, "mlstack component list")
        file, module, own_name = self.component_files[name]
        document = self.files.component_document(file)
        if document is None:
            return Manifest(name=own_name, module=module, file=file)
        component = FieldReader(document).record(Component, name=own_name, module=module, file=file)
        return row(Kustomization, component, source=component.kustomize) if component.kustomize else component

    def kustomizations(self) -> Iterator[Kustomization]:
        """Give the sound components that kustomize builds from a copy of somebody else's."""
        for name in self.component_files:
            with suppress(MlstackError):
                component = self.component(name)
                if isinstance(component, Kustomization) and component.is_remote:
                    yield component

    def _refuse_component(self, name: str, where: str | None, hint: str, what: str = "") -> NoReturn:
        raise not_found(f"no component `{name}`{what}", name, self.component_files, where=where, hint=hint)

    def component_with_params(self, name: str) -> Component:
        """Give a component that is made from a prototype."""
        component = self.component(name)
        if isinstance(component, Component):
            return component
        message, hint = _no_params(component)
        raise UsageError(message, hint=hint)

    def refuse_params(self, component: Manifest, environment: str) -> None:
        """Refuse values that an environment has for a component without parameters."""
        message, hint = _no_params(component)
        chain = self.environment_chain(environment if environment in self.environment_names else None)
        for layer in (layer for level in chain for layer in level.for_component(component.full_name)):
            for name in layer.values:
                raise ConfigError(message, where=str(layer.origins.get((name,), layer.kind)), hint=hint)

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
        return tuple(self.component(name) for name in self.component_files if not targets or name in chosen)

    def _members(self, name: str, where: str | None) -> list[str]:
        every = self.component_files
        if name in every:
            return [name]
        if name in self.modules:
            return [component for component in every if component.startswith(f"{name}.")]
        message, hint = f"no component or module `{name}`", "mlstack component list"
        raise not_found(message, name, [*every, *self.modules], where=where, hint=hint)

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
            name, members = component.full_name, dict[str, None]()
            if name in direct:
                continue
            for number, target in enumerate(component.depends_on):
                named = self._members(target, self.position(component.file, ("dependsOn", number)))
                members |= dict.fromkeys(full for full in named if full != name or full == target)
            direct[name] = tuple(members)
            rest += map(self.component, members)
        from mlstack.objects.order import closure  # editing commands need none of it

        return closure(direct, {name: self.component_files[name][0] for name in direct})

    def position(self, file: str, path: KeyPath) -> str:
        """Give `file:line` of a part of a component's file."""
        document = self.files.document(file, "Component")
        return file if document is None else str(document.origin(path))

    def read_manifest(self, component: Manifest) -> tuple[AppDocument, ...]:
        """Give all documents of a plain manifest, with source positions."""
        data = self.files.bytes(component.file)
        if data is None:
            raise ConfigError("the file is gone", where=component.file)
        return read_all(data, file=component.file)

    def formerly(self, components: Iterable[str]) -> tuple[str, ...]:
        """Give the names that these components had before, as `moved` of `app.yaml` says it.

        A name that another component has by now tells nothing any more.
        """
        names, moved = {*components}, {entry.old: entry.new for entry in self.app.moved}
        former = []
        for old in moved:
            new, steps = old, 0
            while new in moved and steps <= len(moved):  # renamed twice
                new, steps = moved[new], steps + 1
            if new in names and old not in self.component_files:
                former.append(old)
        return tuple(sorted(former))

    # --- environments ---

    @cached_property
    def environment_names(self) -> tuple[str, ...]:
        """Give the names of all environments, sorted, without reading their files."""
        base = self.files.root / layout.ENVIRONMENTS
        folders = (folder for folder, _, files in layout.walk(base) if layout.ENVIRONMENT in files)
        return tuple(sorted(Path(folder).relative_to(base).as_posix() for folder in folders))

    def environments(self) -> tuple[Environment, ...]:
        """Give all environments by name, each with what it inherits."""
        return tuple(map(self.environment, self.environment_names))

    def environment(self, name: str) -> Environment:
        """Give an environment with what it inherits: fields that its file does not give.

        Raises:
            NotFoundError: with the nearest known one.
            ConfigError: environments extend each other in a circle.
        """
        return inherited(self.environment_chain(name))

    def environment_chain(self, name: str | None) -> tuple[EnvironmentFiles, ...]:
        """Give an environment and what it extends, the farthest ancestor first; nothing for none."""
        if name is None:
            return ()
        if name not in self._chains:
            chain: list[EnvironmentFiles] = []
            parent: str | None = name
            while parent is not None:
                children = [files.environment.name for files in chain]
                if parent in children:
                    message = f"environments extend each other in a circle: {' → '.join([*children, parent])}"
                    raise ConfigError(message, where=chain[-1].environment.file)
                chain.append(self._environment_files(parent, chain[-1].environment if chain else None))
                parent = chain[-1].environment.extends
            self._chains[name] = (*reversed(chain), *self._personal_layer(chain[0]))
        return self._chains[name]

    def environment_files(self, name: str) -> EnvironmentFiles:
        """Give what an environment's own files say, without what it extends and what is personal."""
        return next(files for files in self.environment_chain(name) if files.environment.name == name)

    def _environment_files(self, name: str, child: Environment | None) -> EnvironmentFiles:
        file = layout.environment_file(name)
        document = self.files.document(file, "Environment") if name in self.environment_names else None
        if document is None:
            message = f"no environment `{name}`" + (f", which `{child.name}` extends" if child else "")
            usual = f"mlstack plan ENV --out {name}" if name.endswith(".json") else f"mlstack env add {name}"
            if known := ", ".join(self.environment_names):
                usual = f"there is {known}; {usual}"
            where = child.file if child else None
            raise not_found(message, name, self.environment_names, where=where, hint=usual.rstrip())
        environment = FieldReader(document).record(Environment, name=name, file=file)
        given = frozenset(key for key, value in document.value.items() if value is not None)
        document = self.files.document(layout.environment_params_file(name), "EnvironmentParams")
        shared, layers = Layer("environment globals", {}, target=f"--env={name}"), dict[str, Layer]()
        if document is not None:
            FieldReader(document).record(EnvironmentParams)
            shared, layers = self._environment_layers(document, name)
        secret = self.files.encrypted(layout.encrypted_params_file(name))
        if secret is None:
            return EnvironmentFiles(environment, given, shared, layers)
        FieldReader(secret).only("apiVersion", "kind", "globals", "components", SOPS)
        for_all, own = self._environment_layers(secret, name)
        for_all = _encrypted(for_all, ("globals",), secret.file)
        own = {name: _encrypted(layer, ("components", name), secret.file) for name, layer in own.items()}
        return EnvironmentFiles(environment, given, shared, layers, for_all, own)

    def _environment_layers(
        self, document: AppDocument, name: str, path: KeyPath = ()
    ) -> tuple[Layer, dict[str, Layer]]:
        """Give the values of an environment for all components, and for single ones, that stand at a path."""
        target, place = f"--env={name}", (*path, "components")
        origins: dict[str, dict[KeyPath, Origin]] = {}
        for (component, *inner), origin in document.origins(place).items():
            origins.setdefault(str(component), {})[tuple(inner)] = origin
        layers = {}
        for component, values in FieldReader(document, path).map("components").items():
            if component not in self.component_files:
                where = str(document.origin((*place, component)))
                self._refuse_component(component, where, "remove the entry, or mlstack component list")
            if values is not None:
                FieldReader(document, (*place, component))
                own = origins.get(component, {})
                layers[component] = Layer("environment", values, own, f"{target} {component}")
        return layer_of(document, (*path, "globals"), "environment globals", target), layers

    def _personal_layer(self, own: EnvironmentFiles) -> Iterator[EnvironmentFiles]:
        """Give what the person who works here has otherwise about an environment, as the last layer of it."""
        name, document = own.environment.name, self.files.document(layout.OVERRIDES, "PersonalOverrides")
        for number, personal in enumerate(self.personal.environments):
            if personal.name == name and document is not None:
                keys = {"context": personal.context, "namespace": personal.namespace}
                changed: dict[str, Any] = {key: value for key, value in keys.items() if value}
                given = {*changed, *(["cluster"] if personal.context else [])}
                place = replace(own.environment, **changed, cluster=personal.cluster)
                layers = self._environment_layers(document, name, ("environments", number))
                yield EnvironmentFiles(place, frozenset(given), *layers)

    def current_environment(self) -> str | None:
        """Give the environment that commands take when none is named."""
        data = self.files.bytes(layout.CURRENT_ENVIRONMENT)
        return (data.decode("utf-8", errors="replace").strip() or None) if data else None

    def patches(self, environment: str, component: str) -> tuple[AppDocument, ...]:
        """Give the patches of an environment, and of those it extends, for a component; ancestors first."""
        patches: list[AppDocument] = []
        for name in self.lineage(environment):
            if file := self.own_patches(name).get(component):
                data = self.files.bytes(file)
                patches += read_all(data, file=file) if data is not None else ()
        for patch in patches:
            if not isinstance(patch.value, Mapping):
                message = "a patch is a part of an object: apiVersion, kind, metadata.name and fields"
                raise ConfigError(message, where=str(patch.origin()))
            if kind_of(patch.value) == "Patch":
                check_file("Patch", patch.value, source=patch.file, document=patch, passed=self.store)
                self._check_patch(patch)
        return tuple(patches)

    @staticmethod
    def _check_patch(patch: AppDocument) -> None:
        """Refuse what goes with no type of a patch."""
        is_json = patch.value.get("type") == "json"
        if "target" not in patch.value:
            raise ConfigError("a patch needs a `target`", where=str(patch.origin()))
        if is_json != isinstance(patch.value["patch"], list):
            shape = "a list of operations" if is_json else "a part of an object"
            message = f"`patch` must be {shape} where `type` is `{patch.value.get('type', 'merge')}`"
            raise ConfigError(message, where=str(patch.origin(("patch",))))

    def lineage(self, environment: str) -> tuple[str, ...]:
        """Give the names of an environment and of what it extends, the farthest ancestor first."""
        return tuple(dict.fromkeys(files.environment.name for files in self.environment_chain(environment)))

    def check_patches(self, environment: str) -> None:
        """Refuse patches of an environment, or of those it extends, that belong to no component."""
        usual = f"remove it, or name it as the component: {layout.patch_file('ENV', 'NAME')}"
        for name in self.lineage(environment):
            for component, file in self.own_patches(name).items():
                if component not in self.component_files:
                    self._refuse_component(component, file, usual, " to patch")

    def own_patches(self, environment: str) -> Mapping[str, str]:
        """Give component → file of an environment's own patches, which are looked for once."""
        if environment not in self._patches:
            self._patches[environment] = layout.patch_files(self.root, environment)
        return self._patches[environment]

    # --- packages and their prototypes ---

    @cached_property
    def vendor(self) -> Vendor:
        """Give the installed packages."""
        return Vendor(self.root, self.lock.packages, self.store)

    def prototype(self, name: str, *, where: str | None = None, environment: str | None = None) -> Prototype:
        """Find a prototype by full name, exact name, alias, or an end that only one has; as it is under that.

        An environment may have other versions of packages than the app.

        Raises:
            NotFoundError: none, or several, with their full names; at `where` the name is written.
        """
        key = name, environment
        if key not in self._prototypes:
            prototype = self.vendor.prototype(name, where=where, environment=environment)
            self._prototypes[key] = prototype.called(name)
        return self._prototypes[key]

    def prototype_of(self, component: Component, environment: str | None = None) -> Prototype:
        """Give what a component is made from; a fault has the component's file as its place."""
        return self.prototype(component.prototype, where=component.file, environment=environment)

    def need(self, component: str, api_version: str, kind: str, environment: str) -> Need | None:
        """Give what a component's prototype says of a kind that it needs; None of manifests, other kinds."""
        owner = self.component(component) if component in self.component_files else None
        needs = self.prototype_of(owner, environment).needs if isinstance(owner, Component) else ()
        return next((need for need in needs if need.kind == f"{api_version}/{kind}"), None)

    # --- parameters ---

    def layers(
        self, component: Component, environment: str | None = None, overrides: Overrides | None = None
    ) -> list[Layer]:
        """Give the layers of a component's parameters above the prototype's defaults, lowest first.

        A chart's values are names of its own: no value for many components is meant for it.
        """
        prototype = self.prototype_of(component, environment)
        name = component.full_name
        layers = []
        alias = prototype.alias(component.prototype) or ""
        if params := prototype.alias_params.get(alias):
            origin = Origin(f"prototype {prototype.full_name} as {alias}")
            layers.append(Layer("default", params, {(name,): origin for name in params}))
        document = self.files.document(component.file, "Component")
        if document is not None and (document.value.get("params") or {}) == component.params:
            layer = layer_of(document, ("params",), "component", name)
        else:  # it does not stand as its file says
            layer = Layer("component", component.params, target=name)
        chain = self.environment_chain(environment)
        is_chart = prototype.chart is not None
        layers += [*(() if is_chart else self.shared_layers(layout.enclosing(component.module))), layer]
        layers += [layer for files in chain if not is_chart for layer in files.for_all]
        layers += [layer for files in chain for layer in files.for_component(name)]
        if overrides:
            given = overrides.layers(name, prototype.params, components=self.component_files)
            layers += [layer for layer in given if not (is_chart and layer.speaks_to_many)]
        return layers

    def shared_layers(self, modules: tuple[str, ...]) -> tuple[Layer, ...]:
        """Give the layers for all components: of the app, and of these modules."""
        if modules not in self._shared:
            layers = [layer_of(self.files.app_document, ("params",), "app", "")]
            for module in modules:
                if document := self.files.document(layout.module_params_file(module), "ModuleParams"):
                    FieldReader(document).record(ModuleParams)
                    layers.append(layer_of(document, ("params",), "module", f"--module={module}"))
            self._shared[modules] = tuple(layers)
        return self._shared[modules]

    def resolve(
        self, component: Component, environment: str | None = None, overrides: Overrides | None = None
    ) -> Resolved:
        """Resolve a component's parameters; the prototype's schema is checked apart (`check_params`).

        Raises:
            ParamError: unknown names, spellings set twice, hostile characters, with file and line.
        """
        prototype = self.prototype_of(component, environment)
        layers = self.layers(component, environment, overrides)
        if overrides:
            overrides.refuse_undeclared(self, environment)
        key = f"{prototype.full_name} {prototype.version} {prototype.digest}"
        declared = self._declarations[key] = self._declarations.get(key) or Declared.of(prototype)
        resolved = declared.resolve(layers)
        note = prototype.alias_note(component.prototype)
        notes = (f"{note} ({component.file})",) if note else ()
        return Resolved(resolved.values, resolved.chains, (*notes, *resolved.notes))

    @cached_property
    def secrets(self) -> SecretValues:
        """Give what reads the values of secret parameters that stand elsewhere."""
        return SecretValues(self.root, self.environ)

    def spellings_of(self, components: Iterable[Component | Manifest], environment: str | None) -> set[str]:
        """Give every spelling that the prototypes of components declare."""
        used = {own.prototype: own for own in components if isinstance(own, Component)}
        prototypes = (self.prototype_of(own, environment) for own in used.values())
        return {name for own in prototypes if own.chart is None for name in spelling_table(own.params)}

    def undeclared_globals(
        self, environment: str | None, components: Iterable[Component | Manifest]
    ) -> tuple[str, ...]:
        """Tell which values for all of these components no installed prototype declares: most are misspelt.

        What stands as a preset of mlstack has it is for packages that may not be installed. Packages are
        asked only for names that the prototypes of these components do not declare.
        """
        components = list(components)
        own = self.spellings_of(components, environment)
        modules = {name for component in components for name in layout.enclosing(component.module)}
        layers = [*self.shared_layers(tuple(sorted(modules)))]
        layers += [layer for files in self.environment_chain(environment) for layer in files.for_all]
        others = [(layer, name) for layer in layers for name in layer.values if name not in own]
        try:
            declared = self.vendor.spellings() if others else frozenset()
            others = [(layer, name) for layer, name in others if name not in declared]
        except MlstackError:  # a broken package is an error where it is used, not for a remark
            return ()
        notes = []
        for layer, name in others:
            if not is_of_preset((name,), layer.values[name]):
                origin, near = layer.origins.get((name,), Origin(layer.kind)), did_you_mean(name, declared)
                notes.append(f"no installed prototype declares `{name}` ({origin}){near and f'; {near}'}")
        return tuple(notes)


def _encrypted(layer: Layer, path: KeyPath, file: str) -> Layer:
    """Give the layer of a file that SOPS has encrypted, with references in the place of values."""
    return replace(layer, values=encrypted_values(layer.values, file, path), is_encrypted=True)


def read_preset(preset: Path) -> EnvironmentFiles:
    """Read one preset, as an environment of the folder that comes with mlstack."""
    reader = AppReader(preset.parent.parent)
    reader.files = AppFiles(reader.root, NO_STORE)  # there is no `app.yaml` to check
    return reader.environment_chain(preset.name)[0]


@cache
def _preset_globals() -> tuple[Mapping[str, Any], ...]:
    """Give what each preset of mlstack sets for all components."""
    return tuple(read_preset(files.folder("environments") / name).globals.values for name in files.presets())


def is_of_preset(spellings: Iterable[str], value: Any) -> bool:
    """Tell whether a preset sets this for all components, whatever they are: nobody chose it for these."""
    return any(name in preset and preset[name] == value for preset in _preset_globals() for name in spellings)


def _no_params(component: Manifest) -> tuple[str, str]:
    """Say that a component has no parameters, and what there is instead."""
    is_built, name = isinstance(component, Kustomization), component.full_name
    what = "built by kustomize" if is_built else "a plain manifest"
    edit = "change the kustomization" if is_built else f"edit {component.file}"
    hint = f"{edit}, or patch it in environments/ENV/patches/{name}.yaml"
    return f"`{name}` is {what}, which has no parameters", hint
