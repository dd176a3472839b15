"""Why a live object is not as its files say: who changed which field, or whether only our apply is behind.

The API server keeps the books: whoever changes or removes a value that we applied takes its path from our
entry in `managedFields`. So a field that is still ours has the value we gave it, and differs because the
files have changed since; one that is another's was changed by that one; one that is nobody's was removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mlstack.deploy import adopt, inventory_store, result
from mlstack.deploy.autoscaling import Replicas
from mlstack.deploy.conflicts import with_uid
from mlstack.deploy.diff import kept_labels
from mlstack.deploy.inventory import Inventory, Member, other_owner_of, owned_hash, payload_hash
from mlstack.deploy.live import placed
from mlstack.deploy.object_diff import context_of
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ConflictError, InvalidError
from mlstack.kube import parallel
from mlstack.kube.client import ObjectRef
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import APP_LABEL, MANAGER, Identity, KubeObject
from mlstack.objects.managed_fields import FieldChange, ManagedFieldsEntry, Path

Cause = Literal["person", "controller", "stale", "unknown"]
DriftState = Literal["same", "changed", "missing", "new", "extra"]
DriftAction = Literal["changed", "removed", "added"]

_SEEN_FROM_LIVE: Mapping[str, DriftAction] = {"changed": "changed", "added": "removed", "removed": "added"}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One field of a live object that is not as the files say.

    Attributes:
        path: the field as people write it: `spec.template.spec.containers[main].image`.
        action: what happened to the live object: `added` is there and is not wanted any more.
        cause: `person` for a tool that people use, `controller` for any other program, `stale` where
            the files have changed since the last apply, `unknown` where a field went without a trace.
        live: the value in the cluster, None if the field was removed.
        wanted: the value that the files give, None if they give none.
        manager: the field manager that changed it, empty if nobody is recorded.
        subresource: `scale` or `status` if it wrote through one.
        time: when that manager last took or left a field of the object, empty if that is not recorded.
        sure: false where the manager is only likely, as of a removed field that leaves no trace.
    """

    path: str
    action: DriftAction
    cause: Cause
    live: Any = None
    wanted: Any = None
    manager: str = ""
    subresource: str = ""
    time: str = ""
    sure: bool = True


@dataclass(frozen=True, kw_only=True)
class ObjectDrift:
    """How one live object stands against the files and the last apply."""

    identity: Identity
    component: str
    # `missing` was applied and is not there, `new` was not applied so far, `extra` is there with our marks
    # and not in the files.
    state: DriftState
    reason: str = ""  # what happened to the object as a whole, empty if nothing did
    manager: str = ""  # the field manager that made an extra object ours, empty if nobody is recorded
    time: str = ""  # when it did
    differences: tuple[Difference, ...] = ()

    @property
    def causes(self) -> tuple[str, ...]:
        """Give what it counts as: the cause of each difference, or what became of the whole object."""
        if self.state in ("missing", "extra"):
            return (self.state,)
        return ("stale",) if self.state == "new" else tuple(one.cause for one in self.differences)


def differences(
    live: Mapping[str, Any],
    wanted: Mapping[str, Any],
    *,
    tree: managed_fields.Tree | None = None,
    gone: Sequence[Path] = (),
    after: Mapping[str, Any] | None = None,
    files_changed: bool | None = None,
    applied: Mapping[str, Any] | None = None,
    secrets: Sequence[str] = (),
) -> tuple[Difference, ...]:
    """Tell every field of ours in which a live object differs from what an apply would make of it.

    Values of Secrets are masked.

    Args:
        live: the object as it is.
        wanted: the server's answer to a forced dry run of what the files say.
        tree: the fields to look at; None for those that we own and those we would own.
        gone: further fields of the live object that are not wanted, which the dry run could not show.
        after: the object without these; None if they leave nothing behind.
        files_changed: whether the files say something else of it than when it was applied last; None
            if that is not known.
        applied: what was applied last, if that is known.
        secrets: texts to be masked wherever they stand.
    """
    owners = _FieldOwners(live, files_changed=files_changed, applied=applied)
    ours = managed_fields.union(managed_fields.owned(live, MANAGER), managed_fields.owned(wanted, MANAGER))
    identity = KubeObject(data=live).identity
    left = managed_fields.cut(live, gone) if after is None else after
    changes = [
        *managed_fields.located(live, wanted, ours if tree is None else tree),
        *managed_fields.located(live, left, managed_fields.tree_along(gone)),
    ]
    return tuple(
        owners.classify(path, shown)
        for path, change in changes
        for shown in result.veiled(result.masked(identity, [change]), secrets)
    )


