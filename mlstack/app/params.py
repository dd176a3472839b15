"""Parameters: what a typed text means, the layers that set them, how layers merge, and what is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

from mlstack.app.document import AppDocument, FieldReader, Origin, join_path
from mlstack.app.prototype import (
    FROM_ENV,
    NO_EFFECT,
    Param,
    Prototype,
    reference_paths,
    secret_literals,
    with_references,
)
from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError, ParamError, TypedValueError, UnknownParamError, UsageError
from mlstack.names import did_you_mean, nearest
from mlstack.objects import masking
from mlstack.yaml import write
from mlstack.yaml.read import KeyPath, read_documents

# --- what a typed text or a file's value means, and how two layers' values merge -----------------------

_SHARE = r"[^:=]+:\s*[0-9]+"
_INTEGER = r"[+-]?[0-9]{1,30}"
_INTEGERS = range(-(2**63), 2**63)  # what Kubernetes can hold; longer ones stay text and fail the schema
_NUMBER = r"[+-]?([0-9]{1,30}(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"
_NULLS = {"null": None, '"null"': "null", "'null'": "null"}
_REFUSED = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]"


class Items(dict[int, Any]):
    """What is set in single items of a list, by index: the others stay as lower layers have them."""


def nested(path: Sequence[str | int], value: Any) -> Any:
    """Give what sets a value at a path alone, to be merged over what is around it."""
    for part in reversed(path):
        value = Items({part: value}) if isinstance(part, int) else {part: value}
    return value


def coerce(param: Param, value: Any) -> Any:
    """Give the value that `value` means for this parameter; a value that fits no type stays as it is.

    The string `null` means unset where the schema takes no string, as in values files of old; there strings
    become booleans and numbers too. They become lists where it is `csv`, maps where it is `kv`.
    """
    types = param.types
    if param.secret:
        value = with_references(value)
    if not isinstance(value, str):
        return value
    if value == "null" and types and "string" not in types:
        return None
    if value in param.value_aliases:
        return param.value_aliases[value]
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if param.format == "csv":
        return parts
    if param.format == "kv":
        # Shares of traffic were written `v1:90,v2:10`; elsewhere a colon may be part of a value.
        sign = ":" if all(re.fullmatch(_SHARE, part) for part in parts) else "="
        if all(sign in part for part in parts):
            return {key.strip(): text.strip() for key, _, text in (part.partition(sign) for part in parts)}
    if "string" in types or param.format is not None:
        return value
    if "boolean" in types and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if types & {"integer", "number"} and re.fullmatch(_INTEGER, value) and int(value) in _INTEGERS:
        return int(value)
    if "number" in types and re.fullmatch(_NUMBER, value) and math.isfinite(float(value)):
        return float(value)
    return value


def parse_text(param: Param | None, text: str, *, as_string: bool = False) -> Any:
    """Give the value that a person typed, by the parameter's declared type.

    Where nothing is declared (None), YAML's rules count. Text that fits no declared type is given back: the
    schema's message is better than one from here. Where numbers or booleans and texts are allowed, those come
    first. `null` takes the value away; the text of that name is `"null"`, with its quotes.
    """
    if as_string:
        return text
    param = param or Param(name="the value", schema={})
    types, opens_structure = param.types, text.lstrip()[:1] in ("[", "{")
    if param.secret and text.lstrip().startswith("{") and FROM_ENV in text:
        with suppress(ConfigError, IndexError):
            value: Any = read_documents(text, source="the value")[0].value
            if any(True for _ in reference_paths(with_references(value))):
                return value
        message = f"`{param.name}` names no environment variable"
        raise TypedValueError(message, hint="write {fromEnv: NAME}, or --as-string for the text itself")
    scalars = types & {"integer", "number", "boolean"}
    if scalars and "string" in types and param.format is None:
        scalar = coerce(replace(param, schema={"type": sorted(scalars)}), text)
        if scalar is not text and scalar is not None:
            return scalar
    if "string" in types and text in _NULLS:
        return _NULLS[text]
    takes_structure = param.format is not None or bool(types & {"array", "object"})
    is_text = param.format is not None or "string" in types
    if types and (not takes_structure or (is_text and not opens_structure)):
        return coerce(param, text)
    value = text  # or what it is as one document of YAML
    with suppress(ConfigError):
        documents = read_documents(text, source="the value")
        value = documents[0].value if len(documents) == 1 else None if not documents else text
    is_structure = isinstance(value, list | dict)
    if not types:
        return text if not text or (is_structure and not opens_structure) else value
    return value if is_structure or (value is None and text.strip() == "null") else coerce(param, text)


def as_typed(value: Any) -> str:
    """Write a value as a text that `parse_text` reads as it."""
    if isinstance(value, str):
        return '"null"' if value == "null" else value
    return write.to_flow(value)


def inner_param(param: Param, path: Sequence[str | int]) -> Param | None:
    """Give what is declared for a part of a parameter's value, or None where nothing is."""
    schema = inner_schema(param.schema, path)
    if not path or schema is None:
        return param if not path else None
    about = {"description": schema.get("description", ""), "unit": schema.get("unit", ""), "examples": ()}
    return replace(
        param, schema=schema, format=None, value_aliases={}, default=None, has_default=False, **about
    )


