"""`param explain`: who says what about a parameter, who wins, and which fields of the objects it reaches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlstack.app import layout
from mlstack.app.app import Component
from mlstack.app.app_dir import AppDir
from mlstack.app.params import Overrides, Resolved, spelling_table
from mlstack.app.prototype import Param, mask_value
from mlstack.errors import NotFoundError
from mlstack.names import nearest
from mlstack.objects.kinds import plural_of
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.masking import mask_object, mask_values
from mlstack.operations import row
from mlstack.render import metadata, render
from mlstack.render.reach import ComponentTrials, Path, Reach, at, path_text
from mlstack.render.template import CodeStore

_NONE = Overrides()


@dataclass(frozen=True, kw_only=True)
class ExplainedSetting:
    """One layer's word on a parameter; `wins` marks the one that counts."""

    layer: str
    value: Any
    where: str
    wins: bool


@dataclass(frozen=True, kw_only=True)
class ExplainedParameter:
    """All about one parameter of a component."""

    name: str
    value: Any  # the one that counts, None if unset; masked if secret
    unit: str
    description: str
    layer: str  # the one that decides, empty if none says anything
    where: str  # its file and line
    chain: tuple[ExplainedSetting, ...]  # who said what, lowest layer first
    reaches: tuple[Reach, ...]  # the fields of objects that depend on it
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FieldParameter:
    """A parameter that decides a field, and where it was set."""

    name: str
    value: Any  # masked if secret
    layer: str  # the one that decides, empty if none says anything
    where: str  # its file and line


