"""What holds for every object of a run when it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mlstack.app.app import ConflictRule
from mlstack.deploy import adopt, conflicts, replacement, result
from mlstack.deploy.adopt import Removal, RemovedFields
from mlstack.deploy.autoscaling import Autoscaler, Scalers
from mlstack.deploy.changes import ApplyOptions, Change, Changes, Refusal, digest_of, fingerprint
from mlstack.deploy.conflicts import (
    FORCE_FIELDS,
    IGNORE_FIELDS,
    ConflictPolicy,
    ConflictResolution,
    Lost,
    settle,
)
from mlstack.deploy.inventory import Inventory, Member, people_hash
from mlstack.deploy.live import ClusterFacts, LastApplied, MetadataIndex, placed
from mlstack.deploy.replacement import ReplacementVerdict, needs_new_run
from mlstack.deploy.target import Reached
from mlstack.errors import (
    Cause,
    ClusterError,
    ConfigError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    MlstackError,
    VersionGoneError,
)
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.objects import kube_object, managed_fields, order
from mlstack.objects.kinds import Kind, Kinds, kinds_of_crd
from mlstack.objects.kube_object import MANAGER, Identity, KubeObject
from mlstack.objects.managed_fields import AUTOSCALING, MISSING, FieldChange, FieldPattern, Path
from mlstack.objects.order import DEPENDS_ON, outside

# --- What holds for every object of a run when it is looked at ---


@dataclass(frozen=True, kw_only=True)
class DiffContext:
    """What holds for every object of a run.

    Attributes:
        world: kinds and namespaces.
        scalers: finds autoscalers.
        known: what lists told; None to ask for each object.
        options: how the run is to be done.
        rules: of the app, for fields that others own as well.
        check_new: ask the server about new objects too, where it can tell already.
        earlier: knows what was applied before.
        environments: all of the app, as labels name them.
        members: what was written last.
    """

    world: ClusterFacts
    scalers: Scalers
    earlier: LastApplied
    known: MetadataIndex | None = None
    options: ApplyOptions = field(default_factory=ApplyOptions)
    rules: tuple[ConflictRule, ...] = ()
    environments: frozenset[str] = frozenset()
    check_new: bool = False
    members: Mapping[Identity, Member] = field(default_factory=dict)

    def payload(self, wanted: KubeObject) -> Mapping[str, Any]:
        """Give what we will own of an object: all but the number that an autoscaler of the run sets."""
        path = self.scalers.path(wanted) if self.scaler(wanted, live=False) else ()
        return managed_fields.cut(wanted.data, [path]) if path else wanted.data

    def scaler(self, wanted: KubeObject, *, live: bool = True) -> Autoscaler | None:
        """Give the autoscaler that a workload's number is left to; none where the object says it is ours.

        Args:
            wanted: the workload.
            live: look into the cluster too.
        """
        path = self.scalers.path(wanted)
        if any(found.covers(path) for found in _patterns(wanted, FORCE_FIELDS)):
            return None
        return self.scalers.brought(wanted) or (self.scalers.live(wanted) if live else None)

    def policy(self, wanted: KubeObject) -> ConflictPolicy:
        """Say who is to have the fields of an object that others own too.

        Raises:
            ConfigError: an annotation holds no paths.
        """
        path = self.scalers.path(wanted)
        ended = self.sets(wanted, path) and self.scalers.loses(wanted)
        return ConflictPolicy(
            force=_patterns(wanted, FORCE_FIELDS),
            ignore=_patterns(wanted, IGNORE_FIELDS),
            rules=tuple(rule for rule in self.rules if not rule.kinds or wanted.kind in rule.kinds),
            adopted=(adopt.ADOPTABLE if self.options.adopt else frozenset())
            | ({AUTOSCALING} if ended else frozenset()),
            forced=self.options.force_conflicts,
            keep_foreign=self.options.keep_foreign_fields,
        )

    def was_made_elsewhere(self, wanted: KubeObject, live: Mapping[str, Any]) -> bool:
        """Tell whether another tool made an object, from which it was not and is not taken over."""
        member = self.members.get(wanted.identity)
        is_known = member is not None and member.uid == live["metadata"]["uid"]
        is_made = bool(adopt.adoptable(live)) and not self.options.adopt
        return is_made and (member.made_elsewhere if member is not None and is_known else True)

    def foreign(
        self, wanted: KubeObject, live: Mapping[str, Any], found: Sequence[Lost], spare: Sequence[Path] = ()
    ) -> RemovedFields:
        """Tell what becomes of fields of others that no file has.

        Args:
            wanted: the object.
            live: as it is; its metadata is enough.
            found: the fields.
            spare: fields that stay, whoever owns them.
        """
        if not adopt.by_people(found):
            return RemovedFields()
        if not self.options.adopt and replacement.other_owner(wanted, wanted.with_data(live)):
            return RemovedFields()  # it is for its owner to say
        makers = adopt.ADOPTABLE if self.was_made_elsewhere(wanted, live) else frozenset()
        return adopt.foreign(found, self.policy(wanted), spare=spare, makers=makers)

    def foreign_of(
        self, wanted: KubeObject, live: Mapping[str, Any], *, metadata_only: bool = False
    ) -> RemovedFields:
        """Tell what becomes of fields of others that no file has, without asking what an apply would do."""
        found = adopt.strange(live, wanted.data, metadata_only=metadata_only)
        unsaid = [] if self.sets(wanted, self.scalers.path(wanted)) else [self.scalers.path(wanted)]
        return self.foreign(wanted, live, found, [path for path in unsaid if path])

    def new_labels(
        self, wanted: KubeObject, live: Mapping[str, Any], found: Sequence[Lost]
    ) -> tuple[tuple[str, str], ...]:
        """Give path and manager of labels and annotations among fields of others, unless told before."""
        member = self.members.get(wanted.identity)
        if member is not None and member.people_hash == people_hash(live):
            return ()
        labels = adopt.by_people(found, labels=True)
        return tuple((text, loss.owner.manager) for loss in labels for text in loss.texts)

    def is_meddled(self, wanted: KubeObject, live: Mapping[str, Any]) -> bool:
        """Tell from metadata alone whether people's tools set something since, or what may have to go."""
        member, now = self.members.get(wanted.identity), people_hash(live)
        if member is not None and member.people_hash != now:
            return True
        return bool(now and self.foreign_of(wanted, live, metadata_only=True).taken)

    def has_lost_scaler(self, wanted: KubeObject, left: Sequence[Lost]) -> bool:
        """Tell whether a number is left to an autoscaler that is gone: none scales the workload any more.

        Of the controllers that write under this name only the autoscaler writes through `scale`.

        Args:
            wanted: the workload.
            left: the fields that others are to keep.
        """
        path = self.scalers.path(wanted)
        held = any(loss.owner == AUTOSCALING and path in loss.paths for loss in left)
        return held and self.scalers.has_none(wanted)

    @staticmethod
    def sets(wanted: KubeObject, path: tuple[str, ...]) -> bool:
        """Tell whether an object says a field, if there is such a field."""
        return bool(path) and managed_fields.value_at(wanted.data, path) is not MISSING

    def number(self, wanted: KubeObject, live: Mapping[str, Any]) -> Number:
        """Tell how a workload's number of replicas is to be treated."""
        path, data = self.scalers.path(wanted), self.payload(wanted)
        scaler = self.scaler(wanted) if self.sets(wanted, path) else None
        if scaler is not None:
            data = managed_fields.cut(wanted.data, [path])
        kept: Any = MISSING
        if path and managed_fields.value_at(data, path) is MISSING:
            ours = path in set(managed_fields.paths(managed_fields.owned(live, MANAGER)))
            kept = managed_fields.value_at(live, path) if ours else MISSING
        is_theirs = scaler is not None and self.scalers.brought(wanted) is None
        return Number(
            path=path, data=data, scaler=scaler.name if scaler else "", is_theirs=is_theirs, kept=kept
        )


