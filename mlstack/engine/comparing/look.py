"""One object: what is there, and what a server-side apply would make of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mlstack.engine.comparing import refusals, takeover
from mlstack.engine.comparing.making import Making, precisely
from mlstack.engine.comparing.otherwise import Otherwise
from mlstack.engine.comparing.outlook import Number, Outlook
from mlstack.engine.comparing.settle import Settled, settle
from mlstack.engine.comparing.takeover import Removal
from mlstack.errors import ConflictError, InvalidError, VersionGoneError
from mlstack.model import (
    adoption,
    conflicts,
    definitions,
    displacing,
    dropped,
    fields,
    payload,
    renewal,
)
from mlstack.model.conflicts import Policy
from mlstack.model.diff import Change
from mlstack.model.dropped import Dropped
from mlstack.model.fieldmanagers import AUTOSCALING
from mlstack.model.fields import FieldChange
from mlstack.model.kinds import Kinds
from mlstack.model.objects import MANAGER, KubeObject
from mlstack.model.payload import Path
from mlstack.model.replacement import needs_new_run

# How often an object may be another one than a moment before, as while somebody recreates it; of a hundred
# objects on a server that refuses one question of four, five times were not enough once in ten runs.
_MOVES = 20


@dataclass(frozen=True, kw_only=True)
class Unsaid:
    """What becomes of fields of one object that others own and no file has.

    Attributes:
        ended: those that the files had once.
        foreign: those that people's tools set.
        removal: what it means that these go.
        labels: path and manager of labels and annotations that people added, unless they were told before.
    """

    ended: Dropped = field(default_factory=Dropped)
    foreign: Dropped = field(default_factory=Dropped)
    removal: Removal = field(default_factory=Removal)
    labels: tuple[tuple[str, str], ...] = ()

    def notes(self, live: Mapping[str, Any]) -> tuple[str, ...]:
        """Say in a line each what goes and what stays."""
        return (
            *(conflicts.describe_dropped(one) for one in self.ended.taken),
            *(conflicts.describe_foreign(live, one) for one in self.foreign.taken),
            *(conflicts.describe_left(one) for one in (*self.ended.left, *self.foreign.left)),
        )


class Look:
    """One object: what is there, what would become of it.

    Args:
        outlook: what holds for the run as a whole.
        wanted: the object.
    """

    def __init__(self, outlook: Outlook, wanted: KubeObject) -> None:
        """Hold the parts; nothing is asked."""
        self.outlook, self.wanted = outlook, wanted
        self.world, self.cluster = outlook.world, outlook.world.cluster
        self._make = Making(outlook, wanted)
        self._otherwise = Otherwise(self._make)

    def change(self) -> Change:
        """Give what would happen to the object; one that changes while it is looked at is looked at again."""
        for _ in range(_MOVES):
            try:
                return self._change_now()
            except ConflictError as moved:
                if moved.conflicts:
                    raise
        return self._change_now()

    def _change_now(self) -> Change:
        known = self.outlook.known
        seen = known.unchanged(self.wanted) if known else None
        if seen is not None and not self.outlook.is_meddled(self.wanted, seen):
            return self._as_left(seen)
        reachable = self.world.is_reachable(self.wanted)
        is_absent = known is not None and known.is_absent(self.wanted)
        live = self.world.live(self.wanted) if reachable and not is_absent else None
        if live is None:
            return self._new(reachable)
        if live["metadata"].get("deletionTimestamp"):
            return self._ending(live)
        if known and known.is_as_left(self.wanted, live) and not self.outlook.is_meddled(self.wanted, live):
            return self._as_left(live)
        return refusals.of_others(
            self.wanted,
            live,
            lambda: self._existing(live),
            adopt=self.outlook.options.adopt,
            environments=self.outlook.environments,
        )

    def _as_left(self, live: Mapping[str, Any]) -> Change:
        return self._make.change(
            action="unchanged",
            writes=False,
            live_uid=live["metadata"]["uid"],
            made_elsewhere=self.outlook.was_made_elsewhere(self.wanted, live),
        )

    def _new(self, reachable: bool) -> Change:
        if not self.outlook.options.create:
            return self._make.change(
                action="missing", writes=False, reason="is not there, and creation is off"
            )
        warnings: tuple[str, ...] = ()
        if reachable and self.outlook.check_new:
            warnings = self.cluster.apply(self.wanted.data, dry_run=True).warnings
        return self._make.creation(reachable, notes=warnings)

    def _ending(self, live: Mapping[str, Any]) -> Change:
        if not self.outlook.options.create:
            return self._make.change(
                action="missing", writes=False, reason="is being deleted, and creation is off"
            )
        reason = "once the old one, which is being deleted, is gone"
        return self._make.creation(True, live_uid=live["metadata"]["uid"], reason=reason)

    def _existing(self, live: Mapping[str, Any]) -> Change:
        number = self.outlook.number(self.wanted, live)
        policy = self.outlook.policy(self.wanted)
        try:
            settled = settle(self.cluster, self.wanted, number.asked, live, policy)
            if self.outlook.has_lost_scaler(self.wanted, settled.left):
                policy = replace(policy, adopted=policy.adopted | {AUTOSCALING})
                settled = settle(self.cluster, self.wanted, number.asked, live, policy)
        except VersionGoneError:
            return self._otherwise.outdated(live)
        except InvalidError as error:
            return self._otherwise.refused(live, error)
        unsaid = self._unsaid(live, settled, number, policy)
        fault = unsaid.removal.fault
        if fault is not None:
            return self._otherwise.fixed(live, unsaid.removal.changed, fault.causes, notes=unsaid.notes(live))
        emptied = conflicts.emptied(live, settled.payload, unsaid.removal.paths, policy)
        if emptied:
            data = payload.cut(settled.payload, [path for loss in emptied for path in loss.paths])
            again = settle(self.cluster, self.wanted, data, live, policy)
            settled = replace(again, taken=settled.taken, left=(*settled.left, *emptied))
        gone: tuple[FieldChange, ...] = ()
        about: tuple[str, ...] = ()
        is_taken_over = self.outlook.options.adopt and bool(adoption.adoptable(live))
        if is_taken_over or self.outlook.was_made_elsewhere(self.wanted, live):
            gone = takeover.goes(self.cluster, live, settled, number.data, spare=number.spared)
            ending = {text for loss in (*unsaid.ended.taken, *unsaid.foreign.taken) for text in loss.texts}
            gone = tuple(one for one in gone if one.path not in ending)
            about = tuple(takeover.describe(live, gone, adopt=is_taken_over))
        notes = (
            *settled.forced.warnings,
            *(conflicts.describe_taken(one) for one in settled.taken if one.said),
            *(conflicts.describe_left(one) for one in settled.left),
            *(conflicts.describe_swept(one) for one in conflicts.swept(live, settled.forced.object)),
            *unsaid.notes(live),
            *([number.note] if number.note else []),
            *about,
        )
        return self._compared(live, settled, number, gone, unsaid, tuple(dict.fromkeys(notes)))

    def _unsaid(self, live: Mapping[str, Any], settled: Settled, number: Number, policy: Policy) -> Unsaid:
        """Tell what becomes of fields of others that no file has."""
        found = dropped.strange(settled.forced.object, self.wanted.data)
        if not found:
            return Unsaid()
        before = self.outlook.earlier.of(self.wanted)
        ended = dropped.dropped(found, live, before, policy, spare=number.spared)
        new = ended.out_of(found)
        foreign = self.outlook.foreign(self.wanted, live, new, number.spared)
        removal = takeover.removal(self.cluster, self.wanted, live, foreign.paths)
        return Unsaid(
            ended=ended,
            foreign=foreign if removal.changed else replace(foreign, taken=()),
            removal=removal,
            labels=self.outlook.new_labels(self.wanted, live, new),
        )

    def _compared(
        self,
        live: Mapping[str, Any],
        settled: Settled,
        number: Number,
        gone: tuple[FieldChange, ...],
        unsaid: Unsaid,
        notes: tuple[str, ...],
    ) -> Change:
        """Tell what differs in what we own, and whether the object is written."""
        own, new = fields.owned(live, MANAGER), fields.owned(settled.forced.object, MANAGER)
        changed = {
            one.path: one for one in fields.compare(live, settled.forced.object, fields.union(own, new))
        }
        prepare: adoption.Patch = ()
        if self.outlook.options.adopt and adoption.adoptable(live):
            changed |= {one.path: one for one in gone}
            prepare = adoption.take_over(live, api_version=self.wanted.api_version, spare=number.spared)
        ended, removal = unsaid.ended, unsaid.removal
        if ended.paths:
            tree = fields.tree_along(ended.paths)
            changed |= {one.path: one for one in takeover.without(self.cluster, live, settled.payload, tree)}
        changed |= {one.path: one for one in removal.changed}
        # What changes nothing is not worth a write, but goes along with one: else it is asked about for ever.
        items = (*ended.paths, *(removal.paths if changed or prepare or own != new else ()))
        if items:
            prepare = self._prepared(live, items, prepare)
        facts = {
            "notes": notes,
            "left": (
                *number.left,
                *(
                    (text, loss.owner.manager)
                    for loss in (*settled.left, *ended.left, *unsaid.foreign.left)
                    for text in loss.texts
                ),
            ),
            "labels": unsaid.labels,
            "made_elsewhere": self.outlook.was_made_elsewhere(self.wanted, live),
            "payload": number.sent(settled.payload),
            "prepare": prepare,
            "handover": number.handover,
            "seen": _seen(live),
            **precisely(live),
        }
        if changed:
            return self._differing(live, tuple(changed.values()), facts, settled.forced.object)
        writes = own != new or bool(prepare) or number.changes_hands
        return self._make.change(action="unchanged", writes=writes, **facts)

    def _prepared(
        self, live: Mapping[str, Any], items: Sequence[Path], after: adoption.Patch
    ) -> adoption.Patch:
        """Give the patch that makes fields ours, so that an apply without them removes them.

        An apply that empties a map of a custom resource leaves null in its place, which few definitions
        allow: what lies in a map that the files set empty goes by the patch itself.
        """
        version, data = self.wanted.api_version, self.wanted.data
        is_custom = Kinds.builtin().lookup(version, self.wanted.kind) is None
        inside = [path for path in items if is_custom and payload.value_at(data, path[:-1]) in ({}, [])]
        taken = [path for path in items if path not in inside]
        patch = displacing.take_items(live, taken, api_version=version, after=after)
        return (*patch, *payload.removals(live, inside))

    def _differing(
        self,
        live: Mapping[str, Any],
        changed: tuple[FieldChange, ...],
        facts: Mapping[str, Any],
        after: Mapping[str, Any],
    ) -> Change:
        why = needs_new_run(self.wanted.with_data(live), changed)
        if why:
            verdict = renewal.judge(self.wanted, self.world.state.environment, fixed=why, why=why)
            return self._otherwise.anew(live, changed, verdict, notes=facts["notes"])
        defines = refusals.is_definition(self.wanted)
        lost = refusals.losses(self.cluster, live, after) if defines else ()
        notes = (*facts["notes"], *(refusals.demands(self.cluster, live, after) if defines else ()))
        may_lose = self.outlook.options.allow_destructive or definitions.is_allowed(self.wanted.data)
        return self._make.update(
            live,
            changed,
            refusal=refusals.destructive(self.wanted, lost) if lost and not may_lose else None,
            **{**facts, "notes": (*notes, *lost) if may_lose else notes},
        )


def _seen(live: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: live[key] for key in ("apiVersion", "kind", "metadata") if key in live}
