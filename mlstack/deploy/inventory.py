"""What an environment has in its cluster, object by object, and how ConfigMaps of the cluster keep that.

One law holds whatever stops a run: the inventory covers every live object of ours. So it grows before the
first write and loses a member only once that object is known to be gone.

Its marks are those of an ApplySet (KEP-3659). Where text and code of it differ, this follows kubectl's.
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

import mlstack
from mlstack.dataclass import Record
from mlstack.deploy.changes import Change, OnEvent, RunEvent, digest_of, silent
from mlstack.deploy.target import explained
from mlstack.errors import ClusterError, ConfigError, ConflictError, ForbiddenError, ObjectNotFoundError
from mlstack.kube.client import Applied, Cluster, ObjectRef
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import (
    APP_LABEL,
    ENVIRONMENT_LABEL,
    DesiredState,
    Identity,
    Kinds,
    KubeObject,
    belongs_to,
    environment_marks,
    group_of,
    label_of,
    records_name,
    selector,
)
from mlstack.objects.managed_fields import HANDOVER, OURS, is_persons_tool

ID_LABEL = "applyset.kubernetes.io/id"
MEMBER_LABEL = "applyset.kubernetes.io/part-of"
TOOLING = "applyset.kubernetes.io/tooling"
GROUP_KINDS = "applyset.kubernetes.io/contains-group-kinds"
NAMESPACES = "applyset.kubernetes.io/additional-namespaces"
TOOL = "mlstack"
APPLYSET_MANAGER = "mlstack-applyset"

Live = Mapping[str, Any]

_HASH_CHARACTERS = 16  # 64 bits: enough to see that something is not what it was
_LOST = f"was applied by mlstack, and has lost its label `{APP_LABEL}`: nothing says whose it is"


class Member(Record):
    """One object of an environment as it was written last."""

    identity: Identity
    api_version: str
    component: str = ""
    uid: str = ""  # empty if it was not known to be there
    payload_hash: str = ""  # of what was sent; empty if that is not known to have arrived, and for Secrets
    # Of our own fields as the server recorded them after that; where another environment brings the same
    # object and has it, its `shared_hash`.
    owned_hash: str = ""
    people_hash: str = ""  # of the fields of people's tools at that time, empty if they had none
    made_elsewhere: bool = False  # by another tool, from which it was not taken over


class Inventory(Record):
    """All objects of one environment in its cluster; kept in ConfigMaps of `namespace`."""

    app: str
    environment: str
    namespace: str
    members: Mapping[Identity, Member] = field(default_factory=dict)
    version: str = ""  # the resourceVersion it was read in, empty if there is none in the cluster
    uid: str = ""
    parts: tuple[str, ...] = ()  # names of the further ConfigMaps, where one is too small
    notes: tuple[str, ...] = ()  # what is to be said of it, as that it was lost and found again

    @property
    def name(self) -> str:
        """Give the name of the ConfigMap."""
        return records_name(self.app, self.environment)

    @property
    def id(self) -> str:
        """Give the ID of the ApplySet."""
        return set_id(self.name, self.namespace)

    @property
    def exists(self) -> bool:
        """Tell whether it is kept in the cluster."""
        return bool(self.version)

    def label(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Give an object as it is sent: with the label of a member."""
        metadata = data.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), MEMBER_LABEL: self.id}
        return {**data, "metadata": {**metadata, "labels": labels}}

    def with_members(self, members: Iterable[Member]) -> Inventory:
        """Give the union: these members as well, in place of those of the same identity."""
        return replace(self, members={**self.members, **{member.identity: member for member in members}})

    def without(self, gone: Collection[Identity]) -> Inventory:
        """Give the inventory without members that are known to be gone, or another's."""
        return replace(self, members={key: member for key, member in self.members.items() if key not in gone})

    def of_components(self, names: Collection[str]) -> tuple[Member, ...]:
        """Give the members that some components brought, in order."""
        return tuple(member for member in self.ordered() if member.component in names)

    def ref(self, name: str = "") -> ObjectRef:
        """Give the address of its ConfigMap, or of a part of that name."""
        return ObjectRef("v1", "ConfigMap", self.namespace, name or self.name)

    def ordered(self) -> tuple[Member, ...]:
        """Give the members by identity."""
        return tuple(self.members[key] for key in sorted(self.members))