def inner_schema(schema: Any, path: Sequence[str | int]) -> Mapping[str, Any] | None:
    """Give the schema of a part of a value, None where nothing is declared."""
    for part in path:
        schema = _inner_schema(schema, part)
        if not isinstance(schema, Mapping):
            return None
    return schema if isinstance(schema, Mapping) else None


def _inner_schema(schema: Mapping[str, Any], part: str | int) -> Any:
    properties = schema.get("properties", {})
    if part in properties:
        return properties[part]
    inner = schema.get("items") if str(part).isdigit() and "items" in schema else None
    return inner or schema.get("additionalProperties")


IMAGE_MARK = "x-image"
"""What says in a schema that a text is a container image: true, or `end` for the end of one."""


def marked_images(schema: Mapping[str, Any], value: Any) -> Iterator[tuple[str, bool]]:
    """Give the texts in a value that are images by its schema, and whether each is a whole one."""
    if isinstance(value, str) and value and schema.get(IMAGE_MARK):
        yield value, schema[IMAGE_MARK] is True
    steps = value if isinstance(value, Mapping) else range(len(value)) if isinstance(value, list) else ()
    for step in steps:
        yield from marked_images(inner_schema(schema, (step,)) or {}, value[step])


def merge(lower: Any, upper: Any, schema: Mapping[str, Any] | None = None) -> Any:
    """Lay `upper` over `lower`: maps merge, null removes, lists replace (or append by `x-merge: append`)."""
    if upper.__class__ is str or upper.__class__ is int:
        return upper
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(upper, list) and isinstance(lower, list) and schema.get("x-merge") == "append":
        return [*lower, *upper]
    if not isinstance(upper, Mapping):
        return upper
    if isinstance(upper, Items):
        return _with_items(lower, upper, schema)
    merged = dict(lower) if isinstance(lower, Mapping) else {}
    for key, value in upper.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value, _inner_schema(schema, key))
    return merged


def _with_items(lower: Any, items: Items, schema: Mapping[str, Any]) -> list[Any]:
    """Lay single items over a list, behind the last one too; an IndexError where there is no such item."""
    merged = list(lower) if isinstance(lower, list) else []
    for index, value in items.items():
        if index > len(merged):
            raise IndexError(f"there is no item {index}: the list has {len(merged)}")
        merged[index : index + 1] = [
            merge(merged[index] if index < len(merged) else None, value, _inner_schema(schema, index))
        ]
    return merged


