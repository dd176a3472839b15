"""A prototype tried apart from any app: for its examples, for many parameters at once, for hostile texts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple

from mlstack.app import document, files, schema
from mlstack.app.document import join_path, schema_types
from mlstack.app.environment import Environment
from mlstack.app.params import Declared, Layer, Resolved, at
from mlstack.app.prototype import Example, Param, Prototype
from mlstack.disk_cache import ByteStore
from mlstack.errors import ConfigError, MlstackError, ParamError, TemplateRefusedError
from mlstack.objects.kube_object import KubeObject, Source
from mlstack.render.component import check_object, template_variables, unpacked
from mlstack.render.render import other_values
from mlstack.render.template import Engine, Renderer
from mlstack.yaml import read
from mlstack.yaml.read import KeyPath

REFUSALS = (ParamError, TemplateRefusedError)
"""What a prototype raises for parameters that it means to refuse."""
Values = Mapping[str, Any]


class _Memory(dict[str, bytes], ByteStore):  # compiled templates and passed parameter sets of one trial
    put = dict.__setitem__  # type: ignore[assignment]


class PrototypeTrial:
    """Renders one prototype for one set of parameters after the other."""

    def __init__(self, prototype: Prototype) -> None:
        self.prototype = prototype
        self._store = _Memory()
        self._preset_values = cache(partial(_preset_values, prototype))
        self._renderer = Renderer(prototype, Engine(self._store))
        self._declared = Declared.of(prototype)
        self._parsed: dict[tuple[str, str], list[Any]] = {}  # much of what is rendered is always the same
        self._harmless: dict[tuple[str, tuple[KeyPath, ...]], list[KubeObject]] = {}  # examples with tokens

    def resolved(self, *layers: Values) -> Resolved:
        """Resolve and check parameters; later layers win."""
        resolved = self._declared.resolve([Layer("component", layer) for layer in layers])
        schema.check_params(self.prototype, resolved, passed=self._store)
        return resolved

    def objects(self, *layers: Values, example: Example | None = None) -> list[KubeObject]:
        """Give the objects for parameters, as an environment without values of its own would get them.

        Raises:
            ParamError: the parameters do not fit.
            TemplateError: a template does not render, or refuses them.
            ConfigError: what is rendered is no Kubernetes object.
        """
        resolved = self.resolved(self._preset_values(example.environment if example else ""), *layers)
        name = str(resolved.values.get("name") or self.prototype.name)
        own = (example.namespace if example else "") or "default"
        place = (example.environment if example else "") or "test"
        environment = Environment(name=place, namespace=own, context=place)
        namespace = str(resolved.values.get("namespace") or own)
        variables = template_variables(resolved.values, ("test", "", name), environment, namespace)
        rendering = self._renderer.rendering(variables)
        objects = []
        for template in self._renderer.names:
            source = Source(component=name, file=self._renderer.source(template))
            for data in self._documents(rendering.render(template), source.file):
                check_object(data, source.at)
                objects.append(KubeObject(data=data, component=name, source=source))
        return objects

    def harmless(self, example: Example, paths: Sequence[KeyPath]) -> list[KubeObject]:
        """Give the objects of an example with a token at each of some places, `t0ken0x` at the first."""
        key = (example.name, tuple(paths))
        if key not in self._harmless:
            tokens = [_nested(path, f"{_prefix(example, path)}t0ken{n}x") for n, path in enumerate(paths)]
            self._harmless[key] = self.objects(example.params, *tokens, example=example)
        return self._harmless[key]

    def _documents(self, text: str, file: str) -> list[Any]:
        key = (file, text)
        if key not in self._parsed:
            if len(self._parsed) > 256:
                self._parsed.clear()
            documents = read.read_documents(text, source=f"{file}, as rendered")
            self._parsed[key] = [data for document in documents for _, data in unpacked(document.value)]
        return self._parsed[key]


def _preset_values(prototype: Prototype, environment: str) -> Values:
    """Give what the preset of an environment sets of this prototype's parameters."""
    folder = files.preset(environment)
    if folder is None:
        return {}
    file = folder / "params.yaml"
    shared = document.read(file.read_bytes(), file=file.name).value.get("globals") or {}
    return {name: value for name, value in shared.items() if name in prototype.params}


# --- many parameters at once: every two values of two parameters stand together in some row ---


class TrialRow(NamedTuple):
    """Parameters that differ from an example's, and what became of them."""

    params: Values
    objects: list[KubeObject]
    error: MlstackError | None = None


