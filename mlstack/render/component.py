"""One component: its parameters resolved and checked, its templates rendered, parsed and patched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mlstack.app import schema
from mlstack.app.app import Component, Kustomization, Manifest
from mlstack.app.document import described, expectation, join_path
from mlstack.app.environment import Environment
from mlstack.app.params import Resolved, overridden
from mlstack.app.prototype import Chart, Prototype
from mlstack.app.reader import AppReader
from mlstack.dataclass import Record
from mlstack.disk_cache import NO_STORE
from mlstack.errors import ConfigError, RegistryError, TemplateError, TemplateRefusedError, YamlError
from mlstack.objects import masking
from mlstack.objects.kube_object import KubeObject, Schemas, Source, group_of
from mlstack.render.template import (
    Engine,
    Pack,
    Render,
    Renderer,
    Rendering,
    Renders,
    TemplatePlace,
    render_key,
)
from mlstack.yaml import read
from mlstack.yaml.read import KeyPath

if TYPE_CHECKING:
    from mlstack.app.components import Overrides
    from mlstack.render import helm

PlaceOf = Callable[[int], TemplatePlace | None]
"""Gives the place in the files that a line of a text stands at."""


class Rendered(Record):
    """What one component gives, before marks and order."""

    component: str  # full name
    objects: tuple[KubeObject, ...]  # in the order of the templates
    namespace: str  # where its namespaced objects go
    notes: tuple[str, ...] = ()  # deprecations and the like
    has_secrets: bool = False  # a secret parameter is set
    uses_programs: bool = False  # a program of others has rendered it
    secrets: tuple[str, ...] = ()  # texts of secret parameters


class Loader:
    """Renders the components of one environment; arguments as of `load`."""

    def __init__(
        self,
        app: AppReader,
        environment: Environment,
        *,
        overrides: Overrides | None = None,
        locate: bool = False,
        stand_ins: bool = False,
    ) -> None:
        self.app, self.environment, self.overrides = app, environment, overrides
        self._locate, self._stand_ins = locate, stand_ins
        self._renderers: dict[str, Renderer] = {}
        self._code = Pack(app.store, f"templates:{app.root}")
        self._packed = Pack(app.store, f"renders:{app.root}:{environment.name}")
        self._engine, self._renders = Engine(self._code), Renders(self._packed)

    def save(self) -> None:
        """Store what is new of this run."""
        self._code.save()
        self._packed.save()

    def render(self, component: Component | Manifest) -> Rendered:
        """Give the objects of one component, patched.

        Raises:
            ConfigError: a file, parameter or template is wrong.
        """
        with naming(component.full_name):
            environment = self.environment.name
            if isinstance(component, Manifest):
                self.app.refuse_params(component, environment)
                return self._manifest(component)
            prototype = self.app.prototype_of(component, environment)
            resolved = self.app.resolve(component, environment, self.overrides)
            checked, filled = self._filled(prototype, resolved)
            # What was read elsewhere is to leave no trace: not even a hash of it.
            passed = self.app.store if filled.values == resolved.values else NO_STORE
            schema.check_params(prototype, checked, passed=passed, component=component.full_name)
            return self.from_values(component, prototype, filled)

    def _filled(self, prototype: Prototype, resolved: Resolved) -> tuple[Resolved, Resolved]:
        """Give the parameters to check, and those to render, with secret values that stand elsewhere."""
        try:
            filled = self.app.secrets.filled(prototype, resolved)
        except (ConfigError, RegistryError):
            if not self._stand_ins:
                raise
            return resolved, self.app.secrets.filled(prototype, resolved, stand_ins=True)
        return filled, filled

    def from_values(self, component: Component, prototype: Prototype, resolved: Resolved) -> Rendered:
        """Give the objects of a component for resolved parameters, which are taken as they are.

        Raises:
            TemplateError: a template does not render.
            YamlError: what it renders is no YAML.
        """
        # whoever needs them has filled them
        resolved = self.app.secrets.filled(prototype, resolved, stand_ins=True)
        name, namespace = component.full_name, self.environment.namespace
        try:
            if prototype.chart is not None:
                objects, notes = self._charted(component, prototype, prototype.chart, resolved)
            else:
                namespace = str(resolved.values.get("namespace") or namespace)
                names = (self.app.app.name, component.module, component.name)
                variables = template_variables(resolved.values, names, self.environment, namespace)
                objects, remarks = self._templated(prototype, variables, name)
                notes = [f"{name}: {remark}" for remark in remarks]
        except TemplateRefusedError as error:
            raise _refused(error, component, resolved) from error
        return Rendered(
            component=name,
            objects=self._patched(objects, name),
            namespace=namespace,
            notes=(*resolved.notes, *notes),
            has_secrets=prototype.has_secrets(resolved.values),
            uses_programs=prototype.chart is not None,
            secrets=masking.secret_texts(prototype.secret_values(resolved.values)),
        )

    def _charted(
        self, component: Component, prototype: Prototype, chart: Chart, resolved: Resolved
    ) -> tuple[list[KubeObject], Sequence[str]]:
        """Give the objects of a chart, remembered or rendered: twice unless it is known to repeat itself."""
        from mlstack.render import helm

        name, environment = component.full_name, self.environment
        has_file = environment.name in self.app.environment_names
        snapshot = self.app.snapshot(environment.name) if has_file else None
        release = helm.Release(
            name=component.name,
            namespace=environment.namespace,
            values=overridden(resolved),
            kubernetes_version=environment.kubernetes_version,
            api_versions=snapshot.api_versions if snapshot is not None else (),
        )
        facts = {key: value for key, value in vars(release).items() if key != "values"}
        variables: dict[str, Any] = {"params": release.values, "release": facts}
        variables |= {"hooks": component.hooks, "helm": helm.version_in(self.app.store)}
        known = None if self._locate else self._renders.get(name, prototype, variables)
        if known is None:
            return self._released(component, prototype, chart, release, variables)
        return _remembered(known, name, {file: f"{chart.folder}/{file}" for file, _ in known.objects})

    def _released(
        self,
        component: Component,
        prototype: Prototype,
        chart: Chart,
        release: helm.Release,
        variables: Mapping[str, Any],
    ) -> tuple[list[KubeObject], list[str]]:
        """Render a chart by helm; one that is not the same each time is refused, but for what patches fix."""
        from mlstack.render import helm

        name = component.full_name
        mark = f"repeatable:{render_key(prototype, variables, variables.keys()).decode()}"
        is_repeatable = self.app.store.get(mark) is not None
        renders, notes = [], list[str]()
        for documents in helm.template(chart, release, times=1 if is_repeatable else 2):
            kept, notes = helm.without_hooks(documents, component=name, keep=component.hooks == "apply")
            notes += [f"{name}: {note}" for note in helm.lookup_note(chart, kept)]
            objects = [
                (item.template, obj)
                for item in kept
                for obj in self._parsed([item.document], name, f"{chart.folder}/{item.template}", None)
            ]
            renders.append(objects)
        first, last = ([obj.data for _, obj in objects] for objects in (renders[0], renders[-1]))
        if first != last:
            patches = [self._patched([obj for _, obj in objects], name) for objects in renders]
            if faults := helm.differences(*([obj.data for obj in objects] for objects in patches)):
                raise helm.unrepeatable(chart, faults, component=name)
        else:
            self.app.store.put(mark, b"")
        if first == last and not self._locate:
            contents = [(template, obj.data) for template, obj in renders[0]]
            render = Render(objects=contents, notes=notes, reads=variables.keys())
            self._renders.put(name, prototype, variables, render)
        return [obj for _, obj in renders[0]], notes

    def _manifest(self, component: Manifest) -> Rendered:
        """Give the objects of a file, or those that kustomize builds: of a folder, or a copy of another's."""
        name, file, place_of = component.full_name, component.file, None
        if isinstance(component, Kustomization):
            from mlstack.render import kustomize

            text = kustomize.build(self.app, component)
            documents = read.read_documents(text, source=f"what kustomize builds of `{component.source}`")
        else:
            documents = [document.content for document in self.app.read_manifest(component)]
            place_of = partial(TemplatePlace, file)
        objects = [*self._parsed(documents, name, file, place_of)]
        # A file that was cut off must not pass for one without faults.
        is_empty = not objects and not isinstance(component, Kustomization)
        empty = f"component `{name}` brings nothing: its file holds no objects ({file})"
        return Rendered(
            component=name,
            objects=self._patched(objects, name),
            namespace=self.environment.namespace,
            notes=(empty,) if is_empty else (),
            uses_programs=isinstance(component, Kustomization),
        )

    def _templated(
        self, prototype: Prototype, variables: Mapping[str, Any], component: str
    ) -> tuple[list[KubeObject], Sequence[str]]:
        """Give what the templates make and tell: as remembered, unless every part is to be located."""
        known = None if self._locate else self._renders.get(component, prototype, variables)
        if known is not None:
            files = {name: prototype.sources.get(name, name) for name, _ in known.objects}
            return _remembered(known, component, files)
        key = f"{prototype.full_name}@{prototype.version}"
        if key not in self._renderers:
            self._renderers[key] = Renderer(prototype, self._engine)
        rendering = self._renderers[key].rendering(variables)
        objects = [
            (name, obj)
            for name in self._renderers[key].names
            for obj in self._objects(rendering, name, prototype, component)
        ]
        notes = [*rendering.notes]
        if not self._locate:
            contents = [(name, obj.data) for name, obj in objects]
            render = Render(objects=contents, notes=notes, reads=rendering.reads)
            self._renders.put(component, prototype, variables, render)
        return [obj for _, obj in objects], notes

    def _objects(
        self, rendering: Rendering, template: str, prototype: Prototype, component: str
    ) -> list[KubeObject]:
        file = prototype.sources.get(template, template)
        text = rendering.render(template)
        try:
            documents = read.read_documents(text, source=file, with_positions=self._locate)
        except YamlError as error:
            line = (error.where or "").rpartition(":")[2]
            origin = _place_of_line(rendering, template)(int(line)) if line.isdigit() else None
            where = file if origin is None else f"{origin.file}:{origin.line}"
            message = f"the template renders no sound YAML: {error.message}"
            raise YamlError(message, where=where, hint=error.hint) from error
        place_of = _place_of_line(rendering, template) if self._locate else None
        return [*self._parsed(documents, component, file, place_of)]

    def _parsed(
        self, documents: Iterable[read.Document], component: str, file: str, place_of: PlaceOf | None
    ) -> Iterator[KubeObject]:
        """Give the objects of documents; a List gives its items."""
        whole = source = Source(component=component, file=file)
        for document in documents:
            masking.note_object(document.value)
            for path, data in unpacked(document.value):
                if place_of is not None:
                    source = _located(document, path, place_of, whole, every_part=self._locate)
                check_object(data, source.at)
                yield KubeObject(data=data, component=component, source=source)

    def _patched(self, objects: Sequence[KubeObject], component: str) -> tuple[KubeObject, ...]:
        # An environment without a file, as a preview's, has no patches.
        documents = self.app.patches(self.environment.name, component) if self.environment.file else ()
        if not documents:
            return tuple(objects)
        from mlstack.render.patches import patched, placed, read_patch

        patches = [
            read_patch(
                document.value,
                where=str(document.origin()),
                places={path: str(at) for path, at in (document.origins() if self._locate else {}).items()},
            )
            for document in documents
        ]
        result = []
        changed = patched([obj.data for obj in objects], patches, self._schema_of)
        for obj, data in zip(objects, changed, strict=True):
            if data is None:
                continue
            source = obj.source
            if source is not None and self._locate:
                places = placed(obj.data, source.places, patches, self._schema_of)
                source = replace(source, places=places)
            masking.note_object(data)
            if source is not None and data is not obj.data:
                check_object(data, source.at)
            result.append(KubeObject(data=data, component=obj.component, source=source))
        return tuple(result)

    def _schema_of(self, data: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, Schemas | None]:
        """Give the schema of an object, and what follows its references; a definition's has none."""
        from mlstack.validate.validate import load_schemas

        schemas = load_schemas(self.environment.kubernetes_version)
        api_version, kind = str(data.get("apiVersion", "")), str(data.get("kind", ""))
        group, version = group_of(api_version), api_version.rpartition("/")[2]
        if (root := schemas.root(group, version, kind)) is not None:
            return root, schemas
        for file, text in self.app.vendor.crds().items():
            for document in read.read_documents(text, source=file) if f"kind: {kind}" in text else ():
                spec = document.value.get("spec") or {}
                if spec.get("group") == group and (spec.get("names") or {}).get("kind") == kind:
                    served = (entry for entry in spec["versions"] if entry["name"] == version)
                    return next((entry["schema"]["openAPIV3Schema"] for entry in served), None), None
        return None, None


