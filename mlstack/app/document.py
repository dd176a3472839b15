"""One YAML document of a known file: its value, the source position of every part, and its fields by type."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from mlstack import clock
from mlstack.app.app import API_VERSION, PackageRef, parse_package_ref
from mlstack.app.declare import FileKey, key_names, keys_of
from mlstack.app.params import KeyPath, Layer, Origin, join_path
from mlstack.app.prototype import json_type, schema_types
from mlstack.errors import SchemaError, UsageError, YamlError
from mlstack.names import nearest
from mlstack.objects import managed_fields
from mlstack.objects.managed_fields import FieldPattern
from mlstack.yaml import read as yamlread

T = TypeVar("T")


@dataclass(frozen=True)
class AppDocument:
    """A document and the name of its file for messages (below the app directory, with `/`)."""

    file: str
    content: yamlread.Document

    @property
    def value(self) -> Any:
        """Give the value as plain data."""
        return self.content.value

    def at(self, path: KeyPath) -> Any:
        """Give the value at a path that is there."""
        value = self.content.value
        for part in path:
            value = value[part]
        return value

    def origin(self, path: KeyPath = ()) -> Origin:
        """Give the position of a path, or of the nearest thing around it."""
        return Origin(self.file, self.content.position(path).line)

    def origins(self, path: KeyPath = ()) -> dict[KeyPath, Origin]:
        """Give the positions of everything below `path`, by path from there."""
        depth = len(path)
        return {
            full[depth:]: Origin(self.file, position.line)
            for full, position in self.content.positions.items()
            if len(full) > depth and full[:depth] == path
        }

    def all_origins(self) -> dict[KeyPath, Origin]:
        """Give the positions of everything by path, and of the whole."""
        return {(): self.origin(), **self.origins()}

    def origins_by_key(self, path: KeyPath) -> dict[str, dict[KeyPath, Origin]]:
        """Give the positions below each key of the map at `path`, in one pass over all positions."""
        grouped: dict[str, dict[KeyPath, Origin]] = {}
        for (name, *rest), origin in self.origins(path).items():
            grouped.setdefault(str(name), {})[tuple(rest)] = origin
        return grouped


def read(data: bytes, *, file: str) -> AppDocument:
    """Read a file that holds exactly one document.

    Raises:
        YamlError: it is no YAML, no UTF-8, or not one document.
    """
    return AppDocument(file, yamlread.read_document(decode(data, file=file), source=file))


def read_all(data: bytes, *, file: str) -> tuple[AppDocument, ...]:
    """Read every document of a file; empty ones are left out.

    Raises:
        YamlError: it is no YAML or no UTF-8.
    """
    documents = yamlread.read_documents(decode(data, file=file), source=file, with_positions=True)
    return tuple(AppDocument(file, document) for document in documents)


def decode(data: bytes, *, file: str) -> str:
    """Give the text of a file.

    Raises:
        YamlError: it is not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        message = "the file is not UTF-8 text"
        raise YamlError(message, where=f"{file}:{line}", hint="save it as UTF-8") from error


def kind_of(value: Any) -> str | None:
    """Give the kind of a document of ours, or nothing for anything else."""
    if isinstance(value, Mapping) and str(value.get("apiVersion", "")).startswith("mlstack.dev/"):
        return str(value.get("kind", ""))
    return None


def layer_of(document: AppDocument, path: KeyPath, kind: str, target: str) -> Layer:
    """Give the map at a path of a document as a layer; an absent one is an empty layer.

    Raises:
        SchemaError: something else than a map stands there.
    """
    value: Any = document.value
    for part in path:
        value = value.get(part)
        if value is None:
            return Layer(kind, {}, target=target)
    FieldReader(document, path)
    return Layer(kind, value, document.origins(path), target)


# --- fields of a map, each of the type it must have ----------------------------------------------------
# This look at the structure always happens and imports nothing. Patterns and formats are the JSON
# Schema's to check (`schema.check_file`), once for each content.