# --- marks ---


def set_id(name: str, namespace: str) -> str:
    """Give the ID of the set whose parent is this ConfigMap: 55 characters, fit for a label."""
    digest = hashlib.sha256(f"{name}.{namespace}.ConfigMap.".encode()).digest()
    return f"applyset-{urlsafe_b64encode(digest).decode().rstrip('=')}-v1"


def as_members(state: DesiredState, namespace: str) -> DesiredState:
    """Label all that is wanted as members of the inventory in the environment's namespace."""
    for obj in state.objects:
        if MEMBER_LABEL in obj.labels:
            raise ConfigError(
                f"`{obj.kind} {obj.name}` brings the label `{MEMBER_LABEL}` itself",
                hint="remove the label from the manifest: it is set when the object is applied",
            )
    inventory = Inventory(app=state.app, environment=state.environment, namespace=namespace)
    return replace(state, objects=tuple(obj.with_data(inventory.label(obj.data)) for obj in state.objects))


def check_parent(parent: Mapping[str, Any], expected_id: str) -> None:
    """Raise ClusterError if an object is the parent of another tool's set, or of no set or another one."""
    metadata = parent["metadata"]
    tooling = str((metadata.get("annotations") or {}).get(TOOLING) or "")
    label, ref = (metadata.get("labels") or {}).get(ID_LABEL), ObjectRef.of(parent)
    hint = f"if nobody needs it: kubectl delete configmap -n {ref.namespace} {ref.name}"
    if not tooling:
        raise ClusterError(f"`{ref}` is no inventory of mlstack: it has no annotation `{TOOLING}`", hint=hint)
    if (tooling.rpartition("/")[0] or tooling) != TOOL:
        raise ClusterError(f"the set of `{ref}` is managed by `{tooling}` instead of `{TOOL}`", hint=hint)
    if label != expected_id:
        raise ClusterError(
            f"`{ref}` has label `{ID_LABEL}` with `{label or ''}` instead of `{expected_id}`",
            hint=f"it was copied or changed by hand; set the label right, or: {hint}",
        )


def other_owner_of(live: Mapping[str, Any], inventory: Inventory) -> str:
    """Say whose an object is if it is not this environment's."""
    labels = live["metadata"].get("labels") or {}
    app, environment = labels.get(APP_LABEL), labels.get(ENVIRONMENT_LABEL)
    if app is None:
        return _LOST if is_applied_by_us(live) else "was not made by mlstack"
    if not belongs_to(live, app=inventory.app, environment=inventory.environment):
        return f"belongs to environment `{environment}` of app `{app}`"
    if labels.get(MEMBER_LABEL, inventory.id) != inventory.id:
        return f"belongs to environment `{environment}` of app `{app}` in another namespace"
    return ""


def other_owner(manifest: KubeObject, live: Live) -> str:
    """Say whose an object is if it is not ours; empty if it is, or is nobody's."""
    labels = live["metadata"].get("labels") or {}
    app, environment = labels.get(APP_LABEL), labels.get(ENVIRONMENT_LABEL)
    if app:
        ours = (manifest.labels.get(APP_LABEL), manifest.labels.get(ENVIRONMENT_LABEL))
        return "" if (app, environment) == ours else f"environment `{environment}` of app `{app}`"
    applyset, own = labels.get(MEMBER_LABEL), manifest.labels.get(MEMBER_LABEL)
    return f"ApplySet `{applyset}`" if applyset and applyset != own else ""


def is_applied_by_us(live: Mapping[str, Any]) -> bool:
    """Tell whether we are a field manager of an object: marks alone may have been copied by a controller."""
    return bool(managed_fields.owned(live))


# --- hashes ---


def payload_hash(data: Mapping[str, Any]) -> str:
    """Give the hash of what is sent, whichever version of the object was to be changed; empty for Secrets."""
    # A hash in a ConfigMap would let those guess a weak password who may not read the Secret.
    if data.get("kind") == "Secret" and not group_of(str(data.get("apiVersion", ""))):
        return ""
    metadata = dict(data.get("metadata") or {})
    metadata.pop("uid", None)
    metadata.pop("resourceVersion", None)
    return _hash({**data, "metadata": metadata})


