"""From an app directory to the objects of one environment: resolve, render, parse, patch, stamp, order.

And back: which fields of them a parameter decides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from mlstack.app import schema
from mlstack.app.app import App, Component, Manifest
from mlstack.app.document import Origin, json_type, schema_types
from mlstack.app.environment import Environment
from mlstack.app.params import Resolved, Setting, at, inner_param
from mlstack.app.prototype import Param, Prototype, mask_value
from mlstack.app.reader import AppReader
from mlstack.dataclass import Record
from mlstack.errors import ConfigError, MlstackError, NotFoundError, RegistryError
from mlstack.names import check_namespace
from mlstack.objects import kube_object, masking, order
from mlstack.objects.kube_object import DesiredState, Identity, Kinds, KubeObject
from mlstack.objects.masking import is_secret, mask_object
from mlstack.objects.references import is_pod_spec, read_by_pods
from mlstack.render.component import Loader, Rendered, naming
from mlstack.render.template import Pack
from mlstack.yaml import read
from mlstack.yaml.read import KeyPath

if TYPE_CHECKING:
    from mlstack.app.components import Overrides


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
        hint = f"mlstack env set {environment} --context CONTEXT"
        message = f"environment `{environment}` names no kubectl context"
        raise ConfigError(message, where=own.file or None, hint=hint)
    return used


def load(
    app: AppReader,
    environment: str,
    *,
    components: Sequence[str] = (),
    overrides: Overrides | None = None,
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
    names = ("labels", "annotations", "pod_labels", "pod_annotations")
    both = {name: {**getattr(app, name), **getattr(environment, name)} for name in names}
    return Metadata(**kube_object.without_nulls(both))


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
    names = ("data", "binaryData", "stringData")
    content = {name: config.data[name] for name in names if name in config.data}
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


# --- which fields of the objects a parameter decides, found by rendering with other values and comparing ---


NO_FIELD = "it changes no field with the other parameters as they are"


class Reach(Record):
    """A field of a rendered object that a parameter decides."""

    object: str  # as people name it
    path: str  # `spec.template.spec.containers[0].image`
    value: Any  # None if the field is absent; of a text with many lines those that the parameter decides


def loader_for(app: AppReader, environment: str | None, overrides: Overrides | None = None) -> Loader:
    """Give what renders the components of an environment; of none, as all would share them."""
    place = app.environment(environment) if environment is not None else Environment(name="default")
    return Loader(app, place, overrides=overrides)


class ComponentTrials:
    """One component, rendered as it is and with other values by a loader of its environment, if any."""

    def __init__(self, loader: Loader, component: Component, environment: str | None) -> None:
        app = loader.app
        self.prototype = app.prototype_of(component, environment)
        resolved = app.resolve(component, environment, loader.overrides)
        self.resolved = app.secrets.filled(self.prototype, resolved, stand_ins=True)
        self._loader, self._component = loader, component
        self._before, self._fault = None, ""
        try:
            self._before = self._rendered({})
        except (ConfigError, RegistryError) as error:  # who set what is most wanted when nothing renders
            self._fault = f"nothing is rendered as it is now: {error.message}"

    def _rendered(self, trials: Mapping[str, Any]) -> Rendered:
        chains = dict(self.resolved.chains)
        for name, value in trials.items():
            setting = Setting("command line", value, Origin("a trial"))
            chains[name] = (*chains.get(name, ()), setting)
        resolved = replace(self.resolved, values={**self.resolved.values, **trials}, chains=chains)
        return self._loader.from_values(self._component, self.prototype, resolved)

    def reaches(self, name: str, path: KeyPath = ()) -> tuple[tuple[Reach, ...], str]:
        """Find the fields a parameter, or a place inside it, decides by rendering with other values.

        A remark says why none is.
        """
        if self._before is None:
            return (), self._fault
        param, whole = self.prototype.param(name), self.resolved.values.get(name)
        current = at(whole, path)
        like = {"type": "string" if current is None else json_type(current)}  # where none is declared
        inner = inner_param(param, path) or replace(param, schema=like)
        note = "no other value could be tried with the other parameters as they are"
        for value in other_values(inner, current):
            other = placed(whole, path, value)
            if value == current or schema.check_value(param, other):
                continue
            try:
                after = self._rendered({name: other})
            except (ConfigError, NotFoundError):
                continue  # other parameters may forbid this value, or a patch its name
            reaches = tuple(
                replace(own, value=mask_value(own.value, param))
                for reach in _differences(self._before, after)
                for own in _own_keys(reach, current)
                if INVENTED_KEY not in reach.object.casefold()
            )
            if reaches:
                return reaches, ""
            note = NO_FIELD
        return (), note


def _own_keys(reach: Reach, current: Any) -> Iterator[Reach]:
    """Give of a map that a parameter adds keys to those keys alone: others come from elsewhere."""
    if not (isinstance(current, Mapping) and isinstance(reach.value, Mapping)):
        yield reach
        return
    own = [key for key in current if key in reach.value]
    for key in own:
        yield replace(reach, path=f"{reach.path}{path_text(('', key))}", value=reach.value[key])
    if not own:
        yield reach if current else replace(reach, value={})


def _differences(before: Rendered, after: Rendered) -> Iterator[Reach]:
    """Compare two renders of one component, object by object."""
    from mlstack.render.patches import differing

    for old, new in _pairs(before.objects, after.objects):
        if old is None or new is None:
            only = old or new
            if only is not None:
                yield Reach(object=str(only.identity), path="", value=None)
            continue
        masked = mask_object(old.data)
        places = (_known_part(path, old.data, new.data) for path, *_ in differing(old.data, new.data))
        for path in dict.fromkeys(places):
            value = _decided(at(masked, path), at(new.data, path))
            yield Reach(object=str(old.identity), path=path_text(path), value=value)
    if before.namespace != after.namespace:
        for manifest in before.objects:
            if not manifest.namespace:
                yield Reach(object=str(manifest.identity), path="metadata.namespace", value=before.namespace)


def _known_part(path: KeyPath, now: Any, then: Any) -> KeyPath:
    """Leave the map or list that takes a key which was only tried: nobody has a field of that name."""
    tried = [place for place, step in enumerate(path) if INVENTED_KEY in str(step).casefold()]
    if tried:
        return path[: tried[0]]
    is_new_item = isinstance(path[-1], int) and at(now, path) is None
    return path[:-1] if is_new_item and INVENTED_KEY in str(at(then, path)).casefold() else path


def _decided(now: Any, then: Any) -> Any:
    """Leave only the lines that differ of a text with many, such as a program's configuration."""
    if not (isinstance(now, str) and isinstance(then, str) and "\n" in now.rstrip()):
        return now
    kept = set(then.splitlines())
    return "\n".join(line.strip() for line in now.splitlines() if line not in kept) or now


