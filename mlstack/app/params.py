"""Values of parameters: what a typed text or a file's value means, and how two layers' values merge."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mlstack.app.prototype import Param, Prototype, schema_types
from mlstack.errors import NotFoundError, ParamError, TypedValueError, UsageError
from mlstack.names import nearest
from mlstack.objects import masking

# --- Values of parameters: what a typed text or a file's value means, and how two layers' values
# merge

KeyPath = tuple[str | int, ...]

_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
# What Kubernetes can hold; longer ones stay text and fail the schema.
_INTEGERS = range(-(2**63), 2**63)
_NUMBER = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_STRUCTURED = ("array", "object")
_NULLS = {"null": None, '"null"': "null", "'null'": "null"}


def split_path(text: str) -> tuple[str, ...]:
    r"""Split a dotted key; `\.` is a dot inside a key (`nodeSelector.cloud\.google\.com/pool`)."""
    parts = re.split(r"(?<!\\)\.", text)
    return tuple(part.replace("\\.", ".") for part in parts)


def join_path(path: Sequence[str | int]) -> str:
    """Write a dotted key that `split_path` reads back."""
    return ".".join(str(part).replace(".", "\\.") for part in path)


def coerce(param: Param, value: Any) -> Any:
    """Give the value that `value` means for this parameter; a value that fits no type stays as it is.

    The string `null` means unset where the schema takes no string, as in values files of old; there strings
    become booleans and numbers too. They become lists where it is `csv`, maps where it is `kv`.
    """
    if not isinstance(value, str):
        return value
    if value == "null" and param.types and "string" not in param.types:
        return None
    if value in param.value_aliases:
        return param.value_aliases[value]
    if param.format == "csv":
        return [part.strip() for part in value.split(",") if part.strip()]
    if param.format == "kv":
        return _pairs(value)
    return _typed(param.types, value)


def _pairs(text: str) -> Any:
    """Read `k=v,k2=v2`; text of another shape is given back for the schema to refuse."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all("=" in part for part in parts):
        return text
    return {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in parts)}


def _typed(types: frozenset[str], text: str) -> Any:
    if "string" in types:
        return text
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if types & {"integer", "number"} and _INTEGER.fullmatch(text) and int(text) in _INTEGERS:
        return int(text)
    if "number" in types and _NUMBER.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def parse_text(
    param: Param | None, text: str, *, as_string: bool = False, read: Callable[[str], Any] | None = None
) -> Any:
    """Give the value that a person typed, by the parameter's declared type.

    Text that fits no declared type is given back: the schema's message is better than one from here.
    `null` takes the value away; the text of that name is `"null"`, with its quotes.

    Args:
        param: the declared parameter; None where nothing is declared, which goes by YAML's rules.
        text: as typed; may start with `-`, may be empty.
        as_string: keep the text as a string whatever the type.
        read: reads structured text (YAML); JSON alone without it.
    """
    if as_string:
        return text
    if param is None or not param.types:
        return _by_yaml(text, read or _read_json)
    if "string" in param.types and text in _NULLS:
        return _NULLS[text]
    opens = text.lstrip()[:1]
    wants_structure = param.format is not None or bool(param.types & set(_STRUCTURED))
    if wants_structure and (opens in ("[", "{") or (param.format is None and "string" not in param.types)):
        value = _read(text, read or _read_json)
        if isinstance(value, list | dict) or (value is None and text.strip() == "null"):
            return value
    return coerce(param, text)


def _by_yaml(text: str, read: Callable[[str], Any]) -> Any:
    value = _read(text, read)
    if isinstance(value, list | dict) and text.lstrip()[:1] not in ("[", "{"):
        return text
    return text if text == "" else value


