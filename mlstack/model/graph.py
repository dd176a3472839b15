"""What comes after what in a run: objects, gates between them, and the bonds that hold them in order.

A bond is one of three. `user`: an annotation or a component's `dependsOn`; what comes after waits until what
comes before works. `needs`: an object's content names the other, so it makes no sense without it. `wave`: a
default by kind, which gives way to the other two. A failure takes along what is bound by the first two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mlstack.model.objects import Identity

Bond = Literal["user", "needs", "wave"]
Depends = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class Gate:
    """A point that a run passes once other objects have come so far; nothing is written there.

    Attributes:
        kind: `ready`, `component` (all `members` work), `endpoint` (the Service behind a webhook answers) or
            `wave` (its predecessors were written).
        name: what people call it.
        about: the one object it waits for, where it is one.
        members: all objects it waits for.
    """

    kind: Literal["ready", "component", "endpoint", "wave"]
    name: str
    about: Identity | None = None
    members: tuple[Identity, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        """Name it for people."""
        return f"component `{self.name}`" if self.kind == "component" else f"`{self.name}`"


Node = Identity | Gate


@dataclass(frozen=True, kw_only=True)
class Graph:
    """What comes after what.

    Attributes:
        nodes: objects and gates, each after what it depends on.
        before: what each node depends on, and how.
    """

    nodes: tuple[Node, ...]
    before: Mapping[Node, Mapping[Node, Bond]]

    @property
    def objects(self) -> tuple[Identity, ...]:
        """Give the objects alone, in their order."""
        return tuple(node for node in self.nodes if isinstance(node, Identity))

    def reversed(self) -> Graph:
        """Give the graph of taking away: what depends on something goes before it."""
        turned: dict[Node, dict[Node, Bond]] = {node: {} for node in reversed(self.nodes)}
        for node, needed in self.before.items():
            for one, bond in needed.items():
                turned[one][node] = bond
        return Graph(nodes=tuple(turned), before=turned)
