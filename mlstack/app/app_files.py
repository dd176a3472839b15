"""The files of an app directory as values, each read at most once and checked against its schema."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from mlstack.app import document as documents
from mlstack.app import layout
from mlstack.app.app import (
    API_VERSION,
    App,
    Component,
    ConditionSign,
    ConflictRule,
    Environment,
    FieldSign,
    Lock,
    LockedPackage,
    Manifest,
    ReadyRule,
    Sign,
)
from mlstack.app.declare import keys_of, to_map
from mlstack.app.document import AppDocument, FieldReader, described, fields_of, layer_of
from mlstack.app.files import folder, presets, read_file
from mlstack.app.params import KeyPath, Layer
from mlstack.app.schema import PassedStore, check_file, note_passed
from mlstack.errors import ConfigError, NotFoundError, SchemaError
from mlstack.names import nearest, version_key
from mlstack.yaml import write

_OTHER_KINDS = ("App", "Lock", "ModuleParams", "Environment", "EnvironmentParams")
_LABEL = re.compile(r"[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?")


@dataclass(frozen=True)
class EnvironmentFiles:
    """One environment's own files, without what it extends."""

    environment: Environment
    given: frozenset[str]  # keys that its file sets
    globals: Layer  # for all components
    components: Mapping[str, Layer] = field(default_factory=dict)


