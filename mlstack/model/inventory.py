"""What an environment has in its cluster, object by object; kept in the cluster itself.

One law holds whatever stops a run: the inventory covers every live object of ours. So it grows before the
first write and loses a member only once that object is known to be gone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mlstack.model import fields
from mlstack.model.applyset import labelled, set_id
from mlstack.model.fieldmanagers import HANDOVER, is_persons_tool, owner_of
from mlstack.model.objects import MANAGER, Identity, group_of

_HASH_CHARACTERS = 16  # 64 bits: enough to see that something is not what it was
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAME_CHARACTERS = 200  # of 253: names of history and further parts are longer by a suffix


@dataclass(frozen=True, kw_only=True)
class Member:
    """One object of an environment as it was written last.

    Attributes:
        identity: the object.
        api_version: API version it was written in.
        component: full name of the component that brought it.
        uid: its UID, empty if it was not known to be there.
        payload_hash: hash of what was sent; empty if that is not known to have arrived, and for Secrets.
        owned_hash: hash of our own fields as the server recorded them after that; where another environment
            brings the same object and has it, its `shared_hash`.
        people_hash: hash of the fields of people's tools at that time, empty if they had none.
        made_elsewhere: whether another tool made it, from which it was not taken over.
    """

    identity: Identity
    api_version: str
    component: str = ""
    uid: str = ""
    payload_hash: str = ""
    owned_hash: str = ""
    people_hash: str = ""
    made_elsewhere: bool = False


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """All objects of one environment in its cluster.

    Attributes:
        app: name of the app.
        environment: name of the environment.
        namespace: where the inventory is kept.
        members: the objects by identity.
        version: resourceVersion it was read in, empty if there is none in the cluster.
        uid: UID of the ConfigMap, likewise.
        parts: names of the further ConfigMaps that hold the members, where one is too small.
        notes: what is to be said of it, as that it was lost and found again.
    """

    app: str
    environment: str
    namespace: str
    members: Mapping[Identity, Member] = field(default_factory=dict)
    version: str = ""
    uid: str = ""
    parts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Give the name of the ConfigMap."""
        return name_of(self.app, self.environment)

    @property
    def id(self) -> str:
        """Give the ID of the ApplySet."""
        return set_id(self.name, self.namespace)

    @property
    def exists(self) -> bool:
        """Tell whether it is kept in the cluster."""
        return bool(self.version)

    def label(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Give an object as it is sent: with the label of a member.

        Raises:
            ConfigError: it says itself which set it belongs to.
        """
        return labelled(data, self.id)

    def with_members(self, members: Iterable[Member]) -> Inventory:
        """Give the union: these members as well, in place of those of the same identity."""
        return replace(self, members={**self.members, **{one.identity: one for one in members}})

    def without(self, gone: Collection[Identity]) -> Inventory:
        """Give the inventory without members that are known to be gone, or another's."""
        return replace(self, members={key: one for key, one in self.members.items() if key not in gone})

    def of_components(self, names: Collection[str]) -> tuple[Member, ...]:
        """Give the members that some components brought, in order."""
        return tuple(one for one in self.ordered() if one.component in names)

    def ordered(self) -> tuple[Member, ...]:
        """Give the members by identity."""
        return tuple(self.members[key] for key in sorted(self.members))


def name_of(app: str, environment: str) -> str:
    """Give the name of everything that is kept in the cluster for one environment of an app.

    It is `mlstack-<app>.<environment>`, with `.` for `/`. Names that cannot be one in Kubernetes, and those
    whose parts could not be told apart, end with a hash.
    """
    parts = environment.split("/")
    plain = f"mlstack-{app}.{'.'.join(parts)}"
    if all(map(_NAME.fullmatch, (app, *parts))) and len(plain) <= _NAME_CHARACTERS:
        return plain
    digest = hashlib.sha256(f"{app}\n{environment}".encode()).hexdigest()[:10]
    made = re.sub(r"\.+", ".", re.sub(r"[^a-z0-9.]+", "-", plain.lower()))
    made = ".".join(part.strip("-") for part in made[: _NAME_CHARACTERS - 11].split("."))
    return f"{made.strip('.-')}-{digest}"


def payload_hash(data: Mapping[str, Any]) -> str:
    """Give the hash of what is sent, empty for Secrets.

    A hash in a ConfigMap would let those guess a weak password who may not read the Secret. Which version
    of the object was to be changed is no part of it.
    """
    if data.get("kind") == "Secret" and not group_of(str(data.get("apiVersion", ""))):
        return ""
    metadata = {
        key: value
        for key, value in (data.get("metadata") or {}).items()
        if key not in ("uid", "resourceVersion")
    }
    return _hash({**data, "metadata": metadata})


def owned_hash(live: Mapping[str, Any]) -> str:
    """Give the hash of the fields that we own in a live object, empty if we own none.

    Whoever changes or removes a value that we applied takes its path from our entry, so the same hash
    means the same values, as long as we have not written ourselves.
    """
    tree = fields.owned(live, MANAGER)
    return _hash(tree) if tree else ""


def people_hash(live: Mapping[str, Any]) -> str:
    """Give the hash of the fields that people's tools own in a live object, empty if they own none."""
    found = [
        (*one.key, one.tree)
        for one in fields.entries(live)
        if one.key != (MANAGER, "Apply", "") and one.manager != HANDOVER and is_persons_tool(owner_of(one))
    ]
    return _hash(sorted(found, key=lambda one: one[:3])) if found else ""


def shared_hash(live: Mapping[str, Any]) -> str:
    """Give the hash of an object that another environment writes as we would, empty if that cannot be told.

    Both write the same fields under the same name, so that our entry does not tell of other values: the
    generation does, and metadata counts as it is.
    """
    metadata = live["metadata"]
    generation, tree = metadata.get("generation"), fields.owned(live, MANAGER)
    if not generation or not tree:
        return ""
    return _hash([tree, generation, metadata.get("labels") or {}, metadata.get("annotations") or {}])


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARACTERS]
