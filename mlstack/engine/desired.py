"""From an app directory to the objects of one environment: resolve, render, parse, patch, stamp, order."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mlstack.engine.parse import PlaceOf, at_template, check_object, objects_of, place_of_line
from mlstack.errors import ConfigError, MlstackError, TemplateError, TemplateRefusedError, YamlError
from mlstack.files import schema, yamlread
from mlstack.files.appdir import AppDir
from mlstack.files.document import Document
from mlstack.files.renders import Render, Renders
from mlstack.model import masking, objects, order
from mlstack.model.app import Component, Environment, Manifest
from mlstack.model.kinds import Kinds
from mlstack.model.names import check_namespace
from mlstack.model.normalise import normalised
from mlstack.model.objects import DesiredState, KubeObject, Source
from mlstack.model.overrides import Overrides
from mlstack.model.params import Resolved, Setting
from mlstack.model.patching import patched, read_patch
from mlstack.model.places import Place
from mlstack.model.prototype import Prototype
from mlstack.templating import CodeStore, Renderer, Rendering

_NONE = Overrides()


def place(
    app: AppDir, environment: str, *, context: str | None = None, namespace: str | None = None
) -> Environment:
    """Give an environment as one run uses it, with another context or namespace where asked.

    Raises:
        UsageError: the other namespace cannot be one.
        NotFoundError: there is no such environment.
        ConfigError: it names no context.
    """
    found = app.environment(environment)
    if namespace:
        check_namespace(namespace)
    used = replace(found, context=context or found.context, namespace=namespace or found.namespace)
    if not used.context:
        raise ConfigError(
            f"environment `{environment}` names no kubectl context",
            where=found.file or None,
            hint=f"mlstack env set {environment} --context CONTEXT",
        )
    return used


def load(
    app: AppDir,
    environment: str,
    *,
    components: Sequence[str] = (),
    overrides: Overrides = _NONE,
    store: CodeStore | None = None,
    namespace: str | None = None,
    locate: bool = False,
) -> DesiredState:
    """Give the objects of an environment, in the order they are applied.

    Args:
        app: the app directory.
        environment: name of the environment.
        components: only these components and modules; none means all that the environment deploys.
        overrides: parameters for this run.
        store: keeps compiled templates and passed parameter sets.
        namespace: another namespace, for this run.
        locate: note the template line of every part of every object; this renders twice.

    Raises:
        ConfigError: a file, parameter or template is wrong; names component, file and line.
        NotFoundError: no such environment, component or prototype.
    """
    try:
        return _loaded(app, environment, components, overrides, store, namespace, locate=locate)
    except ConfigError as error:
        if locate or type(error) is not ConfigError:
            raise
    # Again for the lines of what it says of whole objects; other errors have theirs.
    return _loaded(app, environment, components, overrides, store, namespace, locate=True)


def _loaded(
    app: AppDir,
    environment: str,
    components: Sequence[str],
    overrides: Overrides,
    store: CodeStore | None,
    namespace: str | None,
    *,
    locate: bool,
) -> DesiredState:
    app.app()  # a fault of it is no component's, nor one of the lock
    app.lock()
    found = app.environment(environment)
    found = replace(found, namespace=namespace or found.namespace)
    app.check_patches(environment)
    selected = app.selected(found, components)
    depends = app.depends(selected)
    loader = Loader(app, found, overrides=overrides, store=store, locate=locate)
    rendered = [loader.render(component) for component in selected]
    made = [made for one in rendered for made in one.objects]
    stamped = _stamped(made, rendered, app=app.app().name, environment=found)
    objects.refuse_duplicates(stamped)
    masking.allow(_names(app.app().name, found, stamped))
    notes = [note for one in rendered for note in one.notes]
    notes += app.undeclared_globals(found.name, selected)
    return DesiredState(
        app=app.app().name,
        environment=found.name,
        namespace=found.namespace,
        objects=order.ordered(stamped, depends),
        components=tuple(sorted(component.full_name for component in selected)),
        depends=depends,
        timeouts={
            one.full_name: one.timeout_s
            for one in selected
            if isinstance(one, Component) and one.timeout_s is not None
        },
        notes=tuple(dict.fromkeys(notes)),
        has_secrets=any(one.has_secrets for one in rendered)
        or any(each.kind == "Secret" for each in stamped),
        secrets=tuple(dict.fromkeys(text for one in rendered for text in one.secrets)),
    )


def known_secrets(app: AppDir, environment: str) -> tuple[str, ...]:
    """Give the texts of secret parameters as the app's files have them now, as far as these can be read."""
    known: dict[str, None] = {}
    with suppress(MlstackError):
        for component in app.components():
            if isinstance(component, Component):
                with suppress(MlstackError):  # of others it is known all the same
                    prototype = app.prototype(component.prototype)
                    values = app.resolve(component, environment).values
                    known.update(dict.fromkeys(masking.secret_texts(values, prototype.params)))
    return tuple(known)


