"""`param explain`: who says what about a parameter, who wins, and which fields of the objects it reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlstack.app import params, schema
from mlstack.app.app import Environment
from mlstack.app.app_dir import AppDir
from mlstack.app.params import Origin, Overrides, Resolved, Setting, spelling_table
from mlstack.app.prototype import Param, mask_value
from mlstack.errors import ConfigError, NotFoundError, RegistryError
from mlstack.names import nearest
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.managed_fields import MISSING
from mlstack.objects.masking import mask_object
from mlstack.render.render import Loader, Rendered
from mlstack.render.template import CodeStore

Path = tuple[str | int, ...]

_NONE = Overrides()


@dataclass(frozen=True, kw_only=True)
class ExplainedSetting:
    """One layer's word on a parameter; `wins` marks the one that counts."""

    layer: str
    value: Any
    where: str
    wins: bool


@dataclass(frozen=True, kw_only=True)
class Reach:
    """A field of a rendered object that a parameter decides."""

    object: str  # as people name it
    path: str  # `spec.template.spec.containers[0].image`
    value: Any  # None if the field is absent; of a text with many lines those that the parameter decides


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
) -> ExplainResult:
    """Explain one parameter of a component, or all of them.

    The reach is found by rendering again with another value and comparing.

    The parameter may have an old spelling; None is all that somebody has set. Without an environment its
    layers are left out.

    Raises:
        UsageError: the component is a plain manifest.
        NotFoundError: no such component, parameter or environment.
        ConfigError: a file is wrong; of values that render nothing a remark tells.
    """
    explained = app.component_with_params(component)
    prototype = app.prototype(explained.prototype, environment=environment)
    unread = app.resolve(explained, environment, overrides)
    resolved = app.filled(prototype, unread, stand_ins=True)
    chains = resolved.chains
    if parameter is None:
        names = [name for name, chain in chains.items() if any(part.layer != "default" for part in chain)]
    else:
        names = [spelling_table(prototype.params).get(parameter, "")]
        names = [parameter] if not names[0] and parameter in chains else names  # an open one takes others
        if not names[0]:
            message = f"prototype `{prototype.full_name}` has no parameter `{parameter}`"
            raise NotFoundError(message, near=nearest(parameter, prototype.params))
    place = app.environment(environment) if environment is not None else Environment(name="default")
    loader = Loader(app, place, overrides=overrides, store=store)

    def rendered(values: Mapping[str, Any]) -> Rendered:
        trials = {name: value for name, value in values.items() if value != resolved.values.get(name)}
        tried = {
            name: (*chains.get(name, ()), Setting("command line", value, Origin("a trial")))
            for name, value in trials.items()
        }
        return loader.from_values(
            explained, prototype, replace(resolved, values=values, chains={**chains, **tried})
        )

    before, fault = None, ""
    try:
        before = rendered(resolved.values)
    except (ConfigError, RegistryError) as error:  # who set what is most wanted when nothing renders
        fault = f"nothing is rendered as it is now: {error.message}"
    parameters = []
    for name in names:
        param = prototype.param(name)
        reaches, note = ((), fault) if before is None else _reaches(param, resolved, before, rendered)
        parameters.append(_explained(param, resolved, reaches, note))
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


def _reaches(
    param: Param, resolved: Resolved, before: Rendered, rendered: Callable[[Mapping[str, Any]], Rendered]
) -> tuple[tuple[Reach, ...], str]:
    """Find the fields a parameter decides by rendering with other values; a remark says why none is."""
    current = resolved.values.get(param.name)
    note = "no other value could be tried with the other parameters as they are"
    for value in params.values(param, current):
        if value == current or schema.check_value(param, value):
            continue
        try:
            after = rendered({**resolved.values, param.name: value})
        except ConfigError:  # other parameters may forbid this value
            continue
        reaches = tuple(
            replace(reach, value=mask_value(reach.value, param))
            for reach in _differences(before, after)
            if params.INVENTED_KEY not in reach.object.casefold()
        )
        if reaches:
            return reaches, ""
        note = "it changes no field with the other parameters as they are"
    return (), note


def _differences(before: Rendered, after: Rendered) -> Iterator[Reach]:
    """Compare two renders of one component, object by object."""
    for old, new in _pairs(before.objects, after.objects):
        if old is None or new is None:
            only = old or new
            if only is not None:
                yield Reach(object=str(only.identity), path="", value=None)
            continue
        masked = mask_object(old.data)
        for path in dict.fromkeys(
            _known_part(path, old.data, new.data) for path in _different(old.data, new.data)
        ):
            value = _decided(_at(masked, path), _at(new.data, path))
            yield Reach(object=str(old.identity), path=_path_text(path), value=value)
    if before.namespace != after.namespace:
        for manifest in before.objects:
            if not manifest.namespace:
                yield Reach(object=str(manifest.identity), path="metadata.namespace", value=before.namespace)


def _known_part(path: Path, now: Any, then: Any) -> Path:
    """Leave the map or list that takes a key which was only tried: nobody has a field of that name."""
    tried = [place for place, step in enumerate(path) if params.INVENTED_KEY in str(step).casefold()]
    if tried:
        return path[: tried[0]]
    is_new_item = isinstance(path[-1], int) and _at(now, path) is None
    return path[:-1] if is_new_item and params.INVENTED_KEY in str(_at(then, path)).casefold() else path


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


def _different(old: Any, new: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            yield from _different(old.get(key, MISSING), new.get(key, MISSING), (*path, key))
    elif isinstance(old, list) and isinstance(new, list) and (pairs := _items(old, new)):
        for place, item, changed in pairs:
            yield from _different(item, changed, (*path, place))
    elif old != new:
        yield path


def _items(old: list[Any], new: list[Any]) -> list[tuple[int, Any, Any]]:
    """Match the items of two lists: by place where they are as long, by name where all have one."""
    if len(old) == len(new):
        return [(place, *pair) for place, pair in enumerate(zip(old, new, strict=True))]
    if not all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in (*old, *new)):
        return []
    by_name = {item["name"]: item for item in new}
    names = {item["name"] for item in old}
    kept = [(place, item, by_name.get(item["name"], MISSING)) for place, item in enumerate(old)]
    return kept + [(len(old), MISSING, item) for name, item in by_name.items() if name not in names][:1]


def _at(data: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _path_text(path: Sequence[str | int]) -> str:
    steps = (
        f"[{step}]" if isinstance(step, int) else f'["{step}"]' if "." in step or "/" in step else f".{step}"
        for step in path
    )
    return "".join(steps).removeprefix(".")
