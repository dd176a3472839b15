"""What holds for every object of a run when it is looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlstack.engine.comparing.earlier import Earlier
from mlstack.engine.comparing.known import Known
from mlstack.engine.comparing.scalers import Scalers
from mlstack.engine.comparing.surroundings import Surroundings
from mlstack.errors import ConfigError
from mlstack.model import adoption, fieldpaths, fields, payload
from mlstack.model.conflicts import FORCE_FIELDS, IGNORE_FIELDS, Lost, Policy
from mlstack.model.fieldmanagers import AUTOSCALING
from mlstack.model.fieldpaths import FieldPattern
from mlstack.model.fieldrules import ConflictRule
from mlstack.model.fields import MISSING
from mlstack.model.objects import MANAGER, KubeObject
from mlstack.model.options import ApplyOptions
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
    """

    world: Surroundings
    scalers: Scalers
    earlier: Earlier
    known: Known | None = None
    options: ApplyOptions = field(default_factory=ApplyOptions)
    rules: tuple[ConflictRule, ...] = ()
    environments: frozenset[str] = frozenset()
    check_new: bool = False

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
        )

    def has_lost_scaler(self, wanted: KubeObject, left: Sequence[Lost]) -> bool:
        """Tell whether a number is left to an autoscaler that this environment had once, and nobody has now.

        Args:
            wanted: the workload.
            left: the fields that others are to keep.
        """
        path = self.scalers.path(wanted)
        held = any(loss.owner == AUTOSCALING and path in loss.paths for loss in left)
        return held and self.scalers.has_none(wanted) and self.earlier.had_autoscaler(wanted)

    @staticmethod
    def sets(wanted: KubeObject, path: tuple[str, ...]) -> bool:
        """Tell whether an object says a field, if there is such a field."""
        return bool(path) and payload.value_at(wanted.data, path) is not MISSING

    def number(self, wanted: KubeObject, live: Mapping[str, Any]) -> "Number":
        """Tell how a workload's number of replicas is to be treated."""
        path, data, note = self.scalers.path(wanted), self.payload(wanted), ""
        if self.sets(wanted, path):
            scaler = self.scaler(wanted)
            if scaler is not None:
                data = payload.cut(wanted.data, [path])
                note = f"leaves `{fields.path_text(path)}` to `{scaler.name}`"
        kept: Any = MISSING
        if path and payload.value_at(data, path) is MISSING:
            ours = path in set(fields.paths(fields.owned(live, MANAGER)))
            kept = payload.value_at(live, path) if ours else MISSING
        return Number(path=path, data=data, note=note, kept=kept)


@dataclass(frozen=True, kw_only=True)
class Number:
    """How a workload's number of replicas is to be treated.

    Without an owner the number would go to 1, so it changes hands: another manager of ours holds the live
    value until the autoscaler writes its own.

    Attributes:
        path: the field, empty if there is none.
        data: what is to be sent, without the number where it is not ours.
        note: what to say of it.
        kept: the live number, where we own it and let go of it; else missing.
    """

    path: tuple[str, ...]
    data: Mapping[str, Any]
    note: str
    kept: Any

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
