"""Fields of objects, what is said of them, and the formats of names, numbers and texts in Kubernetes."""

from __future__ import annotations

import base64
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from importlib import resources
from typing import Any, Literal, NamedTuple

from mlstack.dataclass import Record, dataclass
from mlstack.objects.kube_object import KubeObject

Severity = Literal["error", "warning", "unchecked"]
"""What is `unchecked` only the API server can tell: it is counted, and no fault."""
Keys = tuple[str | int, ...]

KEY_DEFAULTS = {"protocol": "TCP"}
"""What tells items of a list apart counts as this where it is left out, as in server-side apply."""

_MAX_SHOWN = 60
_MAPS = (dict, Mapping)  # what is a dict is soon told


class Fault(Record):
    """One thing that is wrong with one object."""

    component: str
    # As people name it: `Deployment kubeflow/tf-hub`.
    object: str
    # The field: `spec.template.spec.containers[0].image`; empty for the object as a whole.
    path: str
    message: str  # what is wrong
    # Template or manifest as `file:line`, if it is known.
    where: str | None = None
    # An `error` would be refused, by the API server or the kind's operator; a `warning` would be taken but
    # will not work.
    severity: Severity = "error"
    keys: Keys = ()  # the field again, key by key
    policy: str = ""  # id of the policy that is not kept; empty where Kubernetes itself minds
    waiver: str = ""  # why the object need not keep it


def fault_of(
    obj: KubeObject, keys: Keys, message: str, severity: Severity = "warning", *, policy: str = ""
) -> Fault:
    """Give a fault of an object, at a field of it."""
    return Fault(
        component=obj.component,
        object=str(obj.identity),
        path=path_of(keys),
        message=message,
        where=str(obj.source) if obj.source else None,
        severity=severity,
        keys=keys,
        policy=policy,
    )


class Problem(NamedTuple):
    """A fault before it is known whose it is."""

    keys: Keys
    message: str
    severity: Severity = "error"


Problems = Iterator[Problem]


@dataclass(frozen=True)
class Subject:
    """The object that a field belongs to, as rules need to know it."""

    # `group/Kind`, or the kind alone in the core group.
    kind: str = ""
    # The Kubernetes version, 36 for 1.36.
    minor: int = 0
    data: Any = None  # the whole of it