def owned_hash(live: Mapping[str, Any]) -> str:
    """Give the hash of the fields that we own in a live object, empty if we own none."""
    # Whoever changes or removes a value that we applied takes its path from our entry: the same hash means
    # the same values, as long as we have not written ourselves.
    tree = managed_fields.owned(live)
    return _hash(tree) if tree else ""


def people_hash(live: Mapping[str, Any]) -> str:
    """Give the hash of the fields that people's tools own in a live object, empty if they own none."""
    owned = [
        (*entry.owner, entry.tree)
        for entry in managed_fields.entries(live)
        if entry.owner != OURS and entry.owner.manager != HANDOVER and is_persons_tool(entry.owner)
    ]
    return _hash(sorted(owned, key=lambda entry: entry[:3])) if owned else ""


def shared_hash(live: Mapping[str, Any]) -> str:
    """Give the hash of an object that another environment writes as we would, empty if nobody can tell."""
    # Both write the same fields under the same name, so that our entry does not tell of other values: the
    # generation does, and metadata counts as it is.
    metadata = live["metadata"]
    generation, tree = metadata.get("generation"), managed_fields.owned(live)
    if not generation or not tree:
        return ""
    return _hash([tree, generation, metadata.get("labels") or {}, metadata.get("annotations") or {}])


def _hash(value: Any) -> str:
    return digest_of(value).removeprefix("sha256:")[:_HASH_CHARACTERS]


# --- with a run: grown before the first write, shrunk after the last ---


def grown(inventory: Inventory, changes: Iterable[Change]) -> Inventory:
    """Give the union of an inventory and what a run is going to write."""
    # What is about to be written loses its hashes: until the write is known to have arrived they say nothing,
    # and our own half-done writes would not show in them.
    members = []
    for change in filter(_is_member, changes):
        before = inventory.members.get(change.identity)
        member = _member(change, None if change.writes else before)
        members.append(replace(member, uid=before.uid) if before and change.writes else member)
    return inventory.with_members(members)


def shrunk(
    inventory: Inventory,
    changes: Iterable[Change],
    *,
    written: Mapping[Identity, Mapping[str, Any]],
    gone: Collection[Identity],
) -> Inventory:
    """Give an inventory after a run, however far that came: hashes of what was written, less what is gone.

    `inventory` is as it was grown, `gone` are members that are not there any more, or are another's.
    """
    members = []
    for change in filter(_is_member, changes):
        before, live = inventory.members.get(change.identity), written.get(change.identity)
        if live is None and not change.writes:
            live = change.live_metadata
        if live is not None:
            members.append(_written(change, live))
        elif not change.writes or before is None:
            members.append(_member(change, before))
    return inventory.without(gone).with_members(members)


def _is_member(change: Change) -> bool:
    return change.desired is not None and change.action != "missing" and bool(change.component)


def _member(change: Change, before: Member | None) -> Member:
    return replace(
        before or Member(identity=change.identity, api_version=change.api_version),
        api_version=change.api_version,
        component=change.component,
        uid=change.live_uid,
        made_elsewhere=change.made_elsewhere,
    )


def _written(change: Change, live: Mapping[str, Any]) -> Member:
    is_ours = change.subject.labels.items() <= (live["metadata"].get("labels") or {}).items()
    return replace(
        _member(change, None),
        uid=str(live["metadata"].get("uid") or change.live_uid),
        payload_hash=payload_hash(change.sent),
        owned_hash=owned_hash(live) if is_ours else shared_hash(live),
        people_hash=people_hash(live),
    )


# --- codec: one line a member, split where one ConfigMap is too small ---
# Further parts are named by their content and written before the parent that names them, so that the parent
# alone decides which members there are: a run that is killed between two writes changes nothing.

LIMIT_BYTES = 900_000
"""How much one ConfigMap may hold: the API server takes 1 MiB of data, and metadata wants room too."""
PART_LABEL = "mlstack.dev/inventory-part"

# Whoever may write ConfigMaps in the namespace may write these too: what they say drives no endless loop.
_MOST_PARTS, _FORMAT_DIGITS = 1000, 10
_FORMAT = "1"
_ELSEWHERE = "made-elsewhere"
_TEXTS = ("component", "uid", "payload_hash", "owned_hash", "people_hash")  # of a member, in their order
_FORMAT_KEY, _MEMBERS_KEY, _PARTS_KEY = "format", "members", "parts"