def template_variables(
    params: Mapping[str, Any], names: tuple[str, str, str], environment: Environment, namespace: str
) -> dict[str, Any]:
    """Give what templates can ask for; `names` are those of the app, the module and the component."""
    app, module, component = names
    return {
        "params": dict(params),
        "name": params.get("name") or component,
        "component": {"name": component, "module": module},
        "namespace": namespace,
        "app": {"name": app},
        "env": {name: getattr(environment, name) for name in ("name", "namespace", "context")},
    }


def _remembered(
    known: Render, component: str, files: Mapping[str, str]
) -> tuple[list[KubeObject], Sequence[str]]:
    """Give the objects and notes of an earlier render; `files` are those of its templates, for messages."""
    sources = {name: Source(component=component, file=file) for name, file in files.items()}
    objects = [KubeObject(data=d, component=component, source=sources[name]) for name, d in known.objects]
    return objects, known.notes


def _place_of_line(rendering: Rendering, template: str) -> PlaceOf:
    """Render again, for what looks up the template's line that a line of the text came from."""
    places = rendering.render_with_places(template)[1]
    return lambda line: places[line - 1] if 0 < line <= len(places) else None


def _located(
    document: read.Document, path: KeyPath, place_of: PlaceOf, source: Source, *, every_part: bool
) -> Source:
    first = place_of(document.position(path).line if document.positions else document.line)
    parts = {
        part[len(path) :]: place_of(position.line)
        for part, position in (document.positions.items() if every_part else ())
        if part[: len(path)] == path
    }
    places = {part: f"{place.file}:{place.line}" for part, place in parts.items() if place is not None}
    file, line = (first.file, first.line) if first else (source.file, None)
    return replace(source, file=file, line=line, places=places)


