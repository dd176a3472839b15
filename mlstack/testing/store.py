"""The objects of a memory cluster, their versions, what happened to them in order, and selectors of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from mlstack.dataclass import dataclass

Obj = dict[str, Any]


def copied(value: Any) -> Any:
    """Copy a plain value all the way down; `copy.deepcopy`, which takes any, needs five times as long."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True, order=True)
class Key:
    """What makes an object itself; the version of its API is no part of it."""

    group: str
    kind: str
    namespace: str
    name: str

    @property
    def of_kind(self) -> tuple[str, str]:
        """Give group and kind."""
        return self.group, self.kind


@dataclass(frozen=True, kw_only=True)
class StoreChange:
    """One write: the object before and after, None where it was not or is no more."""

    version: int
    key: Key
    old: Obj | None
    new: Obj | None


@dataclass
class ObjectStore:
    """Objects by key, never changed in place; every write gets the next version."""

    objects: dict[Key, Obj] = field(default_factory=dict)
    # Of the last write.
    version: int = 0
    # The writes since `oldest`: a watch can go on from that version or a later one.
    log: list[StoreChange] = field(default_factory=list)
    oldest: int = 0

    def copy(self) -> ObjectStore:
        """Give a store that can be written to without changing this one; its log begins now."""
        return replace(self, objects=dict(self.objects), log=[])

    def get(self, key: Key) -> Obj | None:
        """Give an object, None where there is none."""
        return self.objects.get(key)

    def of_kind(self, group: str, kind: str, namespace: str | None = None) -> list[tuple[Key, Obj]]:
        """Give the objects of a kind in the order of their names."""
        keys = (key for key in self.objects if key.kind == kind and key.group == group)
        return [(key, self.objects[key]) for key in sorted(keys) if namespace in (None, key.namespace)]

    def put(self, key: Key, obj: Mapping[str, Any]) -> Obj:
        """Store an object under the next version and give it."""
        self.version += 1
        new: Obj = copied(with_metadata(obj, resourceVersion=str(self.version)))
        self.log.append(StoreChange(version=self.version, key=key, old=self.objects.get(key), new=new))
        self.objects[key] = new
        return new

    def remove(self, key: Key) -> None:
        """Remove an object: its last state is logged under the next version."""
        self.version += 1
        gone = with_metadata(self.objects.pop(key), resourceVersion=str(self.version))
        self.log.append(StoreChange(version=self.version, key=key, old=gone, new=None))

    def compact(self) -> None:
        """Forget what happened so far: watches from before now have expired."""
        self.log.clear()
        self.oldest = self.version


def with_metadata(obj: Mapping[str, Any], **changes: Any) -> Obj:
    """Give an object with other metadata; what is None or empty goes."""
    metadata = {**obj["metadata"], **changes}
    for name, value in changes.items():
        if value in (None, []):
            del metadata[name]
    return {**obj, "metadata": metadata}


# --- label and field selectors as kubectl and the API server take them ---

Matches = Callable[[Mapping[str, Any]], bool]

_REQUIREMENT = re.compile(
    r"\s*(?:(?P<not>!)\s*(?P<absent>[^\s,=!()]+)"
    r"|(?P<key>[^\s,=!()]+)\s*(?:(?P<op>==|=|!=)\s*(?P<value>[^\s,()]*)"
    r"|\s(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?)\s*(?:,|$)"
)


def by_labels(selector: str) -> Matches:
    """Read a label selector: `a=b,c!=d,e in (f,g),h notin (i),j,!k`; an empty one takes all.

    Raises:
        ValueError: it is none.
    """
    requirements, position = [], 0
    while position < len(selector):
        match = _REQUIREMENT.match(selector, position)
        if match is None or match.end() == position:
            raise ValueError(f"`{selector}` is no label selector")
        requirements.append(match)
        position = match.end()
    return lambda obj: all(
        _meets(match, (obj.get("metadata") or {}).get("labels") or {}) for match in requirements
    )


def _meets(requirement: re.Match[str], labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement["key"])
    if requirement["not"]:
        return requirement["absent"] not in labels
    if requirement["op"]:
        return (value == requirement["value"]) is (requirement["op"] != "!=")
    if requirement["set"]:
        values = {part.strip() for part in requirement["values"].split(",")}
        return (value in values) is (requirement["set"] == "in")
    return requirement["key"] in labels


def by_fields(selector: str) -> Matches:
    """Read a field selector: `metadata.name=x,status.phase!=Running`; an empty one takes all.

    Raises:
        ValueError: it is none.
    """
    requirements = [part.partition("=") for part in selector.split(",") if part]
    for path, operator, value in requirements:
        if not operator:
            raise ValueError(f"`{path}{value}` is no field selector")
    return lambda obj: all(
        (_text(obj, path.rstrip("!").split(".")) == value.removeprefix("=")) is not path.endswith("!")
        for path, _, value in requirements
    )


def _text(obj: Any, names: list[str]) -> str:
    for name in names:
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return "" if obj is None else str(obj)
