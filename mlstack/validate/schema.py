"""What a check looks at and what it answers."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from mlstack.app.schema import matches
from mlstack.names import nearest
from mlstack.objects.kinds import Schema, Schemas, list_type_of

# --- What a check looks at and what it answers ---

Severity = Literal["error", "warning"]
Keys = tuple[str | int, ...]

_MAX_SHOWN = 60
_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong with one object.

    Attributes:
        component: full name of the component that brings the object.
        object: the object as people name it: `Deployment kubeflow/tf-hub`.
        path: the field: `spec.template.spec.containers[0].image`; empty for the object as a whole.
        message: lower case, names in backticks, the value seen and what is expected.
        where: template or manifest as `file:line`, if it is known.
        severity: an `error` would be refused by the API server, a `warning` would be taken by it but will
            not work.
        keys: the path as its parts: field names and list indexes.
    """

    component: str
    object: str
    path: str
    message: str
    where: str | None = None
    severity: Severity = "error"
    keys: Keys = ()


class Problem(NamedTuple):
    """A fault before it is known whose it is."""

    keys: Keys
    message: str
    severity: Severity = "error"


Problems = Iterator[Problem]


@dataclass(frozen=True)
class Field:
    """A value inside an object and the way to it; what is missing or of another type reads as empty.

    Attributes:
        value: the value, None where there is none.
        keys: field names and list indexes that lead to it.
    """

    value: Any
    keys: Keys = ()

    def __bool__(self) -> bool:
        """Say whether there is a value, be it empty."""
        return self.value is not None

    def at(self, *keys: str) -> Field:
        """Go down by field names."""
        value = self.value
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return Field(value, self.keys + keys)

    @property
    def items(self) -> tuple[Field, ...]:
        """Give the items of a list."""
        if not isinstance(self.value, list):
            return ()
        return tuple(Field(item, (*self.keys, index)) for index, item in enumerate(self.value))

    @property
    def entries(self) -> tuple[tuple[str, Field], ...]:
        """Give the keys of a map and what stands under them."""
        if not isinstance(self.value, Mapping):
            return ()
        return tuple((str(key), Field(item, (*self.keys, str(key)))) for key, item in self.value.items())

    @property
    def names(self) -> tuple[str, ...]:
        """Give the keys of a map that have a value."""
        return tuple(key for key, inner in self.entries if inner)

    @property
    def text(self) -> str:
        """Give a string, empty where there is none."""
        return self.value if isinstance(self.value, str) else ""

    @property
    def number(self) -> int | None:
        """Give a whole number."""
        return self.value if isinstance(self.value, int) and not isinstance(self.value, bool) else None

    def says(self, message: str, severity: Severity = "error") -> Problem:
        """Make a problem of this field."""
        return Problem(self.keys, message, severity)

    def between(self, low: int, high: int = _MAX_INT32) -> Problems:
        """Demand a number in a range, where there is a number."""
        number = self.number
        if number is not None and not low <= number <= high:
            expected = f"at least {low}" if high == _MAX_INT32 and number < low else f"{low} to {high}"
            yield self.says(f"must be {expected}, got {number}")

    def needed(self) -> Problems:
        """Demand that there is a value, and not the empty one."""
        if self.value is None or self.value in ("", [], {}):
            yield self.says("is required")


def path_of(keys: Keys) -> str:
    """Write a path as people read it: `spec.ports[0].name`, `metadata.labels[example.org/x]`."""
    path = ""
    for key in keys:
        if isinstance(key, int):
            path += f"[{key}]"
        elif key.replace("_", "").replace("-", "").isalnum():
            path += f".{key}" if path else key
        else:
            path += f"[{key}]"
    return path


def shown(value: Any) -> str:
    """Write a value as it may stand in a message: short, in backticks."""
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    cut = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
    return f"`{cut}`" if cut else "an empty string"


# --- The formats that a schema can ask of a value: each function says what is expected, None if it
# is that

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_DURATION = re.compile(r"[+-]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+|0")
_DURATION_IN_WORDS = re.compile(
    r"\d\s*(ns|nano\w*|us|µs|micro\w*|ms|milli\w*|s|sec\w*|m|min\w*|h|hr|hour\w*|d|day\w*|w|wk|week\w*)(?![a-zµ])",
    re.IGNORECASE,
)
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_MAX_EXPONENT = 1000
_RANGES = {"int32": 31, "int64": 63}


