"""What became of the pods of a job, and what follows: replace, wait, finish, succeed, fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal

from mlstack.dataclass import dataclass
from mlstack.elastic.cache import JobFacts
from mlstack.elastic.facts import PodFacts
from mlstack.elastic.snapshot import Decision, Priority
from mlstack.elastic.state import JobRecord
from mlstack.elastic.status import Counts, Outcome, StatusClaims, worded

MOST_ROUNDS = 6
"""So often in a row all trainers may fail: `backoffLimit` of a Kubernetes Job, unless said."""


@dataclass(frozen=True, kw_only=True)
class Lifecycle:
    """What the pods of a job say about it."""

    outcome: Outcome = ""  # how it ended, empty while it goes on
    reason: str = ""  # one word for it
    message: str = ""  # one line for people, also about what goes wrong while it goes on
    removed: tuple[PodFacts, ...] = ()  # ended, in the way of others of their name, or needed no more
    held: int = 0  # how many failed trainers are not replaced yet
    due_ms: int | None = None  # when they may be, None if there are none


@dataclass(frozen=True, kw_only=True)
class JobContext:
    """One job with all that belongs to it."""

    job: JobFacts
    pods: list[PodFacts]
    record: JobRecord
    life: Lifecycle = field(default_factory=Lifecycle)

    @property
    def trainers(self) -> list[PodFacts]:
        """Give its trainers that neither ended nor are going."""
        return [pod for pod in self.pods if pod.role == "trainer" and pod.is_live]


def judge(job: JobFacts, pods: list[PodFacts], record: JobRecord, now_ms: int) -> Lifecycle:
    """Tell what became of the trainers of a job that is under way.

    Losses (preemption, eviction, a lost node, somebody's deletion) are replaced at once and not counted. A
    trainer that failed by itself fails a job that is not fault tolerant; others are replaced after a time
    that doubles from 10 s to a minute, unless more failed than the job allows, or all of them several times
    in a row: one common moment, as when a server was away, does not end a job. The first that succeeds says
    that there is no work left: nothing is replaced from then on.
    """
    assert job.spec is not None
    trainers = [pod for pod in pods if pod.role == "trainer"]
    failed = [pod for pod in trainers if pod.ending == "failed"]
    live = [pod for pod in trainers if pod.is_live]
    uids = {pod.uid for pod in failed}
    if fresh := uids - record.counted:
        record.counted |= fresh
        record.failed += len(fresh)
        # Those that fail while others wait to be replaced wait no longer than these: a job that loses one now
        # and then must not wait for ever.
        if not record.retry.is_waiting(now_ms):
            record.retry.fail(now_ms)
    if failed and not job.spec.is_fault_tolerant:
        return _failure("TrainerFailed", f"`{failed[0].name}` failed, and the job is not fault tolerant")
    if job.stage(pods) == "finishing":
        return _finishing(trainers, live, len(failed))
    if failed and job.spec.failures is not None and record.failed > job.spec.failures:
        text = f"{record.failed} trainers failed, {job.spec.failures} are allowed"
        return _failure("TooManyFailures", text)
    message = ""
    if failed and not live and len(failed) >= max(job.target, 1):
        record.fail_round(uids, max(pod.ran_ms for pod in failed))
        text = "the only trainer failed" if len(failed) == 1 else f"all {len(failed)} trainers failed"
        times = f", {record.rounds} times in a row" if record.rounds > 1 else ""
        if record.rounds >= MOST_ROUNDS:
            return _failure("AllTrainersFailed", f"{text}{times}")
        message = f"{text}{times}; others come after a pause"
    lost = tuple(pod for pod in trainers if pod.ending == "lost" and pod.gone_ms is None)
    if failed and record.retry.is_waiting(now_ms):
        return Lifecycle(removed=lost, held=len(failed), due_ms=record.retry.until_ms, message=message)
    return Lifecycle(removed=(*lost, *failed), message=message)


def _finishing(trainers: Sequence[PodFacts], live: Sequence[PodFacts], failed: int) -> Lifecycle:
    waiting = tuple(pod for pod in live if not pod.node)
    if len(waiting) < len(live):
        return Lifecycle(removed=waiting)  # what has not begun would find no work
    done = sum(pod.ending == "succeeded" for pod in trainers)
    who = "1 trainer" if done == 1 else f"{done} trainers"
    ended = f", {failed} failed" if failed else ""
    return Lifecycle(outcome="Succeeded", reason="Completed", message=f"{who} found no work left{ended}")


def _failure(reason: str, message: str) -> Lifecycle:
    return Lifecycle(outcome="Failed", reason=reason, message=message)


def lacks(job: JobFacts, pods: list[PodFacts]) -> Literal["", "gang", "trainer"]:
    """Say what a job waits for.

    Returns:
        `trainer` where none of its trainers runs (EDL calls this job pending), `gang` where one does but its
        whole gang does not; nothing where that does, or where a trainer has found no work left.
    """
    if job.stage(pods) == "finishing":
        return ""
    running = [pod.role for pod in pods if pod.is_live and pod.node and pod.phase == "Running"]
    trainers = running.count("trainer")
    if not trainers:
        return "trainer"
    is_whole = trainers >= (job.trainer.count if job.trainer else 1)
    return "" if is_whole and all(running.count(role.role) >= role.count for role in job.servers) else "gang"


def missing_pods(job: JobFacts, pods: Sequence[PodFacts]) -> tuple[str, ...]:
    """Give the names of masters and parameter servers of which there is no pod at all, then `trainers`.

    Trainers are missing where there are fewer than the job may go on with; one that failed or is going is
    still there.
    """
    if job.spec is None:
        return ()
    names = {pod.name for pod in pods}
    servers = [f"{role.set_name}-{index}" for role in job.servers for index in range(role.count)]
    fewest = job.spec.trainer.minimum if job.status.get("startTime") else job.spec.minimum
    is_short = sum(pod.role == "trainer" for pod in pods) < fewest
    return (*(name for name in servers if name not in names), *(("trainers",) if is_short else ()))


def claims(context: JobContext, decision: Decision | None, priority: Priority, now_ms: int) -> StatusClaims:
    """Say how a job stands; `decision` is None where it takes no part in the plan."""
    job, pods, record, life = context.job, context.pods, context.record, context.life
    spec = job.spec
    target = decision.target if decision is not None else job.target
    if life.outcome or job.has_ended or (decision is None and spec is not None and spec.is_suspended):
        target = 0
    counters = record.counters(0)
    ceiling = counters.cap(job.generation, now_ms)
    worded_growth = worded(counters.growth_refusal, counters.growth_ms)
    held_up = next((pod for pod in pods if pod.is_live and pod.held_up), None)
    still_failed = sum(pod.ending == "failed" and pod.uid in record.counted for pod in pods)
    succeeded = sum(pod.role == "trainer" and pod.ending == "succeeded" for pod in pods)
    succeeded_before = int((job.status.get("trainer") or {}).get("succeeded") or 0)
    ready = {pod.name for pod in context.trainers if pod.is_ready}
    needed = [pod for pod in pods if pod.role != "trainer" or pod.name == job.meeting]
    servers = {role.role: role.count for role in job.servers if target}
    return StatusClaims(
        name=job.name,
        generation=job.generation,
        created_ms=spec.created_ms if spec else 0,
        minimum=spec.minimum if spec else 0,
        maximum=spec.maximum if spec else 0,
        faults=job.faults,
        warnings=spec.warnings if spec else (),
        is_suspended=bool(spec and spec.is_suspended),
        outcome=life.outcome,
        outcome_reason=life.reason,
        outcome_message=life.message,
        reason=decision.reasons[0] if decision else None,
        moves=decision.moves if decision is not None and target < job.target else 0,
        trainer=_counts(pods, "trainer", target, record.failed, max(succeeded, succeeded_before)),
        pserver=_counts(pods, "pserver", servers.get("pserver", 0)),
        master=_counts(pods, "master", servers.get("master", 0)),
        held_up=f"`{held_up.name}`: {held_up.held_up}" if held_up else "",
        refusal=record.refusal,
        taken_names=tuple(sorted(record.taken_names.values())),
        priority=priority,
        growth_refusal=f"no more than {ceiling} trainers: {worded_growth}" if ceiling else "",
        setback="" if life.outcome else life.message,
        setbacks=record.counters(0 if life.outcome else still_failed),
        lingering=tuple(pod.name for pod in needed if pod.is_overdue(now_ms)),
        is_meeting_lost=bool(job.meeting and ready) and job.meeting not in ready,
        is_paused=job.is_paused(pods, now_ms),
    )


def _counts(pods: Sequence[PodFacts], role: str, desired: int, failed: int = 0, succeeded: int = 0) -> Counts:
    live = [pod for pod in pods if pod.role == role and pod.is_live]
    return Counts(
        desired=desired,
        live=len(live),
        bound=sum(bool(pod.node) for pod in live),
        ready=sum(pod.is_ready for pod in live),
        failed=failed,
        succeeded=succeeded,
    )
