"""What a policy decides about the jobs of a snapshot, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mlstack.elastic.snapshot import Vector

Cause = Literal[
    "admitted",  # a waiting job gets its whole gang
    "waiting",  # no room for the gang
    "refused",  # the API server does not take its pods
    "suspended",  # taken off whole for a job of higher priority
    "lost",  # taken off whole: what it lost and cannot run without has no room
    "minimum",  # trainers missing below the minimum
    "bounds",  # the range of the job changed
    "growth",  # free room
    "yield",  # room for pods of others
    "gang",  # room for the gang of another job
    "fairness",  # moved between jobs
    "stuck",  # trainers that found no node are withdrawn
    "steady",  # nothing changes
    "finishing",  # not scaled any more
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Why a job gets what it gets.

    Attributes:
        cause: the rule.
        text: one line for people: numbers, names, no more.
    """

    cause: Cause
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What becomes of one job.

    Attributes:
        job: its key.
        target: trainers it is to have: 0, or from minimum to maximum; while a job ends, what it was to have.
        is_admitted: whether it has pods at all after this.
        victims: names of trainers to be deleted, worst first.
        places: a node for each trainer to be created.
        waiting: for each live trainer without a node that stays: the node that it can have.
        hints: for `master` and `pserver` of a job just admitted: a node for each pod.
        moves: how many of its victims or places are moves for fairness alone.
        withheld: how many trainers that failed are left out of its target, so that others may have their
            room until they are replaced; those of a minimum are not.
        reasons: why, the weightiest first; never empty.
    """

    job: str
    target: int
    is_admitted: bool
    victims: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)
    hints: Mapping[str, tuple[str, ...]]
    moves: int = 0
    withheld: int = 0
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """Room on a node that is kept for a pod which is not there yet, or not yet bound.

    Attributes:
        node: where.
        request: how much.
        key: the demand, or the job with its role: `default/a master`.
    """

    node: str
    request: Vector
    key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unplaced:
    """A demand or gang without a place.

    Attributes:
        key: of the demand or job.
        missing: what is missing in all, by resource.
    """

    key: str
    missing: Vector


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalePlan:
    """All that a policy decides at one moment.

    Attributes:
        decisions: one for each job of the snapshot, by key.
        reservations: room that is spoken for.
        unplaced: what found no place.
        moves: trainers moved for fairness alone in this plan.
        steps: how many steps the policy took, which is bounded.
    """

    decisions: Mapping[str, Decision]
    reservations: tuple[Reservation, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    moves: int = 0
    steps: int = 0