def quantity(value: Any) -> Decimal | None:
    """Read a Kubernetes quantity (`500m`, `1.5Gi`, `2`), None where it is none."""
    match = _QUANTITY.fullmatch(str(value))
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not match:
        return None
    number, unit = Decimal(match[1]), match[2] or ""
    if unit in _BINARY:
        return number * Decimal(1024) ** _BINARY[unit]
    exponent = _DECIMAL[unit] if unit in _DECIMAL else int(unit[1:])
    return number.scaleb(exponent) if abs(exponent) <= _MAX_EXPONENT else None


def wrong_quantity(value: Any) -> str | None:
    """Check a quantity of a built-in kind, which is a string or a number."""
    return None if quantity(value) is not None else "a quantity such as `500m`, `2` or `1.5Gi`"


def wrong_integer(value: int, name: str) -> str | None:
    """Check the range of an `int32` or `int64`."""
    bits = _RANGES.get(name)
    if bits is None or -(2**bits) <= value < 2**bits:
        return None
    return f"a whole number of {bits + 1} bits"


def wrong_text(text: str, name: str) -> str | None:
    """Check a string's format; formats that the API server does not know say nothing."""
    check = _TEXTS.get(name.replace("-", ""))
    return check(text) if check else None


def _byte(text: str) -> str | None:
    # Line breaks do not count, as in Go.
    try:
        base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        return "text in base64"
    return None


def _date_time(text: str) -> str | None:
    match = _DATE_TIME.fullmatch(text)
    try:
        if match and datetime.fromisoformat(f"{match[1]}T{match[2]}"):
            return None
    except ValueError:
        pass
    return "a time such as `2026-01-31T12:00:00Z`"


def _duration(text: str) -> str | None:
    # Go's own form, or anything with a number and a unit in it.
    if _DURATION.fullmatch(text) or _DURATION_IN_WORDS.search(text):
        return None
    return "a duration such as `1h30m`"


def _matching(pattern: re.Pattern[str], expected: str) -> Callable[[str], str | None]:
    return lambda text: None if pattern.fullmatch(text) else expected


def _address(kind: Callable[[str], object], expected: str) -> Callable[[str], str | None]:
    def check(text: str) -> str | None:
        try:
            kind(text)
        except ValueError:
            return expected
        return None

    return check


_TEXTS: Mapping[str, Callable[[str], str | None]] = {
    "byte": _byte,
    "datetime": _date_time,
    "date": _matching(re.compile(r"\d{4}-\d\d-\d\d"), "a date such as `2026-01-31`"),
    "duration": _duration,
    "uuid": _matching(_UUID, "a UUID"),
    "ipv4": _address(ipaddress.IPv4Address, "an IPv4 address"),
    "ipv6": _address(ipaddress.IPv6Address, "an IPv6 address"),
    "cidr": _address(lambda text: ipaddress.ip_network(text, strict=False), "a network such as `10.0.0.0/8`"),
}


# --- Check a value against a schema: of a built-in kind or of a CustomResourceDefinition ---
# The two differ in small things. In built-in kinds null means absent and an empty string means unset. In
# custom resources null must be allowed, and a part may be open (`x-kubernetes-preserve-unknown-fields`).