@contextmanager
def naming(component: str) -> Iterator[None]:
    """Add the component to errors that know only the template; those of parameters and files have a line."""
    try:
        yield
    except (TemplateError, YamlError) as error:
        if f"`{component}`" not in error.message:
            error.message = f"component `{component}`: {error.message}"
        raise


def _refused(error: TemplateRefusedError, component: Component, resolved: Resolved) -> TemplateRefusedError:
    """Say of a refusal where the parameters that it names were set, and how the first of them is set anew."""
    names = [name for name in re.findall("`([^`]+)`", error.message) if name in resolved.values]
    settings = [resolved.setting(name) for name in names]
    places = [
        str(setting.origin) for setting in settings if setting is not None and setting.layer != "default"
    ]
    hint = error.hint
    if names:
        setting, target = settings[0], component.full_name
        if setting is not None and str(setting.origin).startswith("--"):
            hint = f"{setting.origin}=VALUE"
        elif setting is not None and setting.layer == "command line":
            hint = f"--set {names[0]}=VALUE"
        else:
            if setting is not None and setting.layer != "default":
                target = setting.target
            hint = f"mlstack param set {target} {names[0]} VALUE".replace("  ", " ")
    message = f"component `{component.full_name}`: {error.message}"
    refusal = TemplateRefusedError(message, where=places[0] if places else error.where, hint=hint)
    refusal.param = names[0] if names else None
    return refusal


