"""Files of ours: a dataclass declares each kind, documents know where every part stands, fields are typed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from mlstack.dataclass import dataclass
from mlstack.errors import SchemaError, YamlError
from mlstack.names import did_you_mean, nearest
from mlstack.yaml import read as yamlread
from mlstack.yaml.read import KeyPath

if TYPE_CHECKING:
    from mlstack.objects.managed_fields import FieldPattern

API_VERSION = "mlstack.dev/v1"
T = TypeVar("T")

# --- a file kind said once: a dataclass whose fields carry key, schema and help gives schema and writer ---

# Shapes of values, as JSON Schema has them.
TEXT = {"type": "string"}
WORD = {"type": "string", "minLength": 1}
MAP = {"type": "object"}
FLAG = {"type": "boolean"}
NAME = {"type": "string", "pattern": "^[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?$"}
SHORT_NAME = {**NAME, "maxLength": 63}
VERSION = {"type": "string", "pattern": "^[0-9a-zA-Z]([-_.+a-zA-Z0-9]*[0-9a-zA-Z])?$"}
NAMESPACE = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
ENVIRONMENT = "^[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?(/[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?)*$"
PACKAGE = {"type": "string", "pattern": r"^[^/@\s]+/[^/@\s]+(@[^/@\s]+)?$"}
_RANGE = {
    **TEXT,
    "description": "A version, or a range: `^1.2`, `~1.2`, `1.x`, `>=1.0 <2`; any when left out.",
}
REQUIREMENT = {
    "type": ["string", "object"],
    "pattern": PACKAGE["pattern"],
    "required": ["name"],
    "additionalProperties": False,
    "properties": {"name": PACKAGE, "version": _RANGE},
}
DIGEST = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
_LABEL_KEY = "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_OWN_LABELS = r"^(mlstack\.dev/.*|app\.kubernetes\.io/(managed-by|part-of))$"
_LABEL_VALUE = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
LABELS = {
    "type": "object",
    "propertyNames": {"pattern": _LABEL_KEY},
    "patternProperties": {_OWN_LABELS: {"not": {}}},
    "additionalProperties": {"type": ["string", "null"], "maxLength": 63, "pattern": _LABEL_VALUE},
}
ANNOTATIONS = {
    "type": "object",
    "propertyNames": {"pattern": _LABEL_KEY},
    "additionalProperties": {"type": ["string", "null"]},
}
SIGNATURE = {"type": "string", "pattern": "^[A-Za-z0-9+/]+=*$"}


def list_of(items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Give the shape of a list."""
    return {"type": "array", "items": items, **more}


