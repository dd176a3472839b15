"""Whose fields a forced apply would take, and who is to have them.

The API server's answer to a forced dry run already holds the conflicts: what another manager owned
before and no longer owns in the answer is what we would take, so no message has to be parsed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlstack.model import fields
from mlstack.model.fieldmanagers import Owner, owner_of, row_of
from mlstack.model.fieldpaths import FieldPattern
from mlstack.model.fieldrules import ConflictRule, Taker
from mlstack.model.objects import MANAGER
from mlstack.model.payload import Path, value_at

FORCE_FIELDS = "mlstack.dev/force-fields"
IGNORE_FIELDS = "mlstack.dev/ignore-fields"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Who is to have the fields of one object that others own as well.

    The first that speaks decides: the object's own annotations, the app's rules in their order, managers
    that are taken over, `--force-conflicts`, the table of managers.

    Attributes:
        force: fields that are ours whoever owns them.
        ignore: fields that are left as they are in the cluster.
        rules: of the app.
        adopted: managers whose fields become ours.
        forced: whether everything else is ours.
        keep_foreign: whether fields that only people's tools set stay.
    """

    force: tuple[FieldPattern, ...] = ()
    ignore: tuple[FieldPattern, ...] = ()
    rules: tuple[ConflictRule, ...] = ()
    adopted: frozenset[Owner] = frozenset()
    forced: bool = False
    keep_foreign: bool = False

    def taker(self, owner: Owner, path: Path) -> Taker:
        """Say who gets a field that a manager would lose to us."""
        if any(found.covers(path) for found in self.force):
            return "ours"
        if any(found.covers(path) for found in self.ignore):
            return "theirs"
        for rule in self.rules:
            if rule.speaks_of(owner.manager, path):
                return rule.take
        ours = owner in self.adopted or self.forced or row_of(owner) is not None
        return "ours" if ours else "theirs"

    def keeps(self, owner: Owner, path: Path) -> bool:
        """Tell whether a field stays that a person's tool set and that the files do not have."""
        if any(found.covers(path) for found in self.force):
            return False
        return self.keep_foreign or self.taker(owner, path) == "theirs"

    def ignored(self, path: Path) -> bool:
        """Tell whether a field is to be left as it is, even where nobody else owns it."""
        return any(found.covers(path) for found in self.ignore) and not any(
            found.covers(path) for found in self.force
        )


@dataclass(frozen=True, kw_only=True)
class Lost:
    """Fields that one manager would lose.

    Attributes:
        owner: who owns them now.
        paths: the fields, as paths of a field tree.
    """

    owner: Owner
    paths: tuple[Path, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """Give the fields as people write them."""
        return tuple(fields.path_text(path) for path in self.paths)

    @property
    def said(self) -> bool:
        """Tell whether anybody wants to hear of it."""
        row = row_of(self.owner)
        return row is None or row.said


def lost(live: Mapping[str, Any], forced: Mapping[str, Any]) -> tuple[Lost, ...]:
    """Give the fields each manager loses if the forced apply is done.

    Args:
        live: the object as it is.
        forced: the server's answer to a forced dry run of our payload.
    """
    tree = fields.owned(forced, MANAGER)
    ours, whole = set(fields.paths(tree)), set(_wholes(tree))
    # A controller may drop fields of its own between our two readings: those went to nobody.
    return tuple(
        Lost(owner=owner, paths=moved)
        for owner, gone in _gone(live, forced)
        if (moved := tuple(path for path in gone if _touches(path, ours, whole)))
    )


def emptied(
    live: Mapping[str, Any], sent: Mapping[str, Any], gone: Iterable[Path], policy: Policy
) -> tuple[Lost, ...]:
    """Give the empty maps of a payload that stay a program's once what others put into them is gone.

    While something is in them nobody loses them; afterwards they would be ours for one apply, no longer.
    """
    above = {path[:length] for path in gone for length in range(1, len(path) + 1)}
    empty = {path for path in above if value_at(sent, path) == {}}
    losses = []
    for entry in fields.entries(live) if empty else ():
        owner, whole = owner_of(entry), empty.intersection(_wholes(entry.tree))
        theirs = tuple(sorted(path for path in whole if policy.taker(owner, path) == "theirs"))
        if theirs and entry.key != (MANAGER, "Apply", ""):
            losses.append(Lost(owner=owner, paths=theirs))
    return tuple(losses)


def swept(live: Mapping[str, Any], forced: Mapping[str, Any]) -> tuple[Lost, ...]:
    """Give the fields others lose because they lie in something of ours that goes, as an item of a list."""
    had = set(fields.paths(fields.owned(live, MANAGER)))
    left = had - set(fields.paths(fields.owned(forced, MANAGER)))
    return tuple(
        Lost(owner=owner, paths=inside)
        for owner, gone in _gone(live, forced)
        if (inside := tuple(path for path in gone if any(path[: len(one)] == one for one in left)))
    )


def _gone(live: Mapping[str, Any], forced: Mapping[str, Any]) -> Iterator[tuple[Owner, tuple[Path, ...]]]:
    """Give of everybody but us what they own in one object and not in the other."""
    left = {entry.key: entry.tree for entry in fields.entries(forced)}
    for entry in fields.entries(live):
        if entry.key != (MANAGER, "Apply", ""):
            gone = fields.minus(entry.tree, left.get(entry.key, {}))
            yield owner_of(entry), tuple(fields.paths(gone))


def _wholes(tree: fields.Tree, path: Path = ()) -> Iterator[Path]:
    """Give the paths that own all there is below them: a list or map that is one value."""
    for key, inner in tree.items():
        if not inner and key != ".":
            yield (*path, key)
        yield from _wholes(inner, (*path, key))


def _touches(path: Path, ours: set[Path], whole: set[Path]) -> bool:
    above = any(path[:length] in whole for length in range(1, len(path)))
    return path in ours or above or any(one[: len(path)] == path for one in ours)


def split(losses: Iterable[Lost], policy: Policy) -> tuple[tuple[Lost, ...], tuple[Lost, ...]]:
    """Part what we take from what is left to others; every field is in one of the two."""
    taken, left = [], []
    for loss in losses:
        ours = tuple(path for path in loss.paths if policy.taker(loss.owner, path) == "ours")
        theirs = tuple(path for path in loss.paths if path not in ours)
        taken += [replace(loss, paths=ours)] if ours else []
        left += [replace(loss, paths=theirs)] if theirs else []
    return tuple(taken), tuple(left)


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
    time = max((entry.time for entry in fields.entries(live) if owner_of(entry) == loss.owner), default="")
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


_NAMED = 8  # a person reads no longer line; `-o json` of kubectl has them all


def others_own(live: Mapping[str, Any], path: Path) -> bool:
    """Tell whether anybody but us owns a field, or a list or map that it is part of and that is one value."""
    for entry in fields.entries(live):
        if entry.key != (MANAGER, "Apply", ""):
            owned, whole = set(fields.paths(entry.tree)), set(_wholes(entry.tree))
            if path in owned or any(path[:length] in whole for length in range(1, len(path))):
                return True
    return False
