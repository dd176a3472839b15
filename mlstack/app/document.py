"""One YAML document of a known file: its value, and the origin of every part of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from mlstack import clock
from mlstack.app.app import API_VERSION, PackageRef, parse_package_ref
from mlstack.app.params import KeyPath, Layer, Origin, join_path
from mlstack.app.prototype import json_type, schema_types
from mlstack.errors import ConfigError, SchemaError, UsageError, YamlError
from mlstack.names import nearest
from mlstack.yaml import read as yamlread

# --- One YAML document of a known file: its value, and the origin of every part of it ---


@dataclass(frozen=True)
class AppDocument:
    """A document and the name of its file for messages (below the app directory, with `/`)."""

    file: str
    content: yamlread.Document

    @property
    def value(self) -> Any:
        """Give the value as plain data."""
        return self.content.value

    @property
    def line(self) -> int:
        """Give the first line of the content, from 1."""
        return self.content.line

    def at(self, path: KeyPath) -> Any:
        """Give the value at a path that is there."""
        value = self.content.value
        for part in path:
            value = value[part]
        return value

    def origin(self, path: KeyPath = ()) -> Origin:
        """Give the place of a path, or of the nearest thing around it."""
        return Origin(self.file, self.content.position(path).line)

    def origins(self, path: KeyPath = ()) -> dict[KeyPath, Origin]:
        """Give the places of everything below `path`, by path from there."""
        depth = len(path)
        return {
            found[depth:]: Origin(self.file, position.line)
            for found, position in self.content.positions.items()
            if len(found) > depth and found[:depth] == path
        }

    def all_origins(self) -> dict[KeyPath, Origin]:
        """Give the places of everything by path, and of the whole."""
        return {(): self.origin(), **self.origins()}

    def origins_by_key(self, path: KeyPath) -> dict[str, dict[KeyPath, Origin]]:
        """Give the places below each key of the map at `path`, by path from there; one look at all places."""
        depth = len(path) + 1
        grouped: dict[str, dict[KeyPath, Origin]] = {}
        for found, position in self.content.positions.items():
            if len(found) > depth and found[: depth - 1] == path:
                grouped.setdefault(str(found[depth - 1]), {})[found[depth:]] = Origin(
                    self.file, position.line
                )
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
    text = decode(data, file=file)
    return tuple(
        AppDocument(file, each) for each in yamlread.read_documents(text, source=file, with_positions=True)
    )


def decode(data: bytes, *, file: str) -> str:
    """Give the text of a file.

    Raises:
        YamlError: it is not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise YamlError(
            "the file is not UTF-8 text", where=f"{file}:{line}", hint="save it as UTF-8"
        ) from error


def read_text_value(text: str) -> Any:
    """Read a value as a person types it for a list or map: YAML without a file.

    Raises:
        ValueError: it is no YAML.
    """
    try:
        documents = yamlread.read_documents(text, source="the value")
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return documents[0].value if len(documents) == 1 else None if not documents else text


def kind_of(value: Any) -> str | None:
    """Give the kind of a document of ours, or nothing for anything else."""
    if isinstance(value, Mapping) and str(value.get("apiVersion", "")).startswith("mlstack.dev/"):
        return str(value.get("kind", ""))
    return None


# --- Words for what a JSON Schema refuses: `must be 1 to 64, got 0` ---

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
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def expectation(keyword: str, schema: Mapping[str, Any], value: Any, *, unit: str = "") -> str:
    """Say what was expected where `keyword` of `schema` refused `value`, and what was seen.

    Args:
        keyword: the keyword that refused.
        schema: the schema it stands in.
        value: what was refused.
        unit: what a number counts.
    """
    if keyword in _BOUNDS:
        return f"must be {_bounds(schema, unit)}, got {shown(value)}"
    if keyword in ("anyOf", "oneOf"):
        types = sorted(schema_types(schema))
        return (
            f"must be {_types(types)}, got {described(value)}"
            if types
            else f"does not fit, got {shown(value)}"
        )
    word = _WORDS.get(keyword)
    return word(schema[keyword], value) if word else f"does not fit `{keyword}`, got {shown(value)}"


def _bounds(schema: Mapping[str, Any], unit: str) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f"{low} to {_counted(high, unit)}" if low != high else _counted(low, unit)
    parts = [
        f"{word} {_counted(bound, unit)}"
        for word, bound in (("at least", low), ("more than", above), ("at most", high), ("less than", below))
        if bound is not None
    ]
    return " and ".join(parts)