class AppFiles:
    """The files below an app's root.

    Args:
        root: the folder with `app.yaml`.
        passed: files that have passed their schema before are not checked again.
    """

    def __init__(self, root: Path, passed: PassedStore | None) -> None:
        self.root = root
        self._passed = passed
        self.digests: dict[str, str] = {}  # of each file read so far; empty if it was looked for in vain
        self._documents: dict[str, AppDocument | None] = {}
        self._chains: dict[str, tuple[EnvironmentFiles, ...]] = {}

    def bytes(self, file: str) -> bytes | None:
        """Give a file's bytes, or nothing when it is not there.

        Raises:
            ConfigError: it cannot be read.
        """
        path = self.root / file
        self.digests[file] = ""
        try:
            data = read_file(path)
        except ConfigError as error:
            error.where = file
            raise
        except (FileNotFoundError, NotADirectoryError) as error:
            if path.is_symlink():
                message = f"the link leads to nothing: {path.readlink()}"
                raise ConfigError(message, where=file, hint="mend or remove it") from error
            return None
        except IsADirectoryError as error:
            message = "a folder stands in the place of the file"
            raise ConfigError(message, where=file, hint="move it away") from error
        except OSError as error:
            message = f"cannot read the file: {(error.strerror or str(error)).lower()}"
            raise ConfigError(message, where=file, hint="check its rights") from error
        self.digests[file] = hashlib.sha256(data).hexdigest()
        return data

    def document(self, file: str, kind: str) -> AppDocument | None:
        """Give a file of ours, checked; nothing when it is not there.

        Raises:
            SchemaError: it does not fit its kind.
            YamlError: it is no YAML.
        """
        if file not in self._documents:
            data = self.bytes(file)
            document = None if data is None else documents.read(data, file=file)
            self._documents[file] = document and self._checked(document, kind)
        return self._documents[file]

    def _checked(self, document: AppDocument, kind: str) -> AppDocument:
        fields_of(document, kind)
        origins = document.all_origins()
        check_file(kind, document.value, source=document.file, origins=origins, passed=self._passed)
        return document

    def note_sound(self, file: str, kind: str) -> None:
        """Remember that a file fits its kind: it did, and what was added to it is ours."""
        data = self.bytes(file)
        if data is not None and self._passed is not None:
            note_passed(kind, documents.read(data, file=file).value, self._passed)

    # --- the app and its lock ---

    @cached_property
    def app_document(self) -> AppDocument:
        """Give `app.yaml`."""
        document = self.document(layout.APP_FILE, "App")
        if document is None:
            raise NotFoundError("no `app.yaml` here", hint="mlstack init NAME")
        return document

    @cached_property
    def app(self) -> App:
        """Give what `app.yaml` says."""
        fields = fields_of(self.app_document, "App").known(App)
        conflicts = tuple(
            entry.record(ConflictRule, path=entry.known(ConflictRule).pattern("path", "spec.replicas"))
            for entry in fields.each("conflicts")
        )
        return fields.record(App, conflicts=conflicts, readiness=_ready_rules(fields))

    @cached_property
    def app_layer(self) -> Layer:
        """Give the parameters of `app.yaml`."""
        return layer_of(self.app_document, ("params",), "app", "")

    @cached_property
    def lock(self) -> Lock:
        """Give what `mlstack.lock` says; empty when there is none."""
        document = self.document(layout.LOCK_FILE, "Lock")
        return read_lock(document) if document else Lock()

    # --- components and modules ---

    @cached_property
    def component_files(self) -> Mapping[str, tuple[str, str, str]]:
        """Give full name → (file, module, name) of all components, sorted, without reading them.

        Raises:
            ConfigError: two files stand for one component.
        """
        components: dict[str, tuple[str, str, str]] = {}
        for file, module, name in layout.component_files(self.root):
            full_name = f"{module}.{name}" if module else name
            if not _LABEL.fullmatch(full_name) or "." in file.rpartition("/")[0]:
                raise ConfigError(
                    f"`{full_name}` cannot be the name of a component, which becomes a label",
                    where=file,
                    hint="name files and folders with up to 63 letters, digits, `-` and `_`",
                )
            if full_name in components:
                both = f"`{components[full_name][0]}` and `{file}` both"
                raise ConfigError(f"{both} stand for the component `{full_name}`", hint="rename one of them")
            components[full_name] = (file, module, name)
        return dict(sorted(components.items()))

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """Give the dotted names of all modules, sorted."""
        base = self.root / layout.COMPONENTS
        folders = (Path(folder).relative_to(base).parts for folder, _, _ in layout.walk(base))
        return tuple(sorted(".".join(parts) for parts in folders if parts))

    def component(self, full_name: str) -> Component | Manifest:
        """Give a component.

        Raises:
            NotFoundError: with the nearest known one.
        """
        if full_name not in self.component_files:
            self._refuse_component(full_name, None, "mlstack component list")
        file, module, name = self.component_files[full_name]
        document = self._component_document(file)
        if document is None:
            return Manifest(name=name, module=module, file=file)
        return fields_of(document, "Component").record(Component, name=name, module=module, file=file)

    def _refuse_component(self, name: str, where: str | None, hint: str, what: str = "") -> NoReturn:
        near = nearest(name, self.component_files)
        message = f"no component `{name}`{what}"
        raise NotFoundError(message, near=near, where=where, hint=None if near else hint)

    def _component_document(self, file: str) -> AppDocument | None:
        """Give a file of kind Component; nothing for a manifest, which often its text alone can tell."""
        if file in self._documents:
            return self._documents[file]
        data = self.bytes(file) or b""
        if b"mlstack.dev/" not in data:
            return None
        listed = documents.read_all(data, file=file)
        if len(listed) == 1 and documents.kind_of(listed[0].value) == "Component":
            self._documents[file] = self._checked(listed[0], "Component")
            return self._documents[file]
        for document in listed:
            kind = documents.kind_of(document.value)
            if kind == "Component":
                return self.document(file, "Component")
            if kind in _OTHER_KINDS:
                hint = "parameters of the whole app stand in app.yaml" if kind == "ModuleParams" else None
                message = f"a file of kind `{kind}` is no component"
                raise SchemaError(message, where=str(document.origin()), hint=hint)
        return None

    def position(self, file: str, path: KeyPath) -> str:
        """Give `file:line` of a part of a component's file."""
        document = self.document(file, "Component")
        return file if document is None else str(document.origin(path))

    def manifest(self, file: str) -> tuple[AppDocument, ...]:
        """Give all documents of a plain manifest.

        Raises:
            YamlError: it is no YAML.
        """
        data = self.bytes(file)
        if data is None:
            raise ConfigError("the file is gone", where=file)
        return documents.read_all(data, file=file)

    def component_layer(self, component: Component) -> Layer:
        """Give a component's own parameters; positions are known when they are as its file says."""
        document = self.document(component.file, "Component")
        if document is not None and (document.value.get("params") or {}) == component.params:
            return layer_of(document, ("params",), "component", component.full_name)
        return Layer("component", component.params, target=component.full_name)

    def module_document(self, module: str) -> AppDocument | None:
        """Give the parameter file of a module, or nothing."""
        document = self.document(layout.module_params_file(module), "ModuleParams")
        if document is not None:
            fields_of(document, "ModuleParams").only("apiVersion", "kind", "params").map("params")
        return document

    # --- environments ---

    @cached_property
    def environment_names(self) -> tuple[str, ...]:
        """Give the names of all environments, sorted."""
        base = self.root / layout.ENVIRONMENTS
        folders = (folder for folder, _, files in layout.walk(base) if layout.ENVIRONMENT in files)
        return tuple(sorted(Path(folder).relative_to(base).as_posix() for folder in folders))

    def environment_chain(self, name: str) -> tuple[EnvironmentFiles, ...]:
        """Give an environment and what it extends, the farthest ancestor first.

        Raises:
            NotFoundError: there is no such environment; with the nearest known one.
            ConfigError: environments extend each other in a circle.
        """
        if name not in self._chains:
            chain: list[EnvironmentFiles] = []
            parent: str | None = name
            while parent is not None:
                children = [files.environment.name for files in chain]
                if parent in children:
                    message = f"environments extend each other in a circle: {' → '.join([*children, parent])}"
                    raise ConfigError(message, where=chain[-1].environment.file)
                chain.append(self._environment(parent, chain[-1].environment if chain else None))
                parent = chain[-1].environment.extends
            self._chains[name] = tuple(reversed(chain))
        return self._chains[name]

    def _environment(self, name: str, child: Environment | None) -> EnvironmentFiles:
        file = layout.environment_file(name)
        document = self.document(file, "Environment") if name in self.environment_names else None
        if document is None:
            near = nearest(name, self.environment_names)
            message = f"no environment `{name}`" + (f", which `{child.name}` extends" if child else "")
            usual = f"mlstack plan ENV --out {name}" if name.endswith(".json") else f"mlstack env add {name}"
            where, hint = child.file if child else None, None if near else usual
            raise NotFoundError(message, near=near, where=where, hint=hint)
        environment = fields_of(document, "Environment").record(Environment, name=name, file=file)
        given = frozenset(key for key, value in document.value.items() if value is not None)
        return EnvironmentFiles(environment, given, *self._environment_params(name))

    def _environment_params(self, name: str) -> tuple[Layer, dict[str, Layer]]:
        document = self.document(layout.environment_params_file(name), "EnvironmentParams")
        target = f"--env={name}"
        if document is None:
            return Layer("environment globals", {}, target=target), {}
        fields = fields_of(document, "EnvironmentParams").only("apiVersion", "kind", "globals", "components")
        origins = document.origins_by_key(("components",))
        layers = {}
        for component, values in fields.map("components").items():
            if component not in self.component_files:
                where = str(document.origin(("components", component)))
                self._refuse_component(component, where, "remove the entry, or mlstack component list")
            if values is not None:
                FieldReader(document, ("components", component))
                own = origins.get(component, {})
                layers[component] = Layer("environment", values, own, f"{target} {component}")
        return layer_of(document, ("globals",), "environment globals", target), layers

    def patches(self, environment: str, component: str) -> tuple[AppDocument, ...]:
        """Give the patches of an environment, and of those it extends, for a component; ancestors first.

        Raises:
            ConfigError: one is no part of an object.
        """
        patches: list[AppDocument] = []
        for files in self.environment_chain(environment):
            file = layout.patch_file(files.environment.name, component)
            data = self.bytes(file)
            patches += documents.read_all(data, file=file) if data is not None else ()
        for patch in patches:
            if not isinstance(patch.value, Mapping):
                message = "a patch is a part of an object: apiVersion, kind, metadata.name and fields"
                raise ConfigError(message, where=str(patch.origin()))
        return tuple(patches)

    def check_patches(self, environment: str) -> None:
        """Refuse patches of an environment, or of those it extends, that belong to no component.

        Raises:
            NotFoundError: there is no such component; with the nearest one.
        """
        usual = f"remove it, or name it as the component: {layout.patch_file('ENV', 'NAME')}"
        for files in self.environment_chain(environment):
            for file, component in layout.patch_files(self.root, files.environment.name):
                if component not in self.component_files:
                    self._refuse_component(component, file, usual, " to patch")


