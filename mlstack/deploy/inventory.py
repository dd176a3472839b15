"""Marks of a set of objects that other tools know: ApplySet, KEP-3659, as kubectl's code has it.

The text of the KEP differs from the code in places; where they do, this follows the code, as kro does too.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mlstack.deploy.changes import Change
from mlstack.errors import ClusterError, ConfigError
from mlstack.objects import kube_object, managed_fields
from mlstack.objects.kinds import Kinds
from mlstack.objects.kube_object import (
    APP_LABEL,
    COMPONENT_LABEL,
    ENVIRONMENT_LABEL,
    MANAGER,
    Identity,
    group_of,
    marks,
)
from mlstack.objects.managed_fields import HANDOVER, is_persons_tool, owner_of

# --- Marks of a set of objects that other tools know: ApplySet, KEP-3659, as kubectl's code has it ---
# The text of the KEP differs from the code in places; where they do, this follows the code, as kro does too.

PREFIX = "applyset.kubernetes.io"
ID_LABEL = f"{PREFIX}/id"
MEMBER_LABEL = f"{PREFIX}/part-of"
TOOLING = f"{PREFIX}/tooling"
GROUP_KINDS = f"{PREFIX}/contains-group-kinds"
NAMESPACES = f"{PREFIX}/additional-namespaces"

TOOL = "mlstack"
APPLYSET_MANAGER = "mlstack-applyset"


def set_id(name: str, namespace: str, *, kind: str = "ConfigMap", group: str = "") -> str:
    """Give the ID of the set whose parent is this object: 55 characters, fit for a label.

    Args:
        name: name of the parent.
        namespace: its namespace, empty for cluster-scoped parents.
        kind: its kind.
        group: its API group, empty for the core group.
    """
    digest = hashlib.sha256(f"{name}.{namespace}.{kind}.{group}".encode()).digest()
    return f"applyset-{urlsafe_b64encode(digest).decode().rstrip('=')}-v1"


def with_member_label(data: Mapping[str, Any], set_id: str) -> dict[str, Any]:
    """Give an object with the label that makes it a member of a set.

    Raises:
        ConfigError: it says itself which set it belongs to.
    """
    metadata = data.get("metadata") or {}
    labels = metadata.get("labels") or {}
    if labels.get(MEMBER_LABEL, set_id) != set_id:
        raise ConfigError(
            f"`{data.get('kind')} {metadata.get('name')}` brings the label `{MEMBER_LABEL}` itself",
            hint="remove the label from the manifest: it is set when the object is applied",
        )
    return {**data, "metadata": {**metadata, "labels": {**labels, MEMBER_LABEL: set_id}}}


def refuse_member_labels(objects: Iterable[Mapping[str, Any]]) -> None:
    """Raise if an object says itself which set it belongs to, as kubectl does.

    Raises:
        ConfigError: naming the first of them.
    """
    for data in objects:
        with_member_label(data, "")


def parent_annotations(
    members: Iterable[Identity], *, namespace: str, version: str, kinds: Kinds
) -> dict[str, str]:
    """Give the annotations of a parent.

    Kinds that the server does not have are left out: one of them makes the whole set unusable for kubectl.

    Args:
        members: what belongs to the set.
        namespace: the parent's own namespace.
        version: version of mlstack.
        kinds: what the server has.
    """
    found = list(members)
    served = {(kind.group, kind.kind) for kind in kinds}
    names = {_group_kind(one) for one in found if (one.group, one.kind) in served}
    others = {one.namespace for one in found} - {"", namespace}
    return {
        TOOLING: f"{TOOL}/v{version}",
        GROUP_KINDS: ",".join(sorted(names)),
        NAMESPACES: ",".join(sorted(others)),
    }


def _group_kind(identity: Identity) -> str:
    return f"{identity.kind}.{identity.group}" if identity.group else identity.kind


def check_parent(parent: Mapping[str, Any], expected_id: str) -> None:
    """Raise if an object is the parent of another tool's set, or of no set or another one.

    Raises:
        ClusterError: saying whose it is.
    """
    metadata = parent["metadata"]
    name = f"ConfigMap {metadata.get('namespace')}/{metadata.get('name')}"
    tooling = str((metadata.get("annotations") or {}).get(TOOLING) or "")
    tool = tooling.rpartition("/")[0] or tooling
    found_id = (metadata.get("labels") or {}).get(ID_LABEL)
    if not tool:
        raise ClusterError(
            f"`{name}` is no inventory of mlstack: it has no annotation `{TOOLING}`", hint=_spare(metadata)
        )
    if tool != TOOL:
        raise ClusterError(
            f"the set of `{name}` is managed by `{tooling}` instead of `{TOOL}`", hint=_spare(metadata)
        )
    if found_id != expected_id:
        raise ClusterError(
            f"`{name}` has label `{ID_LABEL}` with `{found_id or ''}` instead of `{expected_id}`",
            hint="it was copied or changed by hand; set the label right, or: " + _spare(metadata),
        )


def _spare(metadata: Mapping[str, Any]) -> str:
    return (
        f"if nobody needs it: kubectl delete configmap -n {metadata.get('namespace')} {metadata.get('name')}"
    )


# --- What an environment has in its cluster, object by object; kept in the cluster itself ---
# One law holds whatever stops a run: the inventory covers every live object of ours. So it grows before the
# first write and loses a member only once that object is known to be gone.

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
        return with_member_label(data, self.id)

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
    tree = managed_fields.owned(live, MANAGER)
    return _hash(tree) if tree else ""


def people_hash(live: Mapping[str, Any]) -> str:
    """Give the hash of the fields that people's tools own in a live object, empty if they own none."""
    found = [
        (*one.key, one.tree)
        for one in managed_fields.entries(live)
        if one.key != (MANAGER, "Apply", "") and one.manager != HANDOVER and is_persons_tool(owner_of(one))
    ]
    return _hash(sorted(found, key=lambda one: one[:3])) if found else ""


