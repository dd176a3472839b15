"""An inventory as the ConfigMaps that keep it: one line a member, split where one ConfigMap is too small.

Further parts are named by their content and written before the parent that names them, so that the parent
alone decides which members there are: a run that is killed between two writes changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mlstack.model import applyset
from mlstack.model.inventory import Inventory, Member
from mlstack.model.kinds import Kinds
from mlstack.model.objects import (
    APP_LABEL,
    COMPONENT_LABEL,
    ENVIRONMENT_LABEL,
    Identity,
    group_of,
    marks,
)

LIMIT_BYTES = 900_000
"""How much one ConfigMap may hold: the API server takes 1 MiB of data, and metadata wants room too."""
PART_LABEL = "mlstack.dev/inventory-part"

# Whoever may write ConfigMaps in the namespace may write these too: what they say drives no endless loop.
_MOST_PARTS, _FORMAT_DIGITS = 1000, 10
_FORMAT = "1"
_ELSEWHERE = "made-elsewhere"
_FORMAT_KEY, _MEMBERS_KEY, _PARTS_KEY = "format", "members", "parts"


class DamagedError(Exception):
    """Raised when the lines of an inventory cannot be read; never leaves the engine."""


class NewerError(Exception):
    """Raised when an inventory was written by a later mlstack; never leaves the engine."""


def documents(
    inventory: Inventory, *, version: str, kinds: Kinds, limit_bytes: int = LIMIT_BYTES
) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """Give the parent and the further parts that it names.

    Args:
        inventory: what is to be kept.
        version: version of mlstack.
        kinds: what the server has; others are left out of the list for other tools.
        limit_bytes: how much one ConfigMap may hold.
    """
    chunks = list(_chunks((_line(one) for one in inventory.ordered()), limit_bytes))
    if len(chunks) <= 1:
        parts: tuple[dict[str, Any], ...] = ()
        data = {_MEMBERS_KEY: "".join(chunks)}
    else:
        parts = tuple(_part(inventory, chunk) for chunk in chunks)
        data = {_PARTS_KEY: "".join(f"{part['metadata']['name']}\n" for part in parts)}
    metadata = {
        "name": inventory.name,
        "namespace": inventory.namespace,
        "labels": {applyset.ID_LABEL: inventory.id, **_marks(inventory)},
        "annotations": applyset.parent_annotations(
            inventory.members, namespace=inventory.namespace, version=version, kinds=kinds
        ),
    }
    parent = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {_FORMAT_KEY: _FORMAT, **data},
    }
    return parent, parts


def part_names(parent: Mapping[str, Any]) -> tuple[str, ...]:
    """Give the names of the further ConfigMaps that a parent names, as far as they can be such."""
    head = f"{(parent.get('metadata') or {}).get('name', '')}.i"
    return tuple(dict.fromkeys(name for name in _named(parent)[:_MOST_PARTS] if name.startswith(head)))


def _named(parent: Mapping[str, Any]) -> list[str]:
    return str((parent.get("data") or {}).get(_PARTS_KEY) or "").split()


def members(parent: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> dict[Identity, Member]:
    """Read the members that a parent and its parts hold.

    Raises:
        DamagedError: the lines are not those that were written.
        NewerError: they are of a later format.
    """
    data = parent.get("data") or {}
    said = str(data.get(_FORMAT_KEY, ""))
    if said.isdecimal() and len(said) < _FORMAT_DIGITS and int(said) > int(_FORMAT):
        raise NewerError(said)
    if len(_named(parent)) != len(part_names(parent)):
        raise DamagedError("it names parts that it cannot have")
    if data.get(_FORMAT_KEY) != _FORMAT or not (data.keys() & {_MEMBERS_KEY, _PARTS_KEY}):
        raise DamagedError(f"it has no members of format {_FORMAT}")
    texts = [str(data.get(_MEMBERS_KEY) or "")]
    for part in parts:
        text = str((part.get("data") or {}).get(_MEMBERS_KEY) or "")
        if not part["metadata"]["name"].endswith(_digest(text)):
            raise DamagedError(f"ConfigMap `{part['metadata']['name']}` was changed")
        texts.append(text)
    found = [_member(line) for text in texts for line in text.split("\n") if line]
    return {one.identity: one for one in found}


def belongs_to(parent: Mapping[str, Any], *, app: str, environment: str) -> bool:
    """Tell whether a parent says that it is the inventory of this environment of this app."""
    labels = parent["metadata"].get("labels") or {}
    wanted = marks(app=app, environment=environment, component="")
    return all(labels.get(key) == wanted[key] for key in (APP_LABEL, ENVIRONMENT_LABEL))


def _marks(inventory: Inventory) -> dict[str, str]:
    found = marks(app=inventory.app, environment=inventory.environment, component="")
    del found[COMPONENT_LABEL]
    return found


def _part(inventory: Inventory, text: str) -> dict[str, Any]:
    metadata = {
        "name": f"{inventory.name}.i{_digest(text)}",
        "namespace": inventory.namespace,
        "labels": {PART_LABEL: "true", **_marks(inventory)},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_MEMBERS_KEY: text}}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _chunks(lines: Iterable[str], limit_bytes: int) -> Iterator[str]:
    chunk: list[str] = []
    size = 0
    for line in lines:
        length = len(line.encode())
        if chunk and size + length > limit_bytes:
            yield "".join(chunk)
            chunk, size = [], 0
        chunk.append(line)
        size += length
    if chunk:
        yield "".join(chunk)


def _line(one: Member) -> str:
    identity = one.identity
    fields = [one.api_version, identity.kind, identity.namespace, identity.name]
    fields += [one.component, one.uid, one.payload_hash, one.owned_hash]
    if one.people_hash or one.made_elsewhere:
        fields += [one.people_hash, _ELSEWHERE if one.made_elsewhere else ""]
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False) + "\n"


def _member(line: str) -> Member:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedError("a line is no JSON") from error
    is_list = isinstance(fields, list) and all(isinstance(one, str) for one in fields)
    if not is_list or len(fields) not in (8, 10):
        raise DamagedError("a line has not the texts of a member")
    api_version, kind, namespace, name, component, uid, payload, owned, *more = fields
    if not (api_version and kind and name):
        raise DamagedError("a member has no kind or name")
    return Member(
        identity=Identity(group_of(api_version), kind, namespace, name),
        api_version=api_version,
        component=component,
        uid=uid,
        payload_hash=payload,
        owned_hash=owned,
        people_hash=more[0] if more else "",
        made_elsewhere=_ELSEWHERE in more[1:],
    )
