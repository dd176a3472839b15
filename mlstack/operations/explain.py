"""`param explain`: who said what about a parameter, who wins, and which fields of the objects it reaches."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlstack.engine.desired import Loader, Rendered
from mlstack.errors import ConfigError, NotFoundError, UsageError
from mlstack.files import schema
from mlstack.files.appdir import AppDir
from mlstack.model import trials
from mlstack.model.app import Component, Environment
from mlstack.model.fields import MISSING
from mlstack.model.masking import mask_object, mask_value
from mlstack.model.names import nearest
from mlstack.model.objects import KubeObject
from mlstack.model.overrides import Overrides
from mlstack.model.params import Resolved, spelling_table
from mlstack.model.prototype import Param, Prototype
from mlstack.templating import CodeStore

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
    """A field of a rendered object that a parameter decides.

    Attributes:
        object: the object as people name it.
        path: the field: `spec.template.spec.containers[0].image`.
        value: what stands there now, None if the field is absent; of a text with many lines only
            those that the parameter decides.
    """

    object: str
    path: str
    value: Any


@dataclass(frozen=True, kw_only=True)
class ExplainedParameter:
    """All about one parameter of a component.

    Attributes:
        name: canonical spelling.
        value: the value that counts, None if unset; masked if secret.
        unit: what a number counts.
        description: what it is for.
        layer: the layer that decides, empty if none says anything.
        where: its file and line.
        chain: who said what, lowest layer first.
        reaches: the fields it decides.
        notes: remarks, as why nothing could be found out about its reach.
    """

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
    """The parameters of a component, explained.

    Attributes:
        component: its full name.
        environment: name of the environment, empty if none was asked for.
        prototype: full name of the prototype.
        parameters: in the order they are declared.
    """

    component: str
    environment: str
    prototype: str
    parameters: tuple[ExplainedParameter, ...]


def explain(
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


def _parameter(param: Param, resolved: Resolved, reach: "_Reach") -> ExplainedParameter:
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
            known = (_shown(one, param) for one in _differences(self._before, after))
            found = tuple(one for one in known if trials.INVENTED_KEY not in one.object.casefold())
            if found:
                return found, ()
        if not tried:
            return (), ("no other value could be tried with the other parameters as they are",)
        return (), ("it changes no field with the other parameters as they are",)

    def _trials(self, param: Param) -> Iterator[Any]:
        current = self._resolved.values.get(param.name)
        for value in trials.values(param, current):
            if value != current and not schema.check_value(param, value):
                yield value

    def _rendered(self, resolved: Resolved) -> Rendered:
        return self._loader.from_values(self._component, self._prototype, resolved)


def _shown(found: Reach, param: Param) -> Reach:
    return replace(found, value=mask_value(found.value, param))


def _differences(before: Rendered, after: Rendered) -> Iterator[Reach]:
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
    tried = [place for place, step in enumerate(path) if trials.INVENTED_KEY in str(step).casefold()]
    if tried:
        return path[: tried[0]]
    is_new_item = isinstance(path[-1], int) and _at(now, path) is None
    return path[:-1] if is_new_item and trials.INVENTED_KEY in str(_at(then, path)).casefold() else path


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