def shared_hash(live: Mapping[str, Any]) -> str:
    """Give the hash of an object that another environment writes as we would, empty if that cannot be told.

    Both write the same fields under the same name, so that our entry does not tell of other values: the
    generation does, and metadata counts as it is.
    """
    metadata = live["metadata"]
    generation, tree = metadata.get("generation"), managed_fields.owned(live, MANAGER)
    if not generation or not tree:
        return ""
    return _hash([tree, generation, metadata.get("labels") or {}, metadata.get("annotations") or {}])


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARACTERS]


# --- An inventory as the ConfigMaps that keep it: one line a member, split where one ConfigMap is
# too small
# Further parts are named by their content and written before the parent that names them, so that the parent
# alone decides which members there are: a run that is killed between two writes changes nothing.

LIMIT_BYTES = 900_000
"""How much one ConfigMap may hold: the API server takes 1 MiB of data, and metadata wants room too."""
PART_LABEL = "mlstack.dev/inventory-part"

# Whoever may write ConfigMaps in the namespace may write these too: what they say drives no endless loop.
_MOST_PARTS, _FORMAT_DIGITS = 1000, 10
_FORMAT = "1"
_ELSEWHERE = "made-elsewhere"
_FORMAT_KEY, _MEMBERS_KEY, _PARTS_KEY = "format", "members", "parts"


class DamagedInventoryError(Exception):
    """Raised when the lines of an inventory cannot be read; never leaves the engine."""


class NewerError(Exception):
    """Raised when an inventory was written by a later mlstack; never leaves the engine."""