def map_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Give the shape of a map."""
    return {"type": "object", "additionalProperties": values}


@dataclass(frozen=True, kw_only=True)
class FileKey:
    """One key of a file."""

    name: str  # as the file spells it
    field: str  # as the dataclass spells it
    shape: Mapping[str, Any]  # its schema, but for that of the maps in it
    required: bool
    default: Any
    record: type | None = None  # what the map, or each map of the list, is read as
    by: str = ""  # the field that the maps of the list are kept under; a tuple without it
    # takes the key's name, where the schema alone does not say how to read it
    reader: Callable[[FieldReader, str], Any] | None = None

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """Give its schema; schemas are made when somebody asks for them, most commands do not."""
        if self.record is None:
            return self.shape
        inner = record_schema(self.record)
        if self.shape["type"] == "array":
            return {**self.shape, "items": {**inner, **self.shape.get("items", {})}}
        return {"type": inner.pop("type"), "additionalProperties": False, **self.shape, **inner}


def key(schema: Mapping[str, Any], help: str = "", **more: Any) -> Any:
    """Declare a field of a dataclass as a key of its file, described by `help`.

    `name` (the field's in camel case without it), `required` and `reader` are as in `FileKey`; the rest goes
    to `dataclasses.field`. What is not required is empty where it is left out: `()`, `{}`, `False` or `""`.
    """
    shape = {**schema, "description": help} if help else schema
    return _field(shape, _EMPTY.get(str(schema.get("type")), {"default": ""}), more)


_EMPTY: dict[str, dict[str, Any]] = {
    "array": {"default": ()},
    "object": {"default_factory": dict},
    "boolean": {"default": False},
}


def records(kind: type, help: str = "", **more: Any) -> Any:
    """Declare a list of maps, each of them read as `kind`; `more` as of `key`, and words of the schema.

    With `by` they are kept as a mapping by that field.
    """
    words = {word: more.pop(word) for word in ("minItems", "items") if word in more}
    shape = {"type": "array", **({"description": help} if help else {}), **words}
    return _field(shape, _EMPTY["object" if "by" in more else "array"], {"record": kind, **more})


def record(kind: type, help: str, **more: Any) -> Any:
    """Declare a map that is read as `kind`; None when it is not there."""
    return _field({"type": "object", "description": help}, {"default": None}, {"record": kind, **more})


def _field(shape: Mapping[str, Any], empty: Mapping[str, Any], more: dict[str, Any]) -> Any:
    facts = {word: more.pop(word) for word in ("name", "required", "reader", "record", "by") if word in more}
    if not facts.get("required") and not {"default", "default_factory"} & more.keys():
        more |= empty
    return field(metadata={"shape": shape, **facts}, **more)


_KEYS: dict[type, tuple[FileKey, ...]] = {}


def keys_of(kind: type) -> tuple[FileKey, ...]:
    """Give the keys that a dataclass declares, in their order."""
    if kind not in _KEYS:
        keys = []
        for declared in fields(kind):
            if declared.metadata:
                first, *rest = declared.name.split("_")
                name = first + "".join(map(str.capitalize, rest))
                default = "" if declared.default is MISSING else declared.default
                facts = {"name": name, "required": False, **declared.metadata}
                keys.append(FileKey(field=declared.name, default=default, **facts))
        _KEYS[kind] = tuple(keys)
    return _KEYS[kind]


def record_schema(kind: type) -> dict[str, Any]:
    """Give the JSON Schema of a map."""
    keys = keys_of(kind)
    required = [key.name for key in keys if key.required]
    head: dict[str, Any] = {"type": "object", **({"required": required} if required else {})}
    return {**head, "additionalProperties": False, "properties": {key.name: key.schema for key in keys}}


def schema_of_file(kind: type, name: str, api_version: str, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Give the JSON Schema of a file of the kind `name`; the dataclass gives its description."""
    inner = record_schema(kind)
    types = {"apiVersion": {"const": api_version}, "kind": {"const": name}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://mlstack.dev/schemas/v1/{name}.json",
        "title": name,
        "description": kind.__doc__,
        "type": "object",
        "required": [*types, *inner.get("required", ())],
        "additionalProperties": False,
        "properties": {**types, **inner["properties"]},
        **({"$defs": definitions} if definitions else {}),
    }


def to_map(value: Any, always: Collection[str] = ()) -> dict[str, Any]:
    """Write a declared value as its file has it; a key with its default is left out unless in `always`."""
    content: dict[str, Any] = {}
    for key in keys_of(type(value)):
        inner = getattr(value, key.field)
        if key.name not in always and (inner == key.default or inner in ((), {})):
            continue
        if key.by:
            inner = tuple(inner.values())
        if isinstance(inner, tuple):
            content[key.name] = [
                to_map(entry) if key.record is not None else getattr(entry, "entry", entry) for entry in inner
            ]  # a requirement of a package has an `entry`
        elif key.record is not None:
            content[key.name] = to_map(inner)
        else:
            content[key.name] = dict(inner) if isinstance(inner, Mapping) else inner
    return content


# --- one document of a file, and where its parts stand ---


class Origin(NamedTuple):
    """Where a value was set: a file of the app, or `prototype kubeflow/tf-job/tf-cnn`, or `--set`."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


_ITEM = r"(?<!\\)\[([0-9]{1,6})\](?=\[|$)"


def split_path(text: str) -> KeyPath:
    r"""Split a dotted key, in which `args[0]` is an item of a list.

    `\.` is a dot inside a key (`nodeSelector.cloud\.google\.com/pool`), `\[` a bracket.
    """
    path: KeyPath = ()
    for part in re.split(r"(?<!\\)\.", text):
        items = [*re.finditer(_ITEM, part)]
        key = part[: items[0].start()] if items else part
        path += (re.sub(r"\\([.\[])", r"\1", key), *(int(item[1]) for item in items))
    return path


def join_path(path: Sequence[str | int]) -> str:
    """Write a dotted key that `split_path` reads back."""
    parts = (
        f"[{part}]" if isinstance(part, int) else "." + re.sub(r"\.|\[(?=[0-9]+\])", r"\\\g<0>", part)
        for part in path
    )
    return "".join(parts).removeprefix(".")


@dataclass(frozen=True)
class AppDocument:
    """A document and the name of its file for messages (below the app directory, with `/`)."""

    file: str
    content: yamlread.Document

    @property
    def value(self) -> Any:
        """Give the value as plain data."""
        return self.content.value

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


def read(data: bytes, *, file: str) -> AppDocument:
    """Read a file that holds exactly one document."""
    return AppDocument(file, yamlread.read_document(decode(data, file=file), source=file))


def read_all(data: bytes, *, file: str) -> tuple[AppDocument, ...]:
    """Read every document of a file; empty ones are left out."""
    documents = yamlread.read_documents(decode(data, file=file), source=file, with_positions=True)
    return tuple(AppDocument(file, document) for document in documents)


def decode(data: bytes, *, file: str) -> str:
    """Give the text of a file."""
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


# --- fields of a map, each of the type it must have ----------------------------------------------------
# What a file of ours may hold, its JSON Schema says (`schema.check_file`), once for each content; what stands
# in other files is looked at here.


class FieldReader:
    """One map of a document; whatever has the wrong type raises a SchemaError with its position."""

    def __init__(self, document: AppDocument, path: KeyPath = ()) -> None:
        self._document = document
        self._path = path
        value = document.value
        for part in path:
            value = value[part]
        if not isinstance(value, Mapping):
            self.refuse((), f"must be a map, got {described(value)}")
        self._map: Mapping[str, Any] = value

    def only(self, *names: str) -> FieldReader:
        """Refuse every field that is not one of `names`, with the nearest of them."""
        for name in self._map:
            if name not in names:
                hint = did_you_mean(str(name), names, f"known fields: {', '.join(names)}")
                self.refuse(name, "is no field of this file", hint=hint)
        return self

    def record(self, kind: type[T], /, **given: Any) -> T:
        """Read the map, which fits its schema, as a declared dataclass; fields `given` stand elsewhere."""
        return kind(**given, **{key.field: self._declared(key) for key in keys_of(kind)})

    def _declared(self, key: FileKey) -> Any:
        name, shape = key.name, key.shape.get("type")
        if key.reader is not None:
            return key.reader(self, name)
        if key.record is not None and shape == "array":
            entries: tuple[Any, ...] = tuple(entry.record(key.record) for entry in self.each(name))
            return {getattr(entry, key.by): entry for entry in entries} if key.by else entries
        if key.record is not None:
            inner = self.inner(name)
            return inner.record(key.record) if inner else None
        if shape == "array":
            return tuple(self.value(name, ()))
        return self.value(name, {} if shape == "object" else key.default)

    def has(self, name: str) -> bool:
        """Tell whether a field is there and not null."""
        return self._map.get(name) is not None

    def value(self, name: str, default: Any = None) -> Any:
        """Give what stands there, else the default; its schema says what that may be."""
        value = self._map.get(name)
        return default if value is None else value

    def text(self, name: str, default: str | None = None) -> str:
        """Give a string; without a default it must be there and not empty."""
        value = self._map.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            wrong = "is required" if value is None else expectation("type", {"type": "string"}, value)
            self.refuse(name, wrong)
        if default is None and not value:
            self.refuse(name, "must not be empty")
        return value

    def duration_s(self, name: str) -> float | None:
        """Give a duration in seconds, or nothing."""
        value = self._map.get(name)
        if value is None:
            return None
        from mlstack.clock import seconds

        try:
            return seconds(str(value))
        except ValueError as error:
            self.refuse(name, str(error))

    def pattern(self, name: str, example: str) -> FieldPattern:
        """Give the path of a field of an object, as a diff writes it."""
        from mlstack.objects import managed_fields  # few files have one

        try:
            return managed_fields.read(self.text(name))
        except ValueError as error:
            self.refuse(name, str(error).partition("` ")[2], hint=f"write it as a diff does: {example}")

    def map(self, name: str) -> Mapping[str, Any]:
        """Give a map; empty when it is not there."""
        value: Mapping[str, Any] = self.value(name, {})
        if not isinstance(value, Mapping):
            self.refuse(name, f"must be a map, got {described(value)}")
        return value

    def inner(self, name: str) -> FieldReader | None:
        """Give the map of that name, or nothing."""
        return FieldReader(self._document, (*self._path, name)) if self.has(name) else None

    def each(self, name: str) -> Iterator[FieldReader]:
        """Give the maps of a list; none when it is not there."""
        for index in range(len(self.value(name, ()))):
            yield FieldReader(self._document, (*self._path, name, index))

    def named(self, name: str) -> Iterator[tuple[str, FieldReader | None]]:
        """Give a list of names and of maps with a `name`: each name, with its map if it is one."""
        for index, entry in enumerate(self.value(name, ())):
            place = (*self._path, name, index)
            fields = None if isinstance(entry, str) else FieldReader(self._document, place)
            yield entry if fields is None else fields.text("name"), fields

    def refuse(self, path: KeyPath | str, message: str, *, hint: str | None = None) -> NoReturn:
        """Raise the SchemaError that a field, or the map itself (an empty path), is wrong."""
        full = (*self._path, *((path,) if isinstance(path, str) else path))
        subject = f"`{join_path(full)}`" if full else "the file"
        raise SchemaError(f"{subject} {message}", where=str(self._document.origin(full)), hint=hint)


def is_newer(version: str) -> bool:
    """Tell whether a version of our files comes after ours, in the order of Kubernetes: v1beta1, v1, v2."""
    match = re.fullmatch(r"mlstack\.dev/v([0-9]{1,9})((?:alpha|beta)[0-9]+)?", version)
    ours = int(API_VERSION.rpartition("v")[2])
    return match is None or int(match[1]) > ours


def fields_of(document: AppDocument, kind: str) -> FieldReader:
    """Give the fields of a file of a known kind, `apiVersion` and `kind` checked."""
    fields = FieldReader(document)
    if document.value.get("kind") == "ksonnet.io/app":
        hint = "bring it over: mlstack import ksonnet-app DIR --out NEW"
        fields.refuse("kind", "says that this is an app of ksonnet", hint=hint)
    version, own_kind = fields.text("apiVersion"), fields.text("kind")
    if version != API_VERSION and version.startswith("mlstack.dev/"):
        if is_newer(version):
            newer = f"which a newer mlstack wrote; this one reads `{API_VERSION}`: upgrade mlstack"
            fields.refuse("apiVersion", f"is `{version}`, {newer}")
        hint = "mlstack upgrade brings files of older releases up to date"
        fields.refuse("apiVersion", f"is `{version}`; this mlstack reads `{API_VERSION}`", hint=hint)
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
_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
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
    if keyword in _BOUNDS:
        low, high = schema.get("minimum"), schema.get("maximum")
        if low is not None and high is not None:
            bounds = f"{low} to {_counted(high, unit)}" if low != high else _counted(low, unit)
        else:
            given = [(word, schema[name]) for name, word in _BOUNDS.items() if schema.get(name) is not None]
            bounds = " and ".join(f"{word} {_counted(bound, unit)}" for word, bound in given)
        return f"must be {bounds}, got {shown(value)}"
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
    choices = [f"`{_plain(choice)}`" for choice in expected or ()] if keyword == "enum" else []
    wording = {
        "enum": f"must be one of {', '.join(choices)}, got",
        "const": f"must be `{_plain(expected)}`, got",
        "pattern": f"must match `{expected}`, got",
        "multipleOf": f"must be a multiple of {expected}, got",
        "uniqueItems": "must not hold anything twice, got",
        "not": "must not be",
    }.get(keyword, f"does not fit `{keyword}`, got")
    return f"{wording} {shown(value)}"


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


def schema_types(schema: Mapping[str, Any]) -> frozenset[str]:
    """Give the JSON types a schema allows, read from `type`, `enum`, `const`, `anyOf` and `oneOf`."""
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset((declared,))
    if isinstance(declared, list):
        return frozenset(declared)
    if "enum" in schema or "const" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return frozenset(json_type(value) for value in values)
    branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return frozenset(name for branch in branches for name in schema_types(branch))


def json_type(value: Any) -> str:
    """Name the JSON type of a plain value."""
    for kind, name in _JSON_TYPES:
        if isinstance(value, kind):
            return name
    return "null" if value is None else type(value).__name__


_JSON_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)