@dataclass(frozen=True)
class Field:
    """A value inside an object and the way to it; what is missing or of another type reads as empty."""

    value: Any
    keys: Keys = ()
    subject: Subject = Subject()

    def __bool__(self) -> bool:
        """Say whether there is a value, be it empty."""
        return self.value is not None

    def at(self, *keys: str) -> Field:
        """Go down by field names."""
        value = self.value
        for key in keys:
            value = value.get(key) if isinstance(value, _MAPS) else None
        return Field(value, self.keys + keys, self.subject)

    def below(self, keys: Keys) -> Field:
        """Go down by keys and positions that there are."""
        value = self.value
        for key in keys:
            value = value[key]
        return Field(value, self.keys + keys, self.subject)

    def all(self, path: str) -> list[Field]:
        """Give every field on a path: `a|b[].c?.d`, `a."b.c/d"+`, `/spec.jobs[name=main]`.

        `|` stands between names of the same place, `[]` goes into the items of a list, `[0]` into the first,
        `[key=text]` into those that say so, `*` into the values of a map, `"a/*"` into those whose keys begin
        so; `?` goes on only where there is a value, `+` where it is not an empty one. The empty path is the
        field itself, a `/` in front leads to the whole object.
        """
        fields = [Field(self.subject.data, (), self.subject) if path.startswith("/") else self]
        for names, suffix in _segments(path):
            if names == ("*",):
                fields = [inner for field in fields for _, inner in field.entries]
            elif names and names[0].endswith("*"):
                start = names[0].removesuffix("*")
                fields = [inner for f in fields for key, inner in f.entries if key.startswith(start)]
            elif names:
                fields = [field.at(name) for field in fields for name in names]
            if suffix.startswith("["):
                fields = [item for field in fields for item in _picked(field.items, suffix[1:-1])]
            elif suffix:
                fields = [field for field in fields if (field.value if suffix == "+" else field)]
        return fields

    @property
    def items(self) -> tuple[Field, ...]:
        """Give the items of a list."""
        if not isinstance(self.value, list):
            return ()
        return tuple(Field(item, (*self.keys, index), self.subject) for index, item in enumerate(self.value))

    @property
    def entries(self) -> tuple[tuple[str, Field], ...]:
        """Give the keys of a map and what stands under them."""
        if not isinstance(self.value, Mapping):
            return ()
        return tuple(
            (str(key), Field(item, (*self.keys, str(key)), self.subject)) for key, item in self.value.items()
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Give the keys of a map that have a value."""
        return tuple(key for key, inner in self.entries if inner)

    @property
    def text(self) -> str:
        """Give a string, empty where there is none."""
        return self.value if isinstance(self.value, str) else ""

    @property
    def word(self) -> str:
        """Give a text, number or truth value as tables of rules write it, empty where it is none of them."""
        return str(self.value).lower() if isinstance(self.value, int) else self.text

    @property
    def number(self) -> int | None:
        """Give a whole number."""
        return self.value if isinstance(self.value, int) and not isinstance(self.value, bool) else None

    def says(self, message: str, severity: Severity = "error") -> Problem:
        """Make a problem of this field."""
        return Problem(self.keys, message, severity)

    def not_as(self, expected: str) -> Problem:
        """Say what was expected, and what there is."""
        return self.says(f"must be {expected}, got {shown(self.value)}")


def _picked(items: Sequence[Field], which: str) -> Sequence[Field]:
    key, _, text = which.partition("=")
    if key.isdecimal():
        return items[int(key) : int(key) + 1]
    return [item for item in items if not key or item.at(key).word == text]


@cache
def _segments(path: str) -> tuple[tuple[tuple[str, ...], str], ...]:
    steps = re.finditer(r'("[^"]+"|[^.?+\[]+)?(\[[^\]]*\]|[?+])?', path.removeprefix("/"))
    return tuple(
        (tuple(step[1].strip('"').split("|")) if step[1] else (), step[2] or "") for step in steps if step[0]
    )


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


# --- numbers and texts of a schema's format: what is expected, None if it is that ---

_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)([.,]\d+)?([Zz]|[+-]\d\d:\d\d)")
# Go's own form, or anything with a number and a unit in it.
_DURATION = re.compile(r"[+-]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+|0")
_DURATION_IN_WORDS = re.compile(
    r"\d\s*(ns|nano\w*|us|µs|micro\w*|ms|milli\w*|s|sec\w*|m|min\w*|h|hr|hour\w*|d|day\w*|w|wk|week\w*)(?![a-zµ])",
    re.IGNORECASE,
)
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)


def wrong_text(text: str, name: str) -> str | None:
    """Check a string's format; formats that the API server does not know say nothing."""
    is_fitting, expected = _TEXTS.get(name.replace("-", ""), (bool, None))
    try:
        return None if expected is None or is_fitting(text) else expected
    except ValueError:
        return expected


def _is_time(text: str) -> bool:
    match = _DATE_TIME.fullmatch(text)
    return bool(match and datetime.fromisoformat(f"{match[1]}T{match[2]}"))


_unpadded = partial(re.compile(r"\b0+(?=\d)").sub, "")  # Go's `ParseIPSloppy` takes leading zeros

# A check that gives nothing or raises ValueError, and what it expects.
_TEXTS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "byte": (lambda text: base64.b64decode(text, validate=True), "text in base64"),
    "datetime": (_is_time, "a time such as `2026-01-31T12:00:00Z`"),
    "date": (re.compile(r"\d{4}-\d\d-\d\d").fullmatch, "a date such as `2026-01-31`"),
    "duration": (
        lambda text: _DURATION.fullmatch(text) or _DURATION_IN_WORDS.search(text),
        "a duration such as `1h30m`",
    ),
    "uuid": (_UUID.fullmatch, "a UUID"),
    "ipv4": (lambda text: "." in text and ipaddress.ip_address(_unpadded(text)), "an IPv4 address"),
    "ipv6": (lambda text: ":" in text and "%" not in text and ipaddress.ip_address(text), "an IPv6 address"),
    "cidr": (
        lambda text: re.search("/[0-9]+$", text) and ipaddress.ip_network(_unpadded(text), strict=False),
        "a network such as `10.0.0.0/8`",
    ),
}


# --- the syntax of names, keys and paths: what is wrong with a text, None if nothing ---
# The rules are those of the API conventions and RFC 1035, 1123 and 6335.

Syntax = Callable[[str], str | None]

_MAX_SUBDOMAIN = 253
_MAX_PORT_NAME = 15
_RELAXED_ENV = 32
"""From 1.32 on the name of an environment variable may be any printable ASCII but `=`."""


def pattern(regex: str, limit: int | None, expected: str) -> Syntax:
    """Make the check of a text by a regular expression, and a number of characters at the most."""
    compiled = re.compile(regex)

    def check(text: str) -> str | None:
        if limit is not None and len(text) > limit:
            return f"must have at most {limit} characters, got {len(text)}"
        return None if compiled.fullmatch(text) else f"must be {expected}, got {shown(text)}"

    return check


_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_WORDS = "letters, digits, `-`, `_` and `.`, with a letter or digit at both ends"
label = pattern(_LABEL, 63, "lower-case letters, digits and `-`, with a letter or digit at both ends")
label_1035 = pattern(
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    63,
    "lower-case letters, digits and `-`, starting with a letter and not ending in `-`",
)
subdomain = pattern(
    rf"{_LABEL}(\.{_LABEL})*",
    _MAX_SUBDOMAIN,
    "lower-case letters, digits, `-` and `.`, with a letter or digit at both ends of every part",
)
label_value = pattern(f"({_WORD})?", 63, _WORDS)
_unprefixed = pattern(_WORD, 63, f"{_WORDS} (and a prefix and `/`)")
_config_key = pattern("[-._a-zA-Z0-9]+", _MAX_SUBDOMAIN, "letters, digits, `-`, `_` and `.`")
_any_env = pattern("[ -<>-~]+", None, "printable ASCII characters other than `=`")
_plain_env = pattern(
    "[-._a-zA-Z][-._a-zA-Z0-9]*", None, "letters, digits, `_`, `-` and `.`, not starting with a digit"
)


