"""From an app directory to the objects of one environment: resolve, render, parse, patch, stamp, order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from itertools import chain
from typing import Any

from mlstack.app.app import App, Component, Manifest
from mlstack.app.environment import Environment
from mlstack.app.overrides import NO_OVERRIDES, Overrides
from mlstack.app.params import Resolved
from mlstack.app.prototype import Prototype
from mlstack.app.reader import AppReader
from mlstack.dataclass import Record
from mlstack.errors import ConfigError, MlstackError, NotFoundError
from mlstack.names import check_namespace
from mlstack.objects import kube_object, masking, order
from mlstack.objects.kube_object import DesiredState, Identity, Kinds, KubeObject
from mlstack.objects.masking import is_secret
from mlstack.objects.references import is_pod_spec, read_by_pods
from mlstack.render.component import Loader, Rendered, naming
from mlstack.render.template import Pack
from mlstack.yaml import read


def place(
    app: AppReader, environment: str, *, context: str | None = None, namespace: str | None = None
) -> Environment:
    """Give an environment as one run uses it, with another context or namespace where asked.

    Raises:
        UsageError: the other namespace cannot be one.
        NotFoundError: there is no such environment.
        ConfigError: it names no context.
    """
    own = app.environment(environment)
    if namespace:
        check_namespace(namespace)
    used = replace(own, context=context or own.context, namespace=namespace or own.namespace)
    if not used.context:
        raise ConfigError(
            f"environment `{environment}` names no kubectl context",
            where=own.file or None,
            hint=f"mlstack env set {environment} --context CONTEXT",
        )
    return used


def load(
    app: AppReader,
    environment: str,
    *,
    components: Sequence[str] = (),
    overrides: Overrides = NO_OVERRIDES,
    namespace: str | None = None,
    locate: bool = False,
    stand_ins: bool = False,
) -> DesiredState:
    """Give the objects of an environment, in the order they are applied.

    `components` are components and modules, none means all that the environment deploys; these, `overrides`
    and `namespace` are for this run. To `locate` notes the template line of every part; with `stand_ins`
    secret values that stand elsewhere and cannot be read are made up.

    Raises:
        ConfigError: a file, parameter or template is wrong; names component, file and line.
        NotFoundError: no such environment, component or prototype.
    """
    shapes = Pack(app.store, f"shapes:{app.root}")
    with read.keeping_shapes(shapes):
        used, selected, depends = _selection(app, environment, components, namespace)
        make = partial(Loader, app, used, overrides=overrides, stand_ins=stand_ins)
        loader = make(locate=locate)
        try:
            parts, objects = _rendered(loader, selected, depends, is_part=bool(components))
        except ConfigError as error:
            # Again for the lines of what it says of whole objects; other errors have theirs.
            if locate or type(error) is not ConfigError:
                raise
            loader = make(locate=True)
            parts, objects = _rendered(loader, selected, depends, is_part=bool(components))
    loader.save()
    state = _desired(loader, selected, depends, parts, objects)
    if not state.has_secrets and len(selected) == len(app.component_files):  # values of others may be secret
        shapes.save()
    return state


def _selection(
    app: AppReader, environment: str, components: Sequence[str], namespace: str | None
) -> tuple[Environment, tuple[Component | Manifest, ...], Mapping[str, tuple[str, ...]]]:
    """Give an environment as this run uses it, what it deploys of these, and what each depends on."""
    app.app, app.lock  # noqa: B018 # a fault of them is no component's
    own = app.environment(environment)
    used = replace(own, namespace=namespace or own.namespace)
    app.check_patches(environment)
    selected = app.selected(used, components)
    return used, selected, app.depends(selected)


def _desired(
    loader: Loader,
    selected: Sequence[Component | Manifest],
    depends: Mapping[str, tuple[str, ...]],
    parts: Sequence[Rendered],
    objects: tuple[KubeObject, ...],
) -> DesiredState:
    """Put together what a render gave, with what people are to be told of it."""
    app, used = loader.app, loader.environment
    # What people know things by is no secret, even where one says the same.
    masking.allow((app.app.name, used.name, used.namespace, used.context))
    masking.allow(text for obj in objects for text in (obj.name, obj.namespace, obj.kind, obj.component))
    own_notes = chain(app.undeclared_globals(used.name, selected), _no_targets(app, used, selected))
    return DesiredState(
        app=app.app.name,
        environment=used.name,
        namespace=used.namespace,
        objects=objects,
        components=tuple(sorted(component.full_name for component in selected)),
        formerly=app.formerly(component.full_name for component in selected),
        depends=depends,
        timeouts={c.full_name: c.timeout_s for c in selected if c.timeout_s is not None},
        notes=tuple(dict.fromkeys(chain(*(part.notes for part in parts), own_notes))),
        has_secrets=any(part.has_secrets for part in parts) or any(obj.kind == "Secret" for obj in objects),
        uses_programs=any(part.uses_programs for part in parts),
        secrets=tuple(dict.fromkeys(text for part in parts for text in part.secrets)),
    )


def _rendered(
    loader: Loader,
    selected: Sequence[Component | Manifest],
    depends: Mapping[str, Sequence[str]],
    *,
    is_part: bool,
) -> tuple[list[Rendered], tuple[KubeObject, ...]]:
    """Give what each component renders to, and the objects of all, stamped and in order."""
    app, environment = loader.app, loader.environment
    rendered = [loader.render(component) for component in selected]
    stamped = _stamped(rendered, app=app.app, environment=environment)
    others: list[KubeObject] = []
    known = {obj.identity for obj in stamped}
    if is_part and any(not known.issuperset(read_by_pods(obj)) for obj in stamped if _restarts(obj)):
        sound: list[Rendered] = []
        for component in app.selected(environment):
            with suppress(ConfigError):  # of one that was not asked for
                sound += [loader.render(component)] if component not in selected else []
        others = _stamped(sound, app=app.app, environment=environment)
    stamped = with_config_hashes(stamped, others, salt=f"{app.app.name}/{environment.name}")
    kube_object.refuse_duplicates(stamped)
    return rendered, order.ordered(stamped, depends)


def _no_targets(
    app: AppReader, environment: Environment, selected: Sequence[Component | Manifest]
) -> Iterator[str]:
    """Say of components that were named which of them the environment does not deploy by itself."""
    if not environment.targets:
        return
    own: set[str] = set()
    with suppress(NotFoundError):  # a target that is gone is told of where it counts
        own = {component.full_name for component in app.selected(environment)}
    strange = [component.full_name for component in selected if component.full_name not in own]
    if own and strange:
        names = ", ".join(f"`{name}`" for name in strange)
        targets = " ".join((*environment.targets, *strange))
        yield (
            f"{names} {'are no targets' if strange[1:] else 'is no target'} of `{environment.name}`: an apply"
            f" of all targets deletes it again; to keep it: mlstack env targets {environment.name} {targets}"
        )


def preview(
    app: AppReader,
    component: Component,
    prototype: Prototype,
    resolved: Resolved,
    *,
    environment: Environment,
) -> DesiredState:
    """Give the objects that a component would bring which the app does not have, with checked parameters.

    An environment without a file has no patches.

    Raises:
        TemplateError: a template does not render.
    """
    with naming(component.full_name):
        rendered = Loader(app, environment).from_values(component, prototype, resolved)
    stamped = _stamped([rendered], app=app.app, environment=environment)
    hashed = with_config_hashes(stamped, salt=f"{app.app.name}/{environment.name}")
    return DesiredState(
        app=app.app.name,
        environment=environment.name,
        namespace=rendered.namespace,
        objects=order.ordered(hashed),
        components=(component.full_name,),
        notes=rendered.notes,
    )


def known_secrets(app: AppReader, environment: str) -> tuple[str, ...]:
    """Give the texts of secret parameters as the app's files have them now, as far as these can be read."""
    known: dict[str, None] = {}
    with suppress(MlstackError):
        for component in app.components():
            if isinstance(component, Component):
                with suppress(MlstackError):  # of others it is known all the same
                    prototype = app.prototype_of(component, environment)
                    resolved = app.resolve(component, environment)
                    values = app.secrets.filled(prototype, resolved, stand_ins=True).values
                    known.update(dict.fromkeys(masking.secret_texts(prototype.secret_values(values))))
    return tuple(known)