class FieldReader:
    """One map of a document; whatever has the wrong type raises a SchemaError with its position."""

    def __init__(self, document: AppDocument, path: KeyPath = ()) -> None:
        self._document = document
        self._path = path
        value = document.at(path)
        if not isinstance(value, Mapping):
            self._refuse((), f"must be a map, got {described(value)}")
        self._map: Mapping[str, Any] = value

    def only(self, *names: str) -> FieldReader:
        """Refuse every field that is not one of `names`, with the nearest of them."""
        for name in self._map:
            if name not in names:
                near = nearest(str(name), names)
                hint = f"did you mean `{near}`?" if near else f"known fields: {', '.join(names)}"
                self._refuse((name,), "is no field of this file", hint=hint)
        return self

    def known(self, kind: type) -> FieldReader:
        """Refuse every field that a dataclass does not declare."""
        return self.only(*(("apiVersion", "kind") if not self._path else ()), *key_names(kind))

    def record(self, kind: type[T], /, **given: Any) -> T:
        """Read the map as a declared dataclass; fields that are `given` are not read."""
        self.known(kind)
        values = {key.field: self._declared(key) for key in keys_of(kind) if key.field not in given}
        return kind(**given, **values)

    def records(self, name: str, kind: type[T]) -> tuple[T, ...]:
        """Read a list of maps as declared dataclasses; empty when it is not there."""
        return tuple(entry.record(kind) for entry in self.each(name))

    def _declared(self, key: FileKey) -> Any:
        """Read a field as it is declared."""
        if key.reader:
            return getattr(self, key.reader)(key.name)
        shape = key.schema.get("type")
        if key.record is not None and shape == "array":
            return self.records(key.name, key.record)
        if key.record is not None:
            inner = self.inner(key.name)
            return inner.record(key.record) if inner else None
        if "enum" in key.schema:
            return self.choice(key.name, key.schema["enum"], None if key.required else key.default)
        if shape == "boolean":
            return self.flag(key.name)
        if shape == "array":
            return self.texts(key.name)
        if shape == "object":
            return self.map(key.name)
        if key.required:
            return self.text(key.name)
        return self.text(key.name, key.default) if self.has(key.name) else key.default

    def has(self, name: str) -> bool:
        """Tell whether a field is there and not null."""
        return self._map.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """Give a string; without a default it must be there and not empty."""
        value = self._map.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            wrong = "is required" if value is None else expectation("type", {"type": "string"}, value)
            self._refuse((name,), wrong)
        if default is None and not value:
            self._refuse((name,), "must not be empty")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        """Give one of some strings."""
        value = self.text(name, default)
        if value not in choices:
            self.refuse(name, f"must be {' or '.join(f'`{word}`' for word in choices)}, got `{value}`")
        return value

    def flag(self, name: str) -> bool:
        """Give a boolean; false when it is not there."""
        value = self._map.get(name, False)
        if not isinstance(value, bool):
            self._refuse((name,), f"must be true or false, got {described(value)}")
        return value

    def scalar(self, name: str) -> str | int | float | bool:
        """Give a string, number or boolean."""
        return self._scalar((name,), self._map.get(name))

    def scalars(self, name: str) -> tuple[str | int | float | bool, ...]:
        """Give a list of strings, numbers and booleans; empty when it is not there."""
        return tuple(self._scalar((name, index), entry) for index, entry in enumerate(self._list(name)))

    def _scalar(self, path: KeyPath, value: object) -> str | int | float | bool:
        if not isinstance(value, str | int | float | bool):
            self._refuse(path, f"must be a string, a number, true or false, got {described(value)}")
        return value

    def duration_s(self, name: str) -> float | None:
        """Give a duration in seconds, or nothing."""
        value = self._map.get(name)
        try:
            return None if value is None else clock.seconds(str(value))
        except ValueError as error:
            self._refuse((name,), str(error))

    def pattern(self, name: str, example: str) -> FieldPattern:
        """Give the path of a field of an object, as a diff writes it."""
        try:
            return managed_fields.read(self.text(name))
        except ValueError as error:
            self.refuse(name, str(error).partition("` ")[2], hint=f"write it as a diff does: {example}")

    def texts(self, name: str) -> tuple[str, ...]:
        """Give a list of strings; empty when it is not there."""
        value = self._list(name)
        for index, entry in enumerate(value):
            if not isinstance(entry, str):
                self._refuse((name, index), f"must be a string, got {described(entry)}")
        return tuple(value)

    def _list(self, name: str) -> list[Any]:
        value = self._map.get(name)
        if value is not None and not isinstance(value, list):
            self._refuse((name,), f"must be a list, got {described(value)}")
        return value or []

    def map(self, name: str) -> Mapping[str, Any]:
        """Give a map; empty when it is not there."""
        value = self._map.get(name)
        if value is not None and not isinstance(value, Mapping):
            self._refuse((name,), f"must be a map, got {described(value)}")
        return value or {}

    def inner(self, name: str) -> FieldReader | None:
        """Give the map of that name, or nothing."""
        return FieldReader(self._document, (*self._path, name)) if self.has(name) else None

    def each(self, name: str) -> Iterator[FieldReader]:
        """Give the maps of a list; none when it is not there."""
        for index in range(len(self._list(name))):
            yield FieldReader(self._document, (*self._path, name, index))

    def named(self, name: str) -> Iterator[tuple[str, FieldReader | None]]:
        """Give a list of names and of maps with a `name`: each name, with its map if it is one."""
        for index, entry in enumerate(self._list(name)):
            if isinstance(entry, str):
                yield entry, None
            else:
                fields = FieldReader(self._document, (*self._path, name, index))
                yield fields.text("name"), fields

    def package(self, name: str) -> PackageRef:
        """Give a package reference such as `kubeflow/core@0.1.0`."""
        return self._package_ref((name,), self.text(name))

    def packages(self, name: str) -> tuple[PackageRef, ...]:
        """Give a list of package references."""
        return tuple(self._package_ref((name, index), text) for index, text in enumerate(self.texts(name)))

    def _package_ref(self, path: KeyPath, text: str) -> PackageRef:
        try:
            return parse_package_ref(text)
        except UsageError as error:
            self._refuse(path, f"is no package: `{text}`", hint=error.hint)

    def origin(self, name: str | None = None) -> Origin:
        """Give the position of a field, or of the map."""
        return self._document.origin(self._path if name is None else (*self._path, name))

    def refuse(self, name: str, message: str, *, hint: str | None = None) -> NoReturn:
        """Raise the SchemaError that a field is wrong."""
        self._refuse((name,), message, hint=hint)

    def refuse_all(self, message: str, *, hint: str | None = None) -> NoReturn:
        """Raise the SchemaError that the map itself is wrong."""
        self._refuse((), message, hint=hint)

    def _refuse(self, path: KeyPath, message: str, *, hint: str | None = None) -> NoReturn:
        full = (*self._path, *path)
        subject = f"`{join_path(full)}`" if full else "the file"
        raise SchemaError(f"{subject} {message}", where=str(self._document.origin(full)), hint=hint)