def refused_characters(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Find the strings that no Kubernetes object can carry: control characters and lone surrogates.

    Tab, line feed, carriage return and next line are fine. Yields the path below `value` and the character
    as `U+0000`.
    """
    if isinstance(value, str):
        match = None if value.isprintable() else re.search(_REFUSED, value)
        if match:
            yield path, f"U+{ord(match.group()):04X}"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            name = str(key)
            shown = (*path, name if name.isprintable() else re.sub(_REFUSED, "?", name))
            yield from refused_characters(key, shown)
            yield from refused_characters(inner, shown)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from refused_characters(inner, (*path, index))


# --- what is wrong with parameters: gathered, then shown together in one error -------------------------


@dataclass(frozen=True)
class ParamFault:
    """One thing that is wrong with a parameter, with its `file:line` and the next step."""

    message: str
    where: str | None = None
    hint: str | None = None
    names_nothing: bool = False  # what was given for one run names no parameter


def param_error(faults: Sequence[ParamFault], *, subject: str = "") -> ParamError:
    """Make one error of all faults; a single one reads as if it were raised alone.

    `subject` is whose parameters they are, for the headline of several (`of component `cnn``).
    """
    is_typed = all((fault.where or "").startswith("--") for fault in faults)
    kind: type[ParamError] = TypedValueError if is_typed else ParamError
    if all(fault.names_nothing for fault in faults):
        kind = UnknownParamError
    if len(faults) == 1:
        return kind(faults[0].message, where=faults[0].where, hint=faults[0].hint)
    lines = [f"{len(faults)} parameters{' ' + subject if subject else ''} are wrong"]
    for fault in faults:
        lines.append(f"  {fault.message} ({fault.where})" if fault.where else f"  {fault.message}")
    hints = list(dict.fromkeys(fault.hint for fault in faults if fault.hint))
    return kind("\n".join(lines), hint="\n      ".join(hints) or None)


# --- from the layers of an app to one resolved set, each value with where it was set -------------------
# Precedence, low to high, is the order of `LAYERS`. Maps merge deeply, lists replace (append where the
# schema says so), null removes. A layer that speaks to many components reaches only those whose prototype
# declares the name.

_LAYERS = "default, app, module, component, environment globals, environment, command line"
LAYERS: tuple[str, ...] = tuple(_LAYERS.split(", "))
GLOBAL_LAYERS = frozenset(("app", "module", "environment globals"))


@dataclass(frozen=True)
class Layer:
    """The values that one file or option gives the parameters of a component."""

    kind: str  # one of `LAYERS`
    values: Mapping[str, Any]  # by name as spelled there, old spellings included
    origins: Mapping[KeyPath, Origin] = field(default_factory=dict)  # `(name,)`, longer inside maps and lists
    target: str = ""  # what follows `mlstack param set` to change a value here (`--env=gke cnn`)
    is_encrypted: bool = False  # only secret parameters stand there: others would leave it readable
    speaks_to_many: bool = False  # undeclared names are skipped, not refused; so for `GLOBAL_LAYERS`

    @property
    def skips_undeclared(self) -> bool:
        """Tell whether a name that the prototype does not declare is none of its business."""
        return self.speaks_to_many or self.kind in GLOBAL_LAYERS


def layer_of(document: AppDocument, path: KeyPath, kind: str, target: str) -> Layer:
    """Give the map at a path of a document as a layer; an absent one is an empty layer."""
    value: Any = document.value
    for part in path:
        value = value[part] if isinstance(part, int) else value.get(part)
        if value is None:
            return Layer(kind, {}, target=target)
    FieldReader(document, path)
    return Layer(kind, value, document.origins(path), target)


@dataclass(frozen=True, kw_only=True)
class ParamScope:
    """The level of an app at which a value is set or taken back; with nothing given, the app itself."""

    component: str | None = None  # full name
    environment: str | None = None
    module: str | None = None  # dotted name
    personal: bool = False  # for whoever works here alone

    def __post_init__(self) -> None:
        if self.personal and self.environment is None:
            raise UsageError("a value of yours alone is for one environment", hint="name it: --env ENV")
        if self.module is not None and (self.component or self.environment):
            message = "`--module` sets a value for all its components, in every environment"
            raise UsageError(message, hint="leave out --module, or the component and --env")

    @property
    def kind(self) -> str:
        """Give `app`, `module`, `component`, `environment globals` or `environment`."""
        if self.component is not None:
            return "component" if self.environment is None else "environment"
        if self.environment is not None:
            return "environment globals"
        return "app" if self.module is None else "module"

    def __str__(self) -> str:
        """Write the level as a person would say it."""
        names = {
            "app": "the whole app",
            "module": f"module {self.module}",
            "component": f"{self.component}",
            "environment globals": f"all components in {self.environment}",
            "environment": f"{self.component} in {self.environment}",
        }
        return names[self.kind] + (", for you alone" if self.personal else "")


@dataclass(frozen=True)
class Setting:
    """What one layer sets for one parameter."""

    layer: str
    value: Any  # as understood by the parameter's type; None: removed here
    origin: Origin
    origins: Mapping[KeyPath, Origin] = field(default_factory=dict)  # inside the value, by path below it
    target: str = ""  # what follows `mlstack param set` to change it


@dataclass(frozen=True)
class Resolved:
    """The parameters of one component, resolved."""

    values: Mapping[str, Any]  # every declared parameter by canonical name; unset ones are None
    chains: Mapping[str, Sequence[Setting]]  # all settings of each parameter, lowest layer first
    notes: tuple[str, ...] = ()  # deprecations and the like, for people

    def origin(self, name: str) -> Origin:
        """Give where a parameter was set."""
        setting = self.setting(name)
        return setting.origin if setting else Origin("not set")

    def setting(self, name: str, path: KeyPath = ()) -> Setting | None:
        """Give the setting that decided a parameter, or a value inside it; None when nothing did."""
        chain = self.chains.get(name, ())
        return next(iter([*settings_inside(chain, path)[-1:], *chain[-1:]]), None)


def settings_inside(
    chain: Sequence[Setting], path: KeyPath, schema: Mapping[str, Any] = MappingProxyType({})
) -> list[Setting]:
    """Give what the settings of a parameter say about a place inside it, lowest first.

    A layer above another one speaks of a place too by removing or replacing what is around it.

    Args:
        chain: the settings of the parameter.
        path: keys and indices below it.
        schema: of the parameter; without it lists replace each other.
    """
    settings: list[Setting] = []
    for number, setting in enumerate(chain):
        value = setting.value
        for depth, part in enumerate(path):
            if isinstance(value, list) and isinstance(part, int):
                inner = inner_schema(schema, path[:depth]) or {}
                lower = [at(below.value, path[:depth]) for below in chain[:number]]
                is_added = inner.get("x-merge") == "append"
                part -= sum(len(items) for items in lower if isinstance(items, list) and is_added)
                has_part, leaves_it = part in range(len(value)), part < 0
            else:
                has_part = isinstance(value, Mapping) and part in value
                leaves_it = isinstance(value, Mapping)
            if not has_part and (leaves_it or not settings):
                break
            value = value[part] if has_part else None
        else:
            origin = nearest_origin(setting.origins, path, setting.origin)
            settings.append(replace(setting, value=value, origin=origin))
    return settings


def at(value: Any, path: Sequence[str | int]) -> Any:
    """Give what stands at a path of a value, None where nothing does."""
    for part in path:
        try:
            value = None if isinstance(value, str) else value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def overridden(resolved: Resolved) -> dict[str, Any]:
    """Give what the layers above the defaults set, nulls included: the values that a chart gets."""
    values: dict[str, Any] = {}
    for name, chain in resolved.chains.items():
        for setting in chain:
            if setting.layer != "default":
                values[name] = overlaid(values.get(name), setting.value)
    return values


def overlaid(lower: Any, upper: Any) -> Any:
    """Lay `upper` over `lower` as helm does with two files of values: a null stays, and removes a default."""
    if not isinstance(lower, Mapping) or not isinstance(upper, Mapping):
        return upper
    return {**lower, **{key: overlaid(lower.get(key), value) for key, value in upper.items()}}


def nearest_origin(origins: Mapping[KeyPath, Origin], path: KeyPath, fallback: Origin) -> Origin:
    """Give the origin of `path`, or of the nearest thing around it whose origin is known."""
    for length in range(len(path), -1, -1):
        if path[:length] in origins:
            return origins[path[:length]]
    return fallback


class Declared:
    """What a prototype declares, prepared once to resolve the parameters of many components.

    `prototype` is its full name, for messages. One that `is_open` takes names that it does not declare;
    values stay `as_written` where a chart gets them.
    """

    def __init__(
        self,
        params: Mapping[str, Param],
        *,
        prototype: str = "",
        is_open: bool = False,
        as_written: bool = False,
    ) -> None:
        self._params = dict(params)
        self._prototype, self._is_open, self._as_written = prototype, is_open, as_written
        self._spellings = spelling_table(params)
        origin = Origin(f"prototype {prototype}".rstrip())
        self._chains: dict[str, tuple[Setting, ...]] = {
            name: (Setting("default", param.default, origin),) if param.has_default else ()
            for name, param in params.items()
        }
        self._values = {name: folded(params[name], chain) for name, chain in self._chains.items()}

    @classmethod
    def of(cls, prototype: Prototype) -> Declared:
        """Prepare what a prototype declares."""
        options = {"is_open": prototype.is_open, "as_written": prototype.chart is not None}
        return cls(prototype.params, prototype=prototype.full_name, **options)

    def resolve(self, layers: Sequence[Layer]) -> Resolved:
        """Resolve the parameters of one component; defaults are the lowest layer, later ones win.

        Bounds, patterns and required parameters are the JSON Schema's to check (`schema.check_params`);
        names, spellings and characters are checked here.

        Raises:
            ParamError: all unknown names (with the nearest known one), names set in two spellings within one
                layer, and control characters, with file and line.
        """
        masking.note(*(self._values[name] for name, param in self._params.items() if param.secret))
        faults: list[ParamFault] = []
        notes: dict[str, None] = {}
        chains: dict[str, tuple[Setting, ...]] = {}
        for layer in layers:
            for name, setting in self._settings(layer, faults, notes).items():
                chains[name] = (*chains.get(name, self._chains[name]), setting)
        if faults:
            raise param_error(faults)
        values = {name: folded(self._params[name], chain) for name, chain in chains.items()}
        return Resolved({**self._values, **values}, {**self._chains, **chains}, tuple(notes))

    def _settings(self, layer: Layer, faults: list[ParamFault], notes: dict[str, None]) -> dict[str, Setting]:
        """Read a layer against the declarations; what is wrong or worth a note is added to the lists."""
        settings: dict[str, Setting] = {}
        spelled: dict[str, str] = {}
        for spelling, raw in layer.values.items():
            origin = layer.origins.get((spelling,)) or Origin(layer.kind)
            inside = layer.origins.items() if isinstance(raw, (dict, list)) else ()
            origins = {path[1:]: place for path, place in inside if path[:1] == (spelling,)}
            name = self._spellings.get(spelling)
            if name is None and not layer.skips_undeclared:
                name = self._undeclared(spelling, layer, origin, faults, notes)
            if name is None:
                continue
            if name in spelled:
                both = f"`{spelled[name]}` and `{spelling}` are spellings of one parameter, and both are set"
                faults.append(ParamFault(both, str(origin), f"keep `{name}` alone"))
                continue
            spelled[name] = spelling
            # A global value of a file may be for several prototypes, whose names for it differ.
            if not layer.skips_undeclared or layer.kind == LAYERS[-1]:
                notes |= dict.fromkeys(f"{note} ({origin})" for note in renamed(spelling, name))
            param = self._params[name]
            if param.secret:
                masking.note(secret_literals(raw))
            elif layer.is_encrypted:
                message = f"`{name}` is not secret, and the file is encrypted"
                faults.append(ParamFault(message, str(origin), "set it in a file that everybody can read"))
            for path, character in refused_characters(raw):
                full = join_path((name, *path))
                message = f"`{full}` holds the control character {character}, which no object can carry"
                where = str(nearest_origin(origins, path, origin))
                faults.append(ParamFault(message, where, "remove it from the value"))
            if param.deprecated:
                notes[f"`{spelling}` is deprecated: {param.deprecated} ({origin})"] = None
            if isinstance(raw, str) and raw in param.value_aliases:
                meaning = param.value_aliases[raw] or "empty"
                notes[f"`{spelling}: {raw}` now means `{meaning}` ({origin})"] = None
            value = raw if self._as_written else coerce(param, raw)
            settings[name] = Setting(layer.kind, value, origin, origins, layer.target)
        return settings

    def _undeclared(
        self, name: str, layer: Layer, origin: Origin, faults: list[ParamFault], notes: dict[str, None]
    ) -> str | None:
        """Take up a name that an open prototype does not declare; with any other one it is a fault."""
        if self._is_open:
            near = nearest(name, self._params) if name not in _OF_CHARTS else None
            if near:
                notes[f"the chart has no value `{name}` of its own ({origin}); did you mean `{near}`?"] = None
            self._params[name], self._chains[name], self._values[name] = Param(name=name, schema={}), (), None
            return name
        short = self._prototype.rpartition("/")[2]
        owner = f"prototype `{short}`" if short else "the prototype"
        hint = did_you_mean(name, self._spellings, f"mlstack prototype describe {short}".rstrip())
        message, is_typed = f"{owner} has no parameter `{name}`", layer.kind == LAYERS[-1]
        faults.append(ParamFault(message, str(origin), hint, names_nothing=is_typed))
        return None


_OF_CHARTS = frozenset(("global",))  # a value that helm hands to the charts inside a chart


def spelling_table(params: Mapping[str, Param]) -> dict[str, str]:
    """Map every spelling of every parameter to its canonical name.

    Under an old name of a prototype, a parameter may have been called what is another one's name today.
    """
    table = {name: name for name in params}
    return table | {alias: name for name, param in params.items() for alias in param.aliases}


def canonical_name(prototype: Prototype, name: str) -> str:
    """Give the canonical spelling of a parameter; old spellings and `-` for `_` are understood."""
    table = spelling_table(prototype.params)
    for spelling in (name, name.replace("-", "_")):
        if spelling in table:
            return table[spelling]
    if prototype.is_open:
        return name
    current = prototype.current_names(name)
    near = next(filter(None, current), None) or nearest(name, table)
    hint = f"did you mean `{near}`?" if near else f"mlstack prototype describe {prototype.name}"
    hint = NO_EFFECT if current == {None} else hint
    raise UnknownParamError(f"prototype `{prototype.name}` has no parameter `{name}`", hint=hint)


def renamed(spelling: str, name: str) -> tuple[str, ...]:
    """Tell of an old spelling what the parameter is called; nothing of `-` in place of `_`."""
    is_old = spelling.replace("-", "_") != name.replace("-", "_")
    return (f"`{spelling}` is called `{name}` now",) if is_old else ()


def folded(param: Param, chain: Sequence[Setting]) -> Any:
    """Give what the settings of a parameter come to, lowest first.

    Raises:
        ParamError: one of them sets an item behind the end of a list.
    """
    value: Any = None
    for setting in chain:
        try:
            value = None if setting.value is None else merge(value, setting.value, param.schema)
        except IndexError as error:
            fault = ParamFault(f"`{param.name}`: {error}", str(setting.origin), "the next index adds an item")
            raise param_error([fault]) from error
    return value


# --- parameters given on a command line for a prototype: names checked, texts typed --------------------
