"""Patches of an environment: partial objects laid over what a component renders (RFC 7396)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlstack.errors import ConfigError, NotFoundError
from mlstack.model.names import nearest
from mlstack.model.objects import group_of
from mlstack.model.values import merge

_FIXED = ("apiVersion", "kind")


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A partial object and the place it was written at.

    Attributes:
        data: apiVersion, kind, metadata.name and the fields to change; null removes a field.
        where: `file:line`.
        places: `file:line` of each of its parts, by path.
    """

    data: Mapping[str, Any]
    where: str
    places: Mapping[tuple[str | int, ...], str] = field(default_factory=dict)

    def matches(self, data: Mapping[str, Any]) -> bool:
        """Tell whether an object is the one meant: group, kind, name, and namespace where one is given."""
        mine, its = self.data["metadata"], data.get("metadata") or {}
        same_kind = _kind(self.data) == _kind(data)
        namespace = mine.get("namespace")
        return same_kind and mine["name"] == its.get("name") and namespace in (None, its.get("namespace"))


def read_patch(value: Any, *, where: str, places: Mapping[tuple[str | int, ...], str] | None = None) -> Patch:
    """Check that a document says which object it changes.

    Args:
        value: the document.
        where: `file:line` of its beginning.
        places: `file:line` of each of its parts, by path.

    Raises:
        ConfigError: apiVersion, kind or name are missing.
    """
    metadata = value.get("metadata") if isinstance(value, Mapping) else None
    named = isinstance(metadata, Mapping) and isinstance(metadata.get("name"), str)
    if not named or not all(isinstance(value.get(key), str) for key in _FIXED):
        raise ConfigError("a patch needs `apiVersion`, `kind` and `metadata.name`", where=where)
    return Patch(data=value, where=where, places=places or {})


def patched(objects: Sequence[Mapping[str, Any]], patches: Sequence[Patch]) -> list[Mapping[str, Any]]:
    """Lay patches over objects, in their order.

    Raises:
        NotFoundError: a patch changes an object that is not there.
    """
    result = list(objects)
    for patch in patches:
        places = [place for place, data in enumerate(result) if patch.matches(data)]
        if not places:
            raise _no_target(patch, objects)
        for place in places:
            result[place] = merge(result[place], patch.data)
    return result


def _kind(data: Mapping[str, Any]) -> tuple[str, str]:
    return group_of(str(data.get("apiVersion", ""))), str(data.get("kind", ""))


def _no_target(patch: Patch, objects: Sequence[Mapping[str, Any]]) -> NotFoundError:
    wanted = f"{patch.data['kind']} {patch.data['metadata']['name']}"
    known = [f"{data.get('kind')} {(data.get('metadata') or {}).get('name')}" for data in objects]
    return NotFoundError(
        f"the component renders no `{wanted}` to patch", near=nearest(wanted, known), where=patch.where
    )
