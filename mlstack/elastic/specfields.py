"""Read the fields of a manifest under any of their spellings, and gather what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Findings:
    """What was found while a manifest was read.

    Attributes:
        faults: why it cannot be used; each names its field.
        warnings: what was understood in another way than it is written, or not at all.
    """

    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def spellings(name: str) -> tuple[str, ...]:
    """Give the names a field may be given by: its own, as `min-instance`, and that in camel case."""
    first, *others = re.split("[-_]", name)
    camel = first[:1].lower() + first[1:] + "".join(map(str.capitalize, others))
    return (name,) if camel == name else (name, camel)


def own_names(data: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Write fields that are given in camel case by their own names; two spellings of one stay two."""
    own = {spelling: name for name in known for spelling in spellings(name) if name not in data}
    return {own.get(name, name): value for name, value in data.items()}


class Fields:
    """The fields of one level of a manifest.

    Args:
        data: the level; anything but a mapping is a fault and counts as empty.
        path: where it stands, as `spec.trainer`.
        findings: where faults and warnings go.
    """

    def __init__(self, data: Any, path: str, findings: Findings) -> None:
        """Keep the fields as they are given."""
        self._path = path
        self._findings = findings
        if data is not None and not isinstance(data, Mapping):
            self._wrong("", "a map", data)
            data = None
        self._values: dict[str, Any] = {str(name): value for name, value in (data or {}).items()}

    def __contains__(self, name: str) -> bool:
        """Say whether the field is given."""
        return self.value(name) is not None

    def fault(self, text: str) -> None:
        """Note why the manifest cannot be used."""
        self._findings.faults.append(f"{self._path}: {text}")

    def warn(self, text: str) -> None:
        """Note what a person should know."""
        self._findings.warnings.append(f"{self._path}: {text}")

    def value(self, name: str) -> Any:
        """Give a field as it is, None where it is not given."""
        return self._values.get(self._given(name))

    def integer(self, name: str, default: int, *, minimum: int | None = 0, maximum: int = 2**31 - 1) -> int:
        """Give a whole number of at least `minimum` and at most `maximum`."""
        found = self.value(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int):
            self._wrong(name, "a whole number", found)
            return default
        number: int = found
        if minimum is not None and number < minimum:
            self._wrong(name, f"at least {minimum}", found)
            return default
        if number > maximum:
            self._wrong(name, f"at most {maximum}", found)
            return default
        return number

    def optional(self, name: str) -> int | None:
        """Give a whole number that is not negative, None where there is none."""
        return self.integer(name, 0) if name in self else None

    def text(self, name: str, default: str = "", *, among: Iterable[str] = ()) -> str:
        """Give a text, one of `among` where that is given."""
        found, choices = self.value(name), tuple(among)
        if found is None:
            return default
        if not isinstance(found, str):
            self._wrong(name, "text", found)
            return default
        if choices and found not in choices:
            self._wrong(name, "one of " + ", ".join(f"`{choice}`" for choice in choices), found)
            return default
        return found

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Give a claim that is true or false."""
        found = self.value(name)
        if found is None:
            return default
        if not isinstance(found, bool):
            self._wrong(name, "true or false", found)
            return default
        return found

    def items(self, name: str) -> tuple[Mapping[str, Any], ...]:
        """Give a list of maps, as they are."""
        found = self.value(name)
        if found is None:
            return ()
        if not isinstance(found, list | tuple) or not all(isinstance(item, Mapping) for item in found):
            self._wrong(name, "a list of maps", found)
            return ()
        return tuple(found)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Give a map, as it is."""
        found = self.value(name)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            self._wrong(name, "a map", found)
            return {}
        return found

    def level(self, name: str) -> Fields:
        """Give the fields below a field."""
        return Fields(self.value(name), f"{self._path}.{self._given(name)}", self._findings)

    def below(self, data: Any, path: str) -> Fields:
        """Give the fields of something that stands below these, as an item of a list."""
        return Fields(data, f"{self._path}.{path}", self._findings)

    def check(self, known: Iterable[str]) -> None:
        """Refuse two spellings of one field, and warn of fields that nobody reads."""
        own = {spelling: name for name in known for spelling in spellings(name)}
        for name in self._values:
            if name not in own:
                self.warn(f"`{name}` is no field of a TrainingJob and is ignored")
            elif own[name] != name and None not in (self._values[name], self._values.get(own[name])):
                self.fault(f"`{own[name]}` and `{name}` are two spellings of one field: give one of them")

    def _given(self, name: str) -> str:
        """Give the spelling by which a field is given; null is not given, as for the API server."""
        return next((each for each in spellings(name) if self._values.get(each) is not None), name)

    def _wrong(self, name: str, expected: str, found: Any) -> None:
        what = f"`{self._given(name)}` must be" if name else "must be"
        self.fault(f"{what} {expected}, got {found!r}")