# --- what is a Kubernetes object ---


def unpacked(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Give the items of what `kubectl get` writes for several objects (a List, which has no name) by path."""
    is_list = isinstance(value, Mapping) and str(value.get("kind", "")).endswith("List")
    if is_list and isinstance(value.get("items"), list) and "name" not in (value.get("metadata") or {}):
        for index, item in enumerate(value["items"]):
            yield from unpacked(item, (*path, "items", index))
    else:
        yield path, value


def check_object(data: Any, at: Callable[[KeyPath], str]) -> None:
    """Raise for what cannot be addressed in a cluster, or marked as ours; `at` gives the place of a part.

    Raises:
        ConfigError: no map, without apiVersion, kind or name, or with odd metadata.
    """
    if not isinstance(data, Mapping):
        message = f"a document is no Kubernetes object: expected a map, got {described(data)}"
        raise ConfigError(message, where=at(()), hint=_hint(at))
    metadata: Any = data.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    values = {path: metadata.get(path[-1]) if len(path) > 1 else data.get(path[0]) for path in _TYPES}
    missing = [f"`{join_path(path)}`" for path in _NEEDED if values[path] in (None, "")]
    if missing:
        message = f"a document is no Kubernetes object: it has no {', '.join(missing)}"
        hint = _GENERATED if "generateName" in metadata else _hint(at)
        raise ConfigError(message, where=at(()), hint=hint)
    for path, value in values.items():
        if value is not None and not isinstance(value, _TYPES[path][1]):
            sentence = expectation("type", {"type": _TYPES[path][0]}, value)
            raise ConfigError(f"`{join_path(path)}` {sentence}", where=at(path))


def _hint(at: Callable[[KeyPath], str]) -> str:
    return f"{_HINT}, or move it out of components/" if at(()).startswith("components/") else _HINT


_NEEDED: tuple[KeyPath, ...] = (("apiVersion",), ("kind",), ("metadata", "name"))
_TYPES: Mapping[KeyPath, tuple[str, type]] = {
    **{path: ("string", str) for path in _NEEDED},
    ("metadata", "namespace"): ("string", str),
    ("metadata", "labels"): ("object", dict),
    ("metadata", "annotations"): ("object", dict),
}
_HINT = "give it apiVersion, kind and metadata.name"
_GENERATED = "every apply would make another object from `generateName`: give it a name"