def _stamped(rendered: Sequence[Rendered], *, app: App, environment: Environment) -> list[KubeObject]:
    """Give namespace and marks to every object; definitions of the run say which kinds have a namespace."""
    built_in = Kinds.builtin()
    kinds = built_in.with_crds(obj.data for component in rendered for obj in component.objects)
    more = added(app, environment)
    stamped = []
    for component in rendered:
        labels = kube_object.marks(app=app.name, environment=environment.name, component=component.component)
        for obj in component.objects:
            is_built_in = built_in.lookup(obj.api_version, obj.kind) is not None
            data = with_added(kube_object.normalised(obj.data, built_in=is_built_in), more)
            data = kube_object.stamp(data, labels, namespace=component.namespace, kinds=kinds)
            stamped.append(KubeObject(data=data, component=obj.component, source=obj.source))
    return stamped


# --- what objects get beside their templates' content: labels and annotations, hashes of settings ---
# What an object says itself stays: it is more specific, and on pods it may be what a selector asks for.

RESTART = "mlstack.dev/restart-on-config"
CONFIG_HASH = "mlstack.dev/config-hash"
# Those whose controllers replace pods by themselves when the template changes. Jobs and training jobs cannot
# change in place: a new run of them is nobody's wish when a setting changes.
_ROLLING = frozenset(("Deployment", "StatefulSet", "DaemonSet"))
_SECRET_WORK = 2**12  # scrypt's cost: 10 ms for each guess
_SECRET_BYTES = 3