class DamagedInventoryError(Exception):
    """Raised when the lines of an inventory cannot be read; never leaves `deploy`."""


def encode(
    inventory: Inventory, *, version: str, kinds: Kinds, limit_bytes: int = LIMIT_BYTES
) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """Give the parent and the further parts that it names, none of which holds more than `limit_bytes`."""
    labels = environment_marks(inventory.app, inventory.environment)

    def config_map(name: str, data: Mapping[str, str], labels: Mapping[str, str], **metadata: Any) -> Any:
        metadata = {"name": name, "namespace": inventory.namespace, "labels": labels, **metadata}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    chunks: list[list[str]] = [[]]
    size = 0
    for line in map(_line, inventory.ordered()):
        length = len(line.encode())
        if chunks[-1] and size + length > limit_bytes:
            chunks.append([])
            size = 0
        chunks[-1].append(line)
        size += length
    texts = ["".join(chunk) for chunk in chunks]
    parts = tuple(
        config_map(f"{inventory.name}.i{_digest(text)}", {_MEMBERS_KEY: text}, {PART_LABEL: "true", **labels})
        for text in (texts if len(texts) > 1 else ())
    )
    names = "".join(f"{part['metadata']['name']}\n" for part in parts)
    data = {_PARTS_KEY: names} if parts else {_MEMBERS_KEY: texts[0]}
    served = {(kind.group, kind.kind) for kind in kinds}
    # One kind that the server does not have makes the whole set unusable for kubectl.
    group_kinds = {(key.group, key.kind) for key in inventory.members} & served
    annotations = {
        TOOLING: f"{TOOL}/v{version}",
        GROUP_KINDS: ",".join(sorted(f"{kind}.{group}" if group else kind for group, kind in group_kinds)),
        NAMESPACES: ",".join(
            sorted({key.namespace for key in inventory.members} - {"", inventory.namespace})
        ),
    }
    data, labels = {_FORMAT_KEY: _FORMAT, **data}, {ID_LABEL: inventory.id, **labels}
    return config_map(inventory.name, data, labels, annotations=annotations), parts


def part_names(parent: Mapping[str, Any]) -> tuple[str, ...]:
    """Give the names of the further ConfigMaps that a parent names, as far as they can be such."""
    head = f"{(parent.get('metadata') or {}).get('name', '')}.i"
    names = str((parent.get("data") or {}).get(_PARTS_KEY) or "").split()[:_MOST_PARTS]
    return tuple(dict.fromkeys(name for name in names if name.startswith(head)))


def decode(parent: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> dict[Identity, Member]:
    """Read the members that a parent and its parts hold.

    Raises:
        ClusterError: a later mlstack wrote them.
        DamagedInventoryError: they are not what was written.
    """
    data = parent.get("data") or {}
    version = str(data.get(_FORMAT_KEY, ""))
    if version.isdecimal() and len(version) < _FORMAT_DIGITS and int(version) > int(_FORMAT):
        raise ClusterError(
            f"the inventory `{ObjectRef.of(parent)}` was written by a newer mlstack (format {version})",
            hint="use that version, or a later one",
        )
    if len(str(data.get(_PARTS_KEY) or "").split()) != len(part_names(parent)):
        raise DamagedInventoryError("it names parts that it cannot have")
    if data.get(_FORMAT_KEY) != _FORMAT or not (data.keys() & {_MEMBERS_KEY, _PARTS_KEY}):
        raise DamagedInventoryError(f"it has no members of format {_FORMAT}")
    texts = [str(data.get(_MEMBERS_KEY) or "")]
    for part in parts:
        text = str((part.get("data") or {}).get(_MEMBERS_KEY) or "")
        if not part["metadata"]["name"].endswith(_digest(text)):
            raise DamagedInventoryError(f"ConfigMap `{part['metadata']['name']}` was changed")
        texts.append(text)
    members = [_decoded(line) for text in texts for line in text.split("\n") if line]
    return {member.identity: member for member in members}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _line(member: Member) -> str:
    identity = member.identity
    fields = [member.api_version, identity.kind, identity.namespace, identity.name]
    fields += [getattr(member, name) for name in _TEXTS]
    if member.people_hash or member.made_elsewhere:
        fields.append(_ELSEWHERE if member.made_elsewhere else "")
    else:
        fields.pop()
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False) + "\n"