_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "array": (list,),
    "object": (Mapping,),
    "integer": (int, float),
    "number": (int, float),
}
_ARTICLES = {"string": "a string", "boolean": "true or false", "array": "a list", "object": "a map"}
_ARTICLES |= {"integer": "a whole number", "number": "a number"}
# A port that names no protocol has TCP: the merge keys of lists of ports count it so.
_KEY_DEFAULTS = {"protocol": "TCP"}
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class Structure:
    """A walk through a value beside its schema.

    Args:
        schemas: the built-in definitions, for references and for the metadata of custom resources.
        custom: whether the schema is of a CustomResourceDefinition.
    """

    def __init__(self, schemas: Schemas, *, custom: bool) -> None:
        """Take what the walk needs."""
        self._schemas = schemas
        self._custom = custom

    def check(self, schema: Schema, field: Field) -> Problems:
        """Find what does not fit the schema."""
        if self._custom:
            root = {**schema, "x-kubernetes-embedded-resource": True}
            yield from self._value(root, field, closed=True)
        else:
            yield from self._value(schema, field, closed=True)

    def _value(self, schema: Schema, field: Field, *, closed: bool) -> Problems:
        schema = self._schemas.resolve(schema)
        if field.value is None:
            yield from self._null(schema, field)
            return
        wrong = _wrong_type(schema, field.value)
        if wrong:
            yield field.says(f"must be {wrong}, got {_described(field.value)}")
            return
        yield from self._enum(schema, field)
        if isinstance(field.value, str):
            yield from _text(schema, field)
        elif isinstance(field.value, list):
            yield from self._list(schema, field, closed=closed)
        elif isinstance(field.value, Mapping):
            yield from self._map(schema, field, closed=closed)
        elif not isinstance(field.value, bool):
            yield from _number(schema, field)
        if self._custom:
            yield from self._combined(schema, field)

    def _null(self, schema: Schema, field: Field) -> Problems:
        if self._custom and not schema.get("nullable"):
            expected = _expected(schema)
            if expected:
                yield field.says(f"must be {expected}, got null")

    def _enum(self, schema: Schema, field: Field) -> Problems:
        allowed = schema.get("enum")
        if allowed is None or field.value in allowed or (field.value == "" and not self._custom):
            return
        near = nearest(field.text, [one for one in allowed if isinstance(one, str)]) if field.text else None
        hint = f", did you mean `{near}`?" if near else ""
        yield field.says(f"must be one of {_listed(allowed)}, got {shown(field.value)}{hint}")

    def _list(self, schema: Schema, field: Field, *, closed: bool) -> Problems:
        yield from _sized(schema, field, "Items", "items")
        inner = schema.get("items")
        if isinstance(inner, Mapping):
            for item in field.items:
                yield from self._value(inner, item, closed=closed)
        if list_type_of(schema).type == "map":
            yield from (item.says("must be a map, got null") for item in field.items if not item)
        elif isinstance(inner, Mapping) and "enum" in inner and not self._custom:
            empty = (item for item in field.items if item.value in (None, ""))
            yield from (item.says(f"must be one of {_listed(inner['enum'])}, got nothing") for item in empty)
        yield from _duplicates(schema, field)

    def _map(self, schema: Schema, field: Field, *, closed: bool) -> Problems:
        yield from _sized(schema, field, "Properties", "entries")
        properties: Mapping[str, Schema] = schema.get("properties", {})
        embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        for name in self._required(schema, embedded=embedded):
            given, declared = field.value.get(name), properties.get(name, {})
            if given is None and self._custom and name in field.value and declared.get("nullable"):
                continue
            if given is None or (given == "" and "enum" in declared):
                yield field.at(name).says("is required")
        others = schema.get("additionalProperties")
        for name, inner in field.entries:
            if embedded and name == "metadata":
                yield from self._metadata(inner)
            elif name in properties:
                if inner or not _is_dropped(properties[name]):
                    yield from self._value(properties[name], inner, closed=closed)
            elif isinstance(others, Mapping):
                yield from self._value(others, inner, closed=closed)
            elif closed and self._is_closed(schema) and not (embedded and name in ("apiVersion", "kind")):
                yield inner.says(_unknown(name, properties))

    def _required(self, schema: Schema, *, embedded: bool) -> tuple[str, ...]:
        needed = tuple(schema.get("required", ()))
        return (*needed, *({"apiVersion", "kind"} - {*needed})) if embedded else needed

    def _metadata(self, field: Field) -> Problems:
        """Check the metadata of a custom resource, which is typed whatever its schema says."""
        meta = self._schemas.definition(_OBJECT_META)
        yield from Structure(self._schemas, custom=False)._value(meta, field, closed=True)

    def _is_closed(self, schema: Schema) -> bool:
        if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("additionalProperties") is True:
            return False
        return self._custom or "properties" in schema

    def _combined(self, schema: Schema, field: Field) -> Problems:
        """Check the logical combinations; they say nothing about which fields there are."""
        for part in schema.get("allOf", ()):
            yield from self._value(part, field, closed=False)
        forms = [] if schema.get("x-kubernetes-int-or-string") else schema.get("anyOf", [])
        if forms and not any(self._fits(part, field) for part in forms):
            yield field.says(f"fits none of the {len(forms)} allowed forms: {_forms(forms)}")
        if "oneOf" in schema:
            fitting = sum(self._fits(part, field) for part in schema["oneOf"])
            if fitting != 1:
                yield field.says(f"must fit exactly one form, fits {fitting}: {_forms(schema['oneOf'])}")
        if "not" in schema and self._fits(schema["not"], field):
            yield field.says(f"must not have the form {_forms([schema['not']])}")

    def _fits(self, schema: Schema, field: Field) -> bool:
        return next(self._value(schema, field, closed=False), None) is None