def _read(text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except ValueError:
        return text


def _read_json(text: str) -> Any:
    return json.loads(text)


def inner_param(param: Param, path: Sequence[str | int]) -> Param | None:
    """Give what is declared for a place inside a parameter's value, or None where nothing is."""
    schema: Any = param.schema
    for part in path:
        schema = _inner_schema(schema, part)
        if not isinstance(schema, Mapping):
            return None
    return param if not path else replace(param, schema=schema, format=None, value_aliases={})


def _inner_schema(schema: Mapping[str, Any], part: str | int) -> Any:
    properties = schema.get("properties", {})
    if part in properties:
        return properties[part]
    inner = schema.get("items") if str(part).isdigit() and "items" in schema else None
    return inner or schema.get("additionalProperties")


def merge(lower: Any, upper: Any, schema: Mapping[str, Any] | None = None) -> Any:
    """Lay `upper` over `lower`: maps merge, null removes, lists replace (or append by `x-merge: append`)."""
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(upper, list) and isinstance(lower, list) and schema.get("x-merge") == "append":
        return [*lower, *upper]
    if not isinstance(upper, Mapping):
        return upper
    merged = dict(lower) if isinstance(lower, Mapping) else {}
    for key, value in upper.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value, _inner_schema(schema, key))
    return merged


