"""What became of the trainers of a job, and what follows: replace, wait, finish, succeed, fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mlstack.elastic.acting.memory import MOST_ROUNDS, JobMemory
from mlstack.elastic.observed.jobs import JobFacts
from mlstack.elastic.observed.picture import state_of
from mlstack.elastic.observed.pods import PodFacts

Outcome = Literal["", "Succeeded", "Failed"]


@dataclass(frozen=True, kw_only=True)
class Life:
    """What the pods of a job say about it.

    Attributes:
        outcome: how it ended, empty while it goes on.
        reason: one word for it.
        message: one line for people, also about what goes wrong while it goes on.
        removed: pods that go: they ended and make place for others of their name, or are needed no more.
        held: how many failed trainers are not replaced yet.
        due_ms: when they may be, None if there are none.
    """

    outcome: Outcome = ""
    reason: str = ""
    message: str = ""
    removed: tuple[PodFacts, ...] = ()
    held: int = 0
    due_ms: int | None = None


def judge(job: JobFacts, pods: Sequence[PodFacts], memory: JobMemory, now_ms: int) -> Life:
    """Tell what became of the trainers of a job that is under way.

    Losses (preemption, eviction, a lost node, somebody's deletion) are replaced at once and not counted. A
    trainer that failed by itself fails a job that is not fault tolerant; others are replaced after a time
    that doubles from 10 s to a minute, unless more failed than the job allows, or all of them several times
    in a row: one common moment, as when a server was away, does not end a job. The first that succeeds says
    that there is no work left: nothing is replaced from then on.
    """
    trainers = [pod for pod in pods if pod.role == "trainer"]
    failed = [pod for pod in trainers if pod.ending == "failed"]
    live = [pod for pod in trainers if pod.is_live]
    count(failed, memory, now_ms)
    if state_of(job, trainers) == "finishing":
        return _finishing(job, trainers, failed, live)
    broken = _broken(job, failed, live, memory)
    if broken is not None and broken.outcome:
        return broken
    message = broken.message if broken else ""
    lost = tuple(pod for pod in trainers if pod.ending == "lost" and pod.gone_ms is None)
    if failed and memory.retry.is_waiting(now_ms):
        return Life(removed=lost, held=len(failed), due_ms=memory.retry.until_ms, message=message)
    return Life(removed=(*lost, *failed), message=message)


def count(failed: Sequence[PodFacts], memory: JobMemory, now_ms: int) -> None:
    """Count trainers that failed by themselves, each once.

    Those that fail while others wait to be replaced wait no longer than these: a job that loses one now and
    then must not wait for ever.
    """
    fresh = {pod.uid for pod in failed} - memory.counted
    if fresh:
        memory.counted |= fresh
        memory.failed += len(fresh)
        if not memory.retry.is_waiting(now_ms):
            memory.retry.fail(now_ms)


def _finishing(
    job: JobFacts, trainers: Sequence[PodFacts], failed: Sequence[PodFacts], live: Sequence[PodFacts]
) -> Life:
    assert job.spec is not None
    if failed and not job.spec.is_fault_tolerant:
        return _fault("TrainerFailed", f"`{failed[0].name}` failed, and the job is not fault tolerant")
    waiting = tuple(pod for pod in live if not pod.node)
    if len(waiting) < len(live):
        return Life(removed=waiting)  # what has not begun would find no work
    done = sum(pod.ending == "succeeded" for pod in trainers)
    who = "1 trainer" if done == 1 else f"{done} trainers"
    ended = f", {len(failed)} failed" if failed else ""
    return Life(outcome="Succeeded", reason="Completed", message=f"{who} found no work left{ended}")


def _broken(
    job: JobFacts, failed: Sequence[PodFacts], live: Sequence[PodFacts], memory: JobMemory
) -> Life | None:
    """Tell whether failures end the job, or bring it to a stop for a while."""
    wanted = job.spec
    assert wanted is not None
    if not failed:
        return None
    if not wanted.is_fault_tolerant:
        return _fault("TrainerFailed", f"`{failed[0].name}` failed, and the job is not fault tolerant")
    if wanted.failures is not None and memory.failed > wanted.failures:
        return _fault("TooManyFailures", f"{memory.failed} trainers failed, {wanted.failures} are allowed")
    if not live and len(failed) >= max(job.target, 1):
        return _fallen(failed, memory)
    return None


def _fallen(failed: Sequence[PodFacts], memory: JobMemory) -> Life:
    """Tell what follows where all trainers failed."""
    memory.fall({pod.uid for pod in failed}, max(pod.ran_ms for pod in failed))
    text = "the only trainer failed" if len(failed) == 1 else f"all {len(failed)} trainers failed"
    if memory.rounds >= MOST_ROUNDS:
        return _fault("AllTrainersFailed", f"{text}, {memory.rounds} times in a row")
    which = f", {memory.rounds} times in a row" if memory.rounds > 1 else ""
    return Life(message=f"{text}{which}; others come after a pause")


def _fault(reason: str, message: str) -> Life:
    return Life(outcome="Failed", reason=reason, message=message)