@dataclass(frozen=True, kw_only=True)
class Number:
    """How a workload's number of replicas is to be treated.

    Without an owner the number would go to 1, so it changes hands: another manager of ours holds the live
    value until the autoscaler writes its own.

    Attributes:
        path: the field, empty if there is none.
        data: what is to be sent, without the number where it is not ours.
        scaler: what sets the number, empty if nothing does.
        is_theirs: whether that is none of this run's.
        kept: the live number, where we own it and let go of it; else missing.
    """

    path: tuple[str, ...]
    data: Mapping[str, Any]
    scaler: str
    is_theirs: bool
    kept: Any

    @property
    def note(self) -> str:
        """Say to whom the number is left; empty if it is to nobody."""
        return f"leaves `{managed_fields.path_text(self.path)}` to `{self.scaler}`" if self.scaler else ""

    @property
    def left(self) -> tuple[tuple[str, str], ...]:
        """Give path and autoscaler where the number is left to one that is none of this run's."""
        return ((managed_fields.path_text(self.path), self.scaler),) if self.is_theirs else ()

    @property
    def changes_hands(self) -> bool:
        """Tell whether we own the number and let go of it."""
        return self.kept is not MISSING

    @property
    def asked(self) -> Mapping[str, Any]:
        """Give what a dry run is asked about: as if the number were held already."""
        return managed_fields.put(self.data, self.path, self.kept) if self.changes_hands else self.data

    def sent(self, settled: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give what is really sent of what was settled."""
        return managed_fields.cut(settled, [self.path]) if self.changes_hands else settled

    @property
    def handover(self) -> Mapping[str, Any] | None:
        """Give the number alone, for the manager that holds it meanwhile."""
        return holding(self.data, self.path, self.kept) if self.changes_hands else None

    @property
    def spared(self) -> tuple[tuple[str, ...], ...]:
        """Give the fields that no take-over may make ours."""
        unsaid = self.path and managed_fields.value_at(self.data, self.path) is MISSING
        return (self.path,) if unsaid else ()


def holding(data: Mapping[str, Any], path: tuple[str, ...], value: Any) -> Mapping[str, Any]:
    """Give an object that says nothing but one field."""
    names = {key: data["metadata"][key] for key in ("name", "namespace") if key in data["metadata"]}
    bare = {"apiVersion": data["apiVersion"], "kind": data["kind"], "metadata": names}
    return managed_fields.put(bare, path, value)


def _patterns(wanted: KubeObject, annotation: str) -> tuple[FieldPattern, ...]:
    text = wanted.annotations.get(annotation)
    if not text:
        return ()
    try:
        return managed_fields.read_list(str(text))
    except ValueError as error:
        raise ConfigError(
            f"annotation `{annotation}` of `{wanted.identity}`: {error}",
            where=str(wanted.source) if wanted.source else f"component {wanted.component}",
            hint="write paths as a diff does, with commas between: spec.replicas, data.mode",
        ) from error


# --- The parts of every change of one object: what is sent, and what it was computed from ---


class ChangeBuilder:
    """Makes changes of one object.

    Args:
        outlook: what holds for the run as a whole.
        wanted: the object.
    """

    def __init__(self, outlook: DiffContext, wanted: KubeObject) -> None:
        """Hold the parts; nothing is asked."""
        self.outlook, self.wanted = outlook, wanted
        self.data = outlook.payload(wanted)

    def change(self, **facts: Any) -> Change:
        """Give a change of the object; what is sent is what we will own of it, if nothing else is given."""
        sent = facts.pop("payload", self.data)
        return Change(
            identity=self.wanted.identity,
            component=self.wanted.component,
            api_version=self.wanted.api_version,
            desired=self.wanted,
            payload=None if sent == self.wanted.data else sent,
            **facts,
        )

    def update(self, live: Mapping[str, Any], changed: Iterable[FieldChange], **facts: Any) -> Change:
        """Give the change of a live object in some fields, whose secrets are masked."""
        differing = tuple(changed)
        return self.change(
            **{
                "action": "update",
                "fields": result.masked(self.wanted.identity, differing),
                "fingerprint": fingerprint(differing),
                **precisely(live),
                **facts,
            }
        )

    def creation(self, reachable: bool, **facts: Any) -> Change:
        """Give a creation; the number that an autoscaler sets is sent once and handed over at once."""
        path, handover, data = self.outlook.scalers.path(self.wanted), None, self.data
        if reachable and self.outlook.sets(self.wanted, path) and self.outlook.scaler(self.wanted):
            data = managed_fields.cut(data, [path])
        if data != self.wanted.data:
            handover = holding(self.wanted.data, path, managed_fields.value_at(self.wanted.data, path))
        made = digest_of(self.wanted.data)
        return self.change(action="create", fingerprint=made, handover=handover, payload=data, **facts)


def precisely(live: Mapping[str, Any]) -> dict[str, str]:
    """Give which object, and which version of it, a change was computed from."""
    metadata = live["metadata"]
    return {"live_uid": str(metadata["uid"]), "live_version": str(metadata["resourceVersion"])}


# --- Changes that a dry run cannot tell: the server refuses it, or cannot be asked yet ---


class FallbackDiff:
    """Works out the change of one object without an answer to a dry run of it.

    Args:
        making: makes changes of the object.
    """

    def __init__(self, making: ChangeBuilder) -> None:
        """Hold the parts; nothing is asked."""
        self._make, self._wanted, self._world = making, making.wanted, making.outlook.world

    def refused(self, live: Mapping[str, Any], error: InvalidError) -> Change:
        """Tell a change that cannot be made in place from an object that is wrong: ask under another name."""
        is_definition = replacement.is_definition(self._wanted)
        wanted = self._wanted.data
        copy = wanted if is_definition else adopt.attempt(self._world.cluster, wanted, live)
        fault = copy if isinstance(copy, MlstackError) else None
        if not isinstance(copy, MlstackError):
            items = adopt.displaced(live, self._make.data, error.causes)
            if items:
                return self._displacing(live, items, copy)
        if not replacement.says_fixed(error.causes) and (is_definition or fault is not None):
            raise error
        after = self._wanted.data if isinstance(copy, MlstackError) else copy
        tree = managed_fields.union(managed_fields.owned(live, MANAGER), managed_fields.owned(after, MANAGER))
        if after is self._wanted.data:  # as it is written, without what the server would fill in
            tree = managed_fields.tree_of(after)
        foreign = self._make.outlook.foreign_of(self._wanted, live)
        found = (
            *managed_fields.compare(live, after, tree),
            *managed_fields.compare(live, after, managed_fields.tree_along(foreign.paths)),
        )
        changed = tuple({one.path: one for one in found}.values())
        lost = (
            replacement.refuse_losses(self._world.cluster, live, self._wanted.data) if is_definition else ()
        )
        why = needs_new_run(self._wanted.with_data(live), changed)
        fixed = "; ".join(lost) or replacement.sentence(self._wanted, error.causes, changed)
        verdict = replacement.judge(self._wanted, self._world.state.environment, fixed=fixed, why=why)
        if fault is not None and verdict.recreate:
            verdict = replacement.unless_refused(verdict, fault)
        return self.anew(live, changed, verdict, self._notes(live, foreign, changed))

    @staticmethod
    def _notes(
        live: Mapping[str, Any], foreign: RemovedFields, changed: Sequence[FieldChange]
    ) -> tuple[str, ...]:
        """Say what people added and goes with the object; nothing of what a new one has too."""
        differing = {one.path for one in changed}
        return tuple(
            conflicts.describe_foreign(live, loss)
            for loss in foreign.taken
            if any(text.startswith(path) for text in loss.texts for path in differing)
        )

    def fixed(
        self,
        live: Mapping[str, Any],
        changed: tuple[FieldChange, ...],
        causes: Sequence[Cause],
        notes: tuple[str, ...],
    ) -> Change:
        """Give the change of an object from which fields cannot go while it exists."""
        fixed = replacement.sentence(self._wanted, causes, changed)
        verdict = replacement.judge(self._wanted, self._world.state.environment, fixed=fixed, why=None)
        return self.anew(live, changed, verdict, notes)

    def unasked(self) -> Change:
        """Give the change of an object whose definition changes first: until then the server cannot tell."""
        note = "not checked by the server: its definition changes first"
        live = self._world.live(self._wanted)
        if live is None:
            return self._make.creation(False, notes=(note,))
        tree = managed_fields.union(
            managed_fields.owned(live, MANAGER), managed_fields.tree_of(self._make.data)
        )
        changed = tuple(managed_fields.compare(live, self._make.data, tree))
        return self._make.update(
            live,
            changed,
            notes=(note,),
        )

    def outdated(self, live: Mapping[str, Any]) -> Change:
        """Give the change of an object whose field owners stand in a version that is not served any more."""
        tree = managed_fields.union(managed_fields.tree_of(self._make.data), {})
        changed = tuple(
            one
            for one in managed_fields.compare(live, self._make.data, tree)
            if not one.path.startswith("apiVersion")
        )
        return self._make.update(
            live,
            changed,
            action="update" if changed else "unchanged",
            notes=(
                "its field owners are rewritten first: they stand in a version that is not served any more",
            ),
            prepare=adopt.reversioned(live, api_version=self._wanted.api_version),
        )

    def anew(
        self,
        live: Mapping[str, Any],
        changed: tuple[FieldChange, ...],
        verdict: ReplacementVerdict,
        notes: tuple[str, ...] = (),
    ) -> Change:
        """Give the change of an object that cannot take it in place; made anew, it is sent whole."""
        refusal = Refusal(kind="immutable", reasons=(verdict.reason,), hint=verdict.hint)
        return self._make.update(
            live,
            changed,
            action="recreate" if verdict.recreate else "update",
            reason=verdict.reason if verdict.recreate else "",
            notes=notes,
            refusal=None if verdict.recreate else refusal,
            payload=self._wanted.data,
        )

    def _displacing(
        self, live: Mapping[str, Any], items: tuple[managed_fields.Path, ...], after: Mapping[str, Any]
    ) -> Change:
        """Give the change of an object in which a person's list items stand where ours are to be."""
        tree = managed_fields.union(managed_fields.owned(live, MANAGER), managed_fields.owned(after, MANAGER))
        changed = [
            *managed_fields.compare(live, after, tree),
            *(
                FieldChange(
                    path=managed_fields.path_text(path),
                    action="removed",
                    old=managed_fields.value_at(live, path),
                )
                for path in items
            ),
        ]
        said = ", ".join(f"`{managed_fields.path_text(path)}`" for path in items)
        return self._make.update(
            live,
            changed,
            notes=(f"removes {said}, which a person put in the place of ours",),
            prepare=adopt.take_items(live, items, api_version=self._wanted.api_version),
        )


# --- One object: what is there, and what a server-side apply would make of it ---

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

    ended: RemovedFields = field(default_factory=RemovedFields)
    foreign: RemovedFields = field(default_factory=RemovedFields)
    removal: Removal = field(default_factory=Removal)
    labels: tuple[tuple[str, str], ...] = ()

    def notes(self, live: Mapping[str, Any]) -> tuple[str, ...]:
        """Say in a line each what goes and what stays."""
        return (
            *(conflicts.describe_dropped(one) for one in self.ended.taken),
            *(conflicts.describe_foreign(live, one) for one in self.foreign.taken),
            *(conflicts.describe_left(one) for one in (*self.ended.left, *self.foreign.left)),
        )


class ObjectDiff:
    """One object: what is there, what would become of it.

    Args:
        outlook: what holds for the run as a whole.
        wanted: the object.
    """

    def __init__(self, outlook: DiffContext, wanted: KubeObject) -> None:
        """Hold the parts; nothing is asked."""
        self.outlook, self.wanted = outlook, wanted
        self.world, self.cluster = outlook.world, outlook.world.cluster
        self._make = ChangeBuilder(outlook, wanted)
        self._otherwise = FallbackDiff(self._make)

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
        return replacement.of_others(
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
            data = managed_fields.cut(settled.payload, [path for loss in emptied for path in loss.paths])
            again = settle(self.cluster, self.wanted, data, live, policy)
            settled = replace(again, taken=settled.taken, left=(*settled.left, *emptied))
        gone: tuple[FieldChange, ...] = ()
        about: tuple[str, ...] = ()
        is_taken_over = self.outlook.options.adopt and bool(adopt.adoptable(live))
        if is_taken_over or self.outlook.was_made_elsewhere(self.wanted, live):
            gone = adopt.goes(self.cluster, live, settled, number.data, spare=number.spared)
            ending = {text for loss in (*unsaid.ended.taken, *unsaid.foreign.taken) for text in loss.texts}
            gone = tuple(one for one in gone if one.path not in ending)
            about = tuple(adopt.describe(live, gone, adopt=is_taken_over))
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

    def _unsaid(
        self, live: Mapping[str, Any], settled: ConflictResolution, number: Number, policy: ConflictPolicy
    ) -> Unsaid:
        """Tell what becomes of fields of others that no file has."""
        found = adopt.strange(settled.forced.object, self.wanted.data)
        if not found:
            return Unsaid()
        before = self.outlook.earlier.of(self.wanted)
        ended = adopt.dropped(found, live, before, policy, spare=number.spared)
        new = ended.out_of(found)
        foreign = self.outlook.foreign(self.wanted, live, new, number.spared)
        removal = adopt.removal(self.cluster, self.wanted, live, foreign.paths)
        return Unsaid(
            ended=ended,
            foreign=foreign if removal.changed else replace(foreign, taken=()),
            removal=removal,
            labels=self.outlook.new_labels(self.wanted, live, new),
        )

    def _compared(
        self,
        live: Mapping[str, Any],
        settled: ConflictResolution,
        number: Number,
        gone: tuple[FieldChange, ...],
        unsaid: Unsaid,
        notes: tuple[str, ...],
    ) -> Change:
        """Tell what differs in what we own, and whether the object is written."""
        own, new = managed_fields.owned(live, MANAGER), managed_fields.owned(settled.forced.object, MANAGER)
        changed = {
            one.path: one
            for one in managed_fields.compare(live, settled.forced.object, managed_fields.union(own, new))
        }
        prepare: adopt.Patch = ()
        if self.outlook.options.adopt and adopt.adoptable(live):
            changed |= {one.path: one for one in gone}
            prepare = adopt.take_over(live, api_version=self.wanted.api_version, spare=number.spared)
        ended, removal = unsaid.ended, unsaid.removal
        if ended.paths:
            tree = managed_fields.tree_along(ended.paths)
            changed |= {one.path: one for one in adopt.without(self.cluster, live, settled.payload, tree)}
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

    def _prepared(self, live: Mapping[str, Any], items: Sequence[Path], after: adopt.Patch) -> adopt.Patch:
        """Give the patch that makes fields ours, so that an apply without them removes them.

        An apply that empties a map of a custom resource leaves null in its place, which few definitions
        allow: what lies in a map that the files set empty goes by the patch itself.
        """
        version, data = self.wanted.api_version, self.wanted.data
        is_custom = Kinds.builtin().lookup(version, self.wanted.kind) is None
        inside = [
            path for path in items if is_custom and managed_fields.value_at(data, path[:-1]) in ({}, [])
        ]
        taken = [path for path in items if path not in inside]
        patch = adopt.take_items(live, taken, api_version=version, after=after)
        return (*patch, *managed_fields.removals(live, inside))

    def _differing(
        self,
        live: Mapping[str, Any],
        changed: tuple[FieldChange, ...],
        facts: Mapping[str, Any],
        after: Mapping[str, Any],
    ) -> Change:
        why = needs_new_run(self.wanted.with_data(live), changed)
        if why:
            verdict = replacement.judge(self.wanted, self.world.state.environment, fixed=why, why=why)
            return self._otherwise.anew(live, changed, verdict, notes=facts["notes"])
        defines = replacement.is_definition(self.wanted)
        lost = replacement.refuse_losses(self.cluster, live, after) if defines else ()
        notes = (*facts["notes"], *(replacement.refuse_demands(self.cluster, live, after) if defines else ()))
        may_lose = self.outlook.options.allow_destructive or replacement.is_allowed(self.wanted.data)
        return self._make.update(
            live,
            changed,
            refusal=replacement.destructive(self.wanted, lost) if lost and not may_lose else None,
            **{**facts, "notes": (*notes, *lost) if may_lose else notes},
        )


def _seen(live: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: live[key] for key in ("apiVersion", "kind", "metadata") if key in live}


# --- What the server had against objects: asked about in time, and told of each without hiding the
# others

_FEW = parallel.WORKERS  # they are asked about at once


def tried(
    results: list[Change | MlstackError],
    everything: Sequence[KubeObject],
    outlook: DiffContext,
    *,
    hasty: bool,
) -> list[Change | MlstackError]:
    """Ask about new objects too: what is wrong with them is better told before anything is written.

    It costs a request each, so many are asked about only where something else is wrong. Only what the server
    says of fields counts: other objects of the run may be all that a webhook or a quota waits for.

    Args:
        results: what was found of each object.
        everything: the objects.
        outlook: what holds for the run as a whole.
        hasty: whether the environment is new, so that most of its objects are.
    """
    new = [
        place
        for place, found in enumerate(results)
        if isinstance(found, Change) and found.action == "create" and not kinds_of_crd(everything[place].data)
    ]
    wrong = any(not isinstance(found, Change) or found.refusal for found in results)
    if not new or not (wrong or (len(new) <= _FEW and not hasty)):
        return results
    asking = replace(outlook, check_new=True)
    looks = parallel.run(lambda place: ObjectDiff(asking, everything[place]).change(), new)
    faults = {
        place: answer
        for place, answer in zip(new, looks, strict=True)
        if isinstance(answer, InvalidError) and answer.causes and "webhook" not in answer.message
    }
    return [faults.get(place, found) for place, found in enumerate(results)]


def answered(
    results: Sequence[Change | MlstackError], everything: Sequence[KubeObject], world: ClusterFacts
) -> Iterator[Change]:
    """Give a change for every object, for one that the server does not accept a change that is refused.

    Raises:
        MlstackError: something is not the fault of one object.
    """
    others = [
        found for found in results if not isinstance(found, Change) and not replacement.is_of_object(found)
    ]
    if others:
        raise parallel.together(others)
    for answer, found in zip(results, everything, strict=True):
        if isinstance(answer, Change):
            yield answer
        else:
            yield replacement.invalid(found, _live(found, world), answer)


def _live(found: KubeObject, world: ClusterFacts) -> Mapping[str, Any] | None:
    try:
        return world.live(found) if world.is_reachable(found) else None
    except ClusterError:  # what is wrong is known already
        return None


def with_redefined(
    results: Sequence[Change | MlstackError], everything: Sequence[KubeObject], outlook: DiffContext
) -> list[Change | MlstackError]:
    """Look without the server at objects that only a new version of their definition may let pass."""
    redefined = {
        (kind.group, kind.kind)
        for result in results
        if isinstance(result, Change) and result.writes and not result.refusal and result.desired
        for kind in kinds_of_crd(result.desired.data)
    }
    return [
        FallbackDiff(ChangeBuilder(outlook, found)).unasked()
        if isinstance(result, InvalidError) and (found.group, found.kind) in redefined
        else result
        for result, found in zip(results, everything, strict=True)
    ]


# --- What objects of a run depend on outside of it: it has to be there before anything is written ---


def refuse_absent_targets(wanted: Sequence[KubeObject], cluster: Cluster) -> None:
    """Raise if an annotation names an object that is neither in the run nor in the cluster.

    Raises:
        ConfigError: naming the object and what it depends on.
    """
    for found, target in outside(wanted):
        if not _is_there(target, found, cluster):
            raise ConfigError(
                f"`{found.identity}` depends on `{target}`, which is neither in this run nor in the cluster",
                where=str(found.source) if found.source else f"component {found.component}",
                hint=f"see its annotation `{DEPENDS_ON}`: group `{target.group}`, kind `{target.kind}`",
            )


def _is_there(target: Identity, found: KubeObject, cluster: Cluster) -> bool:
    kind = _kind(target, Kinds.builtin()) or _kind(target, cluster.kinds())
    if kind is None:
        return False
    namespace = (target.namespace or found.namespace) if kind.namespaced else ""
    try:
        return cluster.get(ObjectRef(kind.api_version, kind.kind, namespace, target.name)) is not None
    except ForbiddenError:  # whoever may not look cannot be told
        return True


def _kind(target: Identity, kinds: Kinds) -> Kind | None:
    return next((one for one in kinds.of_group(target.group) if one.kind == target.kind), None)


# --- What is there, and what a server-side apply would make of it: live objects and dry runs →
# Changes

_USUAL = ApplyOptions()
_NAMED = 8


def observe(
    reached: Reached,
    *,
    options: ApplyOptions = _USUAL,
    inventory: Inventory | None = None,
    check_new: bool = False,
) -> Changes:
    """Compare what is wanted with what is there; nothing is written.

    Args:
        reached: what is wanted, and where to look.
        options: how it is to be done.
        inventory: what was written last; objects that are still like that are not asked about.
        check_new: ask the server about new objects too, where it can tell already.

    An object that the server does not accept is a change that is refused.

    Raises:
        ForbiddenError: rights to look are missing.
        ObjectNotFoundError: a kind or namespace is neither there nor part of this run.
    """
    state, cluster = reached.state, reached.cluster
    world = ClusterFacts(state, cluster)
    wanted = placed(state.objects, cluster)
    world.refuse_unknown_kinds(wanted)
    extra = world.missing_namespace(wanted, create=options.create)
    refuse_absent_targets((*extra, *wanted), cluster)
    everything = order.ordered((*extra, *wanted), state.depends)
    known = MetadataIndex(cluster, state, inventory, adopt=options.adopt)
    outlook = outlook_of(reached, world, options, inventory=inventory, check_new=check_new)
    known.look_around([found for found in everything if world.is_reachable(found)], outlook.payload)
    looking = replace(outlook, known=known)
    results = parallel.run(lambda found: ObjectDiff(looking, found).change(), everything)
    if not check_new:
        results = tried(results, everything, looking, hasty=inventory is None or not inventory.exists)
    changes = tuple(answered(with_redefined(results, everything, looking), everything, world))
    return Changes(
        app=state.app,
        environment=state.environment,
        namespace=state.namespace,
        context=reached.place.context,
        cluster=reached.identity,
        changes=changes,
        depends=state.depends,
        secrets=state.secrets,
        notes=(
            *state.notes,
            *(f"namespace `{one.name}` is created first" for one in extra),
            *_left(changes),
            *kept_labels((change.identity, change.labels) for change in changes),
            *_unread(outlook.earlier),
        ),
    )


def looking_again(
    reached: Reached, options: ApplyOptions = _USUAL, inventory: Inventory | None = None
) -> Callable[[Change], Change]:
    """Give what looks at one object once more, when it moved after its change was worked out."""
    world = ClusterFacts(reached.state, reached.cluster)
    outlook = outlook_of(reached, world, options, inventory=inventory)

    def again(change: Change) -> Change:
        if change.desired is None:
            raise ValueError(f"nothing is wanted of {change.identity}")
        return ObjectDiff(outlook, change.desired).change()

    return again


def outlook_of(
    reached: Reached,
    world: ClusterFacts,
    options: ApplyOptions = _USUAL,
    *,
    inventory: Inventory | None = None,
    check_new: bool = False,
) -> DiffContext:
    """Give what holds for every object of a run."""
    return DiffContext(
        world=world,
        scalers=Scalers(reached.state.objects, reached.cluster, going=_going(reached, options)),
        earlier=LastApplied(reached),
        options=options,
        rules=reached.target.app.app().conflicts,
        environments=frozenset(map(kube_object.label_of, reached.target.app.environment_names())),
        check_new=check_new,
        members=inventory.members if inventory else {},
    )


def _going(reached: Reached, options: ApplyOptions) -> Callable[[Mapping[str, str]], bool]:
    """Tell of an object that the run does not bring whether the run deletes it."""
    state = reached.state
    marks = kube_object.marks(app=state.app, environment=state.environment, component="")
    whose = {key: marks[key] for key in (kube_object.APP_LABEL, kube_object.ENVIRONMENT_LABEL)}
    selected = {
        kube_object.marks(app="", environment="", component=name)[kube_object.COMPONENT_LABEL]
        for name in state.components
    }

    def going(labels: Mapping[str, str]) -> bool:
        is_ours = whose.items() <= labels.items() and kube_object.COMPONENT_LABEL in labels
        looked_at = not reached.selective or labels.get(kube_object.COMPONENT_LABEL) in selected
        return options.prune and is_ours and looked_at

    return going


def _left(changes: Sequence[Change]) -> tuple[str, ...]:
    """Say of objects that nobody would look at whose fields stay with others."""
    silent = (change for change in changes if change.action == "unchanged" and change.left)
    return tuple(
        f"`{change.identity}` {note}" for change in silent for note in change.notes if "leaves" in note
    )


def kept_labels(found: Iterable[tuple[Identity, Sequence[tuple[str, str]]]]) -> tuple[str, ...]:
    """Say in one line which labels and annotations of people stay; nothing if there are none."""
    texts = [f"`{path}` of `{identity}` ({manager})" for identity, rows in found for path, manager in rows]
    if not texts:
        return ()
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return (f"labels and annotations that people added stay: {', '.join(texts[:_NAMED])}{more}",)


def _unread(earlier: LastApplied) -> tuple[str, ...]:
    if not earlier.fault:
        return ()
    return (
        "what was applied before cannot be read, so fields that others changed and the files no longer have"
        f" may stay: {earlier.fault}",
    )
