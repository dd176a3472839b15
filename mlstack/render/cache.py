"""What a prototype's templates gave, remembered under what they were given.

Templates see nothing but their package and the variables of one component, so these say what comes out. A
store that is handed in remembers it between runs; a hit needs neither templates nor a reader of YAML.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mlstack import program
from mlstack.app.prototype import Prototype
from mlstack.disk_cache import from_json


class RenderStore(Protocol):
    """Remembers across runs; `files.cache` has the one that people's machines use."""

    def get(self, key: str) -> bytes | None:
        """Give what was stored, or nothing."""

    def put(self, key: str, data: bytes) -> None:
        """Store, or forget: a store that fails is never an error."""


@dataclass(frozen=True, kw_only=True)
class Render:
    """What the templates of one component gave.

    Attributes:
        objects: name of the template and content of each object, in order.
        notes: what the templates told people.
    """

    objects: Sequence[tuple[str, Mapping[str, Any]]]
    notes: Sequence[str]


class Renders:
    """Renders that are remembered.

    Args:
        store: where; without one, nothing is.
    """

    def __init__(self, store: RenderStore | None) -> None:
        """Hold the store."""
        self._store = store

    def key(self, prototype: Prototype, variables: Mapping[str, Any]) -> str | None:
        """Give the name of what a prototype renders with these variables; None when it is not remembered.

        Nothing is that holds a secret, nor what comes from a prototype without a digest.
        """
        if self._store is None or not prototype.digest or prototype.has_secrets(variables["params"]):
            return None
        try:
            text = json.dumps([program.identity(), prototype.digest, variables])
        except OSError:
            return None
        return f"render:{hashlib.blake2b(text.encode(), digest_size=32).hexdigest()}"

    def get(self, key: str | None) -> Render | None:
        """Give a render, if it is remembered."""
        data = self._store.get(key) if self._store is not None and key else None
        content = from_json(data, dict) or {}
        objects, notes = content.get("objects"), content.get("notes")
        if not isinstance(objects, list) or not isinstance(notes, list):
            return None
        if not all(isinstance(each, list) and [*map(type, each)] == [str, dict] for each in objects):
            return None
        return Render(objects=objects, notes=notes)

    def put(self, key: str | None, render: Render) -> None:
        """Remember a render, unless a Secret is in it."""
        has_secret = any(each.get("kind") == "Secret" for _, each in render.objects)
        if self._store is not None and key and not has_secret:
            content = {"objects": render.objects, "notes": render.notes}
            self._store.put(key, json.dumps(content, separators=(",", ":")).encode())
