"""What holds for every object of a run when it is looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlstack.engine.comparing.earlier import Earlier
from mlstack.engine.comparing.known import Known
from mlstack.engine.comparing.scalers import Scalers
from mlstack.engine.comparing.surroundings import Surroundings
from mlstack.errors import ConfigError
from mlstack.model import adoption, dropped, fieldpaths, fields, ownership, payload
from mlstack.model.conflicts import FORCE_FIELDS, IGNORE_FIELDS, Lost, Policy
from mlstack.model.dropped import Dropped
from mlstack.model.fieldmanagers import AUTOSCALING
from mlstack.model.fieldpaths import FieldPattern
from mlstack.model.fieldrules import ConflictRule
from mlstack.model.fields import MISSING
from mlstack.model.inventory import Member, people_hash
from mlstack.model.objects import MANAGER, Identity, KubeObject
from mlstack.model.options import ApplyOptions
from mlstack.model.payload import Path
from mlstack.model.scaling import Autoscaler


@dataclass(frozen=True, kw_only=True)
class Outlook:
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

    world: Surroundings
    scalers: Scalers
    earlier: Earlier
    known: Known | None = None
    options: ApplyOptions = field(default_factory=ApplyOptions)
    rules: tuple[ConflictRule, ...] = ()
    environments: frozenset[str] = frozenset()
    check_new: bool = False
    members: Mapping[Identity, Member] = field(default_factory=dict)

    def payload(self, wanted: KubeObject) -> Mapping[str, Any]:
        """Give what we will own of an object: all but the number that an autoscaler of the run sets."""
        path = self.scalers.path(wanted) if self.scaler(wanted, live=False) else ()
        return payload.cut(wanted.data, [path]) if path else wanted.data

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

    def policy(self, wanted: KubeObject) -> Policy:
        """Say who is to have the fields of an object that others own too.

        Raises:
            ConfigError: an annotation holds no paths.
        """
        path = self.scalers.path(wanted)
        ended = self.sets(wanted, path) and self.scalers.loses(wanted)
        return Policy(
            force=_patterns(wanted, FORCE_FIELDS),
            ignore=_patterns(wanted, IGNORE_FIELDS),
            rules=tuple(rule for rule in self.rules if not rule.kinds or wanted.kind in rule.kinds),
            adopted=(adoption.ADOPTABLE if self.options.adopt else frozenset())
            | ({AUTOSCALING} if ended else frozenset()),
            forced=self.options.force_conflicts,
            keep_foreign=self.options.keep_foreign_fields,
        )

    def was_made_elsewhere(self, wanted: KubeObject, live: Mapping[str, Any]) -> bool:
        """Tell whether another tool made an object, from which it was not and is not taken over."""
        member = self.members.get(wanted.identity)
        is_known = member is not None and member.uid == live["metadata"]["uid"]
        is_made = bool(adoption.adoptable(live)) and not self.options.adopt
        return is_made and (member.made_elsewhere if member is not None and is_known else True)

    def foreign(
        self, wanted: KubeObject, live: Mapping[str, Any], found: Sequence[Lost], spare: Sequence[Path] = ()
    ) -> Dropped:
        """Tell what becomes of fields of others that no file has.

        Args:
            wanted: the object.
            live: as it is; its metadata is enough.
            found: the fields.
            spare: fields that stay, whoever owns them.
        """
        if not dropped.by_people(found):
            return Dropped()
        if not self.options.adopt and ownership.other_owner(wanted, wanted.with_data(live)):
            return Dropped()  # it is for its owner to say
        makers = adoption.ADOPTABLE if self.was_made_elsewhere(wanted, live) else frozenset()
        return dropped.foreign(found, self.policy(wanted), spare=spare, makers=makers)

    def foreign_of(
        self, wanted: KubeObject, live: Mapping[str, Any], *, metadata_only: bool = False
    ) -> Dropped:
        """Tell what becomes of fields of others that no file has, without asking what an apply would do."""
        found = dropped.strange(live, wanted.data, metadata_only=metadata_only)
        unsaid = [] if self.sets(wanted, self.scalers.path(wanted)) else [self.scalers.path(wanted)]
        return self.foreign(wanted, live, found, [path for path in unsaid if path])

    def new_labels(
        self, wanted: KubeObject, live: Mapping[str, Any], found: Sequence[Lost]
    ) -> tuple[tuple[str, str], ...]:
        """Give path and manager of labels and annotations among fields of others, unless told before."""
        member = self.members.get(wanted.identity)
        if member is not None and member.people_hash == people_hash(live):
            return ()
        labels = dropped.by_people(found, labels=True)
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
        return bool(path) and payload.value_at(wanted.data, path) is not MISSING

    def number(self, wanted: KubeObject, live: Mapping[str, Any]) -> "Number":
        """Tell how a workload's number of replicas is to be treated."""
        path, data = self.scalers.path(wanted), self.payload(wanted)
        scaler = self.scaler(wanted) if self.sets(wanted, path) else None
        if scaler is not None:
            data = payload.cut(wanted.data, [path])
        kept: Any = MISSING
        if path and payload.value_at(data, path) is MISSING:
            ours = path in set(fields.paths(fields.owned(live, MANAGER)))
            kept = payload.value_at(live, path) if ours else MISSING
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
        return f"leaves `{fields.path_text(self.path)}` to `{self.scaler}`" if self.scaler else ""

    @property
    def left(self) -> tuple[tuple[str, str], ...]:
        """Give path and autoscaler where the number is left to one that is none of this run's."""
        return ((fields.path_text(self.path), self.scaler),) if self.is_theirs else ()

    @property
    def changes_hands(self) -> bool:
        """Tell whether we own the number and let go of it."""
        return self.kept is not MISSING

    @property
    def asked(self) -> Mapping[str, Any]:
        """Give what a dry run is asked about: as if the number were held already."""
        return payload.put(self.data, self.path, self.kept) if self.changes_hands else self.data

    def sent(self, settled: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give what is really sent of what was settled."""
        return payload.cut(settled, [self.path]) if self.changes_hands else settled

    @property
    def handover(self) -> Mapping[str, Any] | None:
        """Give the number alone, for the manager that holds it meanwhile."""
        return holding(self.data, self.path, self.kept) if self.changes_hands else None

    @property
    def spared(self) -> tuple[tuple[str, ...], ...]:
        """Give the fields that no take-over may make ours."""
        unsaid = self.path and payload.value_at(self.data, self.path) is MISSING
        return (self.path,) if unsaid else ()


def holding(data: Mapping[str, Any], path: tuple[str, ...], value: Any) -> Mapping[str, Any]:
    """Give an object that says nothing but one field."""
    names = {key: data["metadata"][key] for key in ("name", "namespace") if key in data["metadata"]}
    bare = {"apiVersion": data["apiVersion"], "kind": data["kind"], "metadata": names}
    return payload.put(bare, path, value)


def _patterns(wanted: KubeObject, annotation: str) -> tuple[FieldPattern, ...]:
    text = wanted.annotations.get(annotation)
    if not text:
        return ()
    try:
        return fieldpaths.read_list(str(text))
    except ValueError as error:
        raise ConfigError(
            f"annotation `{annotation}` of `{wanted.identity}`: {error}",
            where=str(wanted.source) if wanted.source else f"component {wanted.component}",
            hint="write paths as a diff does, with commas between: spec.replicas, data.mode",
        ) from error
