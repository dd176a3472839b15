"""What a check looks at and what it answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

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