class _FieldOwners:
    """Who is recorded as the owner of which field of one object, and what we know of our last apply."""

    def __init__(
        self, live: Mapping[str, Any], *, files_changed: bool | None, applied: Mapping[str, Any] | None
    ) -> None:
        entries = managed_fields.entries(live)
        self._ours = [entry for entry in entries if entry.key == (MANAGER, "Apply", "")]
        self._others = [entry for entry in entries if entry.key != (MANAGER, "Apply", "")]
        self._files_changed, self._applied = files_changed, applied

    def classify(self, path: tuple[str, ...], change: FieldChange) -> Difference:
        """Give the difference with its cause."""
        owners = [entry for entry in self._others if _depth(entry, path)]
        # Who fills an empty map of ours owns what is in it, and we the map.
        deepest = max((_depth(entry, path) for entry in owners), default=0)
        if any(_depth(entry, path) >= max(deepest, 1) for entry in self._ours):
            return _difference(change, "stale")
        if owners:
            return _by(change, max(owners, key=lambda entry: entry.time))
        # A field that nobody owns: removed from the object, or never applied so far.
        if self._was_applied(path) is False:
            return _difference(change, "stale")
        # A controller sets fields of its own all day; who takes one of ours away is a person.
        since = [
            entry
            for entry in self._others
            if _is_person(entry) and not entry.subresource and self._ours and entry.time >= self._ours[0].time
        ]
        if len({entry.key for entry in since}) == 1:
            return _by(change, since[0], sure=False)
        return _difference(change, "unknown")

    def _was_applied(self, path: tuple[str, ...]) -> bool | None:
        """Tell whether our last apply brought a field; None if that is not known."""
        if self._applied is not None:
            return managed_fields.says(self._applied, path)
        return None if self._files_changed is None or self._files_changed else True


def _by(change: FieldChange, owner: ManagedFieldsEntry, *, sure: bool = True) -> Difference:
    return _difference(change, "person" if _is_person(owner) else "controller", owner=owner, sure=sure)


def marked_by(live: Mapping[str, Any]) -> ManagedFieldsEntry | None:
    """Give who set our mark on a live object: us, or somebody who copied it; None if nobody is recorded."""
    label = ("f:metadata", "f:labels", f"f:{APP_LABEL}")
    return next((entry for entry in managed_fields.entries(live) if _depth(entry, label)), None)


def is_made_by_hand(entry: ManagedFieldsEntry) -> bool:
    """Tell whether a person's tool wrote an entry, and not we."""
    return entry.manager != MANAGER and _is_person(entry)


def _is_person(entry: ManagedFieldsEntry) -> bool:
    return managed_fields.is_persons_tool(managed_fields.owner_of(entry))


def _depth(entry: ManagedFieldsEntry, path: Sequence[str]) -> int:
    """Give how far down a manager owns a field: itself or something in it, or around it as a whole; or 0."""
    tree: managed_fields.Tree = entry.tree
    for depth, key in enumerate(path, 1):
        if key not in tree:
            return 0
        tree = tree[key]
        if not tree:  # the thing as a whole is owned, with all it holds
            return depth
    return len(path)


def _difference(
    change: FieldChange, cause: Cause, *, owner: ManagedFieldsEntry | None = None, sure: bool = True
) -> Difference:
    return Difference(
        path=change.path,
        action=_SEEN_FROM_LIVE[change.action],
        cause=cause,
        live=change.old,
        wanted=change.new,
        manager=owner.manager if owner else "",
        subresource=owner.subresource if owner else "",
        time=owner.time if owner else "",
        sure=sure,
    )


# --- environment: live objects against files and the last apply ---

_MOVES = 20


