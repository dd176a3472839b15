"""Read the fields of a manifest under any of their spellings, and gather what is wrong with them."""

from __future__ import annotations

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


def plain(name: str) -> str:
    """Give the one form of a field's name: EDL wrote `min-instance`, `ports_num` and `VolumeMounts`."""
    return name.replace("-", "").replace("_", "").lower()


class Fields:
    """The fields of one level of a manifest.

    Args:
        data: the level; anything but a mapping is a fault and counts as empty.
        path: where it stands, as `spec.trainer`.
        findings: where faults and warnings go.
    """

    def __init__(self, data: Any, path: str, findings: Findings) -> None:
        """Sort the fields by their one form."""
        self._path = path
        self._findings = findings
        self._values: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        if data is not None and not isinstance(data, Mapping):
            self._wrong("", "a map", data)
            data = None
        for name, value in (data or {}).items():
            self._enter(str(name), value)

    def _enter(self, name: str, value: Any) -> None:
        form = plain(name)
        if form in self._values and self._values[form] != value:
            self.fault(f"`{name}` and `{self._names[form]}` are two spellings of one field and disagree")
        self._values[form] = value
        self._names[form] = name

    def __contains__(self, name: str) -> bool:
        """Say whether the field is given."""
        return self._values.get(plain(name)) is not None

    def fault(self, text: str) -> None:
        """Note why the manifest cannot be used."""
        self._findings.faults.append(f"{self._path}: {text}")

    def warn(self, text: str) -> None:
        """Note what a person should know."""
        self._findings.warnings.append(f"{self._path}: {text}")

    def value(self, name: str) -> Any:
        """Give a field as it is, None where it is not given."""
        return self._values.get(plain(name))

    def integer(self, name: str, default: int, *, minimum: int | None = 0) -> int:
        """Give a whole number of at least `minimum`."""
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
        return Fields(self.value(name), f"{self._path}.{self._names.get(plain(name), name)}", self._findings)

    def below(self, data: Any, path: str) -> Fields:
        """Give the fields of something that stands below these, as an item of a list."""
        return Fields(data, f"{self._path}.{path}", self._findings)

    def unknown(self, known: Iterable[str]) -> None:
        """Warn of fields that nobody reads."""
        forms = {plain(name) for name in known}
        for form, name in self._names.items():
            if form not in forms:
                self.warn(f"`{name}` is no field of a TrainingJob and is ignored")

    def _wrong(self, name: str, expected: str, found: Any) -> None:
        what = f"`{self._names.get(plain(name), name)}` must be" if name else "must be"
        self.fault(f"{what} {expected}, got {found!r}")