def encode(
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
        "labels": {ID_LABEL: inventory.id, **_marks(inventory)},
        "annotations": parent_annotations(
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


def decode(parent: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> dict[Identity, Member]:
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
        raise DamagedInventoryError("it names parts that it cannot have")
    if data.get(_FORMAT_KEY) != _FORMAT or not (data.keys() & {_MEMBERS_KEY, _PARTS_KEY}):
        raise DamagedInventoryError(f"it has no members of format {_FORMAT}")
    texts = [str(data.get(_MEMBERS_KEY) or "")]
    for part in parts:
        text = str((part.get("data") or {}).get(_MEMBERS_KEY) or "")
        if not part["metadata"]["name"].endswith(_digest(text)):
            raise DamagedInventoryError(f"ConfigMap `{part['metadata']['name']}` was changed")
        texts.append(text)
    found = [_stored_member(line) for text in texts for line in text.split("\n") if line]
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


def _stored_member(line: str) -> Member:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedInventoryError("a line is no JSON") from error
    is_list = isinstance(fields, list) and all(isinstance(one, str) for one in fields)
    if not is_list or len(fields) not in (8, 10):
        raise DamagedInventoryError("a line has not the texts of a member")
    api_version, kind, namespace, name, component, uid, payload, owned, *more = fields
    if not (api_version and kind and name):
        raise DamagedInventoryError("a member has no kind or name")
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


# --- How an inventory changes with a run: widened before the first write, settled by what was done ---


def grown(inventory: Inventory, changes: Iterable[Change]) -> Inventory:
    """Give the union of an inventory and what a run is going to write.

    What is about to be written loses its hashes: until the write is known to have arrived they say nothing,
    and our own half-done writes would not show in them.
    """
    return inventory.with_members(
        _before(change, inventory.members.get(change.identity)) for change in changes if is_member(change)
    )


def shrunk(
    inventory: Inventory,
    changes: Iterable[Change],
    *,
    written: Mapping[Identity, Mapping[str, Any]],
    gone: Collection[Identity],
) -> Inventory:
    """Give an inventory after a run, however far that came.

    Args:
        inventory: as it was widened.
        changes: what was to be done.
        written: the objects that were written, as the server answered.
        gone: members that are not in the cluster any more, or are not ours.
    """
    seen = [
        _after(change, inventory.members.get(change.identity), written.get(change.identity))
        for change in changes
        if is_member(change)
    ]
    return inventory.without(gone).with_members(seen)


def is_member(change: Change) -> bool:
    """Tell whether a change brings an object that belongs to the environment."""
    return change.desired is not None and change.action != "missing" and bool(change.component)


def _member(change: Change, known: Member | None) -> Member:
    return Member(
        identity=change.identity,
        api_version=change.api_version,
        component=change.component,
        uid=change.live_uid,
        payload_hash=known.payload_hash if known else "",
        owned_hash=known.owned_hash if known else "",
        people_hash=known.people_hash if known else "",
        made_elsewhere=change.made_elsewhere,
    )


def _before(change: Change, known: Member | None) -> Member:
    if change.writes:
        return replace(_member(change, None), uid=known.uid if known else change.live_uid)
    return _member(change, known)


def _after(change: Change, known: Member | None, live: Mapping[str, Any] | None) -> Member:
    if live is None and not change.writes:
        live = change.seen
    if live is not None:
        return replace(
            _member(change, None),
            uid=str(live["metadata"].get("uid") or change.live_uid),
            payload_hash=payload_hash(_sent(change)),
            owned_hash=_live_hash(change, live),
            people_hash=people_hash(live),
        )
    if change.writes:
        return known or _before(change, None)
    return _member(change, known)


def _live_hash(change: Change, live: Mapping[str, Any]) -> str:
    ours = change.subject.labels.items() <= (live["metadata"].get("labels") or {}).items()
    return owned_hash(live) if ours else shared_hash(live)


def _sent(change: Change) -> Mapping[str, Any]:
    if change.payload is not None:
        return change.payload
    return change.desired.data if change.desired is not None else {}


# --- What may be deleted: whose an object is, what is kept whatever the files say, how much is too
# much

PRUNE_ANNOTATION = "mlstack.dev/prune"

# Annotations that keep an object when what brought it goes, ours and those of kindred tools.
KEEP_ANNOTATIONS: Mapping[str, frozenset[str]] = {
    PRUNE_ANNOTATION: frozenset({"false", "disabled"}),
    "helm.sh/resource-policy": frozenset({"keep"}),
    "client.lifecycle.config.k8s.io/deletion": frozenset({"detach"}),
    "cli-utils.sigs.k8s.io/on-remove": frozenset({"keep"}),
    "kustomize.toolkit.fluxcd.io/prune": frozenset({"disabled"}),
    "kapp.k14s.io/delete-strategy": frozenset({"orphan"}),
}

LARGE = 4
"""From so many deletions on, more than half of all members looks like a mistake; small sets change often."""

_LOST = f"was applied by mlstack, and has lost its label `{kube_object.APP_LABEL}`: nothing says whose it is"

Fate = Literal["gone", "foreign", "kept", "delete"]


@dataclass(frozen=True, kw_only=True)
class KeepOptions:
    """What is kept because deleting it takes data or other people's things along.

    `foreign` is what a namespace that goes holds of others, and what annotations keep in it.
    """

    definitions: bool = True
    namespaces: bool = True
    claims: bool = True
    foreign: bool = True

    def reason(self, identity: Identity) -> str:
        """Say why an object is kept, nothing if it is not."""
        kind = (identity.group, identity.kind)
        if self.definitions and kind == ("apiextensions.k8s.io", "CustomResourceDefinition"):
            return "definitions are kept: deleting one deletes its objects in every namespace (delete --crds)"
        if self.namespaces and kind == ("", "Namespace"):
            return "namespaces are kept: deleting one deletes everything in it (delete --namespaces)"
        if self.claims and is_claim(identity):
            return "volume claims are kept: deleting one deletes its data (delete --claims)"
        return ""


def is_claim(identity: Identity) -> bool:
    """Tell whether an object is a claim of a volume: it holds data."""
    return (identity.group, identity.kind) == ("", "PersistentVolumeClaim")


@dataclass(frozen=True)
class PruneVerdict:
    """What becomes of one member that nothing brings any more.

    Attributes:
        fate: `gone` is not there, `foreign` is there and another's, `kept` is ours and stays.
        reason: why it is another's or stays.
    """

    fate: Fate
    reason: str = ""


def judge(
    live: Mapping[str, Any] | None, member: Member, inventory: Inventory, *, spare: KeepOptions
) -> PruneVerdict:
    """Say what becomes of a member that is to go.

    It goes only if it still carries our marks, and is the very object we wrote or one that we applied since.

    Args:
        live: the object, None if it is not there.
        member: as it is recorded; its UID may be unknown.
        inventory: what it is a member of.
        spare: kinds to keep.
    """
    if live is None:
        return PruneVerdict("gone")
    foreign = whose(live, inventory)
    if not foreign and live["metadata"].get("uid") != member.uid and not is_applied_by_us(live):
        foreign = "was made anew by somebody else"
    if foreign:
        return PruneVerdict("foreign", foreign)
    kept = _owner(live) or spare.reason(member.identity) or _annotated(live)
    return PruneVerdict("kept", kept) if kept else PruneVerdict("delete")


def whose(live: Mapping[str, Any], inventory: Inventory) -> str:
    """Say whose an object is if it is not this environment's."""
    labels = live["metadata"].get("labels") or {}
    wanted = kube_object.marks(app=inventory.app, environment=inventory.environment, component="")
    app, environment = labels.get(kube_object.APP_LABEL), labels.get(kube_object.ENVIRONMENT_LABEL)
    if app is None:
        return _LOST if is_applied_by_us(live) else "was not made by mlstack"
    if (app, environment) != (wanted[kube_object.APP_LABEL], wanted[kube_object.ENVIRONMENT_LABEL]):
        return f"belongs to environment `{environment}` of app `{app}`"
    if labels.get(MEMBER_LABEL, inventory.id) != inventory.id:
        return f"belongs to environment `{environment}` of app `{app}` in another namespace"
    return ""


def is_applied_by_us(live: Mapping[str, Any]) -> bool:
    """Tell whether we are a field manager of an object: marks alone may have been copied by a controller."""
    return bool(managed_fields.owned(live, MANAGER))


def _owner(live: Mapping[str, Any]) -> str:
    owners = live["metadata"].get("ownerReferences") or ()
    return f"is owned by {owners[0].get('kind')} `{owners[0].get('name')}`" if owners else ""


def _annotated(live: Mapping[str, Any]) -> str:
    annotations = live["metadata"].get("annotations") or {}
    for name, values in KEEP_ANNOTATIONS.items():
        found = str(annotations.get(name, "")).strip()
        if found.lower() in values:
            return f"is kept: annotation `{name}: {found}`"
    return ""


def is_too_much(going: int, members: int) -> bool:
    """Tell whether so many deletions among so many members look like a mistake."""
    return going >= LARGE and going * 2 > members