def _decoded(line: str) -> Member:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedInventoryError("a line is no JSON") from error
    is_list = isinstance(fields, list) and len(fields) in (8, 10)
    if not is_list or not all(isinstance(text, str) for text in fields):
        raise DamagedInventoryError("a line has not the texts of a member")
    api_version, kind, namespace, name = fields[:4]
    if not (api_version and kind and name):
        raise DamagedInventoryError("a member has no kind or name")
    facts = dict(zip(_TEXTS, fields[4:9], strict=False))
    identity = Identity(group_of(api_version), kind, namespace, name)
    return Member(
        identity=identity, api_version=api_version, made_elsewhere=fields[9:] == [_ELSEWHERE], **facts
    )


# --- in the cluster: load, write, remove ---

_ATTEMPTS = 20  # a server that refuses one write of two is asked about that often once in a million runs
_READS = 3  # a reader may meet a writer that has just put other parts in place of those that were named


def load_inventory(cluster: Cluster, owner: DesiredState | Inventory) -> Inventory:
    """Read the inventory of the owner's environment; one without a version if there is none.

    A damaged one is rebuilt from the marks on the objects, and its notes say so.

    Raises:
        ClusterError: the ConfigMap of its name is another tool's or another environment's.
    """
    empty = Inventory(app=owner.app, environment=owner.environment, namespace=owner.namespace)
    ref, parent = empty.ref(), dict[str, Any]()
    for _ in range(_READS):
        parent = cluster.get(ref) or {}
        if not parent:
            return empty
        check_parent(parent, empty.id)
        if not belongs_to(parent, app=owner.app, environment=owner.environment):
            raise ClusterError(
                f"`{ref}` is the inventory of another app or environment",
                hint="give one of the two apps another name or namespace",
            )
        names = part_names(parent)
        parts = [part for name in names if (part := cluster.get(empty.ref(name))) is not None]
        if len(parts) == len(names):
            break
    metadata = parent["metadata"]
    inventory = replace(empty, version=metadata["resourceVersion"], uid=metadata["uid"], parts=names)
    try:
        if len(parts) < len(names):
            raise DamagedInventoryError("a part of it is missing")
        return replace(inventory, members=decode(parent, parts))
    except DamagedInventoryError as fault:
        from mlstack.deploy.prune import find_by_labels  # a repair, not the rule

        return find_by_labels(cluster, inventory, why=f"the inventory `{ref}` is damaged ({fault})")


def has_moved(cluster: Cluster, inventory: Inventory) -> bool:
    """Tell whether somebody wrote the inventory since it was read."""
    metadata = (cluster.get(inventory.ref()) or {}).get("metadata") or {}
    now = (str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or ""))
    return now != (inventory.uid, inventory.version)


def other_namespaces(cluster: Cluster, state: DesiredState) -> tuple[str, ...]:
    """Give the other namespaces in which the same environment keeps an inventory, as far as one may look."""
    labels = f"{selector(app=state.app, environment=state.environment)},{ID_LABEL}"
    items = list_visible(cluster, "ConfigMap", namespace=None, labels=labels)
    return tuple(sorted({str(item["metadata"]["namespace"]) for item in items} - {state.namespace}))


def other_environments(cluster: Cluster, state: DesiredState) -> tuple[str, ...]:
    """Give other environments of the app with an inventory in the same namespace, as labels name them."""
    labels = f"{APP_LABEL}={state.app},{ID_LABEL}"
    items = list_visible(cluster, "ConfigMap", namespace=state.namespace, labels=labels)
    names = {str(item["metadata"]["labels"].get(ENVIRONMENT_LABEL, "")) for item in items}
    return tuple(sorted(names - {label_of(state.environment)}))


def list_visible(cluster: Cluster, kind: str, *, namespace: str | None, labels: str) -> Sequence[Live]:
    """List the metadata of objects of a core kind; nothing where they may not be listed."""
    try:
        return cluster.list("v1", kind, namespace=namespace, labels=labels, metadata_only=True).items
    except ForbiddenError:
        return ()