@dataclass(frozen=True, kw_only=True)
class Drift:
    """What became of an environment."""

    objects: tuple[ObjectDrift, ...]  # those of the files in their order, then those only the cluster has
    notes: tuple[str, ...] = ()  # what could not be seen


def find_drift(resolved: ResolvedTarget) -> Drift:
    """Judge every object of an environment; nothing is written."""
    state, cluster = resolved.state, resolved.cluster
    inventory = inventory_store.load_or_find(
        cluster, app=state.app, environment=state.environment, namespace=resolved.place.namespace
    )
    labelled = inventory.label if inventory.members else dict
    members = tuple(obj.with_data(labelled(obj.data)) for obj in state.objects)
    resolved = replace(resolved, state=replace(state, objects=members))
    wanted = placed(members, cluster)
    finder = _DriftFinder(resolved, inventory)
    rows = parallel.whole(parallel.run(finder.find, wanted))
    extra, unseen = _extra(resolved, inventory, {obj.identity for obj in wanted})
    return Drift(
        objects=(*rows, *extra),
        notes=tuple(dict.fromkeys((*state.notes, *inventory.notes, *finder.notes, *unseen))),
    )


class _DriftFinder:
    """Looks at one object after the other."""

    def __init__(self, resolved: ResolvedTarget, inventory: Inventory) -> None:
        self._cluster, self._inventory = resolved.cluster, inventory
        self._secrets = resolved.state.secrets
        self._context = context_of(resolved, inventory=inventory)
        self._labels: dict[Identity, tuple[tuple[str, str], ...]] = {}
        self._left: dict[Identity, str] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what could not be seen."""
        fault = self._context.applied.fault
        left = (text for _, text in sorted(self._left.items()))
        notes = (*left, *kept_labels(sorted(self._labels.items())))
        what = "what was applied last cannot be read, so removed fields may be laid to nobody"
        return (*notes, f"{what}: {fault}") if fault else notes

    def find(self, wanted: KubeObject) -> ObjectDrift:
        """Tell how a live object stands; one that changes while it is looked at is looked at again."""
        for _ in range(_MOVES):
            try:
                return self._find_now(wanted)
            except ConflictError as moved:
                if moved.conflicts:
                    raise
        return self._find_now(wanted)

    def _find_now(self, wanted: KubeObject) -> ObjectDrift:
        """Tell how a live object stands against what is wanted and what was applied."""
        member = self._inventory.members.get(wanted.identity)
        live = self._cluster.get(ObjectRef.of(wanted.data))
        if live is None or live["metadata"].get("deletionTimestamp"):
            return _absent(wanted, is_ending=live is not None, was_there=member is not None)
        number = self._context.scalers.replicas(wanted, live)
        if number.is_theirs:
            numbers = (managed_fields.value_at(one, number.path) for one in (live, wanted.data))
            values = "{} in the cluster, {} in the files".format(*numbers)
            self._left[wanted.identity] = f"`{wanted.identity}` {number.note[0]} ({values})"
        if member is not None and self._is_as_left(wanted, live, member):
            return ObjectDrift(identity=wanted.identity, component=wanted.component, state="same")
        differing = self._differences(wanted, live, member, number)
        again = member is not None and bool(member.uid) and member.uid != live["metadata"]["uid"]
        return ObjectDrift(
            identity=wanted.identity,
            component=wanted.component,
            state="changed" if differing or again else "same",
            reason="was deleted and made anew since it was applied" if again else "",
            differences=differing,
        )

    def _is_as_left(self, wanted: KubeObject, live: Mapping[str, Any], member: Member) -> bool:
        """Tell from hashes alone that nothing differs: definitions take seconds to ask about."""
        return (
            member.uid == live["metadata"]["uid"]
            and bool(member.payload_hash and member.owned_hash)
            and member.payload_hash == payload_hash(self._context.scalers.payload(wanted))
            and member.owned_hash == owned_hash(live)
            and not self._context.is_meddled(wanted, live)
        )

    def _differences(
        self, wanted: KubeObject, live: Mapping[str, Any], member: Member | None, number: Replicas
    ) -> tuple[Difference, ...]:
        data, before = number.asked, self._context.applied.of(wanted)
        facts: dict[str, Any] = {"secrets": self._secrets}
        if before:
            facts["applied"] = self._inventory.label(before[0])
        if member is not None and member.payload_hash:
            facts["files_changed"] = member.payload_hash != payload_hash(data)
        try:
            forced = self._cluster.apply(with_uid(data, live["metadata"]["uid"]), force=True, dry_run=True)
        except InvalidError as error:
            return self._without_answer(wanted, live, data, error, **facts)
        strange = adopt.strange(forced.object, wanted.data)
        ended = adopt.dropped(strange, live, before, self._context.policy(wanted), spare=number.spared)
        new = ended.out_of(strange)
        foreign = self._context.foreign(wanted, live, new, number.spared)
        self._labels[wanted.identity] = self._context.new_labels(wanted, live, new)
        removal = adopt.removal(self._cluster, wanted, live, foreign.paths)
        after = managed_fields.cut(removal.after or live, ended.all_paths)
        gone = (*ended.all_paths, *(foreign.paths if removal.changed else ()))
        return differences(live, forced.object, gone=gone, after=after, **facts)

    def _without_answer(
        self,
        wanted: KubeObject,
        live: Mapping[str, Any],
        data: Mapping[str, Any],
        error: InvalidError,
        **facts: Any,
    ) -> tuple[Difference, ...]:
        """Tell what an object is that cannot take the change: by a new one, or by what is written."""
        copy = adopt.as_new(self._cluster, data, live)
        foreign = self._context.foreign_of(wanted, live).paths
        if copy is None:
            sent = {key: value for key, value in data.items() if key not in ("apiVersion", "kind")}
            tree = managed_fields.union(managed_fields.owned(live, MANAGER), managed_fields.tree_of(sent))
            return differences(live, data, tree=tree, gone=foreign, after=data, **facts)
        items = adopt.displaced(live, data, error.causes)
        gone = tuple(dict.fromkeys((*items, *foreign)))
        return differences(live, copy, gone=gone, after=copy, **facts)


def _absent(wanted: KubeObject, *, is_ending: bool, was_there: bool) -> ObjectDrift:
    reason = "is being deleted" if is_ending else "was applied and is not there any more"
    is_new = not (was_there or is_ending)
    return ObjectDrift(
        identity=wanted.identity,
        component=wanted.component,
        state="new" if is_new else "missing",
        reason="was not applied so far" if is_new else reason,
    )


def _extra(
    resolved: ResolvedTarget, inventory: Inventory, wanted: set[Identity]
) -> tuple[tuple[ObjectDrift, ...], tuple[str, ...]]:
    """Give what is there with our marks and not in the files: left over by us, or copied by somebody."""
    items, notes = inventory_store.labelled_objects(resolved.cluster, inventory)
    rows = [row for item in items if (row := _extra_row(item, inventory)) and row.identity not in wanted]
    if resolved.selective:
        rows = [row for row in rows if row.component in resolved.state.components]
    return tuple(sorted(rows, key=lambda row: row.identity)), notes


def _extra_row(item: Mapping[str, Any], inventory: Inventory) -> ObjectDrift | None:
    member, maker = inventory_store.member_of(item), marked_by(item)
    is_ours = inventory_store.is_ours(item, inventory)
    if not is_ours and not _is_copy(item, maker, inventory):
        return None
    left = "the files do not bring it any more"
    return ObjectDrift(
        identity=member.identity,
        component=member.component,
        state="extra",
        reason=left if is_ours else "carries our labels, and mlstack did not make it",
        manager=maker.manager if maker else "",
        time=maker.time if maker else "",
    )


def _is_copy(item: Mapping[str, Any], maker: ManagedFieldsEntry | None, inventory: Inventory) -> bool:
    """Tell an object that a person made with our marks; controllers copy labels to what they make as well."""
    if maker is None or not is_made_by_hand(maker) or other_owner_of(item, inventory):
        return False
    places = {inventory.namespace, *(member.namespace for member in inventory.members)}
    return item["metadata"].get("namespace", "") in {"", *places}


def summary(objects: Sequence[ObjectDrift]) -> dict[str, int]:
    """Count the differences by their cause."""
    causes = [cause for one in objects for cause in one.causes]
    return {cause: causes.count(cause) for cause in sorted(set(causes))}
