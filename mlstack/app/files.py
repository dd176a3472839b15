"""Environments: their files, and how one that extends another inherits."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from mlstack.app import document, layout
from mlstack.app import document as documents
from mlstack.app.app import (
    API_VERSION,
    DEFAULT_KUBERNETES_VERSION,
    App,
    ClusterIdentity,
    ClusterScoped,
    Component,
    ConditionSign,
    ConflictRule,
    Environment,
    FieldSign,
    Lock,
    LockedPackage,
    LockedRegistry,
    Manifest,
    ReadyRule,
    RegistryRef,
    Retired,
    Scalar,
    Sign,
)
from mlstack.app.document import AppDocument, FieldReader, described, fields_of, layer_of
from mlstack.app.params import Layer, Overrides, ValuesFile, parse_set
from mlstack.app.schema import PassedStore, check_file, note_passed
from mlstack.errors import ConfigError, MlstackError, NotFoundError, SchemaError, UsageError
from mlstack.names import nearest, version_key
from mlstack.objects import managed_fields
from mlstack.yaml import write

# --- Environments: their files, and how one that extends another inherits ---

ENVIRONMENT_KEYS: Mapping[str, str] = {
    "context": "context",
    "namespace": "namespace",
    "kubernetesVersion": "kubernetes_version",
    "extends": "extends",
    "targets": "targets",
    "protected": "protected",
    "allowedNamespaces": "allowed_namespaces",
    "clusterScoped": "cluster_scoped",
    "waitForLoadBalancer": "wait_for_load_balancer",
    "cluster": "cluster",
}
"""Field of the file → field of Environment."""


@dataclass(frozen=True)
class EnvironmentFiles:
    """One environment's own files, without what it extends."""

    environment: Environment  # as its file says
    given: frozenset[str]  # names of the fields that the file sets
    globals: Layer  # its layer for all components
    components: Mapping[str, Layer] = field(default_factory=dict)  # its layers by component


def read_environment(document: AppDocument, name: str) -> Environment:
    """Take an environment's file apart."""
    fields = fields_of(document, "Environment")
    fields.only("apiVersion", "kind", *ENVIRONMENT_KEYS)
    cluster = fields.inner("cluster")
    return Environment(
        name=name,
        context=fields.text("context", ""),
        namespace=fields.text("namespace", "default"),
        kubernetes_version=fields.text("kubernetesVersion", DEFAULT_KUBERNETES_VERSION),
        extends=fields.optional_text("extends"),
        targets=fields.texts("targets"),
        protected=fields.flag("protected"),
        allowed_namespaces=fields.texts("allowedNamespaces"),
        cluster_scoped=_cluster_scoped(fields),
        wait_for_load_balancer=fields.flag("waitForLoadBalancer"),
        cluster=_identity(cluster) if cluster else None,
        file=document.file,
    )


def merged_environment(chain: tuple[EnvironmentFiles, ...]) -> Environment:
    """Lay an environment over what it extends; fields it does not give are inherited.

    The pinned cluster goes with the context: who names another context is not bound to it. An environment's
    own namespace is always among those it may write to.
    """
    merged = chain[0].environment
    for each in chain[1:]:
        inherited = {
            name: getattr(merged, name)
            for key, name in ENVIRONMENT_KEYS.items()
            if key not in each.given and key != "extends"
        }
        if each.environment.context and each.environment.context != merged.context and "cluster" in inherited:
            inherited["cluster"] = None
        merged = replace(each.environment, **inherited)
    allowed = merged.allowed_namespaces
    if allowed and merged.namespace not in allowed:
        merged = replace(merged, allowed_namespaces=(merged.namespace, *allowed))
    return merged


def _cluster_scoped(fields: FieldReader) -> ClusterScoped:
    found = fields.text("clusterScoped", "allowed")
    if found not in ("allowed", "refused"):
        fields.refuse("clusterScoped", f"`clusterScoped` must be `allowed` or `refused`, got `{found}`")
    return "refused" if found == "refused" else "allowed"


def _identity(fields: FieldReader) -> ClusterIdentity:
    fields.only("uid", "ca", "server")
    texts = {name: fields.optional_text(name) for name in ("uid", "ca", "server")}
    return ClusterIdentity(**texts)


# --- Read the readiness rules of `app.yaml` ---

