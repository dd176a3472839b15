"""What a long operation tells while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from mlstack.dataclass import dataclass
from mlstack.objects.kube_object import Identity

Outcome = Literal[
    "created",
    "updated",
    "recreated",
    "deleted",
    "terminating",
    "unchanged",
    "kept",
    "gone",
    "failed",
    "skipped",
]
"""How an object ended."""

RunEventKind = Literal[Outcome, "waiting", "pending", "still", "warning", "note"]


STILL_S = 30.0
"""So often it is said what is still waited for: a log silent for longer looks like a run that hangs."""


@dataclass(frozen=True)
class RunEvent:
    """One thing that happened."""

    # what happened; `pending` is waited for, `still` after a long time that nobody heard of
    kind: RunEventKind
    identity: Identity | None  # the object it happened to, None for the whole run
    text: str = ""  # the sentence for a person


OnEvent = Callable[[RunEvent], None]


def silent(event: RunEvent) -> None:
    """Take an event and tell nobody."""


def listed(names: Sequence[str], most: int = 3) -> str:
    """Write the first names for a sentence, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
