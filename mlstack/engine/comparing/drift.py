"""What became of an environment since it was applied: live objects against files and the last apply."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlstack.cluster.api import ObjectRef
from mlstack.engine import parallel
from mlstack.engine.comparing import probe, takeover
from mlstack.engine.comparing.observe import kept_labels, outlook_of
from mlstack.engine.comparing.outlook import Number
from mlstack.engine.comparing.settle import with_uid
from mlstack.engine.comparing.surroundings import Surroundings, placed
from mlstack.engine.records import inventory as inventories
from mlstack.engine.records import scan
from mlstack.engine.target import Reached
from mlstack.errors import ConflictError, InvalidError
from mlstack.model import displacing, drift, dropped, fields, payload, pruning
from mlstack.model.drift import ObjectDrift
from mlstack.model.fields import Entry
from mlstack.model.inventory import Inventory, Member, owned_hash, payload_hash
from mlstack.model.objects import MANAGER, Identity, KubeObject

_MOVES = 20


@dataclass(frozen=True, kw_only=True)
class Drift:
    """What became of an environment.

    Attributes:
        objects: those of the files in their order, then those that only the cluster has.
        notes: what could not be seen.
    """

    objects: tuple[ObjectDrift, ...]
    notes: tuple[str, ...] = ()


def look(reached: Reached) -> Drift:
    """Judge every object of an environment; nothing is written.

    Args:
        reached: what is wanted, and where to look.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    state, cluster = reached.state, reached.cluster
    inventory = inventories.known(
        cluster, app=state.app, environment=state.environment, namespace=reached.place.namespace
    )
    labelled = inventory.label if inventory.members else dict
    members = tuple(found.with_data(labelled(found.data)) for found in state.objects)
    reached = replace(reached, state=replace(state, objects=members))
    wanted = placed(members, cluster)
    judge = _Judge(reached, inventory)
    rows = parallel.whole(parallel.run(judge.judge, wanted))
    extra, unseen = _extra(reached, inventory, {found.identity for found in wanted})
    return Drift(
        objects=(*rows, *extra),
        notes=tuple(dict.fromkeys((*state.notes, *inventory.notes, *judge.notes, *unseen))),
    )