_KIND = re.compile(r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*")
_STATUSES = ("True", "False", "Unknown")
_SIGN = "write {condition: Ready} or {field: status.phase, value: Running}"


def read_rules(fields: FieldReader) -> tuple[ReadyRule, ...]:
    """Give the rules of an app in their order."""
    rules: dict[str, ReadyRule] = {}
    for entry in fields.each("readiness"):
        rule = _rule(entry)
        if rule.kind in rules:
            entry.refuse("kind", f"has a rule already: `{rule.kind}`", hint="one rule a kind: remove one")
        rules[rule.kind] = rule
    return tuple(rules.values())


def _rule(fields: FieldReader) -> ReadyRule:
    fields.only("kind", "ready", "failed", "done", "observedGeneration")
    kind = fields.text("kind")
    if not _KIND.fullmatch(kind):
        fields.refuse(
            "kind",
            f"is no kind: `{kind}`",
            hint="write group and kind: example.com/Widget; core ones as: Pod",
        )
    ready = fields.inner("ready")
    if ready is None:
        fields.refuse("ready", "is required: it says when an object works", hint=_SIGN)
    failed, done = fields.inner("failed"), fields.inner("done")
    return ReadyRule(
        kind=kind,
        ready=_sign(ready),
        failed=None if failed is None else _sign(failed),
        done=None if done is None else _sign(done),
        observed_generation=fields.flag("observedGeneration"),
    )


def _sign(fields: FieldReader) -> Sign:
    fields.only("condition", "status", "reason", "field", "value", "values")
    has_condition, has_field = fields.has("condition"), fields.has("field")
    if has_condition == has_field:
        what = "has both `condition` and `field`" if has_field else "needs `condition` or `field`"
        fields.refuse_all(what, hint=_SIGN)
    for name in ("value", "values") if has_condition else ("status", "reason"):
        if fields.has(name):
            fields.refuse(name, f"does not go with `{'condition' if has_condition else 'field'}`", hint=_SIGN)
    return _condition(fields) if has_condition else _field(fields)


def _condition(fields: FieldReader) -> ConditionSign:
    # YAML takes an unquoted True for a boolean, and everybody means the condition's status by it.
    status = fields.scalar("status") if fields.has("status") else "True"
    if str(status) not in _STATUSES:
        fields.refuse("status", f"must be one of {', '.join(_STATUSES)}, got `{status}`")
    return ConditionSign(
        condition=fields.text("condition"), status=str(status), reason=fields.text("reason", "")
    )


def _field(fields: FieldReader) -> FieldSign:
    text = fields.text("field")
    try:
        path = managed_fields.read(text)
    except ValueError as error:
        fields.refuse("field", str(error).partition("` ")[2], hint="write it as a diff does: status.phase")
    if fields.has("value") == fields.has("values"):
        what = "needs `value` or `values`" if not fields.has("value") else "has both `value` and `values`"
        fields.refuse_all(what, hint=_SIGN)
    return FieldSign(path=path, values=_values(fields))


def _values(fields: FieldReader) -> tuple[Scalar, ...]:
    if fields.has("value"):
        return (fields.scalar("value"),)
    values = fields.scalars("values")
    if not values:
        fields.refuse("values", f"must hold at least one value, got {described([])}")
    return values


# --- Read `--values` files: `{globals: {…}, components: {name: {…}}}`, or a flat map for every
# component

_SECTIONS = ("globals", "components")


def read(sets: Sequence[str], files: Sequence[Path]) -> Overrides:
    """Read what `--set` and `--values` give for one run.

    Raises:
        UsageError: a `--set` is not `key=value`.
        NotFoundError: a values file does not exist.
        ConfigError: a values file is not a map of parameters.
    """
    return Overrides(
        files=tuple(read_values(file) for file in files), sets=tuple(parse_set(text) for text in sets)
    )


def read_values(file: Path) -> ValuesFile:
    """Read one values file."""
    found = documents.read_all(_bytes(file), file=str(file))
    if not found:
        return ValuesFile(Layer("command line", {}))
    if len(found) > 1:
        raise ConfigError("a values file holds one document", where=str(found[1].origin()))
    document, value = found[0], found[0].value
    if not isinstance(value, Mapping):
        raise ConfigError(f"a values file is a map, got {described(value)}", where=str(file))
    if value and all(key in _SECTIONS for key in value):
        return _sections(document, value)
    return ValuesFile(_layer(document, value, (), everyone=True))


def _sections(document: AppDocument, value: Mapping[str, Any]) -> ValuesFile:
    fields = FieldReader(document)
    globals_ = _layer(document, fields.map("globals"), ("globals",), everyone=True)
    components = {
        name: _layer(document, _override_values(document, name, each), ("components", name), everyone=False)
        for name, each in fields.map("components").items()
    }
    return ValuesFile(globals_, components)


def _override_values(document: AppDocument, name: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        where = str(document.origin(("components", name)))
        raise ConfigError(f"`{name}` must be a map of parameters, got {described(value)}", where=where)
    return value


def _layer(
    document: AppDocument, values: Mapping[str, Any], path: tuple[str, ...], *, everyone: bool
) -> Layer:
    return Layer("command line", values, document.origins(path), speaks_to_many=everyone)


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(
            f"no values file `{file}`", hint="relative paths start at the working directory"
        ) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(
            f"cannot read the values file `{file}`: {reason}", hint="give a YAML file of parameters"
        ) from error


# --- Find the folders that come with mlstack: `prototypes`, `registry` and `environments` ---

NAMES = ("prototypes", "registry", "environments")


def folder(name: str) -> Path:
    """Give a bundled folder: in the installed package first, in the checkout beside it second.

    Raises:
        MlstackError: it is in neither, so the installation is broken.
    """
    package = Path(__file__).parent.parent
    for base in (package / "_bundled", package.parent):
        if (base / name).is_dir():
            return base / name
    raise MlstackError(
        f"the folder `{name}` that comes with mlstack is missing", hint="install mlstack again"
    )


def presets() -> tuple[str, ...]:
    """Give the names of the environment presets, sorted."""
    root = folder("environments")
    return tuple(sorted(file.parent.name for file in root.glob("*/environment.yaml")))


def preset(name: str) -> Path | None:
    """Give the folder of an environment preset, or nothing when there is none of that very name."""
    return folder("environments") / name if name in presets() else None


# --- Retired names as the index of a registry and `mlstack.lock` write them ---


def read_retired(fields: FieldReader) -> tuple[Retired, ...]:
    """Read the field `retired` of a map; empty when it is not there.

    Raises:
        SchemaError: it is wrong.
    """
    return tuple(_retired(entry) for entry in fields.each("retired"))


def _retired(fields: FieldReader) -> Retired:
    fields.only("names", "reason", "instead")
    return Retired(
        names=fields.texts("names"), reason=fields.text("reason"), instead=fields.text("instead", "")
    )


def retired_maps(retired: Iterable[Retired]) -> list[dict[str, Any]]:
    """Give entries of the field `retired` as plain data."""
    return [
        {
            "names": list(each.names),
            "reason": each.reason,
            **({"instead": each.instead} if each.instead else {}),
        }
        for each in retired
    ]


# --- `mlstack.lock`: exact versions, digests and commits; written by mlstack alone ---

_HEADER = "# Written by mlstack. Commit it: it says exactly which packages this app renders with.\n"


def read_lock(document: AppDocument) -> Lock:
    """Take a lock file apart."""
    fields = fields_of(document, "Lock").only("apiVersion", "kind", "registries", "packages")
    return Lock(
        registries=tuple(_locked_registry(entry) for entry in fields.each("registries")),
        packages=tuple(_package(entry) for entry in fields.each("packages")),
    )


def _locked_registry(fields: FieldReader) -> LockedRegistry:
    fields.only("name", "address", "revision", "retired")
    return LockedRegistry(
        name=fields.text("name"),
        address=fields.text("address"),
        revision=fields.text("revision", ""),
        retired=read_retired(fields),
    )


def _package(fields: FieldReader) -> LockedPackage:
    fields.only("package", "version", "digest", "source")
    ref = fields.package("package")
    return LockedPackage(
        registry=ref.registry,
        name=ref.name,
        version=fields.text("version"),
        digest=fields.text("digest"),
        source=fields.text("source", ""),
    )


def write_lock(lock: Lock) -> bytes:
    """Give the bytes of a lock file; the same packages in any order give the same bytes."""
    content: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Lock"}
    content["registries"] = [_registry_map(each) for each in sorted(lock.registries, key=lambda r: r.name)]
    content["packages"] = [_package_map(each) for each in sorted(lock.packages, key=_order)]
    return (_HEADER + write.to_yaml(content)).encode()


def _order(package: LockedPackage) -> tuple[str, Any]:
    return package.full_name, version_key(package.version)


def _registry_map(registry: LockedRegistry) -> Mapping[str, Any]:
    found = {
        "name": registry.name,
        "address": registry.address,
        "revision": registry.revision,
        "retired": retired_maps(registry.retired),
    }
    return {key: value for key, value in found.items() if value}


def _package_map(package: LockedPackage) -> Mapping[str, str]:
    found = {
        "package": package.full_name,
        "version": package.version,
        "digest": package.digest,
        "source": package.source,
    }
    return {key: value for key, value in found.items() if value}


# --- Read a folder that others wrote: regular files inside it, within limits, in a stable order ---

MAX_FILES = 2000
MAX_BYTES = 32 * 1024 * 1024
MAX_DEPTH = 32
LIMITS = f"{MAX_FILES} files and {MAX_BYTES // 1024 // 1024} MiB"


def read_folder(folder: Path, *, source: str = "") -> dict[PurePosixPath, bytes]:
    """Read all files below a folder by relative path; names that start with `.` are left out.

    Links to files are followed as long as they stay inside the folder. Sizes are asked for before anything
    is read.

    Args:
        folder: where to read.
        source: what messages call it; its path when empty.

    Raises:
        ConfigError: a link leaves the folder, a name cannot be shown, something cannot be read, or there is
            more than `MAX_FILES`, `MAX_BYTES` or `MAX_DEPTH`.
    """
    source = source or str(folder)
    try:
        paths = list(islice(_files(folder, folder.resolve(), source), MAX_FILES + 1))
        if len(paths) > MAX_FILES or sum(path.stat().st_size for path in paths) > MAX_BYTES:
            raise ConfigError(f"the folder holds more than {LIMITS}", where=source)
        found = {PurePosixPath(path.relative_to(folder).as_posix()): read_file(path) for path in paths}
    except OSError as error:
        raise ConfigError(f"the folder cannot be read: {error.strerror}", where=source) from error
    return dict(sorted(found.items(), key=lambda item: item[0].parts))


def read_file(path: Path) -> bytes:
    """Read a file of at most `MAX_BYTES`; nothing else is opened for long, as a FIFO that nobody writes to.

    Raises:
        ConfigError: it is larger, or a FIFO, socket or device.
        OSError: it cannot be read.
    """
    if not stat.S_ISDIR(mode := path.stat().st_mode) and not stat.S_ISREG(mode):
        raise ConfigError(f"`{path.name}` is a FIFO, socket or device, not a file", hint="remove it")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if os.fstat(file.fileno()).st_size <= MAX_BYTES:
            data = file.read(MAX_BYTES + 1)
            if len(data) <= MAX_BYTES:
                return data
    raise ConfigError(f"`{path.name}` is larger than {MAX_BYTES // 1024 // 1024} MiB")


def check_name(path: PurePosixPath, source: str) -> None:
    """Refuse names that are no UTF-8 or hold what cannot be shown: nobody could see what they are.

    Raises:
        ConfigError: it is such a name, or it lies deeper than `MAX_DEPTH`.
    """
    if len(path.parts) > MAX_DEPTH:
        raise ConfigError(f"the folder holds folders more than {MAX_DEPTH} deep", where=source)
    for name in path.parts:
        if not name.isprintable():  # bytes that are no UTF-8 are half surrogate pairs here
            raise ConfigError(
                f"the folder holds a name that is no UTF-8 or cannot be shown: {name!a}", where=source
            )


def _files(folder: Path, root: Path, source: str, below: str = "") -> Iterator[Path]:
    with os.scandir(folder) as entries:
        listed = sorted(islice(entries, 2 * MAX_FILES), key=lambda entry: entry.name)
    if len(listed) == 2 * MAX_FILES:
        raise ConfigError(f"the folder holds more than {LIMITS}", where=source)
    for entry in listed:
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        path = folder / entry.name
        check_name(PurePosixPath(below, entry.name), source)
        if entry.is_symlink():
            _check_link(path, root, source)
            yield path
        elif entry.is_dir():
            yield from _files(path, root, source, f"{below}{entry.name}/")
        elif entry.is_file():
            yield path
        else:
            raise ConfigError(
                f"`{below}{entry.name}` is a FIFO, socket or device, not a file",
                where=source,
                hint="remove it",
            )


def _check_link(path: Path, root: Path, source: str) -> None:
    if not path.is_file():
        raise ConfigError(
            f"`{path.name}` is a link, and not to a file", where=source, hint="copy what it leads to"
        )
    if not path.resolve().is_relative_to(root):
        raise ConfigError(f"`{path.name}` is a link that leaves the folder", where=source)


# --- Read the files of an app directory into the model, each at most once ---


class AppFiles:
    """The files below an app's root."""

    def __init__(self, root: Path, passed: PassedStore | None) -> None:
        self.root = root
        self._passed = passed
        self.digests: dict[str, str] = {}
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

    def document(self, file: str, kind: str) -> AppDocument | None:
        """Give a file of ours, checked; nothing when it is not there.

        Raises:
            SchemaError: it does not fit its kind.
            YamlError: it is no YAML.
        """
        if file not in self._documents:
            data = self.bytes(file)
            self._documents[file] = (
                None if data is None else self._checked(document.read(data, file=file), kind)
            )
        return self._documents[file]

    def _checked(self, document: AppDocument, kind: str) -> AppDocument:
        fields_of(document, kind)
        check_file(
            kind, document.value, source=document.file, origins=document.all_origins(), passed=self._passed
        )
        return document

    def note_sound(self, file: str, kind: str) -> None:
        """Remember that a file fits its kind: it did, and what was added to it is ours."""
        data = self.bytes(file)
        if data is not None and self._passed is not None:
            note_passed(kind, document.read(data, file=file).value, self._passed)

    @cached_property
    def app_document(self) -> AppDocument:
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
        return read_lock(found) if found else Lock()

    @cached_property
    def component_files(self) -> Mapping[str, tuple[str, str, str]]:
        """Give full name → (file, module, name) of all components, sorted, without reading them."""
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

    def manifest(self, file: str) -> tuple[AppDocument, ...]:
        """Give all documents of a plain manifest.

        Raises:
            YamlError: it is no YAML.
        """
        data = self.bytes(file)
        if data is None:
            raise ConfigError("the file is gone", where=file)
        return document.read_all(data, file=file)

    def component_layer(self, component: Component) -> Layer:
        """Give a component's own parameters; places are known when they are as its file says."""
        document = self.document(component.file, "Component")
        if document is not None and (document.value.get("params") or {}) == component.params:
            return layer_of(document, ("params",), "component", component.full_name)
        return Layer("component", component.params, target=component.full_name)

    def _own_document(self, file: str) -> AppDocument | None:
        """Give a file of kind Component; nothing for a manifest, which often its text alone can tell."""
        if file in self._documents:
            return self._documents[file]
        data = self.bytes(file) or b""
        if b"mlstack.dev/" not in data:
            return None
        listed = document.read_all(data, file=file)
        if len(listed) == 1 and document.kind_of(listed[0].value) == "Component":
            self._documents[file] = self._checked(listed[0], "Component")
            return self._documents[file]
        for found in listed:
            kind = document.kind_of(found.value)
            if kind == "Component":
                return self.document(file, "Component")
            if kind in _OTHER_KINDS:
                hint = "parameters of the whole app stand in app.yaml" if kind == "ModuleParams" else None
                raise SchemaError(
                    f"a file of kind `{kind}` is no component", where=str(found.origin()), hint=hint
                )
        return None

    def module_document(self, module: str) -> AppDocument | None:
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
                FieldReader(document, ("components", component))
                own = origins.get(component, {})
                layers[component] = Layer("environment", values, own, f"{target} {component}")
        return layer_of(document, ("globals",), "environment globals", target), layers

    def _check_component(self, component: str, document: AppDocument) -> None:
        if component in self.component_files:
            return
        near = nearest(component, self.component_files)
        where = str(document.origin(("components", component)))
        hint = None if near else "remove the entry, or mlstack component list"
        raise NotFoundError(f"no component `{component}`", near=near, where=where, hint=hint)


def _registry(fields: FieldReader) -> RegistryRef:
    fields.only("name", "address", "protocol")
    address = fields.text("address")
    return RegistryRef(name=fields.text("name"), address=address, protocol=fields.text("protocol", ""))


def _conflict_rule(fields: FieldReader) -> ConflictRule:
    fields.only("path", "manager", "kinds", "take")
    take = fields.text("take")
    if take not in ("ours", "theirs"):
        fields.refuse("take", f"must be `ours` or `theirs`, got `{take}`")
    try:
        path = managed_fields.read(fields.text("path"))
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


# --- Read the environments that come with mlstack: `env add` makes those of the same name from them ---


def read_preset(folder: Path) -> EnvironmentFiles:
    """Read one preset, as an environment of the folder that comes with mlstack."""
    (found,) = AppFiles(folder.parent.parent, None).environment_chain(folder.name)
    return found


def preset_globals() -> tuple[Mapping[str, Any], ...]:
    """Give what each preset sets for all components."""
    root = folder("environments")
    return tuple(read_preset(root / name).globals.values for name in presets())
