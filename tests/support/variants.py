"""Variants of sound objects: which of them an API server refuses, and which it takes though they look odd.

Each line is a base, a path and the value that is put there. What the API server says of all of them is asked
in `tests/cluster/test_validation_agrees.py`; that `mlstack validate` says the same, in `tests/unit` too.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support import variants_broken, variants_odd, variants_pods
from tests.support.manifests import MANIFESTS, REMOVE

_PART = re.compile(r"([^.\[\]]+)|\[(\d+|\+|[^\]]+)\]")


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


VARIANTS = [
    *(Variant(*line, refused=True) for line in (*variants_broken.LINES, *variants_pods.LINES)),
    *(Variant(*line, refused=False) for line in variants_odd.LINES),
]
