"""Why a live object is not as its files say: who changed which field, or whether only our apply is behind.

The API server keeps the books: whoever changes or removes a value that we applied takes its path from our
entry in `managedFields`. So a field that is still ours has the value we gave it, and differs because the
files have changed since; one that is another's was changed by that one; one that is nobody's was removed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mlstack.model import fieldmanagers, fields, report
from mlstack.model import payload as payloads
from mlstack.model.fields import Entry, FieldChange
from mlstack.model.objects import APP_LABEL, MANAGER, Identity, KubeObject
from mlstack.model.payload import Path

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
    """How one live object stands against the files and the last apply.

    Attributes:
        identity: the object.
        component: full name of its component.
        state: `missing` was applied and is not there, `new` was not applied so far, `extra` is there
            with our marks and not in the files.
        reason: what happened to the object as a whole, empty if nothing did.
        manager: the field manager that made an extra object ours, empty if nobody is recorded.
        time: when it did.
        differences: fields that are not as the files say.
    """

    identity: Identity
    component: str
    state: DriftState
    reason: str = ""
    manager: str = ""
    time: str = ""
    differences: tuple[Difference, ...] = ()

    @property
    def causes(self) -> tuple[str, ...]:
        """Give what it counts as: the cause of each difference, or what became of the whole object."""
        whole: Mapping[DriftState, tuple[str, ...]] = {
            "missing": ("missing",),
            "extra": ("extra",),
            "new": ("stale",),
        }
        return whole.get(self.state, tuple(one.cause for one in self.differences))


def differences(
    live: Mapping[str, Any],
    wanted: Mapping[str, Any],
    *,
    tree: fields.Tree | None = None,
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
    books = _Books(live, files_changed=files_changed, applied=applied)
    ours = fields.union(fields.owned(live, MANAGER), fields.owned(wanted, MANAGER))
    identity = KubeObject(data=live).identity
    found = [
        *fields.located(live, wanted, ours if tree is None else tree),
        *fields.located(live, payloads.cut(live, gone) if after is None else after, fields.tree_along(gone)),
    ]
    return tuple(
        books.judge(path, shown)
        for path, change in found
        for shown in report.veiled(report.masked(identity, [change]), secrets)
    )


class _Books:
    """Who is recorded as the owner of which field of one object, and what we know of our last apply."""

    def __init__(
        self, live: Mapping[str, Any], *, files_changed: bool | None, applied: Mapping[str, Any] | None
    ) -> None:
        found = fields.entries(live)
        self._ours = [entry for entry in found if entry.key == (MANAGER, "Apply", "")]
        self._others = [entry for entry in found if entry.key != (MANAGER, "Apply", "")]
        self._files_changed, self._applied = files_changed, applied

    def judge(self, path: tuple[str, ...], change: FieldChange) -> Difference:
        """Give the difference with its cause."""
        owners = [entry for entry in self._others if _depth(entry, path)]
        # Who fills an empty map of ours owns what is in it, and we the map.
        deepest = max((_depth(entry, path) for entry in owners), default=0)
        if any(_depth(entry, path) >= max(deepest, 1) for entry in self._ours):
            return _difference(change, "stale")
        if owners:
            return self._by(change, max(owners, key=lambda entry: entry.time))
        return self._without_owner(path, change)

    def _by(self, change: FieldChange, owner: Entry, *, sure: bool = True) -> Difference:
        cause: Cause = "person" if _is_person(owner) else "controller"
        return _difference(change, cause, owner=owner, sure=sure)

    def _without_owner(self, path: tuple[str, ...], change: FieldChange) -> Difference:
        """Judge a field that nobody owns: removed from the object, or never applied so far."""
        if self._was_applied(path) is False:
            return _difference(change, "stale")
        # A controller sets fields of its own all day; who takes one of ours away is a person.
        since = [entry for entry in self._others if _is_person(entry) and self._wrote_after_us(entry)]
        if len({entry.key for entry in since}) == 1:
            return self._by(change, since[0], sure=False)
        return _difference(change, "unknown")

    def _was_applied(self, path: tuple[str, ...]) -> bool | None:
        """Tell whether our last apply brought a field; None if that is not known."""
        if self._applied is not None:
            return payloads.says(self._applied, path)
        return None if self._files_changed is None or self._files_changed else True

    def _wrote_after_us(self, entry: Entry) -> bool:
        return not entry.subresource and bool(self._ours) and entry.time >= self._ours[0].time


def marked_by(live: Mapping[str, Any]) -> Entry | None:
    """Give who set our mark on a live object: us, or somebody who copied it; None if nobody is recorded."""
    label = ("f:metadata", "f:labels", f"f:{APP_LABEL}")
    return next((entry for entry in fields.entries(live) if _depth(entry, label)), None)


def is_made_by_hand(entry: Entry) -> bool:
    """Tell whether a person's tool wrote an entry, and not we."""
    return entry.manager != MANAGER and _is_person(entry)


def _is_person(entry: Entry) -> bool:
    return fieldmanagers.is_persons_tool(fieldmanagers.owner_of(entry))


def _depth(entry: Entry, path: Sequence[str]) -> int:
    """Give how far down a manager owns a field: itself or something in it, or around it as a whole; or 0."""
    tree: fields.Tree = entry.tree
    for depth, key in enumerate(path, 1):
        if key not in tree:
            return 0
        tree = tree[key]
        if not tree:  # the thing as a whole is owned, with all it holds
            return depth
    return len(path)


def _difference(
    change: FieldChange, cause: Cause, *, owner: Entry | None = None, sure: bool = True
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
