"""Fields that our files once set and have no more, and that others own by now.

Who changes a value that we applied becomes its owner, and an apply without the field then leaves it. Only
what was applied before tells such fields from those that others added themselves.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlstack.model import fields, payload
from mlstack.model.adoption import ADOPTABLE
from mlstack.model.conflicts import Lost, Policy
from mlstack.model.fieldmanagers import HANDOVER, Owner, owner_of
from mlstack.model.fields import MISSING, Tree
from mlstack.model.objects import MANAGER
from mlstack.model.payload import Path


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

    @property
    def all_paths(self) -> tuple[Path, ...]:
        """Give the fields that go and those that stay, each once."""
        return _paths((*self.taken, *self.left))


def strange(forced: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Lost, ...]:
    """Give the fields that would stay although we do not want them, by who owns them.

    Args:
        forced: the server's answer to a forced dry run of our payload.
        wanted: all that the files say of the object.
    """
    ours = fields.owned(forced, MANAGER)
    found = (
        Lost(
            owner=owner_of(entry),
            paths=tuple(path for path in _theirs(entry.tree, ours) if _stays(path, forced, wanted)),
        )
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
        elif mine is None or mine:  # else we own all there is
            yield from _theirs(inner, mine or {}, here)


def _stays(path: Path, forced: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return payload.value_at(forced, path) is not MISSING and not payload.says(wanted, path)


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


def _only(found: Iterable[Lost], chosen: Callable[[Path], bool]) -> tuple[Lost, ...]:
    parts = (replace(loss, paths=tuple(path for path in loss.paths if chosen(path))) for loss in found)
    return tuple(part for part in parts if part.paths)


def _paths(found: Iterable[Lost]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(path for loss in found for path in loss.paths))
