"""The history of an environment as values: its revisions, and the sets that they hold."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, TypeVar

from mlstack.model import definitions, fields, report
from mlstack.model.diff import DESTRUCTIVE, Action, Change
from mlstack.model.fields import FieldChange
from mlstack.model.kinds import kinds_of_crd
from mlstack.model.objects import DesiredState, KubeObject

Result = Literal["done", "failed", "not ready", "interrupted"]

T = TypeVar("T")

UNNAMED = "…"
"""Stands among the components that do not work for too many to be named."""
CHANGING = frozenset({"created", "updated", "recreated", "deleted"})
"""Outcomes after which an object is not as it was."""
KEPT = 10
"""How many revisions of an environment stay."""


@dataclass(frozen=True, kw_only=True)
class Revision:
    """What is known of one revision.

    Attributes:
        number: counts up from 1; numbers are never used again.
        time: when the run ended, in UTC: `2026-11-22T02:25:46Z`.
        who: `user@host` of the person or program.
        what: what was done: `apply`, `apply -c cnn`, `rollback to 3`.
        result: how it ended.
        components: full names of the components that were applied.
        unsettled: components of the set whose last run did not end well.
        counts: number of objects of each outcome.
        planned: number of objects that were to be created, changed or deleted; 0 where that is not known.
        objects: number of objects of the set.
        version: of mlstack.
        digest: `sha256:…` of the set; equal sets have equal digests.
        size_bytes: of the set, unpacked.
        parts: number of Secrets it takes.
    """

    number: int
    time: str
    who: str
    what: str
    result: Result
    components: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    planned: int = 0
    objects: int = 0
    version: str = ""
    digest: str = ""
    size_bytes: int = 0
    parts: int = 1

    @property
    def changed(self) -> int:
        """Count the objects that were created, changed or deleted."""
        return sum(number for outcome, number in self.counts.items() if outcome in CHANGING)

    @property
    def is_good(self) -> bool:
        """Tell whether everything of the set was applied and worked."""
        return self.result == "done" and not self.unsettled


def last_good(known: Sequence[Revision], components: Collection[str] = ()) -> Revision | None:
    """Give the newest revision of which everything worked, or all of some components; None if none did.

    Args:
        known: oldest first.
        components: those that matter; none means all.
    """
    return next((one for one in reversed(known) if _worked(one, components)), None)


def _worked(found: Revision, components: Collection[str]) -> bool:
    if found.is_good:
        return True
    return bool(components) and not {*found.unsettled} & {*components, UNNAMED}


def merged(known: DesiredState, applied: DesiredState) -> DesiredState:
    """Give the whole set after some components were applied: theirs as applied, the others as known."""
    fresh = {one.identity for one in applied.objects}
    others = [
        one for one in known.objects if one.component not in applied.components and one.identity not in fresh
    ]
    return replace(
        applied,
        objects=(*others, *applied.objects),
        components=tuple(sorted({*known.components, *applied.components})),
        depends={**_others(known.depends, applied), **applied.depends},
        timeouts={**_others(known.timeouts, applied), **applied.timeouts},
        has_secrets=known.has_secrets or applied.has_secrets,
        secrets=tuple(dict.fromkeys((*known.secrets, *applied.secrets))),
    )


def _others(said: Mapping[str, T], applied: DesiredState) -> dict[str, T]:
    """Give what a set says of components other than those that were applied."""
    return {name: value for name, value in said.items() if name not in applied.components}


def without(known: DesiredState, components: Iterable[str]) -> DesiredState:
    """Give a set without some of its components."""
    gone = set(components)
    return replace(
        known,
        objects=tuple(one for one in known.objects if one.component not in gone),
        components=tuple(name for name in known.components if name not in gone),
    )


def only(known: DesiredState, components: Iterable[str]) -> DesiredState:
    """Give what a set has of some components; those are its components, whether it has anything of them."""
    asked = set(components)
    return replace(
        known,
        objects=tuple(one for one in known.objects if one.component in asked),
        components=tuple(sorted(asked)),
    )


def unsettled(previous: Revision | None, applied: Iterable[str], result: Result) -> tuple[str, ...]:
    """Give the components that do not work as far as is known, after some were applied with this result."""
    before = set(previous.unsettled) if previous is not None else set()
    names = set(applied)
    return tuple(sorted(before - names if result == "done" else before | names))


def gone_back(
    earlier: DesiredState, now: DesiredState, *, may_lose: bool = False
) -> tuple[DesiredState, tuple[str, ...]]:
    """Give an earlier set as far as one can go back to it, and say what stays as it is today.

    A claim holds data: it is neither replaced nor made smaller. A definition that would lose fields or
    versions would take along what is stored in them; it goes back only if it `may_lose` them.
    """
    today = {one.identity: one for one in now.objects}
    reasons = {one.identity: _lasting(one, today.get(one.identity), may_lose) for one in earlier.objects}
    kept = [today[one.identity] if reasons[one.identity] else one for one in earlier.objects]
    told = tuple(f"{who} stays as it is: {why}" for who, why in reasons.items() if why)
    return replace(earlier, objects=tuple(kept)), told


def _lasting(earlier: KubeObject, today: KubeObject | None, may_lose: bool) -> str:
    """Say why an object cannot get its earlier form again, nothing if it can."""
    if today is None or today.data == earlier.data:
        return ""
    if is_claim(earlier):
        return "a claim is not rolled back"
    if kinds_of_crd(earlier.data) and not may_lose and not definitions.is_allowed(earlier.data):
        lost = definitions.losses(today.data, earlier.data)
        if lost:
            return f"going back would lose something ({lost[0]}); if that is wanted: --allow-destructive-crds"
    return ""


def sparing_claims(changes: Iterable[Change], now: DesiredState) -> tuple[Change, ...]:
    """Give the changes of a rollback without those that would take volume claims along.

    Args:
        changes: what is to be done.
        now: the set of today: what is listed for deletion may be known by its metadata alone.
    """
    holding = {one.identity for one in now.objects if _takes_claims_along(one)}
    return tuple(
        replace(one, action="kept", reason=_ALONG, writes=False, desired=None)
        if one.action in DESTRUCTIVE and (one.identity in holding or _takes_claims_along(one.found))
        else one
        for one in changes
    )


_ALONG = "its volume claims would be deleted with it (persistentVolumeClaimRetentionPolicy)"


def _takes_claims_along(found: KubeObject | None) -> bool:
    if found is None or found.kind != "StatefulSet":
        return False
    policy = (found.data.get("spec") or {}).get("persistentVolumeClaimRetentionPolicy") or {}
    return bool(policy.get("whenDeleted") == "Delete")


def is_claim(found: KubeObject) -> bool:
    """Tell whether an object is a volume claim."""
    return (found.group, found.kind) == ("", "PersistentVolumeClaim")


def timestamp(now_s: float) -> str:
    """Write a time in seconds since 1970 as people and Kubernetes do, in UTC."""
    return datetime.fromtimestamp(int(now_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def compared(older: DesiredState, newer: DesiredState) -> tuple[Change, ...]:
    """Give what came, changed and went between two sets; values of Secrets are masked."""
    before = {one.identity: one for one in older.objects}
    after = {one.identity: one for one in newer.objects}
    every = {**after, **before}
    changes = [_change(before.get(identity), after.get(identity)) for identity in every]
    return tuple(change for change in changes if change is not None)


def _change(old: KubeObject | None, new: KubeObject | None) -> Change | None:
    there = new or old
    if there is None or (old and new and old.data == new.data):
        return None
    action: Action = "create" if old is None else "delete" if new is None else "update"
    differences: Iterable[FieldChange] = ()
    if old is not None and new is not None:
        tree = fields.union(fields.tree_of(old.data), fields.tree_of(new.data))
        differences = fields.compare(old.data, new.data, tree)
    return Change(
        identity=there.identity,
        component=there.component,
        action=action,
        api_version=there.api_version,
        fields=report.masked(there.identity, differences),
        desired=new,
    )