class _Judge:
    """Looks at one object after the other."""

    def __init__(self, reached: Reached, inventory: Inventory) -> None:
        self._cluster, self._inventory = reached.cluster, inventory
        self._secrets = reached.state.secrets
        world = Surroundings(reached.state, reached.cluster)
        self._outlook = outlook_of(reached, world, inventory=inventory)
        self._labels: dict[Identity, tuple[tuple[str, str], ...]] = {}
        self._left: dict[Identity, str] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what could not be seen."""
        fault = self._outlook.earlier.fault
        left = (text for _, text in sorted(self._left.items()))
        said = (*left, *kept_labels(sorted(self._labels.items())))
        what = "what was applied last cannot be read, so removed fields may be laid to nobody"
        return (*said, f"{what}: {fault}") if fault else said

    def judge(self, wanted: KubeObject) -> ObjectDrift:
        """Tell how a live object stands; one that changes while it is looked at is looked at again."""
        for _ in range(_MOVES):
            try:
                return self._judge_now(wanted)
            except ConflictError as moved:
                if moved.conflicts:
                    raise
        return self._judge_now(wanted)

    def _judge_now(self, wanted: KubeObject) -> ObjectDrift:
        """Tell how a live object stands against what is wanted and what was applied."""
        member = self._inventory.members.get(wanted.identity)
        live = self._cluster.get(ObjectRef.of(wanted.data))
        if live is None or live["metadata"].get("deletionTimestamp"):
            return _absent(wanted, is_ending=live is not None, was_there=member is not None)
        number = self._outlook.number(wanted, live)
        if number.is_theirs:
            numbers = (payload.value_at(one, number.path) for one in (live, wanted.data))
            values = "{} in the cluster, {} in the files".format(*numbers)
            self._left[wanted.identity] = f"`{wanted.identity}` {number.note} ({values})"
        if member is not None and self._is_as_left(wanted, live, member):
            return ObjectDrift(identity=wanted.identity, component=wanted.component, state="same")
        found = self._differences(wanted, live, member, number)
        again = member is not None and bool(member.uid) and member.uid != live["metadata"]["uid"]
        return ObjectDrift(
            identity=wanted.identity,
            component=wanted.component,
            state="changed" if found or again else "same",
            reason="was deleted and made anew since it was applied" if again else "",
            differences=found,
        )

    def _is_as_left(self, wanted: KubeObject, live: Mapping[str, Any], member: Member) -> bool:
        """Tell from hashes alone that nothing differs: definitions take seconds to ask about."""
        return (
            member.uid == live["metadata"]["uid"]
            and bool(member.payload_hash and member.owned_hash)
            and member.payload_hash == payload_hash(self._outlook.payload(wanted))
            and member.owned_hash == owned_hash(live)
            and not self._outlook.is_meddled(wanted, live)
        )

    def _differences(
        self, wanted: KubeObject, live: Mapping[str, Any], member: Member | None, number: Number
    ) -> tuple[drift.Difference, ...]:
        data, before = number.asked, self._outlook.earlier.of(wanted)
        facts: dict[str, Any] = {"secrets": self._secrets}
        if before:
            facts["applied"] = self._inventory.label(before[0])
        if member is not None and member.payload_hash:
            facts["files_changed"] = member.payload_hash != payload_hash(data)
        try:
            forced = self._cluster.apply(with_uid(data, live["metadata"]["uid"]), force=True, dry_run=True)
        except InvalidError as error:
            return self._without_answer(wanted, live, data, error, **facts)
        strange = dropped.strange(forced.object, wanted.data)
        ended = dropped.dropped(strange, live, before, self._outlook.policy(wanted), spare=number.spared)
        new = ended.out_of(strange)
        foreign = self._outlook.foreign(wanted, live, new, number.spared)
        self._labels[wanted.identity] = self._outlook.new_labels(wanted, live, new)
        removal = takeover.removal(self._cluster, wanted, live, foreign.paths)
        after = payload.cut(removal.after or live, ended.all_paths)
        gone = (*ended.all_paths, *(foreign.paths if removal.changed else ()))
        return drift.differences(live, forced.object, gone=gone, after=after, **facts)

    def _without_answer(
        self,
        wanted: KubeObject,
        live: Mapping[str, Any],
        data: Mapping[str, Any],
        error: InvalidError,
        **facts: Any,
    ) -> tuple[drift.Difference, ...]:
        """Tell what an object is that cannot take the change: by a new one, or by what is written."""
        copy = probe.as_new(self._cluster, data, live)
        foreign = self._outlook.foreign_of(wanted, live).paths
        if copy is None:
            tree = fields.union(fields.owned(live, MANAGER), fields.tree_of(_told(data)))
            return drift.differences(live, data, tree=tree, gone=foreign, after=data, **facts)
        items = displacing.displaced(live, data, error.causes)
        gone = tuple(dict.fromkeys((*items, *foreign)))
        return drift.differences(live, copy, gone=gone, after=copy, **facts)


def _told(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in data.items() if key not in ("apiVersion", "kind")}


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
    reached: Reached, inventory: Inventory, wanted: set[Identity]
) -> tuple[tuple[ObjectDrift, ...], tuple[str, ...]]:
    """Give what is there with our marks and not in the files: left over by us, or copied by somebody."""
    items, notes = scan.marked(reached.cluster, inventory)
    rows = [row for item in items if (row := _extra_row(item, inventory)) and row.identity not in wanted]
    if reached.selective:
        rows = [row for row in rows if row.component in reached.state.components]
    return tuple(sorted(rows, key=lambda row: row.identity)), notes


def _extra_row(item: Mapping[str, Any], inventory: Inventory) -> ObjectDrift | None:
    found, maker = scan.member_of(item), drift.marked_by(item)
    is_ours = scan.is_ours(item, inventory)
    if not is_ours and not _is_copy(item, maker, inventory):
        return None
    left = "the files do not bring it any more"
    return ObjectDrift(
        identity=found.identity,
        component=found.component,
        state="extra",
        reason=left if is_ours else "carries our labels, and mlstack did not make it",
        manager=maker.manager if maker else "",
        time=maker.time if maker else "",
    )


def _is_copy(item: Mapping[str, Any], maker: Entry | None, inventory: Inventory) -> bool:
    """Tell an object that a person made with our marks; controllers copy labels to what they make as well."""
    if maker is None or not drift.is_made_by_hand(maker) or pruning.whose(item, inventory):
        return False
    places = {inventory.namespace, *(member.namespace for member in inventory.members)}
    return item["metadata"].get("namespace", "") in {"", *places}


def summary(objects: Sequence[ObjectDrift]) -> dict[str, int]:
    """Count the differences by their cause."""
    causes = [cause for one in objects for cause in one.causes]
    return {cause: causes.count(cause) for cause in sorted(set(causes))}
