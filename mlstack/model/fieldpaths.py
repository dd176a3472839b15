"""Paths of fields as people write them: `spec.template.spec.containers[main].image`."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_STEP = re.compile(r'\.?(?P<name>[^.\[\],"\s]+)|\[(?P<inner>"(?:[^"\\]|\\.)*"|[^\[\]]*)\]')
_ITEM = re.compile(r'(?:\[(?:"(?:[^"\\]|\\.)*"|[^\[\]]*)\]|[^,\[])+')
ANY = "*"


@dataclass(frozen=True, kw_only=True)
class FieldPattern:
    """Names a field and everything below it.

    Attributes:
        text: as a person wrote it.
        steps: the names on the way; `*` stands for any one.
    """

    text: str
    steps: tuple[str, ...]

    def covers(self, path: Sequence[str]) -> bool:
        """Tell whether a path of a field tree (`f:spec`, `k:{…}`) is this field or lies in it."""
        if len(path) < len(self.steps):
            return False
        return all(
            step == ANY or step in _spellings(part) for step, part in zip(self.steps, path, strict=False)
        )


def read(text: str) -> FieldPattern:
    """Read one path.

    Names follow each other with dots; items of lists stand in brackets by their key (`[main]`, `[80,TCP]`),
    as do names with dots or slashes (`["a.b/c"]`); `*` is any name or item.

    Raises:
        ValueError: it is no path.
    """
    steps, position, cleaned = [], 0, text.strip().removeprefix(".")
    while position < len(cleaned):
        found = _STEP.match(cleaned, position)
        if found is None:
            break
        inner = found["inner"]
        steps.append(found["name"] if inner is None else _unquoted(inner.strip()))
        position = found.end()
    if not steps or position < len(cleaned) or "" in steps:
        raise ValueError(f"`{text.strip()}` is no path of a field")
    return FieldPattern(text=cleaned, steps=tuple(steps))


def read_list(text: str) -> tuple[FieldPattern, ...]:
    """Read paths with commas between them.

    Raises:
        ValueError: one of them is no path.
    """
    return tuple(read(found) for found in _ITEM.findall(text) if found.strip())


def _unquoted(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


def _spellings(part: str) -> Iterator[str]:
    """Give the ways in which people name one step of a field tree."""
    kind, _, rest = part.partition(":")
    if kind == "k":
        keys = json.loads(rest)
        yield ",".join(str(value) for value in keys.values())
        yield ",".join(f"{name}={value}" for name, value in keys.items())
    elif kind == "v":
        yield str(json.loads(rest))
        yield rest
    else:
        yield rest
