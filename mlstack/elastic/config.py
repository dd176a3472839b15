"""How a policy is to behave: the settings that users may change, with the defaults that were measured."""

from dataclasses import dataclass


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