def address(text: str) -> str | None:
    """Check an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return f"must be an IP address, got {shown(text)}"
    return None


def path_segment(text: str) -> str | None:
    """Check a name that only has to fit into an address, as names of roles are."""
    if text in (".", "..") or "/" in text or "%" in text:
        return f"must not be `.` or `..` or contain `/` or `%`, got {shown(text)}"
    return None


def qualified_name(text: str) -> str | None:
    """Check the key of a label or annotation, or the name of a resource: `[prefix/]name`."""
    prefix, slash, name = text.rpartition("/")
    if slash and not prefix:
        return f"must have something before the `/`, got {shown(text)}"
    if slash and (wrong := subdomain(prefix)):
        return f"prefix {wrong}"
    # The name alone is shown.
    return _unprefixed(name)


def env_name(text: str, *, minor: int) -> str | None:
    """Check the name of an environment variable for Kubernetes 1.`minor`."""
    if minor >= _RELAXED_ENV:
        return _any_env(text)
    return _no_dots(text) or _plain_env(text)


def port_name(text: str) -> str | None:
    """Check the name of a port (RFC 6335)."""
    if len(text) > _MAX_PORT_NAME:
        return f"must have at most {_MAX_PORT_NAME} characters, got {len(text)}"
    if not re.fullmatch(_LABEL, text) or "--" in text or not re.search("[a-z]", text):
        return (
            f"must be lower-case letters, digits and single `-`, with at least one letter, got {shown(text)}"
        )
    return None


def config_key(text: str) -> str | None:
    """Check a key of a ConfigMap or Secret: it may become a file name."""
    return _no_dots(text) or _config_key(text)


def _no_dots(text: str) -> str | None:
    is_wrong = text == "." or text.startswith("..")
    return f"must not be `.` or start with `..`, got {shown(text)}" if is_wrong else None


def relative_path(text: str) -> str | None:
    """Check a path that must stay inside its volume."""
    if text.startswith("/"):
        return f"must be a relative path, got {shown(text)}"
    return no_parent(text)


def absolute_path(text: str) -> str | None:
    """Check a path that starts at the root."""
    return None if text.startswith("/") else f"must be an absolute path, got {shown(text)}"


def no_parent(text: str) -> str | None:
    """Check that a path does not lead upwards."""
    return f"must not contain `..`, got {shown(text)}" if ".." in text.split("/") else None


# --- the schedule of a CronJob ---

_NAMED = ("@annually", "@daily", "@hourly", "@midnight", "@monthly", "@weekly", "@yearly")
_EVERY = re.compile(r"@every [-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SCHEDULE: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 6, _DAYS),
)
_RANGE = re.compile(
    r"(?:[*?](?:-[^/]*)?|(?P<first>[^-/]+)(?:-(?P<last>[^-/]+))?)(?:/\+?(?P<step>\d+))?", re.A
)


def schedule(text: str) -> str | None:
    """Check the schedule of a CronJob: five fields, or a name such as `@daily`."""
    if "TZ" in text:
        return "must not name a time zone: use `timeZone`"
    if text in _NAMED or _EVERY.fullmatch(text):
        return None
    if text.startswith("@"):
        return f"must be five fields or one of {', '.join(_NAMED)}, got `{text}`"
    fields = text.split()
    if len(fields) != len(_SCHEDULE):
        return f"must have 5 fields (minute hour day month weekday), got {len(fields)}: `{text}`"
    for field, (name, low, high, names) in zip(fields, _SCHEDULE, strict=True):
        if not all(_fits(part, low, high, names) for part in field.split(",") if part):
            return f"{name} must be {low} to {high}, got `{field}`"
    return None


def _fits(part: str, low: int, high: int, names: tuple[str, ...]) -> bool:
    """Tell whether robfig/cron, by which the API server judges, takes a part of a field."""
    match = _RANGE.fullmatch(part)
    if not match or int(match["step"] or 1) == 0:
        return False
    if match["first"] is None:
        return True
    numbers = {name: str(number) for number, name in enumerate(names, low)}
    words = (match["first"], match["last"] or match["first"])
    first, last = (numbers.get(word.lower(), word.removeprefix("+")) for word in words)
    if not (first + last).isdecimal():
        return False
    return low <= int(first) <= (high if match["step"] and not match["last"] else int(last)) <= high


@cache
def time_zones() -> frozenset[str]:
    """Give the zones of the IANA database, by the package `tzdata`: the same on every machine."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())
