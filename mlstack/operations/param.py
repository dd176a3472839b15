"""Parameters of an app at every level: change, unset, list, compare environments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mlstack.errors import NotFoundError, ParamError, TypedValueError, UsageError
from mlstack.files.appdir import AppDir
from mlstack.files.document import read_text_value
from mlstack.files.schema import check_value
from mlstack.model import masking
from mlstack.model.app import Component
from mlstack.model.given import canonical_name
from mlstack.model.masking import mask_value
from mlstack.model.names import nearest
from mlstack.model.params import ParamScope
from mlstack.model.prototype import Param
from mlstack.model.values import inner_param, join_path, parse_text, split_path

ENVIRONMENT_LAYERS = ("environment globals", "environment")


@dataclass(frozen=True, kw_only=True)
class Place:
    """The level of an app that a value is set at; with nothing given, the app itself.

    Attributes:
        component: full name of a component.
        environment: an environment, for all its components or for the one.
        module: a module, for all its components.
    """

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
    """A value that was set.

    Attributes:
        name: the parameter's canonical name, dots for places inside it.
        value: the value as it was understood, masked if it is secret.
        place: the level it was set at.
        file: the file that holds it, below the app directory.
        changed: false if it had that value before.
        notes: what else a person should know, as a higher level that still wins.
    """

    name: str
    value: Any
    place: str
    file: str
    changed: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParamUnset:
    """A value that was taken back.

    Attributes:
        name: the parameter's canonical name, dots for places inside it.
        place: the level it stood at.
        file: the file that held it.
        notes: what counts now.
    """

    name: str
    place: str
    file: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParamRow:
    """One value of one component.

    Attributes:
        component: its full name.
        name: the parameter.
        value: masked if it is secret.
        level: the level that decided it.
        origin: file and line, or the prototype.
    """

    component: str
    name: str
    value: Any
    level: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class ParamList:
    """The values that a render would use.

    Attributes:
        environment: None for what all environments share.
        rows: by component, in the order that parameters are declared.
        notes: values for all components that no prototype declares.
    """

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


def change(app: AppDir, place: Place, key: str, text: str, *, as_string: bool = False) -> ParamChanged:
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


def _change(app: AppDir, place: Place, key: str, text: str, *, as_string: bool) -> ParamChanged:
    path, param = _declared(app, place, key)
    if param.secret:
        masking.note(text)
    inner = inner_param(param, path[1:])
    value = parse_text(inner, text, as_string=as_string, read=read_text_value)
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


def _declared(app: AppDir, place: Place, key: str) -> tuple[tuple[str, ...], Param]:
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


def _check_place(app: AppDir, place: Place) -> None:
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


def _prototype_name(app: AppDir, place: Place, param: Param) -> str:
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


def _overridden(app: AppDir, place: Place, name: str) -> Iterator[str]:
    """Name the environments where a value that was set for a component does not count."""
    if place.component is None or place.environment is not None:
        return
    for environment in app.environment_names():
        found = app.resolve(_component(app, place.component), environment).setting(name)
        if found is not None and found.layer in ENVIRONMENT_LAYERS:
            yield f"in `{environment}` another value counts ({found.origin})"


def unset(app: AppDir, place: Place, key: str) -> ParamUnset:
    """Take a value back, so that the next lower level counts.

    Raises:
        UsageError: as `change`.
        NotFoundError: no such component, environment or parameter, or it is not set there.
    """
    with app.locked():
        return _unset(app, place, key)


def _unset(app: AppDir, place: Place, key: str) -> ParamUnset:
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


def _where_it_is(app: AppDir, place: Place, name: str) -> str:
    if place.component is None:
        return "mlstack param list shows where values are set"
    found = app.resolve(_component(app, place.component), place.environment).setting(name)
    if found is None:
        return "it has no value at any level"
    return f"it comes from {found.origin}"


def _counts_now(app: AppDir, place: Place, name: str) -> Iterator[str]:
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


def list_all(
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


def diff(app: AppDir, first: str, second: str, *, components: Sequence[str] = ()) -> ParamDiff:
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
