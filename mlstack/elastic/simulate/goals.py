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

    def to_dict(self) -> dict[str, object]:
        """Give the row as programs read it."""
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "goal": self.goal,
            "met": self.is_met,
            "perSeed": [round(value, 4) for value in self.per_seed],
        }


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


@dataclass(frozen=True, kw_only=True)
class GoalTable:
    """All goals of a case, after it was run with some seeds.

    Attributes:
        case: its name.
        policy: how jobs were scaled.
        seeds: of chance.
        rows: a row a goal.
        violations: breaches of what must always hold, each with its seed and time.
    """

    case: str
    policy: str
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    violations: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Tell whether every goal is met."""
        return all(row.is_met for row in self.rows)
