"""Goals and whether they were met: one row each, from one value a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, kw_only=True)
class Row:
    """One goal.

    Attributes:
        name: what was measured, with its unit.
        value: what it came to over all seeds.
        goal: what it has to be, for people: `at least 60`.
        is_met: whether it is.
        per_seed: what each seed came to, in their order.
    """

    name: str
    value: float
    goal: str
    is_met: bool
    per_seed: tuple[float, ...]


def at_least(
    name: str, per_seed: Sequence[float], bound: float, *, over: Callable[[Sequence[float]], float] = fmean
) -> Row:
    """Give the row of a goal whose value, by default the mean over the seeds, has to reach a bound."""
    value = over(per_seed)
    return Row(
        name=name, value=value, goal=f"at least {bound:g}", is_met=value >= bound, per_seed=tuple(per_seed)
    )


def at_most(
    name: str, per_seed: Sequence[float], bound: float, *, over: Callable[[Sequence[float]], float] = fmean
) -> Row:
    """Give the row of a goal whose value, by default the mean over the seeds, must not exceed a bound."""
    value = over(per_seed)
    return Row(
        name=name, value=value, goal=f"at most {bound:g}", is_met=value <= bound, per_seed=tuple(per_seed)
    )
