"""Sound objects, and variants of them: which of them an API server or a webhook refuses, which it takes.

They stand in `data/`: those of Kubernetes, training jobs, and kinds of other operators. What the API server
says of the first two is asked in `tests/cluster/test_validation_agrees.py`; that `mlstack validate` says the
same, in `tests/unit` too.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_PART = re.compile(r"([^.\[\]]+)|\[(\d+|\+|[^\]]+)\]")

REMOVE = object()
"""In place of a value in a variant: the field is taken out."""


class _Loader(yaml.CSafeLoader):
    """Knows what stands in place of a value."""


def _repeated(loader: _Loader, node: yaml.SequenceNode) -> str:
    character, number = loader.construct_sequence(node)
    return str(character) * int(number)


_Loader.add_constructor("!removed", lambda loader, node: REMOVE)
_Loader.add_constructor("!repeat", _repeated)


def _data(name: str) -> dict[str, Any]:
    file = Path(__file__).parent / "data" / f"{name}.yaml"
    data: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    return data


_KUBERNETES, _JOBS, _OPERATORS = map(_data, ("kubernetes", "jobs", "operators"))
MANIFESTS: dict[str, dict[str, Any]] = _KUBERNETES["objects"]
JOBS: dict[str, dict[str, Any]] = _JOBS["objects"]
OBJECTS: dict[str, dict[str, Any]] = _OPERATORS["objects"]


@dataclass(frozen=True)
class Variant:
    """One changed object and what the API server says of it.

    Attributes:
        base: name of the sound object.
        path: what is changed: `spec.ports[0].name`; `[+]` appends, `[a.b/c]` is a key with dots.
        value: what is put there.
        refused: whether the API server refuses it.
    """

    base: str
    path: str
    value: Any
    refused: bool

    @property
    def id(self) -> str:
        """Name the variant for a test."""
        value = "REMOVE" if self.value is REMOVE else str(self.value)
        return f"{self.base}-{self.path}-{value[:30]}"

    def build(self, bases: Mapping[str, Mapping[str, Any]] = MANIFESTS) -> dict[str, Any]:
        """Make the object."""
        data: dict[str, Any] = copy.deepcopy(dict(bases[self.base]))
        *way, last = [match[1] or match[2] for match in _PART.finditer(self.path)]
        place: Any = data
        for key in way:
            place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
        if isinstance(place, list):
            _put_in_list(place, last, self.value)
        elif self.value is REMOVE:
            del place[last]
        else:
            place[last] = copy.deepcopy(self.value)
        return data


def _put_in_list(place: list[Any], key: str, value: Any) -> None:
    if key == "+":
        place.append(copy.deepcopy(value))
    elif value is REMOVE:
        del place[int(key)]
    else:
        place[int(key)] = copy.deepcopy(value)


def _variants(data: Mapping[str, Any]) -> list[Variant]:
    return [Variant(*row, refused=name == "refused") for name in ("refused", "taken") for row in data[name]]


VARIANTS, JOB_VARIANTS = _variants(_KUBERNETES), _variants(_JOBS)


@dataclass(frozen=True)
class Case:
    """One change of one object of an operator, and words of what is said of it, None if it is taken."""

    base: str
    path: str
    value: Any
    message: str | None

    def __str__(self) -> str:
        """Give an id of the test."""
        value = "removed" if self.value is REMOVE else str(self.value)[:40]
        return f"{self.base} {self.path}={value}"

    def build(self) -> dict[str, Any]:
        """Give the object with the change."""
        return Variant(self.base, self.path, self.value, refused=self.message is not None).build(OBJECTS)


CASES = [Case(*row) for row in _OPERATORS["cases"]]