def merged_environment(chain: tuple[EnvironmentFiles, ...]) -> Environment:
    """Lay an environment over what it extends; fields it does not give are inherited.

    The pinned cluster goes with the context: who names another context is not bound to it. An environment's
    own namespace is always among those it may write to.
    """
    merged = chain[0].environment
    for files in chain[1:]:
        own = files.environment
        inherited = {
            key.field: getattr(merged, key.field)
            for key in keys_of(Environment)
            if key.name not in files.given and key.name != "extends"
        }
        if own.context and own.context != merged.context and "cluster" in inherited:
            inherited["cluster"] = None
        merged = replace(own, **inherited)
    allowed = merged.allowed_namespaces
    if allowed and merged.namespace not in allowed:
        merged = replace(merged, allowed_namespaces=(merged.namespace, *allowed))
    return merged


def read_preset(preset: Path) -> EnvironmentFiles:
    """Read one preset, as an environment of the folder that comes with mlstack."""
    return AppFiles(preset.parent.parent, None).environment_chain(preset.name)[0]


def preset_globals() -> tuple[Mapping[str, Any], ...]:
    """Give what each preset sets for all components."""
    root = folder("environments")
    return tuple(read_preset(root / name).globals.values for name in presets())


# --- the readiness rules of `app.yaml` -----------------------------------------------------------------

