"""Read the files of an app directory into the model, each at most once."""

import hashlib
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from mlstack.errors import ConfigError, NotFoundError, SchemaError
from mlstack.files import document as documents
from mlstack.files import layout, lockfile
from mlstack.files.document import Document
from mlstack.files.environments import EnvironmentFiles, read_environment
from mlstack.files.fields import Fields, fields_of, layer_of
from mlstack.files.folders import read_file
from mlstack.files.readyrules import read_rules
from mlstack.files.schema import PassedStore, check_file, note_passed
from mlstack.model import fieldpaths
from mlstack.model.app import App, Component, Environment, Lock, Manifest, RegistryRef
from mlstack.model.fieldrules import ConflictRule
from mlstack.model.names import nearest
from mlstack.model.params import Layer


class AppFiles:
    """The files below an app's root.

    Args:
        root: the folder with `app.yaml`.
        passed: files that have passed their schema before are not checked again.

    Attributes:
        digests: hash of each file that was read so far, empty for those that were looked for in vain.
    """

    def __init__(self, root: Path, passed: PassedStore | None) -> None:
        """Hold the place; nothing is read."""
        self.root = root
        self._passed = passed
        self.digests: dict[str, str] = {}
        self._documents: dict[str, Document | None] = {}
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
            raise ConfigError(
                "a folder stands in the place of the file", where=file, hint="move it away"
            ) from error
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(
                f"cannot read the file: {reason}", where=file, hint="check its rights"
            ) from error
        self.digests[file] = hashlib.sha256(data).hexdigest()
        return data

    def document(self, file: str, kind: str) -> Document | None:
        """Give a file of ours, checked; nothing when it is not there.

        Raises:
            SchemaError: it does not fit its kind.
            YamlError: it is no YAML.
        """
        if file not in self._documents:
            data = self.bytes(file)
            self._documents[file] = (
                None if data is None else self._checked(documents.read(data, file=file), kind)
            )
        return self._documents[file]

    def _checked(self, document: Document, kind: str) -> Document:
        fields_of(document, kind)
        check_file(
            kind, document.value, source=document.file, origins=document.all_origins(), passed=self._passed
        )
        return document

    def note_sound(self, file: str, kind: str) -> None:
        """Remember that a file fits its kind: it did, and what was added to it is ours."""
        data = self.bytes(file)
        if data is not None and self._passed is not None:
            note_passed(kind, documents.read(data, file=file).value, self._passed)

    @cached_property
    def app_document(self) -> Document:
        """Give `app.yaml`."""
        found = self.document(layout.APP_FILE, "App")
        if found is None:
            raise NotFoundError("no `app.yaml` here", hint="mlstack init NAME")
        return found

    @cached_property
    def app(self) -> App:
        """Give what `app.yaml` says."""
        fields = fields_of(self.app_document, "App")
        fields.only(
            "apiVersion", "kind", "name", "registries", "packages", "params", "conflicts", "readiness"
        )
        return App(
            name=fields.text("name"),
            registries=tuple(_registry(entry) for entry in fields.each("registries")),
            packages=fields.packages("packages"),
            params=fields.map("params"),
            conflicts=tuple(_conflict_rule(entry) for entry in fields.each("conflicts")),
            readiness=read_rules(fields),
        )

    @cached_property
    def lock(self) -> Lock:
        """Give what `mlstack.lock` says; empty when there is none."""
        found = self.document(layout.LOCK_FILE, "Lock")
        return lockfile.read_lock(found) if found else Lock()

    @cached_property
    def component_files(self) -> Mapping[str, tuple[str, str, str]]:
        """Give full name → (file, module, name) of all components, sorted, without reading them.

        Raises:
            ConfigError: two files stand for one component.
        """
        found: dict[str, tuple[str, str, str]] = {}
        for file, module, name in layout.component_files(self.root):
            full_name = f"{module}.{name}" if module else name
            if not _can_be_label(full_name) or "." in file.rpartition("/")[0]:
                raise ConfigError(
                    f"`{full_name}` cannot be the name of a component, which becomes a label",
                    where=file,
                    hint="name files and folders with up to 63 letters, digits, `-` and `_`",
                )
            if full_name in found:
                other = found[full_name][0]
                raise ConfigError(
                    f"`{other}` and `{file}` both stand for the component `{full_name}`",
                    hint="rename one of them",
                )
            found[full_name] = (file, module, name)
        return dict(sorted(found.items()))

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
            near = nearest(full_name, self.component_files)
            hint = None if near else "mlstack component list"
            raise NotFoundError(f"no component `{full_name}`", near=near, hint=hint)
        file, module, name = self.component_files[full_name]
        document = self._own_document(file)
        if document is None:
            return Manifest(name=name, module=module, file=file)
        fields = fields_of(document, "Component")
        fields.only("apiVersion", "kind", "prototype", "params", "dependsOn", "timeout")
        return Component(
            name=name,
            module=module,
            prototype=fields.text("prototype"),
            params=fields.map("params"),
            depends_on=fields.texts("dependsOn"),
            timeout_s=fields.duration_s("timeout"),
            file=file,
        )

    def place(self, file: str, path: tuple[str | int, ...]) -> str:
        """Give `file:line` of a part of a component's file."""
        document = self.document(file, "Component")
        return file if document is None else str(document.origin(path))

    def manifest(self, file: str) -> tuple[Document, ...]:
        """Give all documents of a plain manifest.

        Raises:
            YamlError: it is no YAML.
        """
        data = self.bytes(file)
        if data is None:
            raise ConfigError("the file is gone", where=file)
        return documents.read_all(data, file=file)

    def component_layer(self, component: Component) -> Layer:
        """Give a component's own parameters; places are known when they are as its file says."""
        document = self.document(component.file, "Component")
        if document is not None and (document.value.get("params") or {}) == component.params:
            return layer_of(document, ("params",), "component", component.full_name)
        return Layer("component", component.params, target=component.full_name)

    def _own_document(self, file: str) -> Document | None:
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
        for found in listed:
            kind = documents.kind_of(found.value)
            if kind == "Component":
                return self.document(file, "Component")
            if kind in _OTHER_KINDS:
                hint = "parameters of the whole app stand in app.yaml" if kind == "ModuleParams" else None
                raise SchemaError(
                    f"a file of kind `{kind}` is no component", where=str(found.origin()), hint=hint
                )
        return None

    def module_document(self, module: str) -> Document | None:
        """Give the parameter file of a module, or nothing."""
        document = self.document(layout.module_params_file(module), "ModuleParams")
        if document is not None:
            fields_of(document, "ModuleParams").only("apiVersion", "kind", "params").map("params")
        return document

    @cached_property
    def environment_names(self) -> tuple[str, ...]:
        """Give the names of all environments, sorted."""
        base = self.root / layout.ENVIRONMENTS
        found = (
            Path(folder).relative_to(base)
            for folder, _, files in layout.walk(base)
            if layout.ENVIRONMENT in files
        )
        return tuple(sorted(folder.as_posix() for folder in found))

    @cached_property
    def app_layer(self) -> Layer:
        """Give the parameters of `app.yaml`."""
        return layer_of(self.app_document, ("params",), "app", "")

    def environment_chain(self, name: str) -> tuple[EnvironmentFiles, ...]:
        """Give an environment and what it extends, the farthest ancestor first.

        Raises:
            NotFoundError: there is no such environment; with the nearest known one.
            ConfigError: environments extend each other in a circle.
        """
        if name not in self._chains:
            self._chains[name] = self._read_chain(name)
        return self._chains[name]

    def _read_chain(self, name: str) -> tuple[EnvironmentFiles, ...]:
        chain: list[EnvironmentFiles] = []
        wanted: str | None = name
        while wanted is not None:
            seen = [each.environment.name for each in chain]
            if wanted in seen:
                circle = " → ".join([*seen, wanted])
                raise ConfigError(
                    f"environments extend each other in a circle: {circle}", where=chain[-1].environment.file
                )
            chain.append(self._environment(wanted, chain[-1].environment if chain else None))
            wanted = chain[-1].environment.extends
        return tuple(reversed(chain))

    def _environment(self, name: str, child: Environment | None) -> EnvironmentFiles:
        file = layout.environment_file(name)
        document = self.document(file, "Environment") if name in self.environment_names else None
        if document is None:
            near = nearest(name, self.environment_names)
            message = f"no environment `{name}`" + (f", which `{child.name}` extends" if child else "")
            usual = f"mlstack plan ENV --out {name}" if name.endswith(".json") else f"mlstack env add {name}"
            where, hint = child.file if child else None, None if near else usual
            raise NotFoundError(message, near=near, where=where, hint=hint)
        environment = read_environment(document, name)
        globals_, components = self._environment_params(name)
        given = frozenset(key for key, value in document.value.items() if value is not None)
        return EnvironmentFiles(environment, given, globals_, components)

    def _environment_params(self, name: str) -> tuple[Layer, dict[str, Layer]]:
        document = self.document(layout.environment_params_file(name), "EnvironmentParams")
        target = f"--env={name}"
        if document is None:
            return Layer("environment globals", {}, target=target), {}
        fields = fields_of(document, "EnvironmentParams").only("apiVersion", "kind", "globals", "components")
        origins = document.origins_by_key(("components",))
        layers = {}
        for component, values in fields.map("components").items():
            self._check_component(component, document)
            if values is not None:
                Fields(document, ("components", component))
                own = origins.get(component, {})
                layers[component] = Layer("environment", values, own, f"{target} {component}")
        return layer_of(document, ("globals",), "environment globals", target), layers

    def _check_component(self, component: str, document: Document) -> None:
        if component in self.component_files:
            return
        near = nearest(component, self.component_files)
        where = str(document.origin(("components", component)))
        hint = None if near else "remove the entry, or mlstack component list"
        raise NotFoundError(f"no component `{component}`", near=near, where=where, hint=hint)


def _registry(fields: Fields) -> RegistryRef:
    fields.only("name", "address", "protocol")
    address = fields.text("address")
    return RegistryRef(name=fields.text("name"), address=address, protocol=fields.text("protocol", ""))


def _conflict_rule(fields: Fields) -> ConflictRule:
    fields.only("path", "manager", "kinds", "take")
    take = fields.text("take")
    if take not in ("ours", "theirs"):
        fields.refuse("take", f"must be `ours` or `theirs`, got `{take}`")
    try:
        path = fieldpaths.read(fields.text("path"))
    except ValueError as error:
        fields.refuse("path", str(error).partition("` ")[2], hint="write it as a diff does: spec.replicas")
    return ConflictRule(
        path=path,
        manager=fields.text("manager", "*"),
        kinds=fields.texts("kinds"),
        take="ours" if take == "ours" else "theirs",
    )


_OTHER_KINDS = ("App", "Lock", "ModuleParams", "Environment", "EnvironmentParams")
_LABEL = re.compile(r"[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?")


def _can_be_label(name: str) -> bool:
    return _LABEL.fullmatch(name) is not None