def matrix(trial: PrototypeTrial, example: Example) -> list[Values]:
    """Give other values for an example: enumerations, booleans, bounds, set and unset, pairwise.

    What the prototype refuses is no fault: a value that it refuses by itself is left out.
    """
    choices = {
        name: [options[0], *(value for value in options[1:] if _is_taken(trial, example, {name: value}))]
        for name, options in _choices(trial.prototype, example.params).items()
    }
    return [*pairwise(choices)]


def _is_taken(trial: PrototypeTrial, example: Example, row: Values) -> bool:
    try:
        trial.objects(example.params, row, example=example)
    except ConfigError as error:  # any other fault its row tells
        return not isinstance(error, REFUSALS)
    return True


def tried(trial: PrototypeTrial, example: Example, row: Values) -> Iterator[TrialRow]:
    """Render an example with a row of a matrix; one that is refused as a whole in halves."""
    try:
        yield TrialRow(row, trial.objects(example.params, row, example=example))
    except REFUSALS:
        names = list(row)
        middle = len(names) // 2
        for half in (names[:middle], names[middle:]) if middle else ():
            yield from tried(trial, example, {name: row[name] for name in half})
    except ConfigError as error:
        yield TrialRow(row, [], error)


_UNCHANGED = object()


def _choices(prototype: Prototype, base: Values) -> dict[str, list[Any]]:
    """Give the values of each parameter that are worth trying; the first leaves it as it is."""
    choices: dict[str, list[Any]] = {}
    for name, param in prototype.params.items():
        current = base.get(name, param.default)
        # What an example lists is left as it is: its other texts refer to the names in it.
        is_filled = bool(base.get(name)) and bool(schema_types(param.schema) & {"array", "object"})
        if param.deprecated is None and not param.schema.get("const") and not is_filled:
            fitting = [value for value in _candidates(param, current) if not schema.check_value(param, value)]
            unset = [] if param.required or param.default is None else [None]
            distinct = {json.dumps(value, sort_keys=True): value for value in [*fitting, *unset]}
            distinct.pop(json.dumps(current, sort_keys=True, default=str), None)
            choices[name] = [_UNCHANGED, *distinct.values()]
    return choices


def _candidates(param: Param, current: Any) -> Iterator[Any]:
    types = schema_types(param.schema)
    if "enum" in param.schema or "boolean" in types:
        yield from param.schema.get("enum", ())
        yield from (True, False) if "boolean" in types else ()
        return
    bounds = [param.schema[word] for word in ("minimum", "maximum") if word in param.schema]
    others = [value for value in [*param.examples, *other_values(param, current)] if value is not None]
    fitting = (value for value in others if not schema.check_value(param, value))
    yield from bounds if len(bounds) == 2 else [*bounds, *islice(fitting, 1)]


