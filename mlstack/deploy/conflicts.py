"""Whose fields a forced apply would take, and who is to have them.

The API server's answer to a forced dry run already holds the conflicts: what another manager owned
before and no longer owns in the answer is what we would take, so no message has to be parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlstack.app.app import ConflictRule, Taker
from mlstack.errors import ConfigError, ConflictError, FieldConflict, InvalidError
from mlstack.kube.client import Applied, Cluster
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import MANAGER, KubeObject
from mlstack.objects.managed_fields import (
    MISSING,
    FieldPattern,
    Owner,
    Path,
    Tree,
    owned,
    owner_of,
    path_text,
    paths,
    row_of,
    value_at,
)

FORCE_FIELDS = "mlstack.dev/force-fields"
IGNORE_FIELDS = "mlstack.dev/ignore-fields"

_ROUNDS = 4  # a cut may show what lay below it; more than one further round was never needed
_NAMED = 8  # a person reads no longer line; `-o json` of kubectl has them all
_OURS = (MANAGER, "Apply", "")


def annotated(wanted: KubeObject, annotation: str) -> tuple[FieldPattern, ...]:
    """Read the fields that an annotation of an object names.

    Raises:
        ConfigError: it holds no paths.
    """
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


@dataclass(frozen=True, kw_only=True)
class ConflictPolicy:
    """Who is to have the fields of one object that others own as well.

    The first that speaks decides: the object's own annotations, the app's rules in their order, managers
    that are taken over, `--force-conflicts`, the table of managers.
    """

    force: tuple[FieldPattern, ...] = ()  # ours whoever owns them
    ignore: tuple[FieldPattern, ...] = ()  # left as they are in the cluster
    rules: tuple[ConflictRule, ...] = ()
    adopted: frozenset[Owner] = frozenset()  # managers whose fields become ours
    forced: bool = False  # everything else is ours
    keep_foreign: bool = False  # fields that only people's tools set stay

    def taker(self, owner: Owner, path: Path) -> Taker:
        """Say who gets a field that a manager would lose to us."""
        if any(pattern.covers(path) for pattern in self.force):
            return "ours"
        if any(pattern.covers(path) for pattern in self.ignore):
            return "theirs"
        for rule in self.rules:
            if rule.speaks_of(owner.manager, path):
                return rule.take
        ours = owner in self.adopted or self.forced or row_of(owner) is not None
        return "ours" if ours else "theirs"

    def keeps(self, owner: Owner, path: Path) -> bool:
        """Tell whether a field stays that a person's tool set and that the files do not have."""
        if any(pattern.covers(path) for pattern in self.force):
            return False
        return self.keep_foreign or self.taker(owner, path) == "theirs"

    def ignored(self, path: Path) -> bool:
        """Tell whether a field is to be left as it is, even where nobody else owns it."""
        return any(pattern.covers(path) for pattern in self.ignore) and not any(
            pattern.covers(path) for pattern in self.force
        )