def needs_writing(old: Inventory, new: Inventory) -> bool:
    """Tell whether the cluster does not hold an inventory as it should be."""
    if not old.exists:
        return bool(new.members)
    return dict(old.members) != dict(new.members) or bool(old.notes)


def write(
    cluster: Cluster,
    old: Inventory,
    new: Inventory,
    *,
    on_event: OnEvent = silent,
    so: str = "nothing was written",
    refresh: bool = False,
) -> Inventory:
    """Keep an inventory in the cluster; nothing is sent if it holds what the old one held.

    `old` is as it was read or written last; `so` says what a refusal means for the run; `refresh` asks for
    the kinds of the server anew, as definitions have come or gone.

    Raises:
        ConflictError: somebody else changed it since it was read.
    """
    if not needs_writing(old, new):
        return replace(new, version=old.version, uid=old.uid, parts=old.parts)
    with explained(cluster, new.ref(), app=new.app, environment=new.environment, so=so):
        parent, parts = encode(new, version=mlstack.__version__, kinds=cluster.kinds(refresh=refresh))
        for part in parts:
            _apply(cluster, part, on_event)
        uid, version = _swap(cluster, old, new, parent, on_event)
        names = tuple(str(part["metadata"]["name"]) for part in parts)
        if old.parts or names:
            _delete_parts(cluster, new, keep=names)
    return replace(new, version=version, uid=uid, parts=names, notes=())


def _swap(
    cluster: Cluster, old: Inventory, new: Inventory, parent: Live, on_event: OnEvent
) -> tuple[str, str]:
    """Write the parent in place of the one that was read; give its UID and version.

    A refusal means nothing as long as what is there is still the old one, or the new one already: an answer
    of the server may have been lost.
    """
    for attempt in range(_ATTEMPTS):
        read = {"uid": old.uid, "resourceVersion": old.version} if old.exists else {}
        try:
            live = _apply(cluster, {**parent, "metadata": {**parent["metadata"], **read}}, on_event).object
            return live["metadata"]["uid"], live["metadata"]["resourceVersion"]
        except ConflictError:
            old_members, old = old.members, load_inventory(cluster, new)
            if old.exists and old.members == new.members:
                break
            if attempt + 1 == _ATTEMPTS or old.exists != bool(read) or old.members != old_members:
                raise
    return old.uid, old.version


def _apply(cluster: Cluster, document: Live, on_event: OnEvent) -> Applied:
    """Write, and take fields that others have laid hold on: the inventory has one owner."""
    try:
        return cluster.apply(document, manager=APPLYSET_MANAGER)
    except ConflictError as error:
        if not error.conflicts:
            raise
        managers = ", ".join(f"`{name}`" for name in error.managers)
        text = f"`{ObjectRef.of(document)}` was changed by {managers}: set right again"
        on_event(RunEvent("warning", None, text))
        return cluster.apply(document, manager=APPLYSET_MANAGER, force=True)


def remove(cluster: Cluster, inventory: Inventory) -> None:
    """Take an inventory out of the cluster, unless it still lists something or somebody else changed it."""
    if inventory.members or not inventory.exists:
        return
    with suppress(ObjectNotFoundError):
        cluster.delete(
            inventory.ref(), propagation="Background", uid=inventory.uid, resource_version=inventory.version
        )
    _delete_parts(cluster, inventory, keep=())


def _delete_parts(cluster: Cluster, inventory: Inventory, *, keep: Sequence[str]) -> None:
    """Delete parts that no parent names, those of killed runs included."""
    namespace = inventory.namespace
    parts = cluster.list("v1", "ConfigMap", namespace=namespace, labels=PART_LABEL, metadata_only=True)
    for name in (str(item["metadata"]["name"]) for item in parts.items):
        if name.startswith(f"{inventory.name}.i") and name not in keep:
            with suppress(ObjectNotFoundError):
                cluster.delete(inventory.ref(name), propagation="Background")


def ref_of(subject: Member | Change) -> ObjectRef:
    """Give the address of a member, or of a change's object."""
    identity = subject.identity
    return ObjectRef(subject.api_version, identity.kind, identity.namespace, identity.name)