def _expected(schema: Schema) -> str | None:
    """Say which type a schema asks for, None where it takes any."""
    if schema.get("x-kubernetes-int-or-string"):
        return "a whole number or a string"
    return _ARTICLES.get(schema.get("type", ""))


def _wrong_type(schema: Schema, value: Any) -> str | None:
    """Say which type is expected, None where the value has it."""
    if schema.get("format") == "quantity":
        return wrong_quantity(value)
    names = ("integer", "string") if schema.get("x-kubernetes-int-or-string") else (schema.get("type"),)
    if None in names or any(name and _has_type(name, value) for name in (*names, schema.get("or"))):
        return None
    return _expected(schema)


def _has_type(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float) and not value.is_integer():
        return False
    return isinstance(value, _KINDS[name])


def _described(value: Any) -> str:
    if isinstance(value, str):
        return f"the string {shown(value)}"
    if isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "a map"
    return shown(value)


def _text(schema: Schema, field: Field) -> Problems:
    expected = wrong_text(field.value, str(schema.get("format", "")))
    if expected and not (field.value == "" and schema.get("format") == "byte"):
        yield field.says(f"must be {expected}, got {shown(field.value)}")
    length = len(field.value)
    if length < schema.get("minLength", 0):
        few = schema["minLength"]
        yield field.says(
            "must not be empty" if few == 1 else f"must have at least {few} characters, got {length}"
        )
    if length > schema.get("maxLength", length):
        yield field.says(f"must have at most {schema['maxLength']} characters, got {length}")
    if "pattern" in schema and matches(schema["pattern"], field.value) is False:
        yield field.says(f"must match `{schema['pattern']}`, got {shown(field.value)}")


def _number(schema: Schema, field: Field) -> Problems:
    value = field.value
    expected = wrong_integer(int(value), str(schema.get("format", "")))
    if expected:
        yield field.says(f"must be {expected}, got {value}")
    low, high = schema.get("minimum"), schema.get("maximum")
    above = schema.get("exclusiveMinimum") is True
    below = schema.get("exclusiveMaximum") is True
    if low is not None and (value < low or (above and value == low)):
        yield field.says(f"must be {'above' if above else 'at least'} {low}, got {value}")
    if high is not None and (value > high or (below and value == high)):
        yield field.says(f"must be {'below' if below else 'at most'} {high}, got {value}")
    step = schema.get("multipleOf")
    if step and not _is_multiple(value, step):
        yield field.says(f"must be a multiple of {step}, got {value}")


def _is_multiple(value: float, step: float) -> bool:
    """Divide as the API server does: 0.3 is three times 0.1."""
    times = value * (1 / step) if step < 1 else value / step
    return abs(times - round(times)) <= 1e-9 * max(1.0, abs(times))


def _sized(schema: Schema, field: Field, name: str, what: str) -> Problems:
    size = len(field.value)
    if size < schema.get(f"min{name}", 0):
        yield field.says(f"must have at least {schema[f'min{name}']} {what}, got {size}")
    if size > schema.get(f"max{name}", size):
        yield field.says(f"must have at most {schema[f'max{name}']} {what}, got {size}")


def _duplicates(schema: Schema, field: Field) -> Problems:
    """Find items that server-side apply could not tell apart."""
    found = list_type_of(schema)
    if found.type == "atomic" and not schema.get("uniqueItems"):
        return
    seen: dict[str, int] = {}
    for index, item in enumerate(field.items):
        named = _named(item, found.keys) if found.type == "map" else item.value
        if named is None:
            continue
        first = seen.setdefault(json.dumps(named, sort_keys=True, default=str), index)
        if first != index:
            what = (
                ", ".join(f"{key} {shown(value)}" for key, value in named.items())
                if found.type == "map"
                else ""
            )
            yield item.says(f"is the same as item {first}: {what or shown(item.value)} stands twice")


def _named(item: Field, keys: tuple[str, ...]) -> dict[str, Any] | None:
    if not isinstance(item.value, Mapping):
        return None
    named = {key: item.value.get(key, _KEY_DEFAULTS.get(key)) for key in keys}
    return {key: value for key, value in named.items() if value is not None} or None


def _is_dropped(schema: Schema) -> bool:
    """Say whether a null here only means that the default is wanted."""
    return "default" in schema and not schema.get("nullable")


def _unknown(name: str, properties: Mapping[str, Schema]) -> str:
    near = nearest(name, properties)
    return f"unknown field `{name}`" + (f", did you mean `{near}`?" if near else "")


def _listed(values: list[Any]) -> str:
    return ", ".join(f"`{value}`" if value != "" else "an empty string" for value in values)