def _pairs(
    before: Sequence[KubeObject], after: Sequence[KubeObject]
) -> list[tuple[KubeObject | None, KubeObject | None]]:
    """Match objects by place where the kinds are the same (names may change), else by identity."""
    if [manifest.kind for manifest in before] == [manifest.kind for manifest in after]:
        return list(zip(before, after, strict=True))
    old = {manifest.identity: manifest for manifest in before}
    new = {manifest.identity: manifest for manifest in after}
    return [(old.get(identity), new.get(identity)) for identity in {**old, **new}]


def path_text(path: Sequence[str | int]) -> str:
    """Write a path as a diff does: `spec.containers[0].image`."""
    steps = (
        f"[{step}]" if isinstance(step, int) else f'["{step}"]' if "." in step or "/" in step else f".{step}"
        for step in path
    )
    return "".join(steps).removeprefix(".")


# --- other values a parameter could have, to see what it does ---

INVENTED_KEY = "mlstacktrial"
"""What is added to a map to see where it goes: nobody else's key."""


_STRINGS = ("trial", "trial-1", "/trial", "trial/trial:1", "1", "10Gi", "https://trial.example", "30099")


def other_values(param: Param, current: Any) -> list[Any]:
    """Give values that differ from the current one, likely ones first.

    Not all of them are valid: whoever tries them checks first.
    """
    default = [param.default] if param.has_default else []
    return [*_of_schema(param.schema, current), *param.examples, *default, None]


def placed(whole: Any, path: Sequence[str | int], value: Any) -> Any:
    """Give a value with another one at a path inside it; the index behind the last adds an item."""
    if not path:
        return value
    first, *rest = path
    inner = placed(at(whole, path[:1]), rest, value)
    if isinstance(first, int):
        items = list(whole) if isinstance(whole, list) else []
        items[first : first + 1] = [inner]
        return items
    entries = {**(whole if isinstance(whole, Mapping) else {}), first: inner}
    return {key: entry for key, entry in entries.items() if entry is not None or key != first}


def _of_schema(schema: Mapping[str, Any], current: Any) -> Iterator[Any]:
    yield from schema.get("enum") or ()
    for branch in (*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())):
        yield from _of_schema(branch, current)
    types = schema_types(schema)
    if "boolean" in types:
        yield not current
    if types & {"integer", "number"}:
        base = current if isinstance(current, int | float) and not isinstance(current, bool) else 0
        yield from (base + 1, base - 1, base + 2)
        bounds = (schema.get("minimum"), schema.get("maximum"))
        yield from (bound for bound in bounds if isinstance(bound, int | float))
    if "string" in types:
        if isinstance(current, str) and current:
            yield from (f"{current}x", f"{current}1", f"x{current}", f"{current}/x", current[:-1])
        yield from _STRINGS
    if "array" in types:
        items, item = list(current) if isinstance(current, list) else [], schema.get("items")
        for value in _of_schema(item if isinstance(item, Mapping) else {"type": "string"}, None):
            yield [*items, value]
        if items:
            yield items[:-1]
    if "object" in types:
        keys = dict(current) if isinstance(current, Mapping) else {}
        yield from [{}] if keys else []
        trials: tuple[Any, ...] = ("trial", 1, {})
        yield from ({**keys, INVENTED_KEY: inner} for inner in trials)
