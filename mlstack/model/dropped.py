"""Fields of others that no file has: those that our files once set, and those that people's tools added.

Who changes a value that we applied becomes its owner, and an apply without the field then leaves it. What
was applied before tells such fields from those that others added themselves: of these a person's go too,
and a program's stay.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from mlstack.model import fields, payload
from mlstack.model.adoption import ADOPTABLE, is_allocated
from mlstack.model.conflicts import Lost, Policy
from mlstack.model.fieldmanagers import BEFORE_FIRST_APPLY, HANDOVER, Owner, is_persons_tool, owner_of
from mlstack.model.fields import MISSING, Tree
from mlstack.model.objects import MANAGER
from mlstack.model.payload import Path

_LABELS = frozenset({("f:metadata", "f:labels"), ("f:metadata", "f:annotations")})


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """What becomes of fields that were ours and that we do not want any more.

    Attributes:
        taken: they become ours once more, and go.
        left: they stay with others.
    """

    taken: tuple[Lost, ...] = ()
    left: tuple[Lost, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """Give the fields that go, each once."""
        return _paths(self.taken)

    def out_of(self, found: Iterable[Lost]) -> tuple[Lost, ...]:
        """Give what there is beside these fields."""
        known = {*self.all_paths}
        return _only(found, lambda path: path not in known)

    @property
    def all_paths(self) -> tuple[Path, ...]:
        """Give the fields that go and those that stay, each once."""
        return _paths((*self.taken, *self.left))


def strange(
    forced: Mapping[str, Any], wanted: Mapping[str, Any], *, metadata_only: bool = False
) -> tuple[Lost, ...]:
    """Give the fields that would stay although we do not want them, by who owns them.

    Args:
        forced: the server's answer to a forced dry run of our payload.
        wanted: all that the files say of the object.
        metadata_only: `forced` has no more than metadata, so that fields count that went meanwhile.
    """
    ours = fields.owned(forced, MANAGER)

    def stays(path: Path) -> bool:
        is_there = metadata_only or payload.value_at(forced, path) is not MISSING
        return is_there and not payload.says(wanted, path)

    found = (
        Lost(owner=owner_of(entry), paths=tuple(path for path in _theirs(entry.tree, ours) if stays(path)))
        for entry in fields.entries(forced)
        if entry.manager != HANDOVER and entry.key != (MANAGER, "Apply", "") and entry.subresource != "status"
    )
    return tuple(one for one in found if one.paths)


def _theirs(tree: Tree, ours: Tree, path: Path = ()) -> Iterator[Path]:
    """Give the values and whole list items of a tree that are in no way ours."""
    for key, inner in tree.items():
        mine, here = ours.get(key), (*path, key)
        if key == ".":
            continue
        if mine is None and (not inner or (key.startswith("k:") and "." in inner)):
            yield here
        else:  # where ours is a leaf and theirs is none, we set an empty map, and they filled it
            yield from _theirs(inner, mine or {}, here)


def dropped(
    found: Sequence[Lost],
    live: Mapping[str, Any],
    applied: Sequence[Mapping[str, Any]],
    policy: Policy,
    *,
    spare: Iterable[Path] = (),
) -> Dropped:
    """Tell what becomes of those fields of others that were ours.

    A field goes if everybody who owns it has to give way to us. What a program owns stays with it, and what
    a tool applied with the value that we gave too, until it is taken over from that tool.

    Args:
        found: fields that others own, as `strange` gives them.
        live: the object as it is.
        applied: what was applied before.
        policy: who is to have which field.
        spare: fields that stay, whoever owns them.
    """
    now = set(fields.paths(fields.owned(live, MANAGER)))
    stay = {*spare}

    def keeps(owner: Owner, path: Path) -> bool:
        beside_us = path in now and owner in ADOPTABLE - policy.adopted and not policy.forced
        return beside_us or policy.taker(owner, path) == "theirs"

    held = [path for loss in found for path in loss.paths if keeps(loss.owner, path)]

    def was_ours(path: Path) -> bool:
        known = path in now or any(payload.says(one, path) for one in applied)
        return known and not policy.ignored(path)

    def goes(path: Path) -> bool:
        return path not in stay and not any(one[: len(path)] == path for one in held)

    return Dropped(
        taken=_only(found, lambda path: was_ours(path) and goes(path)),
        left=_only(found, lambda path: was_ours(path) and not goes(path)),
    )


def foreign(
    found: Sequence[Lost],
    policy: Policy,
    *,
    spare: Iterable[Path] = (),
    makers: Collection[Owner] = (),
) -> Dropped:
    """Tell what becomes of fields that people's tools set and that were never ours.

    A field stays that a program owns as well, that lies in something of a program's or holds such.

    Args:
        found: fields that others own, as `strange` gives them, without those that were ours.
        policy: who is to have which field.
        spare: fields that stay, whoever owns them.
        makers: tools that made the object before it was ours; what they set stays until it is taken over.
    """
    mine = [loss for loss in by_people(found) if loss.owner not in policy.adopted | {*makers}]
    kept = {path for loss in mine for path in loss.paths if policy.keeps(loss.owner, path)}
    others = [loss for loss in found if not is_persons_tool(loss.owner) or loss.owner in makers]
    held = {path for loss in others if loss.owner not in policy.adopted for path in loss.paths}
    held |= {path for loss in mine for path in loss.paths if loss.owner.subresource == "scale"} | {*spare}

    def stays(path: Path) -> bool:
        return any(path[: len(one)] == one or one[: len(path)] == path for one in held)

    mine = list(_only(mine, lambda path: path not in kept))
    return Dropped(taken=_only(mine, lambda path: not stays(path)), left=_only(mine, stays))


def by_people(found: Iterable[Lost], *, labels: bool = False) -> tuple[Lost, ...]:
    """Give what people's tools own among fields of others: labels and annotations, or all else.

    What people label belongs to them; what the server allocates and a status are no content.
    """

    def is_meant(path: Path) -> bool:
        if any(pair in _LABELS for pair in pairwise(path)):
            return labels
        return not labels and path[0] != "f:status" and not is_allocated(fields.path_text(path))

    persons = (
        loss for loss in found if is_persons_tool(loss.owner) and loss.owner.manager != BEFORE_FIRST_APPLY
    )
    return _only(persons, is_meant)


def widened(live: Mapping[str, Any], wanted: Mapping[str, Any], paths: Sequence[Path]) -> tuple[Path, ...]:
    """Give instead of fields the map or list that holds nothing else, as long as it is no program's either.

    A person who sets a field makes what it lies in: left behind empty, that may mean something else.
    """
    after = payload.cut(live, paths)
    programs = [entry.tree for entry in fields.entries(live) if not is_persons_tool(owner_of(entry))]

    def around(path: Path) -> Path:
        outer = path[:-1]
        if not outer or payload.value_at(after, outer) is not MISSING or payload.says(wanted, outer):
            return path
        return path if any(fields.has(tree, outer) for tree in programs) else around(outer)

    found = {around(path) for path in paths}
    return tuple(sorted(one for one in found if not any(one[:length] in found for length in range(len(one)))))


def _only(found: Iterable[Lost], chosen: Callable[[Path], bool]) -> tuple[Lost, ...]:
    parts = (replace(loss, paths=tuple(path for path in loss.paths if chosen(path))) for loss in found)
    return tuple(part for part in parts if part.paths)


def _paths(found: Iterable[Lost]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(path for loss in found for path in loss.paths))