def _forms(schemas: list[Schema]) -> str:
    return shown(json.dumps(schemas, sort_keys=True))


# --- The syntax of names and keys in Kubernetes: each function says what is wrong with a text, None
# if nothing
# The rules are those of the API conventions and RFC 1035, 1123 and 6335.

MAX_LABEL = 63
MAX_SUBDOMAIN = 253
_PORT_NAME = 15
_KUBERNETES_RELAXED_ENV = 32
"""From 1.32 on the name of an environment variable may be any printable ASCII but `=`."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_ENV = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_RELAXED_ENV = re.compile(r"[ -<>-~]+")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")


def _matches(pattern: re.Pattern[str], text: str, limit: int, expected: str) -> str | None:
    if len(text) > limit:
        return f"must have at most {limit} characters, got {len(text)}"
    if not pattern.fullmatch(text):
        return f"must be {expected}, got {shown(text)}"
    return None


def label(text: str) -> str | None:
    """Check a DNS label (RFC 1123), as names of containers and namespaces are."""
    return _matches(
        _LABEL, text, MAX_LABEL, "lower-case letters, digits and `-`, with a letter or digit at both ends"
    )


def label_1035(text: str) -> str | None:
    """Check a DNS label that starts with a letter (RFC 1035), as names of Services are."""
    expected = "lower-case letters, digits and `-`, starting with a letter and not ending in `-`"
    return _matches(_LABEL_1035, text, MAX_LABEL, expected)


def subdomain(text: str) -> str | None:
    """Check a DNS subdomain, as names of most objects are."""
    expected = "lower-case letters, digits, `-` and `.`, with a letter or digit at both ends of every part"
    return _matches(_SUBDOMAIN, text, MAX_SUBDOMAIN, expected)


def path_segment(text: str) -> str | None:
    """Check a name that only has to fit into an address, as names of roles are."""
    if text in (".", "..") or "/" in text or "%" in text:
        return f"must not be `.` or `..` or contain `/` or `%`, got {shown(text)}"
    return None


def label_value(text: str) -> str | None:
    """Check the value of a label."""
    if not text:
        return None
    expected = "letters, digits, `-`, `_` and `.`, with a letter or digit at both ends"
    return _matches(_WORD, text, MAX_LABEL, expected)


def qualified_name(text: str) -> str | None:
    """Check the key of a label or annotation, or the name of a resource: `[prefix/]name`."""
    prefix, slash, name = text.rpartition("/")
    if slash and not prefix:
        return f"must have something before the `/`, got {shown(text)}"
    if slash and (wrong := subdomain(prefix)):
        return f"prefix {wrong}"
    expected = "letters, digits, `-`, `_` and `.`, with a letter or digit at both ends (and a prefix and `/`)"
    return _matches(_WORD, name, MAX_LABEL, expected)


def env_name(text: str, *, minor: int) -> str | None:
    """Check the name of an environment variable for Kubernetes 1.`minor`."""
    if minor >= _KUBERNETES_RELAXED_ENV:
        return _matches(_RELAXED_ENV, text, len(text), "printable ASCII characters other than `=`")
    if text in (".", "..") or text.startswith(".."):
        return f"must not be `.` or start with `..`, got {shown(text)}"
    return _matches(_ENV, text, len(text), "letters, digits, `_`, `-` and `.`, not starting with a digit")


def port_name(text: str) -> str | None:
    """Check the name of a port (RFC 6335)."""
    if len(text) > _PORT_NAME:
        return f"must have at most {_PORT_NAME} characters, got {len(text)}"
    if not _LABEL.fullmatch(text) or "--" in text or not re.search("[a-z]", text):
        return (
            f"must be lower-case letters, digits and single `-`, with at least one letter, got {shown(text)}"
        )
    return None


def config_key(text: str) -> str | None:
    """Check a key of a ConfigMap or Secret: it may become a file name."""
    if text == "." or text.startswith(".."):
        return f"must not be `.` or start with `..`, got {shown(text)}"
    return _matches(_CONFIG_KEY, text, MAX_SUBDOMAIN, "letters, digits, `-`, `_` and `.`")


def relative_path(text: str) -> str | None:
    """Check a path that must stay inside its volume."""
    if text.startswith("/"):
        return f"must be a relative path, got {shown(text)}"
    return no_parent(text)


def no_parent(text: str) -> str | None:
    """Check that a path does not lead upwards."""
    return f"must not contain `..`, got {shown(text)}" if ".." in text.split("/") else None
