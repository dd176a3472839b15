"""How a training job stands: what was seen of its pods, and what was decided for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mlstack.elastic.config import Priority
from mlstack.elastic.scaleplan import Reason
from mlstack.elastic.setbacks import Setbacks
from mlstack.elastic.trainingjob import RoleName

Outcome = Literal["", "Succeeded", "Failed"]

_WORDS: dict[RoleName, tuple[str, str]] = {
    "master": ("master", "masters"),
    "pserver": ("parameter server", "parameter servers"),
    "trainer": ("trainer", "trainers"),
}


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Pods of one role.

    Attributes:
        desired: how many there are to be.
        live: how many neither ended nor are going.
        bound: how many of these have a node.
        ready: how many of these are ready.
        failed: how many failed by themselves since the job was made.
        succeeded: how many said that there is no work left.
    """

    desired: int = 0
    live: int = 0
    bound: int = 0
    ready: int = 0
    failed: int = 0
    succeeded: int = 0


@dataclass(frozen=True, kw_only=True)
class Standing:
    """All that the status of a job is made from.

    Attributes:
        name: of the job.
        generation: of its spec.
        created_ms: when it was created.
        minimum: fewest trainers of a whole gang.
        maximum: most trainers.
        faults: why it cannot be used.
        warnings: what was read in another way than it is written.
        is_suspended: whether it is to have no pods.
        outcome: how it ended, empty while it goes on.
        outcome_reason: one word for the outcome.
        outcome_message: one line for the outcome.
        reason: the weightiest reason of the last decision, None before the first.
        moves: how many trainers the last decision takes from it for fairness alone.
        trainer: its trainers; `desired` is the target of the decision, 0 while it is not admitted.
        pserver: its parameter servers.
        master: its master.
        lingering: its masters, parameter servers and the trainer at which others meet that should have ended
            long ago: nobody makes them anew before they have, since two of a name could be at work.
        is_meeting_lost: whether it has trainers, and the one at which the others meet is not ready.
        is_paused: whether a master or parameter server of them is among these, so that its trainers are lent.
        held_up: a pod of its whose containers cannot begin, and why, as one example; empty for none.
        refusal: why the cluster does not take its pods, empty while it does.
        taken_names: which names of its Services and the like somebody else's objects have, a sentence each.
        growth_refusal: why it takes no more trainers than there are, empty while it does.
        setback: what else goes wrong with its trainers, empty for nothing.
        priority: how it ranks among jobs.
        setbacks: what went wrong several times in a row.
    """

    name: str
    generation: int
    created_ms: int = 0
    minimum: int = 0
    maximum: int = 0
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_suspended: bool = False
    outcome: Outcome = ""
    outcome_reason: str = ""
    outcome_message: str = ""
    reason: Reason | None = None
    moves: int = 0
    trainer: Counts = field(default_factory=Counts)
    pserver: Counts = field(default_factory=Counts)
    master: Counts = field(default_factory=Counts)
    lingering: tuple[str, ...] = ()
    is_meeting_lost: bool = False
    is_paused: bool = False
    held_up: str = ""
    refusal: str = ""
    growth_refusal: str = ""
    taken_names: tuple[str, ...] = ()
    setback: str = ""
    priority: Priority = field(default_factory=Priority)
    setbacks: Setbacks = field(default_factory=Setbacks)

    @property
    def is_admitted(self) -> bool:
        """Say whether it has room for its whole gang."""
        return self.trainer.desired > 0

    @property
    def is_finishing(self) -> bool:
        """Say whether a trainer found no work left."""
        return not self.outcome and self.trainer.succeeded > 0

    @property
    def missing(self) -> tuple[str, ...]:
        """Say what of the gang is not ready: `1 of 2 parameter servers`; empty for a whole gang."""
        wanted: dict[RoleName, tuple[int, int]] = {
            "master": (self.master.ready, self.master.desired),
            "pserver": (self.pserver.ready, self.pserver.desired),
            "trainer": (self.trainer.ready, max(self.minimum, 1)),
        }
        short = [
            f"{ready} of {count} {_WORDS[role][count != 1]}"
            for role, (ready, count) in wanted.items()
            if ready < count
        ]
        if self.is_meeting_lost:
            short.append("not trainer 0, at which the others meet")
        return tuple(short)