def _counted(number: Any, unit: str) -> str:
    """Write a number with its unit, which is given in the plural: `1 GPU`, `2 GPUs`, `1 retry`."""
    if number == 1:
        unit = f"{unit[:-3]}y" if unit.endswith("ies") else unit.removesuffix("s")
    return f"{number} {unit}" if unit else str(number)


def _types(names: Sequence[str]) -> str:
    return " or ".join(_ARTICLES.get(name, name) for name in names)


def _type(expected: Any, value: Any) -> str:
    names = [expected] if isinstance(expected, str) else list(expected)
    quotes = ": put it in quotes" if names == ["string"] and isinstance(value, int | float) else ""
    return f"must be {_types(names)}, got {described(value)}{quotes}"


def _enum(expected: Any, value: Any) -> str:
    return f"must be one of {', '.join(f'`{_plain(each)}`' for each in expected)}, got {shown(value)}"


def _size(word: str, of: str) -> Any:
    def say(expected: Any, value: Any) -> str:
        if expected == 1 and word == "at least":
            return "must not be empty"
        return f"must have {word} {expected} {of}, got {len(value)}"

    return say


_WORDS: Mapping[str, Any] = {
    "type": _type,
    "enum": _enum,
    "const": lambda expected, value: f"must be `{_plain(expected)}`, got {shown(value)}",
    "pattern": lambda expected, value: f"must match `{expected}`, got {shown(value)}",
    "minLength": _size("at least", "characters"),
    "maxLength": _size("at most", "characters"),
    "minItems": _size("at least", "entries"),
    "maxItems": _size("at most", "entries"),
    "minProperties": _size("at least", "keys"),
    "maxProperties": _size("at most", "keys"),
    "multipleOf": lambda expected, value: f"must be a multiple of {expected}, got {shown(value)}",
    "uniqueItems": lambda _expected, value: f"must not hold anything twice, got {shown(value)}",
    "not": lambda _expected, value: f"must not be {shown(value)}",
}


def described(value: Any) -> str:
    """Show a value; maps and lists by their type alone, strings in quotes so that `"1"` is no number."""
    if isinstance(value, Mapping | list):
        return _ARTICLES[json_type(value)]
    return shown(value)


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
        return _nearest_choice(schema["enum"], value)
    if "default" in schema and isinstance(schema["default"], str | int | float):
        return _typed_word(schema["default"])
    for example in schema.get("examples", ()):
        if isinstance(example, str | int | float):
            return _typed_word(example)
    if keyword == "type" and isinstance(schema.get("minimum"), int):
        return str(schema["minimum"])
    return "VALUE"


def _nearest_choice(choices: Sequence[Any], value: Any) -> str:
    from mlstack.names import nearest

    words = [_typed_word(choice) for choice in choices]
    return nearest(str(value), words) or next((word for word in words if word != '""'), words[0])


def _typed_word(value: Any) -> str:
    """Write a value as one would type it in a shell."""
    if isinstance(value, bool) or not isinstance(value, str):
        return json.dumps(value)
    return (
        value
        if value and all(c.isalnum() or c in "-_./:@%+=," for c in value)
        else f"'{value}'"
        if value
        else '""'
    )


# --- Take a file's content apart: the fields of one map, each of the type it must have ---
# This look at the structure always happens and imports nothing. Patterns and formats are the JSON
# Schema's to check (`schema.check_file`), once for each content.

_STRING = {"type": "string"}