def fields_of(document: AppDocument, kind: str) -> FieldReader:
    """Give the fields of a file of a known kind, `apiVersion` and `kind` checked.

    Raises:
        SchemaError: another kind, or an apiVersion that this version does not know.
    """
    fields = FieldReader(document)
    if document.value.get("kind") == "ksonnet.io/app":
        fields.refuse(
            "kind", "says that this is an app of ksonnet", hint="start a new one: mlstack init NAME"
        )
    version, own_kind = fields.text("apiVersion"), fields.text("kind")
    if version != API_VERSION and version.startswith("mlstack.dev/"):
        newer = f"which a newer mlstack wrote; this one reads `{API_VERSION}`: upgrade mlstack"
        fields.refuse("apiVersion", f"is `{version}`, {newer}")
    if version != API_VERSION:
        fields.refuse("apiVersion", f"must be `{API_VERSION}`, got `{version}`")
    if own_kind != kind:
        fields.refuse("kind", f"must be `{kind}` in this file, got `{own_kind}`")
    return fields


# --- words for what a JSON Schema refuses: `must be 1 to 64, got 0` ------------------------------------

_LONGEST_VALUE = 60
_ARTICLES = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map",
    "null": "null",
}
_SIZES = {  # keyword → word and what is counted
    "minLength": ("at least", "characters"),
    "maxLength": ("at most", "characters"),
    "minItems": ("at least", "entries"),
    "maxItems": ("at most", "entries"),
    "minProperties": ("at least", "keys"),
    "maxProperties": ("at most", "keys"),
}