def _names(app: str, environment: Environment, made: Iterable[KubeObject]) -> Iterator[str]:
    """Give what people know things by, which is no secret even where one says the same."""
    yield from (app, environment.name, environment.namespace, environment.context)
    for each in made:
        yield from (each.name, each.namespace, each.kind, each.component)


def preview(
    app: AppDir,
    component: Component,
    prototype: Prototype,
    resolved: Resolved,
    *,
    environment: Environment,
    store: CodeStore | None = None,
) -> DesiredState:
    """Give the objects that a component would bring which the app does not have.

    Args:
        app: the app directory.
        component: as it would be.
        prototype: its prototype.
        resolved: its parameters, checked.
        environment: where it would be deployed; one without a file has no patches.
        store: keeps compiled templates.

    Raises:
        TemplateError: a template does not render.
    """
    one = Loader(app, environment, store=store).from_values(component, prototype, resolved)
    stamped = _stamped(one.objects, [one], app=app.app().name, environment=environment)
    return DesiredState(
        app=app.app().name,
        environment=environment.name,
        namespace=one.namespace,
        objects=order.ordered(stamped),
        components=(component.full_name,),
        notes=one.notes,
    )


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """What one component gives, before marks and order.

    Attributes:
        component: its full name.
        objects: in the order of the templates.
        namespace: where its namespaced objects go.
        notes: deprecations and the like.
        has_secrets: a secret parameter is set.
        secrets: texts of secret parameters.
    """

    component: str
    objects: tuple[KubeObject, ...]
    namespace: str
    notes: tuple[str, ...] = ()
    has_secrets: bool = False
    secrets: tuple[str, ...] = ()


class Loader:
    """Renders the components of one environment.

    Args:
        app: the app directory.
        environment: as this run uses it.
        overrides: parameters for this run.
        store: keeps compiled templates and passed parameter sets.
        locate: note the template line of every part of every object.
    """

    def __init__(
        self,
        app: AppDir,
        environment: Environment,
        *,
        overrides: Overrides = _NONE,
        store: CodeStore | None = None,
        locate: bool = False,
    ) -> None:
        """Begin with nothing rendered."""
        self._app, self._environment, self._overrides = app, environment, overrides
        self._store, self._locate = store, locate
        self._renderers: dict[str, Renderer] = {}
        self._renders = Renders(store)

    def render(self, component: Component | Manifest) -> Rendered:
        """Give the objects of one component, patched.

        Raises:
            ConfigError: a file, parameter or template is wrong.
        """
        with _Of(component.full_name):
            if isinstance(component, Manifest):
                return self._manifest(component)
            prototype = self._app.prototype(component.prototype, where=component.file)
            resolved = self._app.resolve(component, self._environment.name, self._overrides)
            schema.check_params(prototype, resolved, passed=self._store, component=component.full_name)
            return self.from_values(component, prototype, resolved)

    def from_values(self, component: Component, prototype: Prototype, resolved: Resolved) -> Rendered:
        """Give the objects of a component for resolved parameters, which are taken as they are.

        Raises:
            TemplateError: a template does not render.
            YamlError: what it renders is no YAML.
        """
        namespace = str(resolved.values.get("namespace") or self._environment.namespace)
        variables = self._variables(component, resolved, namespace)
        try:
            made, notes = self._made(prototype, variables, component.full_name)
        except TemplateRefusedError as error:
            raise _refused(error, component, resolved) from error
        return Rendered(
            component=component.full_name,
            objects=tuple(self._patched(made, component.full_name)),
            namespace=namespace,
            notes=(*resolved.notes, *(f"{component.full_name}: {note}" for note in notes)),
            has_secrets=prototype.has_secrets(resolved.values),
            secrets=masking.secret_texts(resolved.values, prototype.params),
        )

    def _made(
        self, prototype: Prototype, variables: Mapping[str, Any], component: str
    ) -> tuple[list[KubeObject], Sequence[str]]:
        """Give what the templates make and tell: as remembered, unless every part is to be located."""
        key = None if self._locate else self._renders.key(prototype, variables)
        known = self._renders.get(key)
        if known is not None:
            return [_unlocated(*each, prototype, component) for each in known.objects], known.notes
        renderer = self._renderer(prototype)
        rendering = renderer.rendering(variables)
        made = {name: self._objects(rendering, name, prototype, component) for name in renderer.names}
        contents = [(name, found.data) for name, objects in made.items() for found in objects]
        self._renders.put(key, Render(objects=contents, notes=rendering.notes))
        return [found for objects in made.values() for found in objects], rendering.notes

    def _renderer(self, prototype: Prototype) -> Renderer:
        key = f"{prototype.full_name}@{prototype.version}"
        if key not in self._renderers:
            self._renderers[key] = Renderer(prototype, store=self._store)
        return self._renderers[key]

    def _variables(self, component: Component, resolved: Resolved, namespace: str) -> dict[str, Any]:
        environment = self._environment
        return {
            "params": dict(resolved.values),
            "name": resolved.values.get("name") or component.name,
            "component": {"name": component.name, "module": component.module},
            "namespace": namespace,
            "app": {"name": self._app.app().name},
            "env": {
                "name": environment.name,
                "namespace": environment.namespace,
                "context": environment.context,
            },
        }

    def _objects(
        self, rendering: Rendering, template: str, prototype: Prototype, component: str
    ) -> list[KubeObject]:
        file = prototype.sources.get(template, template)
        text = rendering.render(template)
        try:
            documents = yamlread.read_documents(text, source=file, with_positions=self._locate)
        except YamlError as error:
            raise at_template(error, rendering.render_with_places(template)[1], file) from error
        places = rendering.render_with_places(template)[1] if self._locate else ()
        return list(self._parsed(documents, component, file, place_of_line(places)))

    def _parsed(
        self, documents: Iterable[yamlread.Document], component: str, file: str, place_of: PlaceOf
    ) -> Iterator[KubeObject]:
        for document in documents:
            masking.note_objects(document.value)
            yield from objects_of(
                document, component=component, file=file, place_of=place_of, locate=self._locate
            )

    def _manifest(self, component: Manifest) -> Rendered:
        documents = [document.content for document in self._app.read_manifest(component)]
        here = partial(Place, component.file)
        made = list(self._parsed(documents, component.full_name, component.file, here))
        return Rendered(
            component=component.full_name,
            objects=tuple(self._patched(made, component.full_name)),
            namespace=self._environment.namespace,
        )

    def _patched(self, made: Sequence[KubeObject], component: str) -> Iterable[KubeObject]:
        # An environment without a file, as a preview's, has no patches.
        documents = self._app.patches(self._environment.name, component) if self._environment.file else ()
        return self._with_patches(made, documents) if documents else made

    def _with_patches(
        self, made: Sequence[KubeObject], documents: Sequence[Document]
    ) -> Iterator[KubeObject]:
        patches = [
            read_patch(one.value, where=str(one.origin()), places=self._places(one)) for one in documents
        ]
        changed = patched([found.data for found in made], patches)
        for found, data in zip(made, changed, strict=True):
            over = {path: at for one in patches if one.matches(found.data) for path, at in one.places.items()}
            source = found.source and replace(found.source, places={**found.source.places, **over})
            masking.note_object(data)
            if source is not None and data is not found.data:
                check_object(data, source.at)
            yield replace(found, data=data, source=source)

    def _places(self, patch: Document) -> dict[tuple[str | int, ...], str]:
        """Give the place of each part of a patch, where it is asked for; faults there are the patch's own."""
        origins = patch.origins() if self._locate else {}
        return {path: str(origin) for path, origin in origins.items()}


