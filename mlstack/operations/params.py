"""Parameters of an app at every level: change, unset, list, compare environments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlstack.app import params, schema
from mlstack.app.app import Component, Environment
from mlstack.app.app_dir import AppDir
from mlstack.app.params import (
    Overrides,
    ParamScope,
    Resolved,
    canonical_name,
    inner_param,
    join_path,
    parse_text,
    spelling_table,
    split_path,
)
from mlstack.app.prototype import Param, Prototype, mask_value
from mlstack.app.schema import check_value
from mlstack.errors import ConfigError, NotFoundError, ParamError, TypedValueError, UsageError
from mlstack.names import nearest
from mlstack.objects import masking
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.managed_fields import MISSING
from mlstack.objects.masking import mask_object
from mlstack.render.render import Loader, Rendered
from mlstack.render.template import CodeStore

# --- Parameters of an app at every level: change, unset, list, compare environments ---

ENVIRONMENT_LAYERS = ("environment globals", "environment")


@dataclass(frozen=True, kw_only=True)
class ParamPlace:
    """The level of an app that a value is set at; with nothing given, the app itself."""

    component: str | None = None
    environment: str | None = None
    module: str | None = None

    def __str__(self) -> str:
        """Write the level as a person would say it."""
        if self.component is not None:
            return f"{self.component} in {self.environment}" if self.environment else self.component
        if self.environment is not None:
            return f"all components in {self.environment}"
        return f"module {self.module}" if self.module is not None else "the whole app"

    def scope(self) -> ParamScope:
        """Give the place in the files of the app.

        Raises:
            UsageError: a module is given together with something narrower.
        """
        if self.module is not None and (self.component or self.environment):
            raise UsageError(
                "`--module` sets a value for all its components, in every environment",
                hint="leave out --module, or the component and --env",
            )
        kind = _KINDS[(self.component is not None, self.environment is not None, self.module is not None)]
        return ParamScope(kind, component=self.component, module=self.module, environment=self.environment)


_KINDS = {
    (False, False, False): "app",
    (False, False, True): "module",
    (True, False, False): "component",
    (False, True, False): "environment globals",
    (True, True, False): "environment",
}


@dataclass(frozen=True, kw_only=True)
class ParamChanged:
    """A value that was set."""

    name: str
    value: Any
    place: str
    file: str
    changed: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParamUnset:
    """A value that was taken back."""

    name: str
    place: str
    file: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParamRow:
    """One value of one component."""

    component: str
    name: str
    value: Any
    level: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class ParamList:
    """The values that a render would use."""

    environment: str | None
    rows: tuple[ParamRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParamDifference:
    """One parameter with different values in two environments; secrets are masked."""

    component: str
    name: str
    first: Any
    second: Any


@dataclass(frozen=True, kw_only=True)
class ParamDiff:
    """Where two environments differ."""

    first: str
    second: str
    rows: tuple[ParamDifference, ...]


def set_param(
    app: AppDir, place: ParamPlace, key: str, text: str, *, as_string: bool = False
) -> ParamChanged:
    """Set a value, typed by what the prototype declares; nothing else in the file changes.

    Args:
        app: the app directory.
        place: the level it is set at.
        key: the parameter, dots for places inside it.
        text: the value as typed.
        as_string: keep the text as it is.

    Raises:
        UsageError: a plain manifest has no parameters, or the place does not exist on its own.
        NotFoundError: no such component, module, environment or parameter.
        ParamError: the value does not fit the parameter.
    """
    with app.locked():
        return _change(app, place, key, text, as_string=as_string)


def _change(app: AppDir, place: ParamPlace, key: str, text: str, *, as_string: bool) -> ParamChanged:
    path, param = _declared(app, place, key)
    if param.secret:
        masking.note(text)
    inner = inner_param(param, path[1:])
    value = parse_text(inner, text, as_string=as_string)
    _check(param, path, value, hint=f"mlstack prototype describe {_prototype_name(app, place, param)}")
    notes = (
        *_deprecation(param),
        *_overridden(app, place, path[0]),
    )  # reads files: before anything is written
    file, changed = app.set_param(place.scope(), path, value)
    return ParamChanged(
        name=join_path(path),
        value=mask_value(value, param),
        place=str(place),
        file=file,
        changed=changed,
        notes=notes,
    )


def _declared(app: AppDir, place: ParamPlace, key: str) -> tuple[tuple[str, ...], Param]:
    """Give the path with its parameter spelled canonically, and what declares it."""
    _check_place(app, place)
    path = split_path(key)
    if not all(path):
        raise UsageError(f"`{key}` is not a parameter's name", hint="write num_gpus, or resources.limits.cpu")
    if place.component is None:
        param = _declared_for_all(app, path[0])
    else:
        prototype = app.prototype(_component(app, place.component).prototype)
        param = prototype.params[canonical_name(prototype, path[0])]
    return (param.name, *path[1:]), param


def _check_place(app: AppDir, place: ParamPlace) -> None:
    if place.environment is not None:
        app.environment(place.environment)
    if place.module is not None and place.module not in app.modules():
        near = nearest(place.module, app.modules())
        raise NotFoundError(
            f"no module `{place.module}`", near=near, hint=None if near else "mlstack component list"
        )


def _component(app: AppDir, name: str) -> Component:
    found = app.component(name)
    if isinstance(found, Component):
        return found
    raise UsageError(
        f"`{name}` is a plain manifest, which has no parameters",
        hint=f"edit {found.file}, or patch it in environments/ENV/patches/{name}.yaml",
    )


def _declared_for_all(app: AppDir, name: str) -> Param:
    params = app.declared_params()
    for spelling in (name, name.replace("-", "_")):
        if spelling in params:
            return params[spelling]
    if name in app.component_names():
        raise UsageError(
            f"`{name}` is a component: which of its parameters?", hint=f"mlstack param list {name}"
        )
    near = nearest(name, params)
    hint = None if near else "mlstack prototype list, then mlstack prototype describe PROTOTYPE"
    raise NotFoundError(f"no installed prototype has a parameter `{name}`", near=near, hint=hint)


def _prototype_name(app: AppDir, place: ParamPlace, param: Param) -> str:
    if place.component is None:
        return next(each.name for each in app.prototypes() if param.name in each.params)
    return _component(app, place.component).prototype.rpartition("/")[2]


def _check(param: Param, path: tuple[str, ...], value: Any, *, hint: str) -> None:
    """Refuse a value that does not fit where it goes; the rest of a map is checked when it renders."""
    whole = value
    for part in reversed(path[1:]):
        whole = {part: whole}
    faults = check_value(param, whole)
    if faults:
        raise TypedValueError("\n".join(faults), hint=hint)


def _deprecation(param: Param) -> Iterator[str]:
    if param.deprecated:
        yield f"`{param.name}` is deprecated: {param.deprecated}"


def _overridden(app: AppDir, place: ParamPlace, name: str) -> Iterator[str]:
    """Name the environments where a value that was set for a component does not count."""
    if place.component is None or place.environment is not None:
        return
    for environment in app.environment_names():
        found = app.resolve(_component(app, place.component), environment).setting(name)
        if found is not None and found.layer in ENVIRONMENT_LAYERS:
            yield f"in `{environment}` another value counts ({found.origin})"


def unset_param(app: AppDir, place: ParamPlace, key: str) -> ParamUnset:
    """Take a value back, so that the next lower level counts.

    Raises:
        UsageError: as `change`.
        NotFoundError: no such component, environment or parameter, or it is not set there.
    """
    with app.locked():
        return _unset(app, place, key)


def _unset(app: AppDir, place: ParamPlace, key: str) -> ParamUnset:
    path, _ = _declared(app, place, key)
    tuple(_counts_now(app, place, path[0]))  # a file that cannot be read is told before anything is written
    file = app.unset_param(place.scope(), path)
    if file is None:
        raise NotFoundError(
            f"`{join_path(path)}` is not set for {place}", hint=_where_it_is(app, place, path[0])
        )
    return ParamUnset(
        name=join_path(path), place=str(place), file=file, notes=tuple(_counts_now(app, place, path[0]))
    )


def _where_it_is(app: AppDir, place: ParamPlace, name: str) -> str:
    if place.component is None:
        return "mlstack param list shows where values are set"
    found = app.resolve(_component(app, place.component), place.environment).setting(name)
    if found is None:
        return "it has no value at any level"
    return f"it comes from {found.origin}"


def _counts_now(app: AppDir, place: ParamPlace, name: str) -> Iterator[str]:
    if place.component is None:
        return
    component = _component(app, place.component)
    try:
        resolved = app.resolve(component, place.environment)
    except ParamError:  # another parameter may be wrong, or this one is what is being mended
        return
    found = resolved.setting(name)
    if found is None or resolved.values.get(name) is None:
        yield f"`{name}` has no value now"
    else:
        yield f"what counts now comes from {found.origin}"


def list_params(
    app: AppDir,
    *,
    component: str | None = None,
    environment: str | None = None,
    module: str | None = None,
    set_only: bool = False,
) -> ParamList:
    """List the values that a render would use; parameters without one are left out.

    Args:
        app: the app directory.
        component: only this component.
        environment: None leaves out what environments set.
        module: only components of this module.
        set_only: leave out the prototypes' defaults.

    Raises:
        NotFoundError: no such component, module or environment.
        ParamError: a file sets what cannot be.
    """
    place = app.environment(environment) if environment is not None else None
    names = [name for name in (component, module) if name is not None]
    if component is not None:
        _component(app, component)
    components = app.selected(place, names)
    rows = [
        row
        for each in components
        if isinstance(each, Component)
        for row in _rows(app, each, environment)
        if not (set_only and row.level == "default")
    ]
    notes = app.undeclared_globals(environment, components)
    return ParamList(environment=environment, rows=tuple(rows), notes=notes)


def _rows(app: AppDir, component: Component, environment: str | None) -> Iterator[ParamRow]:
    params = app.prototype(component.prototype).params
    resolved = app.resolve(component, environment)
    for name, value in resolved.values.items():
        found = resolved.setting(name)
        if value is not None and found is not None:
            yield ParamRow(
                component=component.full_name,
                name=name,
                value=mask_value(value, params[name]),
                level=found.layer,
                origin=str(found.origin),
            )


def diff_params(app: AppDir, first: str, second: str, *, components: Sequence[str] = ()) -> ParamDiff:
    """Compare the values of two environments.

    Raises:
        NotFoundError: no such environment or component.
        ParamError: a file sets what cannot be.
    """
    places = (app.environment(first), app.environment(second))
    chosen = {each.full_name: each for place in places for each in app.selected(place, components)}
    rows = [
        row
        for _, each in sorted(chosen.items())
        if isinstance(each, Component)
        for row in _differences(app, each, first, second)
    ]
    return ParamDiff(first=first, second=second, rows=tuple(rows))


def _differences(app: AppDir, component: Component, first: str, second: str) -> Iterator[ParamDifference]:
    params = app.prototype(component.prototype).params
    one, other = (app.resolve(component, environment).values for environment in (first, second))
    for name, param in params.items():
        if one.get(name) != other.get(name):
            yield ParamDifference(
                component=component.full_name,
                name=name,
                first=mask_value(one.get(name), param),
                second=mask_value(other.get(name), param),
            )


# --- `param explain`: who said what about a parameter, who wins, and which fields of the objects it
# reaches

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

    object: str
    path: str
    value: Any


@dataclass(frozen=True, kw_only=True)
class ExplainedParameter:
    """All about one parameter of a component."""

    name: str
    value: Any
    unit: str
    description: str
    layer: str
    where: str
    chain: tuple[ExplainedSetting, ...]
    reaches: tuple[Reach, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExplainResult:
    """The parameters of a component, explained."""

    component: str
    environment: str
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

    Args:
        app: the app directory.
        component: full name of the component.
        parameter: its name or an old spelling of it; None for all that somebody has set.
        environment: name of the environment; None leaves its layers out.
        overrides: parameters for this run.
        store: keeps compiled templates and passed parameter sets.

    Raises:
        UsageError: the component is a plain manifest.
        NotFoundError: no such component, parameter or environment.
        ConfigError: a file is wrong; of values that render nothing a remark tells.
    """
    found = app.component(component)
    if not isinstance(found, Component):
        raise UsageError(
            f"`{component}` is a plain manifest, which has no parameters",
            hint=f"edit {found.file}, or patch it in environments/ENV/patches/{component}.yaml",
        )
    prototype = app.prototype(found.prototype)
    resolved = app.resolve(found, environment, overrides)
    place = app.environment(environment) if environment is not None else Environment(name="default")
    reach = _Reach(Loader(app, place, overrides=overrides, store=store), found, prototype, resolved)
    names = [_canonical(prototype, parameter)] if parameter is not None else _set_somewhere(resolved)
    return ExplainResult(
        component=found.full_name,
        environment=environment or "",
        prototype=prototype.full_name,
        parameters=tuple(_parameter(prototype.params[name], resolved, reach) for name in names),
    )