_KIND = re.compile(r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*")
_STATUSES = ("True", "False", "Unknown")
_SIGN_HINT = "write {condition: Ready} or {field: status.phase, value: Running}"


def _ready_rules(fields: FieldReader) -> tuple[ReadyRule, ...]:
    rules: dict[str, ReadyRule] = {}
    for entry in fields.each("readiness"):
        kind = entry.known(ReadyRule).text("kind")
        if not _KIND.fullmatch(kind):
            hint = "write group and kind: example.com/Widget; core ones as: Pod"
            entry.refuse("kind", f"is no kind: `{kind}`", hint=hint)
        if not entry.has("ready"):
            entry.refuse("ready", "is required: it says when an object works", hint=_SIGN_HINT)
        signs = {name: _sign(entry, name) for name in ("ready", "failed", "done")}
        if kind in rules:
            entry.refuse("kind", f"has a rule already: `{kind}`", hint="one rule a kind: remove one")
        rules[kind] = entry.record(ReadyRule, kind=kind, **signs)
    return tuple(rules.values())


def _sign(rule: FieldReader, name: str) -> Sign | None:
    fields = rule.inner(name)
    if fields is None:
        return None
    fields.only("condition", "status", "reason", "field", "value", "values")
    has_condition, has_field = fields.has("condition"), fields.has("field")
    if has_condition == has_field:
        what = "has both `condition` and `field`" if has_field else "needs `condition` or `field`"
        fields.refuse_all(what, hint=_SIGN_HINT)
    for other in ("value", "values") if has_condition else ("status", "reason"):
        if fields.has(other):
            owner = "condition" if has_condition else "field"
            fields.refuse(other, f"does not go with `{owner}`", hint=_SIGN_HINT)
    if not has_condition:
        return _field_sign(fields)
    # YAML takes an unquoted True for a boolean, and everybody means the condition's status by it.
    status = str(fields.scalar("status")) if fields.has("status") else "True"
    if status not in _STATUSES:
        fields.refuse("status", f"must be one of {', '.join(_STATUSES)}, got `{status}`")
    return ConditionSign(condition=fields.text("condition"), status=status, reason=fields.text("reason", ""))


def _field_sign(fields: FieldReader) -> FieldSign:
    path = fields.pattern("field", "status.phase")
    if fields.has("value") == fields.has("values"):
        what = "needs `value` or `values`" if not fields.has("value") else "has both `value` and `values`"
        fields.refuse_all(what, hint=_SIGN_HINT)
    values = (fields.scalar("value"),) if fields.has("value") else fields.scalars("values")
    if not values:
        fields.refuse("values", f"must hold at least one value, got {described([])}")
    return FieldSign(path=path, values=values)


# --- `mlstack.lock` ------------------------------------------------------------------------------------

_HEADER = "# Written by mlstack. Commit it: it says exactly which packages this app renders with.\n"


def read_lock(document: AppDocument) -> Lock:
    """Take a lock file apart.

    Raises:
        SchemaError: it is wrong.
    """
    fields = fields_of(document, "Lock").known(Lock)
    packages = []
    for entry in fields.each("packages"):
        ref = entry.known(LockedPackage).package("package")
        packages.append(entry.record(LockedPackage, registry=ref.registry, name=ref.name))
    return fields.record(Lock, packages=tuple(packages))


def write_lock(lock: Lock) -> bytes:
    """Give the bytes of a lock file; the same packages in any order give the same bytes."""
    registries = sorted(lock.registries, key=lambda registry: registry.name)
    packages = sorted(lock.packages, key=lambda package: (package.full_name, version_key(package.version)))
    content: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Lock"}
    content["registries"] = [to_map(registry) for registry in registries]
    content["packages"] = [{**to_map(package), "package": package.full_name} for package in packages]
    return (_HEADER + write.to_yaml(content)).encode()
