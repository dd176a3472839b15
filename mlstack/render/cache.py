"""What one environment's templates were compiled to and gave, remembered between runs in two stored files.

A file for each component would cost more than rendering it again.
"""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Mapping, Sequence, Set
from typing import Any

from mlstack import disk_cache
from mlstack.app.prototype import Prototype
from mlstack.dataclass import dataclass
from mlstack.render.template import CodeStore

_LARGEST_BYTES = 64 * 1024 * 1024
_MARK = b"entries\0"  # marshal makes gigabytes of a few odd bytes: it reads only what we wrote


class Pack:
    """Many small entries in one stored file; without a store it is empty and stays so.

    Args:
        store: where it is kept.
        key: its name there.
    """

    def __init__(self, store: CodeStore | None, key: str) -> None:
        self._store, self._key = store, key
        self._entries: dict[str, bytes] | None = None
        self._used: dict[str, bytes] = {}
        self._is_new = False

    def get(self, key: str) -> bytes | None:
        """Give the bytes of a key, or None."""
        if self._entries is None:
            self._entries = self._read()
        data = self._used.get(key) or self._entries.get(key)
        if data is not None:
            self._used[key] = data
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, from `save` on."""
        self._used[key], self._is_new = data, True

    def save(self) -> None:
        """Store what is new; what this run had no use for goes once it is the larger part."""
        if self._store is None or not self._is_new:
            return
        kept = {**(self._read() if self._entries is None else self._entries), **self._used}
        if len(kept) > 2 * len(self._used) + 1000:
            kept = self._used
        data = _MARK + marshal.dumps(kept)
        if len(data) <= _LARGEST_BYTES:
            self._store.put(self._key, data)
        self._is_new = False

    def _read(self) -> dict[str, bytes]:
        data = self._store.get(self._key) if self._store is not None else None
        try:
            entries = marshal.loads(data[len(_MARK) :]) if data and data.startswith(_MARK) else {}
        except (ValueError, EOFError, TypeError):  # nothing that was stored here
            return {}
        return entries if isinstance(entries, dict) else {}


@dataclass(frozen=True, kw_only=True)
class Render:
    """What the templates of one component gave.

    Attributes:
        objects: name of the template and content of each object, in order.
        notes: what the templates told people.
        reads: the names that the templates looked up: others may change.
    """

    objects: Sequence[tuple[str, Mapping[str, Any]]]
    notes: Sequence[str]
    reads: Set[str]


class Renders:
    """The last render of each component of an environment; never one with a secret."""

    def __init__(self, pack: Pack) -> None:
        self._pack = pack

    def get(self, component: str, prototype: Prototype, variables: Mapping[str, Any]) -> Render | None:
        """Give what a component's templates gave, if what they read of the variables is as it was."""
        data = self._pack.get(component)
        if data is None:
            return None
        reads, key, content = data.split(b"\n", 2)
        names = frozenset(reads.decode().split())
        if key != render_key(prototype, variables, names):
            return None
        objects, notes = marshal.loads(content)
        return Render(objects=objects, notes=notes, reads=names)

    def put(self, component: str, prototype: Prototype, variables: Mapping[str, Any], render: Render) -> None:
        """Remember a render, unless a secret may be in it, or nothing says what its prototype is."""
        has_secret = any(data.get("kind") == "Secret" for _, data in render.objects)
        key = render_key(prototype, variables, render.reads)
        if key and not has_secret and not prototype.has_secrets(variables["params"]):
            content = marshal.dumps((list(render.objects), list(render.notes)))
            reads = " ".join(sorted(render.reads & variables.keys())).encode()
            self._pack.put(component, b"\n".join((reads, key, content)))


def render_key(prototype: Prototype, variables: Mapping[str, Any], reads: Set[str]) -> bytes:
    """Give a hash of all that decides a render; empty where nothing does."""
    seen = {name: value for name, value in variables.items() if name in reads}
    try:
        text = json.dumps([disk_cache.program_identity(), prototype.digest, seen])
    except OSError:
        return b""
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest().encode() if prototype.digest else b""
