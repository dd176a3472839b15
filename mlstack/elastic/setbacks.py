"""What went wrong with a job several times in a row, as its status keeps it for the next leader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.elastic.observed.amounts import time_ms
from mlstack.model.clock import micro_time

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
    bars: tuple[Bar, ...] = ()


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