class FieldReader:
    """One map of a document.

    Args:
        document: where the map stands.
        path: its place in the document.
    """

    def __init__(self, document: AppDocument, path: KeyPath = ()) -> None:
        self._document = document
        self._path = path
        value = document.at(path)
        if not isinstance(value, Mapping):
            self._refuse((), f"must be a map, got {described(value)}")
        self._map: Mapping[str, Any] = value

    def only(self, *names: str) -> FieldReader:
        """Refuse every field that is not one of `names`.

        Raises:
            SchemaError: with the nearest of them.
        """
        for name in self._map:
            if name not in names:
                near = nearest(str(name), names)
                hint = f"did you mean `{near}`?" if near else f"known fields: {', '.join(names)}"
                self._refuse((name,), "is no field of this file", hint=hint)
        return self

    def text(self, name: str, default: str | None = None) -> str:
        """Give a string; without a default it must be there and not empty."""
        value = self._map.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            self._refuse((name,), "is required" if value is None else expectation("type", _STRING, value))
        if default is None and not value:
            self._refuse((name,), "must not be empty")
        return value

    def optional_text(self, name: str) -> str | None:
        """Give a string, or nothing."""
        return None if self._map.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        """Give a boolean; false when it is not there."""
        value = self._map.get(name, False)
        if not isinstance(value, bool):
            self._refuse((name,), f"must be true or false, got {described(value)}")
        return value

    def has(self, name: str) -> bool:
        """Tell whether a field is there and not null."""
        return self._map.get(name) is not None

    def scalar(self, name: str) -> str | int | float | bool:
        """Give a string, number or boolean."""
        return self._scalar((name,), self._map.get(name))

    def scalars(self, name: str) -> tuple[str | int | float | bool, ...]:
        """Give a list of strings, numbers and booleans; empty when it is not there."""
        found = self._list(name)
        return tuple(self._scalar((name, index), entry) for index, entry in enumerate(found))

    def _scalar(self, path: KeyPath, value: object) -> str | int | float | bool:
        if not isinstance(value, str | int | float | bool):
            self._refuse(path, f"must be a string, a number, true or false, got {described(value)}")
        return value

    def duration_s(self, name: str) -> float | None:
        """Give a duration in seconds, or nothing."""
        value = self._map.get(name)
        if value is None:
            return None
        try:
            return clock.seconds(str(value))
        except ValueError as error:
            self._refuse((name,), str(error))

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
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._refuse((name,), f"must be a map, got {described(value)}")
        return value

    def inner(self, name: str) -> FieldReader | None:
        """Give the map of that name, or nothing."""
        return None if self._map.get(name) is None else FieldReader(self._document, (*self._path, name))

    def each(self, name: str) -> Iterator[FieldReader]:
        """Give the maps of a list; none when it is not there."""
        for index in range(len(self._list(name))):
            yield FieldReader(self._document, (*self._path, name, index))

    def named(self, name: str) -> Iterator[tuple[str, FieldReader | None]]:
        """Give a list of names and of maps with a `name`: each name, with its map if it is one."""
        for index, entry in enumerate(self._list(name)):
            fields = (
                None if isinstance(entry, str) else FieldReader(self._document, (*self._path, name, index))
            )
            yield (entry if fields is None else fields.text("name")), fields

    def package(self, name: str) -> PackageRef:
        """Give a package reference such as `kubeflow/core@0.1.0`."""
        return self._package_ref((name,), self.text(name))

    def packages(self, name: str) -> tuple[PackageRef, ...]:
        """Give a list of package references."""
        texts = self.texts(name)
        return tuple(self._package_ref((name, index), text) for index, text in enumerate(texts))

    def _package_ref(self, path: KeyPath, text: str) -> PackageRef:
        try:
            return parse_package_ref(text)
        except UsageError as error:
            self._refuse(path, f"is no package: `{text}`", hint=error.hint)

    def origin(self, name: str | None = None) -> Origin:
        """Give the place of a field, or of the map."""
        return self._document.origin(self._path if name is None else (*self._path, name))

    def refuse(self, name: str, message: str, *, hint: str | None = None) -> NoReturn:
        """Raise the error that a field is wrong.

        Raises:
            SchemaError: always.
        """
        self._refuse((name,), message, hint=hint)

    def refuse_all(self, message: str, *, hint: str | None = None) -> NoReturn:
        """Raise the error that the map itself is wrong."""
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
    version, found = fields.text("apiVersion"), fields.text("kind")
    if version != API_VERSION:
        fields.refuse("apiVersion", *_about_version(version))
    if found != kind:
        fields.refuse("kind", f"must be `{kind}` in this file, got `{found}`")
    return fields


def _about_version(version: str) -> tuple[str]:
    if version.startswith("mlstack.dev/"):
        return (
            f"is `{version}`, which a newer mlstack wrote; this one reads `{API_VERSION}`: upgrade mlstack",
        )
    return (f"must be `{API_VERSION}`, got `{version}`",)


def layer_of(document: AppDocument, path: KeyPath, kind: str, target: str) -> Layer:
    """Give the map at a path of a document as a layer; an absent one is an empty layer."""
    value: Any = document.value
    for part in path:
        value = value.get(part)
        if value is None:
            return Layer(kind, {}, target=target)
    FieldReader(document, path)
    return Layer(kind, value, document.origins(path), target)