def _unlocated(template: str, data: Mapping[str, Any], prototype: Prototype, component: str) -> KubeObject:
    source = Source(component=component, file=prototype.sources.get(template, template))
    return KubeObject(data=data, component=component, source=source)


def _refused(error: TemplateRefusedError, component: Component, resolved: Resolved) -> TemplateRefusedError:
    """Say of a refusal where the parameters that it names were set, and how the first of them is set anew."""
    named = [name for name in re.findall("`([^`]+)`", error.message) if name in resolved.values]
    settings = [(name, resolved.setting(name)) for name in named]
    places = [str(one.origin) for _, one in settings if one is not None and one.layer != "default"]
    return TemplateRefusedError(
        f"component `{component.full_name}`: {error.message}",
        where=places[0] if places else error.where,
        hint=_set_anew(*settings[0], component.full_name) if settings else error.hint,
    )


def _set_anew(name: str, setting: Setting | None, component: str) -> str:
    origin = str(setting.origin) if setting is not None else ""
    if origin.startswith("--"):
        return f"{origin}=VALUE"
    if setting is not None and setting.layer == "command line":
        return f"--set {name}=VALUE"
    target = component if setting is None or setting.layer == "default" else setting.target
    return f"mlstack param set {target} {name} VALUE".replace("  ", " ")


class _Of:
    """Adds the component to errors on their way out."""

    def __init__(self, component: str) -> None:
        self._component = component

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Faults of parameters and files know their own line; these only know the template.
        if isinstance(error, TemplateError | YamlError) and f"`{self._component}`" not in error.message:
            error.message = f"component `{self._component}`: {error.message}"
            error.args = (error.message,)


def _stamped(
    made: Sequence[KubeObject], rendered: Sequence[Rendered], *, app: str, environment: Environment
) -> list[KubeObject]:
    """Give namespace and marks to every object; definitions of the run say which kinds have a namespace."""
    built_in = Kinds.builtin()
    kinds = built_in.with_crds(found.data for found in made)
    namespaces = {one.component: one.namespace for one in rendered}
    return [
        found.with_data(
            objects.stamp(
                normalised(found.data, built_in=built_in.lookup(found.api_version, found.kind) is not None),
                app=app,
                environment=environment.name,
                component=found.component,
                namespace=namespaces[found.component],
                kinds=kinds,
            )
        )
        for found in made
    ]