def _canonical(prototype: Prototype, name: str) -> str:
    found = spelling_table(prototype.params).get(name)
    if found is None:
        raise NotFoundError(
            f"prototype `{prototype.full_name}` has no parameter `{name}`",
            near=nearest(name, prototype.params),
        )
    return found


def _set_somewhere(resolved: Resolved) -> list[str]:
    return [name for name, chain in resolved.chains.items() if any(one.layer != "default" for one in chain)]


def _parameter(param: Param, resolved: Resolved, reach: _Reach) -> ExplainedParameter:
    chain = tuple(resolved.chains.get(param.name, ()))
    last = chain[-1] if chain else None
    reaches, notes = reach.of(param)
    return ExplainedParameter(
        name=param.name,
        value=mask_value(resolved.values.get(param.name), param),
        unit=param.unit,
        description=param.description,
        layer=last.layer if last else "",
        where=str(last.origin) if last else "",
        chain=tuple(
            ExplainedSetting(
                layer=one.layer, value=mask_value(one.value, param), where=str(one.origin), wins=one is last
            )
            for one in chain
        ),
        reaches=reaches,
        notes=notes,
    )


class _Reach:
    """Finds the fields that a parameter decides, by changing it."""

    def __init__(
        self, loader: Loader, component: Component, prototype: Prototype, resolved: Resolved
    ) -> None:
        self._loader, self._component = loader, component
        self._prototype, self._resolved = prototype, resolved
        self._before: Rendered | None = None
        self._fault = ""
        try:
            self._before = self._rendered(resolved)
        except ConfigError as error:  # who set what is most wanted when the values do not go together
            self._fault = f"nothing is rendered as it is now: {error.message}"

    def of(self, param: Param) -> tuple[tuple[Reach, ...], tuple[str, ...]]:
        """Give the fields a parameter decides, and a remark if it could not be tried."""
        if self._before is None:
            return (), (self._fault,)
        tried = False
        for value in self._trials(param):
            values = {**self._resolved.values, param.name: value}
            try:
                after = self._rendered(replace(self._resolved, values=values))
            except ConfigError:  # other parameters may forbid this value
                continue
            tried = True
            known = (_shown(one, param) for one in _explained_differences(self._before, after))
            found = tuple(one for one in known if params.INVENTED_KEY not in one.object.casefold())
            if found:
                return found, ()
        if not tried:
            return (), ("no other value could be tried with the other parameters as they are",)
        return (), ("it changes no field with the other parameters as they are",)

    def _trials(self, param: Param) -> Iterator[Any]:
        current = self._resolved.values.get(param.name)
        for value in params.values(param, current):
            if value != current and not schema.check_value(param, value):
                yield value

    def _rendered(self, resolved: Resolved) -> Rendered:
        return self._loader.from_values(self._component, self._prototype, resolved)


