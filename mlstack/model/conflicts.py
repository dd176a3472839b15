"""Whose fields a forced apply would take, and whether that is wanted.

The API server's answer to a forced dry run already holds the conflicts: what another manager owned
before and no longer owns in the answer is what we would take, so no message has to be parsed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.model import fields
from mlstack.model.objects import MANAGER

# Field managers that stand for a person at a keyboard: what they set by hand is put back to what the
# files say. Everything else is a program that would set its value again (an autoscaler, an operator).
PERSONS_TOOLS = re.compile(r"^(kubectl.*|k9s|before-first-apply|Lens|OpenLens|Headlamp|mlstack)$")


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Fields that one manager would lose.

    Attributes:
        manager: the field manager that owns them.
        subresource: `scale` or `status` if they were written through one.
        paths: the fields as people write them.
    """

    manager: str
    subresource: str
    paths: tuple[str, ...]

    @property
    def by_person(self) -> bool:
        """Tell whether a person's tool set these fields."""
        return PERSONS_TOOLS.match(self.manager) is not None


def taken(live: Mapping[str, Any], forced: Mapping[str, Any]) -> tuple[Taken, ...]:
    """Give the fields each manager loses if the forced apply is done.

    Args:
        live: the object as it is.
        forced: the server's answer to a forced dry run of our payload.
    """
    left = {entry.key: entry.tree for entry in fields.entries(forced)}
    ours = set(fields.paths(fields.owned(forced, MANAGER)))
    found = []
    for entry in fields.entries(live):
        if entry.key == (MANAGER, "Apply", ""):
            continue
        lost = fields.minus(entry.tree, left.get(entry.key, {}))
        # A controller may drop fields of its own between our two readings: those went to nobody.
        moved = [path for path in fields.paths(lost) if _touches(path, ours)]
        if moved:
            words = tuple(fields.path_text(path) for path in moved)
            found.append(Taken(manager=entry.manager, subresource=entry.subresource, paths=words))
    return tuple(found)


def _touches(path: tuple[str, ...], ours: set[tuple[str, ...]]) -> bool:
    above = any(path[:length] in ours for length in range(1, len(path) + 1))
    return above or any(one[: len(path)] == path for one in ours)


def describe(loss: Taken) -> str:
    """Say in one line whose fields are put back to what the files say."""
    how = f" (through `{loss.subresource}`)" if loss.subresource else ""
    return f"takes {', '.join(f'`{path}`' for path in loss.paths)} back from `{loss.manager}`{how}"
