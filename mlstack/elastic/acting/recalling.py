"""What a new leader reads from the cluster of what the one before it knew: it goes on where that one stopped.

What is not written anywhere is begun anew: what was told (but that a job waits: its status says so), which
writes were refused. It is learnt again by and by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlstack.elastic import setbacks
from mlstack.elastic.acting.memory import JobMemory
from mlstack.elastic.observed.amounts import time_ms
from mlstack.elastic.observed.jobs import JobFacts, SetFacts
from mlstack.elastic.observed.pods import PodFacts
from mlstack.elastic.setbacks import Setbacks
from mlstack.elastic.world import World


def recall(
    memory: JobMemory, job: JobFacts, pods: Sequence[PodFacts], sets: Iterable[SetFacts | None]
) -> None:
    """Fill a memory that has just begun.

    Args:
        memory: of the job.
        job: the job.
        pods: its pods.
        sets: its StatefulSets, None for those that are not there.
    """
    memory.failed = int((job.status.get("trainer") or {}).get("failed") or 0)
    known, failed = setbacks.read(job.status), _failed(pods)
    memory.resume(known)
    memory.counted = {pod.uid for pod in failed[: known.failed]}
    if memory.fallen & {pod.uid for pod in failed}:
        memory.fallen |= {pod.uid for pod in failed}
    if job.target > 0 and not job.status.get("startTime"):
        memory.admitted_ms = time_ms(str(job.status.get("admittedTime") or "")) or None
    memory.hints = {one.role: one.hosts for one in sets if one is not None and one.owner == job.uid}


def recall_plan(world: World, now_ms: int) -> None:
    """Tell a world what the leader makes a plan wait for.

    These are nodes passed over, gangs given up, moves made, and failed trainers that are replaced later.
    """
    jobs, pods = world.jobs(), world.pods_by_job()
    known = {job.key: setbacks.read(job.status) for job in jobs}
    world.bars = {key: {bar.node: bar.until_ms for bar in one.bars} for key, one in known.items()}
    world.not_before = {
        job.key: known[job.key].retry_ms for job in jobs if known[job.key].retry_generation == job.generation
    }
    world.refused = {job.key: known[job.key].refused(job.generation, now_ms) for job in jobs}
    caps = {job.key: known[job.key].cap(job.generation, now_ms) for job in jobs}
    world.ceilings = {key: cap for key, cap in caps.items() if cap}
    world.failed = {job.key: _held(pods[job.key], known[job.key], now_ms) for job in jobs}
    world.moves_ms = moves(jobs, 0)


def _failed(pods: Iterable[PodFacts]) -> list[PodFacts]:
    """Give the trainers that failed and still stand, in the order in which they did."""
    failed = [pod for pod in pods if pod.role == "trainer" and pod.ending == "failed"]
    return sorted(failed, key=lambda pod: (pod.last_change_ms, pod.name))


def _held(pods: Iterable[PodFacts], known: Setbacks, now_ms: int) -> int:
    """Count the failed trainers that are not replaced yet; once one is counted anew, all wait again."""
    failed = len(_failed(pods))
    return failed if now_ms < known.replaced_ms or failed > known.failed else 0


def moves(jobs: Iterable[JobFacts], since_ms: int) -> list[int]:
    """Give when trainers were moved for fairness alone, one time for each, as scale records tell it."""
    found: list[int] = []
    for job in jobs:
        for record in job.status.get("scaleRecords") or ():
            moved_ms = time_ms(str(record.get("time") or ""))
            if moved_ms >= since_ms:
                found += [moved_ms] * int(record.get("moves") or 0)
    return sorted(found)
