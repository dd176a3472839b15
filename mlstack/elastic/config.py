"""How a policy is to behave: the settings that users may change, with the defaults that were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyConfig:
    """Settings of a policy.

    Attributes:
        mode: name of the policy.
        headroom_pct: part of the places for a trainer that growth leaves free, in hundredths of all places.
        moves: most trainers moved for fairness alone within a window.
        moves_window_ms: length of that window.
        stuck_ms: how long a trainer may wait for a node that the plan had for it.
        backfill_ms: how long a waiting job lets younger ones of its priority pass; after that the nodes
            it could use are kept from them.
        max_load_pct: part of the cluster that EDL's rules fill (`-max_load_desired` of EDL).
    """

    mode: str = "fair"
    headroom_pct: int = 0
    moves: int = 15
    moves_window_ms: int = 10_000
    stuck_ms: int = 15_000
    backfill_ms: int = 300_000
    max_load_pct: int = 97


@dataclass(frozen=True, kw_only=True, slots=True)
class PriorityGrants:
    """The highest priority that jobs of a namespace may have by the configuration of the controller.

    Attributes:
        everywhere: in namespaces that are not named; None for no limit, as in a simulation.
        namespaces: by name, instead of that.
    """

    everywhere: int | None = 0
    namespaces: Mapping[str, int] = field(default_factory=dict)

    def highest(self, namespace: str) -> int | None:
        """Give the highest of a namespace, None for no limit."""
        return self.namespaces.get(namespace, self.everywhere)


NO_LIMIT = PriorityGrants(everywhere=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Priority:
    """The priority of a job among jobs.

    Attributes:
        value: what it counts with.
        asked: what it asks for, 0 unless said.
        reason: one word, empty where it asks for nothing.
        message: one line for people.
    """

    value: int = 0
    asked: int = 0
    reason: Literal["", "Granted", "AboveNamespace", "NoSuchClass"] = ""
    message: str = ""

    @property
    def is_granted(self) -> bool:
        """Tell whether it counts with what it asks for."""
        return self.reason in ("", "Granted")