def _shown(found: Reach, param: Param) -> Reach:
    return replace(found, value=mask_value(found.value, param))


def _explained_differences(before: Rendered, after: Rendered) -> Iterator[Reach]:
    """Compare two renders of one component, object by object."""
    pairs = _pairs(before.objects, after.objects)
    for one, other in pairs:
        if one is None or other is None:
            found = one or other
            if found is not None:
                yield Reach(object=str(found.identity), path="", value=None)
            continue
        now, then = mask_object(one.data), other.data
        for path in dict.fromkeys(_known_part(path, one.data, then) for path in _different(one.data, then)):
            value = _decided(_at(now, path), _at(then, path))
            yield Reach(object=str(one.identity), path=_path_text(path), value=value)
    if before.namespace != after.namespace:
        for found in before.objects:
            if not found.namespace:
                yield Reach(object=str(found.identity), path="metadata.namespace", value=before.namespace)


def _known_part(path: tuple[str | int, ...], now: Any, then: Any) -> tuple[str | int, ...]:
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
    if [found.kind for found in before] == [found.kind for found in after]:
        return list(zip(before, after, strict=True))
    old = {found.identity: found for found in before}
    new = {found.identity: found for found in after}
    return [(old.get(identity), new.get(identity)) for identity in {**old, **new}]


def _different(one: Any, other: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in {**one, **other}:
            yield from _different(one.get(key, MISSING), other.get(key, MISSING), (*path, key))
    elif isinstance(one, list) and isinstance(other, list) and (pairs := _items(one, other)):
        for place, item, changed in pairs:
            yield from _different(item, changed, (*path, place))
    elif one != other:
        yield path


def _items(one: list[Any], other: list[Any]) -> list[tuple[int, Any, Any]]:
    """Match the items of two lists: by place where they are as long, by name where all have one."""
    if len(one) == len(other):
        return [(place, *pair) for place, pair in enumerate(zip(one, other, strict=True))]
    if not all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in (*one, *other)):
        return []
    old = {item["name"]: (place, item) for place, item in enumerate(one)}
    new = {item["name"]: item for item in other}
    known = [(place, item, new.get(name, MISSING)) for name, (place, item) in old.items()]
    return known + [(len(one), MISSING, item) for name, item in new.items() if name not in old][:1]


def _at(data: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _path_text(path: Sequence[str | int]) -> str:
    return "".join(_step_text(step) for step in path).removeprefix(".")


def _step_text(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f'["{step}"]' if "." in step or "/" in step else f".{step}"