def refused_characters(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Find the strings that no Kubernetes object can carry: control characters and lone surrogates.

    Tab, line feed, carriage return and next line are fine.
    """
    if isinstance(value, str):
        match = _REFUSED.search(value)
        if match:
            yield path, f"U+{ord(match.group()):04X}"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from refused_characters(key, (*path, _shown(key)))
            yield from refused_characters(inner, (*path, _shown(key)))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from refused_characters(inner, (*path, index))


_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")


def _shown(key: Any) -> str:
    return _REFUSED.sub("?", str(key))


# --- Faults of parameters: gathered, then told together in one error ---


@dataclass(frozen=True)
class ParamFault:
    """One thing that is wrong with a parameter."""

    message: str  # lower case, names in backticks, what was seen and what was expected
    where: str | None = None  # file and line
    hint: str | None = None  # the next step


def param_error(faults: Sequence[ParamFault], *, subject: str = "") -> ParamError:
    """Make one error of all faults; a single one reads as if it were raised alone."""
    is_typed = all((fault.where or "").startswith("--") for fault in faults)
    kind = TypedValueError if is_typed else ParamError
    if len(faults) == 1:
        return kind(faults[0].message, where=faults[0].where, hint=faults[0].hint)
    lines = [f"{len(faults)} parameters{' ' + subject if subject else ''} are wrong"]
    lines += [
        f"  {fault.message} ({fault.where})" if fault.where else f"  {fault.message}" for fault in faults
    ]
    hints = list(dict.fromkeys(fault.hint for fault in faults if fault.hint))
    return kind("\n".join(lines), hint="\n      ".join(hints) or None)


# --- Parameters from the layers of an app to one resolved set, each value with the place it came
# from
# Precedence, low to high, is the order of `LAYERS`. Maps merge deeply, lists replace (append where the
# schema says so), null removes. A layer that speaks to many components reaches only those whose
# prototype declares the name.

LAYERS: tuple[str, ...] = (
    "default",
    "app",
    "module",
    "component",
    "environment globals",
    "environment",
    "command line",
)
GLOBAL_LAYERS = frozenset(("app", "module", "environment globals"))


@dataclass(frozen=True)
class Origin:
    """Where a value was written."""

    file: str  # below the app directory with `/`; or `prototype kubeflow/tf-job/tf-cnn`, `--set`
    line: int | None = None  # from 1; nothing where lines have no meaning

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Layer:
    """One place's values for the parameters of a component."""

    kind: str  # one of `LAYERS`
    values: Mapping[str, Any]  # by name as written, old spellings included
    # path → place; `(name,)` for a parameter, longer inside maps and lists
    origins: Mapping[KeyPath, Origin] = field(default_factory=dict)
    target: str = ""  # what follows `mlstack param set` to change a value here (`--env=gke cnn`)
    speaks_to_many: bool = False  # undeclared names are skipped, not refused; always so for `GLOBAL_LAYERS`

    @property
    def skips_undeclared(self) -> bool:
        """Tell whether a name that the prototype does not declare is none of its business."""
        return self.speaks_to_many or self.kind in GLOBAL_LAYERS


@dataclass(frozen=True)
class ParamScope:
    """The level of an app at which a value is set or taken back."""

    kind: str  # `app`, `module`, `component`, `environment globals` or `environment`
    component: str | None = None  # full name, for `component` and `environment`
    module: str | None = None  # dotted name, for `module`
    environment: str | None = None  # name, for the two kinds of environment


@dataclass(frozen=True)
class Setting:
    """One layer's word on one parameter."""

    layer: str  # one of `LAYERS`
    value: Any  # as understood by the parameter's type; nothing means: removed here
    origin: Origin  # where it was written
    # places inside the value, by path below it
    origins: Mapping[KeyPath, Origin] = field(default_factory=dict)
    target: str = ""  # what follows `mlstack param set` to change it


@dataclass(frozen=True)
class Resolved:
    """The parameters of one component, resolved."""

    values: Mapping[str, Any]  # every declared parameter by canonical name; unset ones are None
    chains: Mapping[str, Sequence[Setting]]  # who said what about each parameter, lowest layer first
    notes: tuple[str, ...] = ()  # deprecations and the like, for people

    def origin(self, name: str, path: KeyPath = ()) -> Origin:
        """Give the place that decided a parameter, or a value inside it."""
        setting = self.setting(name, path)
        return nearest_origin(setting.origins, path, setting.origin) if setting else Origin("not set")

    def setting(self, name: str, path: KeyPath = ()) -> Setting | None:
        """Give the layer's word that decided a parameter, or a value inside it; None when nothing did."""
        chain = self.chains.get(name, ())
        for setting in reversed(chain):
            if _speaks_of(setting.value, path):
                return setting
        return chain[-1] if chain else None


def nearest_origin(origins: Mapping[KeyPath, Origin], path: KeyPath, fallback: Origin) -> Origin:
    """Give the place of `path`, or of the nearest thing around it whose place is known."""
    for length in range(len(path), -1, -1):
        if path[:length] in origins:
            return origins[path[:length]]
    return fallback


def _speaks_of(value: Any, path: KeyPath) -> bool:
    """Tell whether a layer's value says something about `path`, even by removing what is around it."""
    for part in path:
        if not isinstance(value, Mapping):
            return True
        if part not in value:
            return False
        value = value[part]
    return True


def resolve(params: Mapping[str, Param], layers: Sequence[Layer], *, prototype: str = "") -> Resolved:
    """Resolve the parameters of one component.

    Later layers win. Bounds, patterns and required parameters are the JSON Schema's to check
    (`files.schema.check_params`); names, spellings and characters are checked here.

    Args:
        params: the prototype's parameters by canonical name; their defaults are the lowest layer.
        layers: lowest first.
        prototype: its full name, for messages and the origin of defaults.

    Raises:
        ParamError: all unknown names (with the nearest known one), names set in two spellings within one
            layer, and control characters, with file and line.
    """
    return Declared(params, prototype=prototype).resolve(layers)


class Declared:
    """What a prototype declares, prepared once to resolve the parameters of many components."""

    def __init__(self, params: Mapping[str, Param], *, prototype: str = "") -> None:
        self._params = params
        self._prototype = prototype
        self._spellings = spelling_table(params)
        origin = Origin(f"prototype {prototype}".rstrip())
        self._chains: dict[str, tuple[Setting, ...]] = {
            name: (Setting("default", param.default, origin),) if param.has_default else ()
            for name, param in params.items()
        }
        self._values = {name: _folded(params[name], chain) for name, chain in self._chains.items()}

    def resolve(self, layers: Sequence[Layer]) -> Resolved:
        """Resolve the parameters of one component, as the function `resolve` says."""
        masking.note_params(self._values, self._params)
        faults: list[ParamFault] = []
        notes: dict[str, None] = {}
        chains: dict[str, tuple[Setting, ...]] = {}
        for layer in layers:
            reading = _LayerReading(layer, self._params, self._spellings, self._prototype)
            for name, setting in reading.settings(faults):
                chains[name] = (*chains.get(name, self._chains[name]), setting)
            notes.update(dict.fromkeys(reading.notes))
        if faults:
            raise param_error(faults)
        values = {name: _folded(self._params[name], chain) for name, chain in chains.items()}
        return Resolved({**self._values, **values}, {**self._chains, **chains}, tuple(notes))


def spelling_table(params: Mapping[str, Param]) -> dict[str, str]:
    """Map every spelling of every parameter to its canonical name."""
    table = {alias: name for name, param in params.items() for alias in param.aliases}
    return table | {name: name for name in params}


def _folded(param: Param, chain: Sequence[Setting]) -> Any:
    value: Any = None
    for setting in chain:
        value = None if setting.value is None else merge(value, setting.value, param.schema)
    return value


class _LayerReading:
    """One layer read against what a prototype declares."""

    def __init__(
        self, layer: Layer, params: Mapping[str, Param], spellings: Mapping[str, str], prototype: str
    ) -> None:
        self._layer = layer
        self._params = params
        self._spellings = spellings
        self._prototype = prototype
        self._origins = _by_name(layer.origins)
        self.notes: list[str] = []

    def settings(self, faults: list[ParamFault]) -> Iterator[tuple[str, Setting]]:
        seen: dict[str, str] = {}
        for spelling, raw in self._layer.values.items():
            name = self._spellings.get(spelling)
            if name is None:
                faults.extend(self._unknown(spelling))
                continue
            if name in seen:
                faults.append(self._twice(name, seen[name], spelling))
                continue
            seen[name] = spelling
            if self._params[name].secret:
                masking.note(raw)
            faults.extend(self._hostile(name, spelling, raw))
            self._note_deprecation(name, spelling, raw)
            yield name, self._setting(name, spelling, raw)

    def _setting(self, name: str, spelling: str, raw: Any) -> Setting:
        origins = self._origins.get(spelling, {})
        value = coerce(self._params[name], raw)
        return Setting(self._layer.kind, value, self._origin(spelling), origins, self._layer.target)

    def _origin(self, spelling: str, path: KeyPath = ()) -> Origin:
        return nearest_origin(self._origins.get(spelling, {}), path, Origin(self._layer.kind))

    def _unknown(self, spelling: str) -> Iterator[ParamFault]:
        if self._layer.skips_undeclared:
            return
        near = nearest(spelling, self._spellings)
        short = self._prototype.rpartition("/")[2]
        owner = f"prototype `{short}`" if short else "the prototype"
        yield ParamFault(
            f"{owner} has no parameter `{spelling}`",
            where=str(self._origin(spelling)),
            hint=f"did you mean `{near}`?" if near else f"mlstack prototype describe {short}".rstrip(),
        )

    def _twice(self, name: str, first: str, second: str) -> ParamFault:
        return ParamFault(
            f"`{first}` and `{second}` are spellings of one parameter, and both are set",
            where=str(self._origin(second)),
            hint=f"keep `{name}` alone",
        )

    def _hostile(self, name: str, spelling: str, raw: Any) -> Iterator[ParamFault]:
        for path, character in refused_characters(raw):
            shown = ".".join((name, *map(str, path)))
            yield ParamFault(
                f"`{shown}` holds the control character {character}, which no object can carry",
                where=str(self._origin(spelling, path)),
                hint="remove it from the value",
            )

    def _note_deprecation(self, name: str, spelling: str, raw: Any) -> None:
        param = self._params[name]
        if param.deprecated:
            self.notes.append(f"`{spelling}` is deprecated: {param.deprecated} ({self._origin(spelling)})")
        if isinstance(raw, str) and raw in param.value_aliases:
            meant = param.value_aliases[raw] or "empty"
            self.notes.append(f"`{spelling}: {raw}` now means `{meant}` ({self._origin(spelling)})")


def _by_name(origins: Mapping[KeyPath, Origin]) -> dict[str, dict[KeyPath, Origin]]:
    """Group places by parameter, each path then starting inside the parameter's value."""
    grouped: dict[str, dict[KeyPath, Origin]] = {}
    for path, origin in origins.items():
        if path:
            grouped.setdefault(str(path[0]), {})[path[1:]] = origin
    return grouped


# --- Values given for one run: `--values FILE` and `--set [component.]key=value` ---


@dataclass(frozen=True)
class ValuesFile:
    """A file given with `--values`: for every component, and for single ones by full name."""

    globals: Layer
    components: Mapping[str, Layer] = field(default_factory=dict)


@dataclass(frozen=True)
class SetOption:
    """One `--set`: the key as typed and split at its dots, and the text of the value."""

    path: tuple[str, ...]  # an optional component's full name, the parameter, and keys inside it
    text: str  # the value, to be typed by what the parameter declares
    as_string: bool = False  # keep the text a string

    @property
    def key(self) -> str:
        """Give the key as typed."""
        return ".".join(self.path)


@dataclass(frozen=True)
class Overrides:
    """All values given for one run, in the order they were given."""

    files: tuple[ValuesFile, ...] = ()
    sets: tuple[SetOption, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.sets)

    def layers(
        self,
        component: str,
        params: Mapping[str, Param],
        *,
        components: Collection[str],
        read: Callable[[str], Any] | None = None,
    ) -> list[Layer]:
        """Give the layers for one component, lowest first: files, `--set KEY`, `--set COMPONENT.KEY`.

        Args:
            component: its full name.
            params: what its prototype declares; types the texts.
            components: full names of all components, to tell a component from a parameter.
            read: reads structured text (YAML); JSON alone without it.
        """
        layers: list[Layer] = []
        for values in self.files:
            layers.append(values.globals)
            layers += [values.components[component]] if component in values.components else []
        split = [(*_split_component(option.path, components), option) for option in self.sets]
        for wanted in (None, component):
            layers += [
                _set_layer(path, option, params, everyone=owner is None, read=read)
                for owner, path, option in split
                if owner == wanted
            ]
        return layers

    def keys(self, components: Collection[str]) -> list[tuple[str | None, str, Origin]]:
        """Give every (component or None, parameter as written, place), to find the ones nobody declares."""
        found: list[tuple[str | None, str, Origin]] = []
        for values in self.files:
            for owner, layer in ((None, values.globals), *values.components.items()):
                found += [
                    (owner, name, layer.origins.get((name,), Origin("--values"))) for name in layer.values
                ]
        for option in self.sets:
            owner, path = _split_component(option.path, components)
            found.append((owner, path[0], Origin(f"--set {option.key}")))
        return found


def parse_set(text: str, *, as_string: bool = False) -> SetOption:
    r"""Read `key=value` or `component.key=value`; `\.` is a dot inside a key.

    Raises:
        UsageError: there is no `=`, or nothing before it.
    """
    key, equals, value = text.partition("=")
    path = split_path(key)
    if not equals or not all(path):
        raise UsageError(
            f"`--set {text}` is not `key=value`", hint="write --set num_workers=2 or --set cnn.num_workers=2"
        )
    return SetOption(path, value, as_string)


def plain(overrides: Overrides) -> dict[str, Any]:
    """Write overrides as plain data, without their places; empty if there are none."""
    files = [
        {
            "globals": dict(each.globals.values),
            "components": {name: dict(layer.values) for name, layer in each.components.items()},
        }
        for each in overrides.files
    ]
    sets = [
        {"path": list(each.path), "text": each.text, "asString": each.as_string} for each in overrides.sets
    ]
    return {"files": files, "sets": sets} if overrides else {}


def from_plain(data: Mapping[str, Any]) -> Overrides:
    """Give the overrides that `plain` wrote."""
    return Overrides(
        files=tuple(
            ValuesFile(
                Layer("command line", each.get("globals", {}), speaks_to_many=True),
                {name: Layer("command line", values) for name, values in each.get("components", {}).items()},
            )
            for each in data.get("files", ())
        ),
        sets=tuple(
            SetOption(tuple(each["path"]), each["text"], each["asString"]) for each in data.get("sets", ())
        ),
    )


def _split_component(
    path: tuple[str, ...], components: Collection[str]
) -> tuple[str | None, tuple[str, ...]]:
    """Split the longest component name off the front; something must be left for the parameter."""
    for length in range(len(path) - 1, 0, -1):
        name = ".".join(path[:length])
        if name in components:
            return name, path[length:]
    return None, path


def _set_layer(
    path: Sequence[str],
    option: SetOption,
    params: Mapping[str, Param],
    *,
    everyone: bool,
    read: Callable[[str], Any] | None,
) -> Layer:
    declared = params.get(spelling_table(params).get(path[0], ""))
    inner = inner_param(declared, path[1:]) if declared else None
    value = parse_text(inner, option.text, as_string=option.as_string, read=read)
    for part in reversed(path[1:]):
        value = {part: value}
    origins: dict[KeyPath, Origin] = {(path[0],): Origin(f"--set {option.key}")}
    return Layer("command line", {path[0]: value}, origins, "", speaks_to_many=everyone)


# --- Parameters given on a command line for a prototype: names checked, texts typed ---


def canonical_name(prototype: Prototype, name: str) -> str:
    """Give the canonical spelling of a parameter; old spellings and `-` for `_` are understood.

    Raises:
        NotFoundError: the prototype declares no such parameter; carries the nearest one.
    """
    table = spelling_table(prototype.params)
    for spelling in (name, name.replace("-", "_")):
        if spelling in table:
            return table[spelling]
    near = nearest(name, table)
    raise NotFoundError(
        f"prototype `{prototype.name}` has no parameter `{name}`",
        hint=f"did you mean `{near}`?" if near else f"mlstack prototype describe {prototype.name}",
    )


def param_at(prototype: Prototype, path: tuple[str, ...]) -> tuple[tuple[str, ...], Param | None]:
    """Give a path with its first part spelled canonically, and what is declared for that place."""
    name = canonical_name(prototype, path[0])
    return (name, *path[1:]), inner_param(prototype.params[name], path[1:])


def typed(
    prototype: Prototype, texts: Mapping[str, str | None], *, read: Callable[[str], Any]
) -> dict[str, Any]:
    """Give the values of options by canonical name, in the order they were given.

    Args:
        prototype: declares the parameters.
        texts: text by name as typed; None for an option without a value.
        read: reads structured text (YAML).

    Raises:
        UsageError: an unknown name, or an option without a value that is no switch.
    """
    found: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            canonical = canonical_name(prototype, name)
        except NotFoundError as error:
            raise UsageError(error.message, hint=error.hint) from error
        found[canonical] = _value(prototype.params[canonical], name, text, read)
    return found


def _value(param: Param, name: str, text: str | None, read: Callable[[str], Any]) -> Any:
    if text is not None:
        return parse_text(param, text, read=read)
    if "boolean" in param.types:
        return True
    raise UsageError(f"`--{name}` needs a value", hint=f"write --{name}=VALUE")


def missing(prototype: Prototype, values: Mapping[str, Any]) -> tuple[Param, ...]:
    """Give the required parameters that have no value, in the order they are declared."""
    return tuple(
        param for param in prototype.params.values() if param.required and values.get(param.name) is None
    )


# --- Other values a parameter could have, to see what it does ---

INVENTED_KEY = "mlstacktrial"
"""What is added to a map to see where it goes: nobody else's key."""
_STRINGS = ("trial", "trial-1", "/trial", "trial/trial:1", "1", "10Gi", "https://trial.example", "30099")


def values(param: Param, current: Any) -> Iterator[Any]:
    """Give values that differ from the current one, likely ones first.

    Not all of them are valid: whoever tries them checks first.
    """
    yield from _of_schema(param.schema, current)
    yield from param.examples
    if param.has_default:
        yield param.default
    yield None


def _of_schema(schema: Mapping[str, Any], current: Any) -> Iterator[Any]:
    yield from schema.get("enum") or ()
    for branch in (*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())):
        yield from _of_schema(branch, current)
    types = schema_types(schema)
    if "boolean" in types:
        yield not current
    if types & {"integer", "number"}:
        yield from _numbers(schema, current)
    if "string" in types:
        if isinstance(current, str) and current:
            yield from (f"{current}x", f"{current}1", f"x{current}", f"{current}/x", current[:-1])
        yield from _STRINGS
    if "array" in types:
        yield from _lists(schema, current)
    if "object" in types:
        now = dict(current) if isinstance(current, Mapping) else {}
        if now:
            yield {}
        candidates: tuple[Any, ...] = ("trial", 1, {})
        for inner in candidates:
            yield {**now, INVENTED_KEY: inner}


def _numbers(schema: Mapping[str, Any], current: Any) -> Iterator[Any]:
    base = current if isinstance(current, int | float) and not isinstance(current, bool) else 0
    yield from (base + 1, base - 1, base + 2)
    for bound in ("minimum", "maximum"):
        if isinstance(schema.get(bound), int | float):
            yield schema[bound]


def _lists(schema: Mapping[str, Any], current: Any) -> Iterator[Any]:
    now = list(current) if isinstance(current, list) else []
    item = schema.get("items")
    for value in _of_schema(item if isinstance(item, Mapping) else {"type": "string"}, None):
        yield [*now, value]
    if now:
        yield now[:-1]