def expectation(keyword: str, schema: Mapping[str, Any], value: Any, *, unit: str = "") -> str:
    """Say what was expected where `keyword` of `schema` refused `value`, and what was seen.

    `unit` is what a number counts, in the plural.
    """
    expected = schema.get(keyword)
    if keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        return f"must be {_bounds(schema, unit)}, got {shown(value)}"
    if keyword in ("anyOf", "oneOf", "type"):
        types = [expected] if isinstance(expected, str) else list(expected or ())
        types = types if keyword == "type" else sorted(schema_types(schema))
        if not types:
            return f"does not fit, got {shown(value)}"
        quotes = ": put it in quotes" if expected == "string" and isinstance(value, int | float) else ""
        names = " or ".join(_ARTICLES.get(name, name) for name in types)
        return f"must be {names}, got {described(value)}{quotes}"
    if keyword in _SIZES:
        word, counted = _SIZES[keyword]
        if expected == 1 and word == "at least":
            return "must not be empty"
        return f"must have {word} {expected} {counted}, got {len(value)}"
    match keyword:
        case "enum":
            wording = f"be one of {', '.join(f'`{_plain(choice)}`' for choice in expected or ())}, got "
        case "const":
            wording = f"be `{_plain(expected)}`, got "
        case "pattern":
            wording = f"match `{expected}`, got "
        case "multipleOf":
            wording = f"be a multiple of {expected}, got "
        case "uniqueItems":
            wording = "not hold anything twice, got "
        case "not":
            wording = "not be "
        case _:
            return f"does not fit `{keyword}`, got {shown(value)}"
    return f"must {wording}{shown(value)}"


def _bounds(schema: Mapping[str, Any], unit: str) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{low} to {_counted(high, unit)}" if low != high else _counted(low, unit)
    bounds = (
        ("at least", low),
        ("more than", schema.get("exclusiveMinimum")),
        ("at most", high),
        ("less than", schema.get("exclusiveMaximum")),
    )
    return " and ".join(f"{word} {_counted(bound, unit)}" for word, bound in bounds if bound is not None)


def _counted(number: Any, unit: str) -> str:
    """Write a number with its unit, which comes in the plural: `1 GPU`, `2 GPUs`, `1 retry`."""
    if number == 1:
        unit = f"{unit[:-3]}y" if unit.endswith("ies") else unit.removesuffix("s")
    return f"{number} {unit}" if unit else str(number)


def described(value: Any) -> str:
    """Show a value; maps and lists by their type alone, strings in quotes so that `"1"` is no number."""
    return _ARTICLES[json_type(value)] if isinstance(value, Mapping | list) else shown(value)


def shown(value: Any) -> str:
    """Show a value shortly, as JSON."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def suggestion(keyword: str, schema: Mapping[str, Any], value: Any) -> str:
    """Give a value that would pass, to put into a hint; `VALUE` when none can be told."""
    if keyword in ("minimum", "maximum"):
        return str(schema[keyword])
    if keyword == "enum":
        words = [_typed_word(choice) for choice in schema["enum"]]
        return nearest(str(value), words) or next((word for word in words if word != '""'), words[0])
    defaults = [schema["default"]] if "default" in schema else []
    for example in (*defaults, *schema.get("examples", ())):
        if isinstance(example, str | int | float):
            return _typed_word(example)
    is_counted = keyword == "type" and isinstance(schema.get("minimum"), int)
    return str(schema["minimum"]) if is_counted else "VALUE"


def _typed_word(value: Any) -> str:
    """Write a value as one would type it in a shell."""
    if isinstance(value, bool) or not isinstance(value, str):
        return json.dumps(value)
    if not value:
        return '""'
    return value if all(c.isalnum() or c in "-_./:@%+=," for c in value) else f"'{value}'"