def pairwise(choices: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Give rows in which every two choices of two names stand together once at least, few of them.

    Greedy: each row begins with a pair that is left and takes for every other name what settles most pairs.
    """
    names = [name for name, options in choices.items() if len(options) > 1]
    options = [[(p, i) for i in range(len(choices[name]))] for p, name in enumerate(names)]
    cells = {cell for every in options for cell in every}
    # What each choice has not stood together with yet; of a single name, each choice has to stand by itself.
    left = {cell: cells.difference(every) or {cell} for every in options for cell in every}
    while first := next((cell for cell, others in left.items() if others), None):
        row = {first, min(left[first])}
        for every in options:
            if row.isdisjoint(every):
                row.add(max(every, key=lambda cell: len(left[cell] & row)))
        for cell in row:
            left[cell] -= row
        picked = {names[p]: choices[names[p]][i] for p, i in sorted(row)}
        yield {name: value for name, value in picked.items() if value is not _UNCHANGED}


# --- hostile texts: they change the value they are given for, byte for byte, and nothing around it ---

HOSTILE = (
    *("yes", "null", "~", "NO", " ", "  x", "x  ", "012", "0x1F", "1e3", "1:30", ".inf", "123", "2001-01-01"),
    *("---", "- x", "? x", "a: b", "a #b", "x:", "&a", "*a", "!a", "%YAML 1.1", "@x", "`x`", "'", '"'),
    *("it's", "\\", "a\\nb", "{a: b}", "[a, b]", "]}", "{{ params }}", "{% raw %}", "{# x #}", "${x}"),
    *("$(x)", "a\nb", "a\n\nb\n", "a\tb", "a\r\nb", "| x", "a\n---\nb", "\x85", "\u2028", "\ufeff"),
    *("é", "🚀", "a, b", "a=b,c", "x" * 5_000, "a', b: 'c", 'a", b: "c'),
)
_NUMBER = re.compile(r"[-+.]?[0-9].*")


class HostileText(NamedTuple):
    """A text that did not come out as what it is."""

    example: str
    path: KeyPath  # of the parameter
    text: str
    message: str
    where: str | None = None


class Hostility(NamedTuple):
    """What became of the hostile texts."""

    texts: int  # how many were rendered
    faults: list[HostileText]  # the first of each parameter


def try_hostile(trial: PrototypeTrial, examples: Sequence[Example]) -> Hostility:
    """Give every string parameter hostile texts, as far as its schema admits them.

    They are compared with harmless tokens in their place: in values, in keys, in JSON inside of values.
    """
    faults: dict[KeyPath, HostileText] = {}
    waiting, count = list(string_places(trial.prototype)), 0
    for example in examples:
        shown: list[KeyPath] = []
        places = _tolerated(trial, example, waiting, shown)
        texts = {path: _admitted(trial.prototype, example, path) for path in places}
        for number in range(max(map(len, texts.values()), default=0)):
            row = {
                path: admitted[(number + 7 * n) % len(admitted)]
                for n, (path, admitted) in enumerate(texts.items())
                if admitted and path not in faults
            }
            count += len(row)
            for fault in _swapped_faults(trial, example, row):
                faults.setdefault(fault.path, fault)
        waiting = [path for path in waiting if path not in shown]
    return Hostility(count, list(faults.values()))


def try_texts(trial: PrototypeTrial, example: Example, values: Values) -> Hostility:
    """Compare an example that is rendered with some texts as `try_hostile` does."""
    places = string_places(trial.prototype)
    texts = {path: text for path in places if isinstance(text := at(values, path), str)}
    row = {path: text for path, text in texts.items() if text.startswith(_prefix(example, path))}
    try:
        trial.harmless(example, list(row))
    except ConfigError:  # not for the texts' sake
        return Hostility(0, [])
    return Hostility(len(row), [*_swapped_faults(trial, example, row)])


def hostile_value(fault: HostileText) -> tuple[str, Any]:
    """Give the parameter of a text that did not come out, and the value that holds the text."""
    return str(fault.path[0]), _nested(fault.path, fault.text)[str(fault.path[0])]


def string_places(prototype: Prototype) -> Iterator[KeyPath]:
    """Give the path of every place in the parameters that holds a string of the user's choice."""
    for name, param in prototype.params.items():
        if param.deprecated is None:
            yield from ((name, *path) for path in _strings(param.schema))


def _strings(declared: Mapping[str, Any]) -> Iterator[KeyPath]:
    kinds = schema_types(declared)
    if "enum" in declared or "const" in declared:
        return
    if "string" in kinds:
        yield ()
    elif "array" in kinds and isinstance(declared.get("items"), Mapping):
        yield from ((0, *path) for path in _strings(declared["items"]))
    elif "object" in kinds:
        others = declared.get("additionalProperties")
        inner = {"KEY": others, **declared.get("properties", {})}
        for name, value in inner.items():
            if isinstance(value, Mapping):
                yield from ((name, *path) for path in _strings(value))


def _tolerated(
    trial: PrototypeTrial, example: Example, waiting: Sequence[KeyPath], shown: list[KeyPath]
) -> list[KeyPath]:
    """Give the places that take a token together, and note those whose token is seen in the objects."""
    places: list[KeyPath] = []
    usual = {id(obj.data) for obj in trial.objects(example.params, example=example)}
    for path in waiting:
        trying = [*places, path]
        try:
            objects = trial.harmless(example, trying)
        except ConfigError:
            continue
        places = trying
        changed = [obj.data for obj in objects if id(obj.data) not in usual]
        if f"t0ken{len(places) - 1}x" in json.dumps(changed):
            shown.append(path)
    return places


def _nested(path: KeyPath, text: str) -> dict[str, Any]:
    value: Any = text
    for key in reversed(path[1:]):
        value = [value] if key == 0 else {key: value}
    return {str(path[0]): value}


def _prefix(example: Example, path: KeyPath) -> str:
    """Give what has to stand before a text to make sense: the example's own path or address."""
    own = example.params.get(str(path[0])) if len(path) == 1 else None
    if not isinstance(own, str):
        return ""
    scheme, separator, _ = own.partition("://")
    return f"{scheme}{separator}" if separator else "/" if own.startswith("/") else ""


def _admitted(prototype: Prototype, example: Example, path: KeyPath) -> list[str]:
    """Give the hostile texts that a parameter takes for what they are: texts, and no numbers."""
    param = prototype.params[str(path[0])]
    has_digits = "^[0-9]" in str(param.schema.get("pattern"))
    is_number = has_digits or schema_types(param.schema) & {"integer", "number"}
    prefix = _prefix(example, path)
    admitted = []
    for text in HOSTILE:
        given = _nested(path, prefix + text)
        try:
            value = Declared({param.name: param}).resolve([Layer("component", given)]).values[param.name]
        except ParamError:
            continue
        taken = value == given[param.name] and not schema.check_value(param, value)
        if taken and not (is_number and _NUMBER.fullmatch(text)):
            admitted.append(prefix + text)
    return admitted


def _swapped_faults(
    trial: PrototypeTrial, example: Example, row: Mapping[KeyPath, str]
) -> Iterator[HostileText]:
    """Compare what is rendered with texts and with tokens; halves tell which parameter is to blame."""
    if not row:
        return
    paths = list(row)
    swaps = {f"t0ken{n}x": row[path][len(_prefix(example, path)) :] for n, path in enumerate(paths)}
    fault: tuple[str, str | None] | None = None
    try:
        harmless = trial.harmless(example, paths)
        texts = [_nested(path, text) for path, text in row.items()]
        hostile = trial.objects(example.params, *texts, example=example)
    except REFUSALS:
        if len(paths) == 1:
            return
        fault = ("", None)
    except ConfigError as error:
        fault = (error.message, error.where)
    else:
        difference = _difference([o.data for o in harmless], [o.data for o in hostile], swaps, ())
        fault = (difference, None) if difference else None
    if fault is None:
        return
    if len(paths) > 1:
        for half in (paths[: len(paths) // 2], paths[len(paths) // 2 :]):
            yield from _swapped_faults(trial, example, {path: row[path] for path in half})
    else:
        yield HostileText(example.name, paths[0], row[paths[0]], *fault)


def _difference(harmless: Any, hostile: Any, swaps: Mapping[str, str], path: KeyPath) -> str:
    """Say where two renderings differ by more than the texts themselves; empty if they do not."""
    if harmless is hostile:
        return ""
    if type(harmless) is not type(hostile):
        return f"{_place(path)} became {_kind(hostile)} instead of {_kind(harmless)}"
    if isinstance(harmless, dict):
        expected = {_swapped(str(key), swaps): key for key in harmless}
        if expected.keys() != hostile.keys():
            odd = ", ".join(f"`{key}`" for key in sorted({*hostile} ^ {*expected}))
            return f"{_place(path)} has other keys than it should: {odd}"
        inner = ((harmless[key], hostile[text], (*path, text)) for text, key in expected.items())
    elif isinstance(harmless, list):
        if len(harmless) != len(hostile):
            return f"{_place(path)} has {len(hostile)} entries instead of {len(harmless)}"
        pairs = enumerate(zip(harmless, hostile, strict=True))
        inner = ((one, other, (*path, index)) for index, (one, other) in pairs)
    elif isinstance(harmless, str) and "t0ken" in harmless:
        is_same = _is_same_text(harmless, hostile, swaps)
        return "" if is_same else f"{_place(path)} came out as {document.shown(hostile)}"
    else:
        return ""
    return next(filter(None, (_difference(*parts[:2], swaps, parts[2]) for parts in inner)), "")


def _place(path: KeyPath) -> str:
    return f"`{join_path(path)}`" if path else "what is rendered"


def _is_same_text(harmless: str, hostile: str, swaps: Mapping[str, str]) -> bool:
    """Tell whether texts stand in their tokens' place: as they are, or escaped for what they stand in."""
    escapes = (
        lambda text: text,
        lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
        lambda text: json.dumps(text)[1:-1],
        lambda text: text.replace("\\", "\\\\").replace('"', '\\"'),
        lambda text: shlex.quote(f"x{text}")[1:].removeprefix("x").removesuffix("'"),
    )
    escaped = ({token: escape(text) for token, text in swaps.items()} for escape in escapes)
    if any(_swapped(harmless, texts) == hostile for texts in escaped):
        return True
    try:
        return not _difference(json.loads(harmless), json.loads(hostile), swaps, ())
    except ValueError:
        return False


def _swapped(text: str, swaps: Mapping[str, str]) -> str:
    for token, hostile in swaps.items() if "t0ken" in text else ():
        text = text.replace(token, hostile)
    return text


def _kind(value: Any) -> str:
    return document.described(value) if isinstance(value, dict | list) else document.shown(value)