@dataclass(frozen=True, kw_only=True)
class Lost:
    """Fields that one manager would lose."""

    owner: Owner
    paths: tuple[Path, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """Give the fields as people write them."""
        return tuple(path_text(path) for path in self.paths)

    @property
    def said(self) -> bool:
        """Tell whether anybody wants to hear of it."""
        row = row_of(self.owner)
        return row is None or row.said


def lost(live: Mapping[str, Any], forced: Mapping[str, Any]) -> tuple[Lost, ...]:
    """Give the fields each manager loses by a forced apply, from the server's answer to a dry run of it."""
    tree = owned(forced, MANAGER)
    ours, whole = set(paths(tree)), set(_wholes(tree))

    def is_taken(path: Path) -> bool:
        return path in ours or _is_inside(path, whole) or any(mine[: len(path)] == path for mine in ours)

    # A controller may drop fields of its own between our two readings: those went to nobody.
    losses = ((owner, tuple(filter(is_taken, gone))) for owner, gone in _gone(live, forced))
    return tuple(Lost(owner=owner, paths=moved) for owner, moved in losses if moved)


def swept(live: Mapping[str, Any], forced: Mapping[str, Any]) -> tuple[Lost, ...]:
    """Give the fields others lose because they lie in something of ours that goes, as an item of a list."""
    left = set(paths(owned(live, MANAGER))) - set(paths(owned(forced, MANAGER)))
    return tuple(
        Lost(owner=owner, paths=inside)
        for owner, gone in _gone(live, forced)
        if (inside := tuple(path for path in gone if any(path[: len(mine)] == mine for mine in left)))
    )


def _gone(live: Mapping[str, Any], forced: Mapping[str, Any]) -> Iterator[tuple[Owner, tuple[Path, ...]]]:
    """Give of everybody but us what they own in one object and not in the other."""
    left = {entry.key: entry.tree for entry in managed_fields.entries(forced)}
    for entry in managed_fields.entries(live):
        if entry.key != _OURS:
            gone = managed_fields.minus(entry.tree, left.get(entry.key, {}))
            yield owner_of(entry), tuple(paths(gone))


def emptied(
    live: Mapping[str, Any], sent: Mapping[str, Any], gone: Iterable[Path], policy: ConflictPolicy
) -> tuple[Lost, ...]:
    """Give the empty maps of a payload that stay a program's once what others put into them is gone.

    While something is in them nobody loses them; afterwards they would be ours for one apply, no longer.
    """
    above = {path[:length] for path in gone for length in range(1, len(path) + 1)}
    empty = {path for path in above if value_at(sent, path) == {}}
    losses = []
    for entry in managed_fields.entries(live) if empty else ():
        owner, whole = owner_of(entry), empty.intersection(_wholes(entry.tree))
        theirs = tuple(sorted(path for path in whole if policy.taker(owner, path) == "theirs"))
        if theirs and entry.key != _OURS:
            losses.append(Lost(owner=owner, paths=theirs))
    return tuple(losses)


def _wholes(tree: Tree, path: Path = ()) -> Iterator[Path]:
    """Give the paths that own all there is below them: a list or map that is one value."""
    for key, inner in tree.items():
        if not inner and key != ".":
            yield (*path, key)
        yield from _wholes(inner, (*path, key))


def _is_inside(path: Path, whole: set[Path]) -> bool:
    return any(path[:length] in whole for length in range(1, len(path)))


def split(losses: Iterable[Lost], policy: ConflictPolicy) -> tuple[tuple[Lost, ...], tuple[Lost, ...]]:
    """Part what we take from what is left to others; every field is in one of the two."""
    taken, left = [], []
    for loss in losses:
        ours = tuple(path for path in loss.paths if policy.taker(loss.owner, path) == "ours")
        theirs = tuple(path for path in loss.paths if path not in ours)
        taken += [replace(loss, paths=ours)] if ours else []
        left += [replace(loss, paths=theirs)] if theirs else []
    return tuple(taken), tuple(left)


# --- what a person reads of it ---


def describe_taken(loss: Lost) -> str:
    """Say in one line whose fields are put back to what the files say."""
    return f"takes {_listed(loss.texts)} back from {loss.owner}"


def describe_left(loss: Lost) -> str:
    """Say in one line whose fields stay as they are in the cluster."""
    return f"leaves {_listed(loss.texts)} to {loss.owner}"


def describe_dropped(loss: Lost) -> str:
    """Say in one line which fields go that the files had once and somebody changed meanwhile."""
    return f"removes {_listed(loss.texts)}, which {loss.owner} changed and the files no longer have"


def describe_foreign(live: Mapping[str, Any], loss: Lost) -> str:
    """Say in one line which fields of an object go that a person added and that no file has."""
    times = (entry.time for entry in managed_fields.entries(live) if owner_of(entry) == loss.owner)
    time = max(times, default="")
    when = f" at {time.replace('T', ' ').removesuffix('Z')} UTC" if time else ""
    return (
        f"removes {_listed(loss.texts)}, which {loss.owner} set{when} and no file has"
        " (--keep-foreign-fields keeps that)"
    )


def describe_swept(loss: Lost) -> str:
    """Say in one line what of others goes with something of ours."""
    return f"removes {_listed(loss.texts)} of {loss.owner} with what it is part of"


def _listed(texts: Sequence[str]) -> str:
    shown = ", ".join(f"`{text}`" for text in texts[:_NAMED])
    return f"{shown} and {len(texts) - _NAMED} more" if len(texts) > _NAMED else shown


# --- asking the server, again until nobody loses a field who is to keep it ---


@dataclass(frozen=True, kw_only=True)
class ConflictResolution:
    """What is to be sent, and what the server would make of it."""

    payload: Mapping[str, Any]  # without the fields that others keep
    forced: Applied  # the answer to the forced dry run of it
    taken: tuple[Lost, ...]
    left: tuple[Lost, ...]  # but for what our own files tell to ignore


def resolve(
    cluster: Cluster,
    wanted: KubeObject,
    data: Mapping[str, Any],
    live: Mapping[str, Any],
    policy: ConflictPolicy,
) -> ConflictResolution:
    """Find what can be sent of `data` without taking what others are to keep; nothing is written.

    Raises:
        ConflictError: what others keep cannot be left out.
        InvalidError: the server refuses the object as it is wanted.
    """
    left: list[Lost] = []
    sent = dict(data)
    for _ in range(_ROUNDS):
        forced = _dry_run(cluster, wanted, sent, live, left)
        taken, theirs = split(lost(live, forced.object), policy)
        cut = managed_fields.cut(sent, [path for loss in theirs for path in loss.paths])
        fitted = _without_ignored(cut, live, forced.object, policy)
        left += [loss for loss in theirs if not all(policy.ignored(path) for path in loss.paths)]
        if fitted == sent and not theirs:
            return ConflictResolution(payload=sent, forced=forced, taken=taken, left=tuple(left))
        if fitted == sent:
            break
        sent = fitted
    raise _cannot_leave(wanted, left, "they are part of something else that this app sets")


def with_uid(data: Mapping[str, Any], uid: str, version: str = "") -> dict[str, Any]:
    """Give a payload that can only change this very object, in this version if one is given."""
    precise = {"resourceVersion": version} if version else {}
    return {**data, "metadata": {**data["metadata"], "uid": uid, **precise}}


def _dry_run(
    cluster: Cluster, wanted: KubeObject, data: Mapping[str, Any], live: Mapping[str, Any], left: list[Lost]
) -> Applied:
    try:
        return cluster.apply(with_uid(data, live["metadata"]["uid"]), force=True, dry_run=True)
    except InvalidError as error:
        if not left:
            raise
        said = "; ".join(f"`{cause.field}` {cause.message}" for cause in error.causes) or error.message
        raise _cannot_leave(wanted, left, f"without them the object is not valid: {said}") from error


def _without_ignored(
    data: dict[str, Any], live: Mapping[str, Any], forced: Mapping[str, Any], policy: ConflictPolicy
) -> dict[str, Any]:
    """Leave fields as they are that nobody is to change.

    Where others own the field too, or we do not, it is left out. Where we alone own it, leaving it out
    would remove it: the live value is sent.
    """
    if not policy.ignore:
        return data
    own = set(paths(owned(live, MANAGER)))
    for path in sorted(own | set(paths(owned(forced, MANAGER)))):
        if not policy.ignored(path):
            continue
        value = value_at(live, path)
        if path not in own or value is MISSING or _others_own(live, path):
            data = managed_fields.cut(data, [path])
        elif not path[-1].startswith("k:"):
            data = managed_fields.put(data, path, value)
    return data


def _others_own(live: Mapping[str, Any], path: Path) -> bool:
    """Tell whether anybody but us owns a field, or a list or map that it is part of and that is one value."""
    trees = (entry.tree for entry in managed_fields.entries(live) if entry.key != _OURS)
    return any(path in set(paths(tree)) or _is_inside(path, set(_wholes(tree))) for tree in trees)


def _cannot_leave(wanted: KubeObject, left: Sequence[Lost], why: str) -> ConflictError:
    conflicts = tuple(
        FieldConflict(manager=loss.owner.manager, path=text, subresource=loss.owner.subresource)
        for loss in left
        for text in loss.texts
    )
    what = "; ".join(f"{', '.join(f'`{text}`' for text in loss.texts)} to {loss.owner}" for loss in left)
    return ConflictError(
        f"`{wanted.identity}` cannot leave {what}: {why}",
        conflicts=conflicts,
        where=f"component {wanted.component}",
        hint=f"take the fields with --force-conflicts, or with the annotation `{FORCE_FIELDS}`"
        " on the object; or let that program go",
    )