class Metadata(Record):
    """What is added to every object, and to the template of every pod."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)


def added(app: App, environment: Environment) -> Metadata:
    """Give what app and environment add; the environment wins, null takes the app's away."""

    def laid(name: str) -> dict[str, str]:
        both = {**getattr(app, name), **getattr(environment, name)}
        return {key: value for key, value in both.items() if value is not None}

    names = ("labels", "annotations", "pod_labels", "pod_annotations")
    return Metadata(**{name: laid(name) for name in names})


def with_added(data: Mapping[str, Any], more: Metadata) -> Mapping[str, Any]:
    """Give an object with what is added to it and to its pods; selectors stay as they are."""
    if more.pod_labels or more.pod_annotations:
        if data.get("kind") == "Pod" and data.get("apiVersion") == "v1":
            data = _with_metadata(data, more.pod_labels, more.pod_annotations)
        else:
            data = {key: _with_pods(value, more) for key, value in data.items()}
    return _with_metadata(data, more.labels, more.annotations)


def _with_metadata(
    data: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any]:
    metadata = dict(data.get("metadata") or {})
    for name, values in (("labels", labels), ("annotations", annotations)):
        if values:
            metadata[name] = {**values, **(metadata.get(name) or {})}
    return {**data, "metadata": metadata} if labels or annotations else dict(data)


def _with_pods(value: Any, more: Metadata) -> Any:
    """Give a part of an object in which every pod template, of whatever kind, has what is added to pods."""
    if isinstance(value, list):
        return [_with_pods(item, more) for item in value]
    if not isinstance(value, Mapping):
        return value
    changed = {key: _with_pods(inner, more) for key, inner in value.items()}
    if is_pod_spec(value.get("spec")):
        return _with_metadata(changed, more.pod_labels, more.pod_annotations)
    return changed


# --- a changed configuration restarts what reads it ----------------------------------------------------


def with_config_hashes(
    objects: Sequence[KubeObject], others: Iterable[KubeObject] = (), *, salt: str
) -> list[KubeObject]:
    """Give the objects, each workload with a hash of the ConfigMaps and Secrets that its pods read.

    They may also read `others`, as of components that were not asked for. A Secret counts by three bytes of a
    salted scrypt: enough to see that it is another, and too little and too costly to find out what it holds.
    The salt is the same for all renders of an environment.
    """
    configs = {obj.identity: obj for obj in (*others, *objects) if obj.kind in ("ConfigMap", "Secret")}
    digests: dict[Identity, str] = {}
    result = []
    for obj in objects:
        names = sorted(configs.keys() & set(read_by_pods(obj))) if configs and _restarts(obj) else []
        for name in names:
            digests[name] = digests.get(name) or _digest(configs[name], f"{salt}/{name}")
        hashes = [(str(name), digests[name]) for name in names]
        result.append(obj.with_data(_with_hash(obj.data, hashes)) if hashes else obj)
    return result


def _restarts(obj: KubeObject) -> bool:
    """Tell whether an object's pods are replaced when a setting changes."""
    if obj.group != "apps" or obj.kind not in _ROLLING:
        return False
    wish = obj.annotations.get(RESTART, "true")
    if wish not in ("true", "false"):
        message = f'`{obj.identity}`: annotation `{RESTART}` must be "true" or "false", got "{wish}"'
        raise ConfigError(message, where=str(obj.source) if obj.source else None)
    return wish == "true"


def _digest(config: KubeObject, salt: str) -> str:
    content = {
        name: config.data[name] for name in ("data", "binaryData", "stringData") if name in config.data
    }
    text = json.dumps(content, sort_keys=True).encode()
    if not is_secret(config.data):
        return hashlib.sha256(text).hexdigest()
    return hashlib.scrypt(text, salt=salt.encode(), n=_SECRET_WORK, r=8, p=1, dklen=_SECRET_BYTES).hex()


def _with_hash(data: Mapping[str, Any], digests: Collection[tuple[str, str]]) -> Mapping[str, Any]:
    template = data["spec"].get("template") if digests else None
    if not isinstance(template, Mapping):
        return data
    value = hashlib.sha256(json.dumps(sorted(digests)).encode()).hexdigest()[:16]
    metadata = dict(template.get("metadata") or {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), CONFIG_HASH: value}
    return {**data, "spec": {**data["spec"], "template": {**template, "metadata": metadata}}}
