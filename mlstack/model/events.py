"""What a long operation tells while it runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mlstack.model.objects import Identity

EventKind = Literal[
    "created",
    "updated",
    "recreated",
    "deleted",
    "unchanged",
    "kept",
    "gone",
    "waiting",
    "pending",
    "warning",
    "note",
    "failed",
    "skipped",
]


@dataclass(frozen=True)
class Event:
    """One thing that happened.

    Attributes:
        kind: what happened.
        identity: the object it happened to, None for the whole run.
        text: the sentence for a person.
    """

    kind: EventKind
    identity: Identity | None
    text: str = ""


OnEvent = Callable[[Event], None]


def silent(event: Event) -> None:
    """Take an event and tell nobody."""