@dataclass(frozen=True, kw_only=True)
class ExplainedField:
    """Where a field of a rendered object comes from."""

    object: str  # as people name it
    path: str
    value: Any  # secrets masked
    environment: str
    component: str
    prototype: str  # empty for a manifest
    origin: str  # template, manifest, patch, app, environment or mlstack
    where: str  # the file and line that wrote it, empty for what mlstack adds itself
    parameters: tuple[FieldParameter, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExplainResult:
    """The parameters of a component, explained."""

    component: str
    environment: str  # empty if none was asked for
    prototype: str
    parameters: tuple[ExplainedParameter, ...]


def explain_param(
    app: AppDir,
    component: str,
    parameter: str | None = None,
    *,
    environment: str | None = None,
    overrides: Overrides = _NONE,
    store: CodeStore | None = None,
    every: bool = False,
) -> ExplainResult:
    """Explain one parameter of a component, or all of them.

    The reach is found by rendering again with another value and comparing.

    The parameter may have an old spelling; None is all that somebody has set, with `every` all there are.
    Without an environment its layers are left out.

    Raises:
        UsageError: the component is a plain manifest.
        NotFoundError: no such component, parameter or environment.
        ConfigError: a file is wrong; of values that render nothing a remark tells.
    """
    explained = app.component_with_params(component)
    trials = ComponentTrials(app, explained, environment=environment, overrides=overrides, store=store)
    prototype, chains = trials.prototype, trials.resolved.chains
    if parameter is None and every:
        names = list({**prototype.params, **chains})
    elif parameter is None:
        names = [name for name, chain in chains.items() if any(part.layer != "default" for part in chain)]
    else:
        names = [spelling_table(prototype.params).get(parameter, "")]
        names = [parameter] if not names[0] and parameter in chains else names  # an open one takes others
        if not names[0]:
            message = f"prototype `{prototype.full_name}` has no parameter `{parameter}`"
            raise NotFoundError(message, near=nearest(parameter, prototype.params))
    parameters = []
    for name in names:
        reaches, note = trials.reaches(name)
        parameters.append(_explained(prototype.param(name), trials.resolved, reaches, note))
    return ExplainResult(
        component=explained.full_name,
        environment=environment or "",
        prototype=prototype.full_name,
        parameters=tuple(parameters),
    )


def _explained(param: Param, resolved: Resolved, reaches: tuple[Reach, ...], note: str) -> ExplainedParameter:
    chain = tuple(resolved.chains.get(param.name, ()))
    last = chain[-1] if chain else None
    settings = (
        ExplainedSetting(
            layer=setting.layer,
            value=mask_value(setting.value, param),
            where=str(setting.origin),
            wins=setting is last,
        )
        for setting in chain
    )
    return ExplainedParameter(
        name=param.name,
        value=mask_value(resolved.values.get(param.name), param),
        unit=param.unit,
        description=param.description,
        layer=last.layer if last else "",
        where=str(last.origin) if last else "",
        chain=tuple(settings),
        reaches=reaches,
        notes=(note,) if note else (),
    )


# --- the other way round: from a field to what decides it ----------------------------------------------

_STEP = re.compile(r'\["((?:[^"])*)"\]|\[([^\]]*)\]|((?:\\.|[^.\[])+)')


def explain_field(
    app: AppDir,
    name: str,
    field: str,
    *,
    environment: str,
    overrides: Overrides = _NONE,
    store: CodeStore | None = None,
) -> ExplainedField:
    """Explain a field of an object: the line that wrote it, the patch, the parameters and who set these.

    Args:
        app: the app directory.
        name: `KIND/NAME` or `KIND/NAMESPACE/NAME`.
        field: its path as a diff writes it; `containers[main]` is the item of that name.
        environment: name of the environment.
        overrides: parameters for this run.
        store: as of `render.load`.

    Raises:
        NotFoundError: no such object or field; with the nearest one.
    """
    state = render.load(app, environment, overrides=overrides, store=store, locate=True, stand_ins=True)
    obj = _object(state.objects, name)
    path = _path(obj.data, field)
    origin, where = _origin(app, environment, obj, path)
    component = app.component(obj.component)
    settings: tuple[FieldParameter, ...] = ()
    notes: tuple[str, ...] = ()
    if isinstance(component, Component) and origin in ("template", "patch"):
        result = explain_param(
            app, obj.component, None, environment=environment, overrides=overrides, store=store, every=True
        )
        settings = tuple(_deciding(result.parameters, obj, path_text(path)))
        notes = ("a patch has the last word over its parameters",) if origin == "patch" and settings else ()
    masked = mask_values(at(mask_object(obj.data), path), state.secrets)
    return ExplainedField(
        object=str(obj.identity),
        path=path_text(path),
        value=masked,
        environment=environment,
        component=obj.component,
        prototype=component.prototype if isinstance(component, Component) else "",
        origin=origin,
        where=where,
        parameters=settings,
        notes=notes,
    )


def _object(objects: Sequence[KubeObject], name: str) -> KubeObject:
    kind, _, rest = name.partition("/")
    namespace, _, own = rest.rpartition("/")
    for obj in objects:
        kinds = (obj.kind.lower(), plural_of(obj.kind))
        if kind.lower() in kinds and own == obj.name and namespace in ("", obj.namespace):
            return obj
    near = nearest(name.lower(), [f"{obj.kind.lower()}/{obj.name}" for obj in objects])
    raise NotFoundError(f"the environment has no object `{name}`", near=near, hint=None if near else _OBJECTS)


_OBJECTS = "write KIND/NAME; mlstack render ENV -o name lists them"


def _path(data: Any, field: str) -> Path:
    """Read the path of a field of an object, and make sure that it is there."""
    path: Path = ()
    for quoted, bracket, plain in _STEP.findall(field):
        value, key = at(data, path), quoted or bracket or plain.replace("\\.", ".")
        step: str | int = key
        if isinstance(value, list):
            named = [
                at for at, item in enumerate(value) if isinstance(item, Mapping) and item.get("name") == key
            ]
            step = int(key) if key.isdigit() else named[0] if named else key
        is_there = step in value if isinstance(value, Mapping) else at(value, (step,)) is not None
        if not is_there:
            known = [str(inner) for inner in value] if isinstance(value, Mapping) else []
            place = f"`{path_text(path)}`" if path else "the object"
            near = nearest(key, known)
            hint = None if near else f"it has {', '.join(known[:8])}" if known else None
            raise NotFoundError(f"{place} has no `{key}`", near=near, hint=hint)
        path = (*path, step)
    return path


def _origin(app: AppDir, environment: str, obj: KubeObject, path: Path) -> tuple[str, str]:
    """Give what wrote a field of an object, and at which place."""
    is_added = path[:2] in (("metadata", "labels"), ("metadata", "annotations"), ("metadata", "namespace"))
    is_hash = path[-1:] == (metadata.CONFIG_HASH,)
    places = obj.source.places if obj.source is not None else {}
    if (is_added or is_hash) and len(path) > 1 and path not in places:
        for name in reversed(app.lineage(environment)):
            document = app.files.document(layout.environment_file(name), "Environment")
            if document is not None and path[2:] and at(document.value, path[1:]) is not None:
                return "environment", str(document.origin(path[1:]))
        document = app.files.app_document
        if path[2:] and at(document.value, path[1:]) is not None:
            return "app", str(document.origin(path[1:]))
        return "mlstack", ""
    where = obj.source.at(path) if obj.source is not None else ""
    if "/patches/" in where and where.startswith(f"{layout.ENVIRONMENTS}/"):
        return "patch", where
    return "manifest" if where.startswith(f"{layout.COMPONENTS}/") else "template", where


def _deciding(
    parameters: Sequence[ExplainedParameter], obj: KubeObject, path: str
) -> Iterator[FieldParameter]:
    for parameter in parameters:
        for reach in parameter.reaches:
            kind, _, name = reach.object.partition(" ")
            is_same = kind == obj.kind and name.rpartition("/")[2] == obj.name
            long, short = sorted((reach.path, path), key=len, reverse=True)
            if is_same and long.startswith(short) and long[len(short) : len(short) + 1] in ("", ".", "["):
                yield row(FieldParameter, parameter)
                break
