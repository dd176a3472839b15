"""What somebody approved: the changes of one moment, what they were made from, and what has moved since.

A file with it may lie about where Secrets may not, so it holds no secret, nor a hash from which one could be
guessed at the speed of a hash: every digest is salted, and dear to compute where a secret may be behind it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlstack.model.app import ClusterIdentity
from mlstack.model.diff import Action, Change, Changes
from mlstack.model.fields import FieldChange
from mlstack.model.objects import Identity

_IDLE: frozenset[Action] = frozenset({"unchanged", "kept", "missing"})
_WORK = 2**11  # 7 ms a digest: nothing for a plan, 80 days for a dictionary of a billion words
_SHOWN = 5
_LONGEST = 40


@dataclass(frozen=True, kw_only=True)
class ApprovedObject:
    """What may happen to one object.

    Attributes:
        identity: the object.
        api_version: API version the object is addressed by.
        component: full name of the component that brings it.
        action: what happens to it.
        uid: UID of the object that it happens to, empty if there was none.
        digest: sealed hash of what is approved: a change with the same one is the same change.
        reason: why it is recreated, deleted or kept.
        fields: what differs, secrets masked; for people.
        notes: remarks, as whose fields are overridden.
    """

    identity: Identity
    api_version: str
    component: str
    action: Action
    uid: str
    digest: str
    reason: str = ""
    fields: tuple[FieldChange, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """Tell whether nothing happens to it."""
        return self.action in _IDLE


@dataclass(frozen=True, kw_only=True)
class Approval:
    """What may be done in one environment.

    Attributes:
        app: name of the app.
        environment: name of the environment.
        context: the kubectl context it was computed in.
        namespace: namespace of the environment.
        cluster: who answered there.
        selection: components and modules that were asked for; none means all of the environment.
        components: full names of the components that were rendered.
        options: options of the apply that decide what happens, by name.
        inputs: sealed digest of each file that was read, empty for one that was not there.
        packages: digest of each installed package.
        overrides: parameters for this run, unless one of them is secret.
        overrides_digest: sealed digest of the parameters for this run, empty if there were none.
        tool: `mlstack/<version>` that computed it.
        created: when, as `2027-01-15T08:00:00Z`.
        salt: of all digests.
        costly: whether a secret may be behind a digest.
        objects: in the order of execution.
        counts: number of objects of each action.
        notes: remarks on the run as a whole.
    """

    app: str
    environment: str
    context: str
    namespace: str
    cluster: ClusterIdentity
    selection: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    options: Mapping[str, bool] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    overrides_digest: str = ""
    tool: str
    created: str
    salt: str
    costly: bool
    objects: tuple[ApprovedObject, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def seal(self) -> Seal:
        """Give what its digests were made with."""
        return Seal(self.salt, costly=self.costly)


class Seal:
    """Makes digests that say whether something is the same and nothing else.

    Args:
        salt: random text; the same for all digests of one approval.
        costly: whether a secret may be behind a digest.
    """

    def __init__(self, salt: str, *, costly: bool) -> None:
        """Hold the salt."""
        self.salt, self.costly = salt, costly

    def __call__(self, text: str) -> str:
        """Give the sealed digest of a text; the empty text stays empty."""
        if not text:
            return ""
        if not self.costly:
            return "sha256:" + hashlib.sha256(f"{self.salt}\0{text}".encode()).hexdigest()
        made = hashlib.scrypt(text.encode(), salt=self.salt.encode(), n=_WORK, r=8, p=1, dklen=32)
        return "scrypt:" + made.hex()


def approved(change: Change, digest: str) -> ApprovedObject:
    """Give a change as it is kept, with its sealed digest."""
    return ApprovedObject(
        identity=change.identity,
        api_version=change.api_version,
        component=change.component,
        action=change.action,
        uid=change.live_uid,
        digest=digest,
        reason=change.reason,
        fields=change.fields,
        notes=change.notes,
    )


def moved_inputs(
    approval: Approval, inputs: Mapping[str, str], packages: Mapping[str, str]
) -> tuple[str, ...]:
    """Say which files and packages are not what the approved changes were made from.

    Args:
        approval: what was approved.
        inputs: sealed digest of each file that a render reads now.
        packages: digest of each installed package now.
    """
    return (
        *_moved_names(approval.packages, packages, "package "),
        *_moved_names(approval.inputs, inputs, ""),
    )


def _moved_names(before: Mapping[str, str], now: Mapping[str, str], what: str) -> Iterator[str]:
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name, ""), now.get(name, "")
        if old != new:
            verb = "has changed" if old and new else "is new" if new else "is not read any more"
            yield f"{what}`{name}` {verb}"


def moved_objects(approval: Approval, changes: Changes, digests: Mapping[Identity, str]) -> tuple[str, ...]:
    """Say of each object what would happen to it that was not approved.

    An object that is as approved already needs nothing any more, so an apply that was interrupted can be
    taken up again with the same file.

    Args:
        approval: what was approved.
        changes: what would be done now.
        digests: sealed digest of each of these changes.
    """
    before = {one.identity: one for one in approval.objects}
    said = (
        (change, _moved(before.get(change.identity), change, digests[change.identity]))
        for change in changes.changes
    )
    return tuple(f"{change.identity}: {what}" for change, what in said if what)


def _moved(old: ApprovedObject | None, now: Change, digest: str) -> str:
    if now.action in _IDLE:
        return "" if old is None or old.idle or now.action == "unchanged" else _instead(old, now)
    if old is None:
        return f"would be {_DONE[now.action]}, which the plan does not hold"
    if old.action == now.action and old.digest == digest:
        return ""
    return _instead(old, now)


_DONE: Mapping[Action, str] = {
    "create": "created",
    "update": "updated",
    "recreate": "made anew",
    "delete": "deleted",
    "unchanged": "left as it is",
    "missing": "left missing",
    "kept": "kept",
}


def _instead(old: ApprovedObject, now: Change) -> str:
    if old.uid and now.live_uid and old.uid != now.live_uid:
        return "was deleted and made anew by somebody else"
    if old.action != now.action:
        gone = old.uid and not now.live_uid
        return f"{'is gone and ' if gone else ''}would be {_DONE[now.action]}, not {_DONE[old.action]}"
    said = list(_differently(old.fields, now.fields))
    more = f" and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    told = f": {', '.join(said[:_SHOWN])}{more}" if said else ""
    return f"differs in another way than when it was approved{told}"


def _differently(old: Sequence[FieldChange], new: Sequence[FieldChange]) -> Iterator[str]:
    before, now = ({one.path: one for one in each} for each in (old, new))
    for path in dict.fromkeys((*before, *now)):
        if path not in now:
            yield f"`{path}` is as wanted already"
        elif path not in before:
            yield f"`{path}` differs as well"
        elif before[path] != now[path]:
            yield f"`{path}`{_was(before[path].old, now[path].old)}"


def _was(old: Any, new: Any) -> str:
    """Say which value a field has and had, if both are short enough to be read."""
    texts = [json.dumps(value, ensure_ascii=False) for value in (new, old)]
    is_short = old != new and all(len(text) <= _LONGEST for text in texts)
    return f" is {texts[0]}, was {texts[1]}" if is_short else " has another value"
