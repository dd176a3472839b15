"""What an app says about fields that somebody else owns in its cluster as well."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from mlstack.model.fieldpaths import FieldPattern

Taker = Literal["ours", "theirs"]


@dataclass(frozen=True, kw_only=True)
class ConflictRule:
    """Says who has a field, whatever the table of managers says.

    Attributes:
        path: the field, and all below it.
        manager: name of the manager it speaks of; `*` stands for anything.
        kinds: kinds of objects it holds for, all if none.
        take: `ours` takes the field, `theirs` leaves it.
    """

    path: FieldPattern
    manager: str = "*"
    kinds: tuple[str, ...] = ()
    take: Taker = "theirs"

    def speaks_of(self, manager: str, path: Sequence[str]) -> bool:
        """Tell whether the rule decides about a field of a manager."""
        return fnmatchcase(manager, self.manager) and self.path.covers(path)
