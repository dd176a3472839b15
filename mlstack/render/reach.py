"""Which fields of the objects a parameter decides, found by rendering with other values and comparing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlstack.app import schema
from mlstack.app.app import Component
from mlstack.app.document import Origin, json_type, schema_types
from mlstack.app.environment import Environment
from mlstack.app.overrides import Overrides
from mlstack.app.params import Setting, at, inner_param
from mlstack.app.prototype import Param, mask_value
from mlstack.app.reader import AppReader
from mlstack.dataclass import Record
from mlstack.errors import ConfigError, NotFoundError, RegistryError
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.masking import mask_object
from mlstack.render.component import Loader, Rendered
from mlstack.render.patches import differing
from mlstack.yaml.read import KeyPath

NO_FIELD = "it changes no field with the other parameters as they are"


class Reach(Record):
    """A field of a rendered object that a parameter decides."""

    object: str  # as people name it
    path: str  # `spec.template.spec.containers[0].image`
    value: Any  # None if the field is absent; of a text with many lines those that the parameter decides


def loader_for(app: AppReader, environment: str | None, overrides: Overrides) -> Loader:
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
        for value in values(inner, current):
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


def values(param: Param, current: Any) -> list[Any]:
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
