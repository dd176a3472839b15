"""What went wrong with a job several times in a row, as its status keeps it for the next leader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mlstack.elastic.observed.amounts import time_ms
from mlstack.model.clock import micro_time

LONGEST = 300
"""So much is kept of what a server said: an admission webhook may say much."""

MOST_NODES = 50
"""So many nodes are kept, those that are passed over longest: a status should be small."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A node that had a place on paper only.

    Attributes:
        node: its name.
        times: how often in a row.
        until_ms: until when it is passed over, milliseconds since 1970.
    """

    node: str
    times: int
    until_ms: int


@dataclass(frozen=True, kw_only=True)
class Setbacks:
    """What is counted until something goes well again.

    Attributes:
        failed: trainers that failed, were counted, and still stand because others come for them later.
        failures: how often in a row some failed; the pause before others come grows with it.
        replaced_ms: when others come for them, milliseconds since 1970; 0 where none stand.
        rounds: how often in a row all trainers failed.
        fallen: UID of a trainer of the last such round, empty before the first: it tells whether that was
            counted.
        tries: how often in a row the gang was given up because it found no place.
        retry_ms: when it is tried again, milliseconds since 1970; 0 where it was not given up.
        retry_generation: of the spec that was given up: one that was changed since is tried at once.
        refusal: why the API server did not take the gang, empty where it found no place.
        ceiling: trainers beyond which the API server took no more, 0 where it takes them.
        refusals: how often in a row it took no more.
        growth_ms: when more are tried again, milliseconds since 1970.
        growth_generation: of the spec that it took no more of.
        growth_refusal: why it took no more.
        bars: nodes on which its pods found no room although the plan saw some.
    """

    failed: int = 0
    failures: int = 0
    replaced_ms: int = 0
    rounds: int = 0
    fallen: str = ""
    tries: int = 0
    retry_ms: int = 0
    retry_generation: int = 0
    refusal: str = ""
    ceiling: int = 0
    refusals: int = 0
    growth_ms: int = 0
    growth_generation: int = 0
    growth_refusal: str = ""
    bars: tuple[Bar, ...] = ()

    def refused(self, generation: int, now_ms: int) -> str:
        """Say why the gang of the job as it is, or more trainers of it, wait; empty where they do not."""
        if self.refusal and self.retry_generation == generation and now_ms < self.retry_ms:
            return worded(self.refusal, self.retry_ms)
        if self.cap(generation, now_ms):
            return worded(self.growth_refusal, self.growth_ms)
        return ""

    def cap(self, generation: int, now_ms: int) -> int:
        """Give the most trainers that the job as it is may have now, 0 for no such limit."""
        return self.ceiling if self.growth_generation == generation and now_ms < self.growth_ms else 0


def worded(why: str, until_ms: int) -> str:
    """Say what the API server does not take, and until when it is not asked again."""
    moment = datetime.fromtimestamp(until_ms // 1000, UTC).strftime("%H:%M:%S UTC")
    return f"{why[:LONGEST]}; tried again at {moment}"


def write(found: Setbacks) -> dict[str, Any]:
    """Give what a status says of it, empty where nothing went wrong; times are exact."""
    said: dict[str, Any] = {}
    if found.failed:
        said |= {"failedTrainers": found.failed, "trainerRetries": found.failures}
        said["trainerRetryTime"] = micro_time(found.replaced_ms / 1000)
    if found.rounds:
        said |= {"failedRounds": found.rounds, "failedTrainer": found.fallen}
    if found.tries:
        said["gangRetries"] = found.tries
        said["gangRetryTime"] = micro_time(found.retry_ms / 1000)
        said["gangRetryGeneration"] = found.retry_generation
        if found.refusal:
            said["gangRefusal"] = found.refusal
    if found.ceiling:
        said |= {"trainerCeiling": found.ceiling, "growthRetries": found.refusals}
        said["growthRetryTime"] = micro_time(found.growth_ms / 1000)
        said["growthRetryGeneration"] = found.growth_generation
        said["growthRefusal"] = found.growth_refusal
    if found.bars:
        said["passedOver"] = _written(found.bars)
    return said


def read(status: Mapping[str, Any]) -> Setbacks:
    """Read it from a status."""
    found = status.get("setbacks") or {}
    return Setbacks(
        failed=int(found.get("failedTrainers") or 0),
        failures=int(found.get("trainerRetries") or 0),
        replaced_ms=time_ms(str(found.get("trainerRetryTime") or "")),
        rounds=int(found.get("failedRounds") or 0),
        fallen=str(found.get("failedTrainer") or ""),
        tries=int(found.get("gangRetries") or 0),
        retry_ms=time_ms(str(found.get("gangRetryTime") or "")),
        retry_generation=int(found.get("gangRetryGeneration") or 0),
        refusal=str(found.get("gangRefusal") or ""),
        ceiling=int(found.get("trainerCeiling") or 0),
        refusals=int(found.get("growthRetries") or 0),
        growth_ms=time_ms(str(found.get("growthRetryTime") or "")),
        growth_generation=int(found.get("growthRetryGeneration") or 0),
        growth_refusal=str(found.get("growthRefusal") or ""),
        bars=tuple(
            Bar(
                node=str(node),
                times=int(one.get("times") or 1),
                until_ms=time_ms(str(one.get("until") or "")),
            )
            for one in found.get("passedOver") or ()
            for node in one.get("nodes") or ()
        ),
    )


def _written(bars: Iterable[Bar]) -> list[dict[str, Any]]:
    """Write the nodes, those together that were barred together, the longest first."""
    kept = sorted(bars, key=lambda bar: (-bar.until_ms, bar.node))[:MOST_NODES]
    groups: dict[tuple[int, int], list[str]] = {}
    for bar in kept:
        groups.setdefault((bar.until_ms, bar.times), []).append(bar.node)
    return [
        {"nodes": nodes, "times": times, "until": micro_time(until_ms / 1000)}
        for (until_ms, times), nodes in groups.items()
    ]
