"""The status of a job after a pass, and the smallest write that brings it about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.elastic.acting.lifecycle import Life
from mlstack.elastic.acting.memory import JobMemory
from mlstack.elastic.config import Priority
from mlstack.elastic.observed.jobs import JobFacts
from mlstack.elastic.observed.picture import is_paused
from mlstack.elastic.observed.pods import PodFacts
from mlstack.elastic.scaleplan import Decision
from mlstack.elastic.setbacks import worded
from mlstack.elastic.standing import Counts, Standing


def standing(
    job: JobFacts,
    pods: Sequence[PodFacts],
    memory: JobMemory,
    *,
    life: Life,
    decision: Decision | None,
    priority: Priority,
    now_ms: int,
) -> Standing:
    """Say how a job stands.

    Args:
        job: the job.
        pods: its pods.
        memory: what is remembered of it.
        life: what became of its pods.
        priority: how it ranks among jobs.
        decision: what was decided; None where it takes no part in the plan.
        now_ms: the time.
    """
    wanted = job.spec
    target = _target(job, life, decision)
    return Standing(
        name=job.name,
        generation=job.generation,
        created_ms=wanted.created_ms if wanted else 0,
        minimum=wanted.minimum if wanted else 0,
        maximum=wanted.maximum if wanted else 0,
        faults=job.faults,
        warnings=wanted.warnings if wanted else (),
        is_suspended=bool(wanted and wanted.is_suspended),
        outcome=life.outcome,
        outcome_reason=life.reason,
        outcome_message=life.message,
        reason=decision.reasons[0] if decision else None,
        moves=decision.moves if decision is not None and target < job.target else 0,
        trainer=_trainers(job, pods, memory, target),
        pserver=_servers(job, pods, "pserver", target),
        master=_servers(job, pods, "master", target),
        held_up=_held_up(pods),
        refusal=memory.refusal,
        taken_names=tuple(sorted(memory.taken_names.values())),
        priority=priority,
        growth_refusal=_growth_refusal(memory, job, now_ms),
        setback="" if life.outcome else life.message,
        setbacks=memory.setbacks(0 if life.outcome else _failed(pods, memory)),
        lingering=tuple(pod.name for pod in pods if _lingers(job, pod, now_ms)),
        is_meeting_lost=_is_meeting_lost(job, pods),
        is_paused=is_paused(job, pods, now_ms),
    )


def _growth_refusal(memory: JobMemory, job: JobFacts, now_ms: int) -> str:
    """Say why the cluster takes no more trainers of a job, empty while it does."""
    known = memory.setbacks(0)
    cap = known.cap(job.generation, now_ms)
    return f"no more than {cap} trainers: {worded(known.growth_refusal, known.growth_ms)}" if cap else ""


def _failed(pods: Sequence[PodFacts], memory: JobMemory) -> int:
    """Count the trainers that failed, were counted and still stand."""
    return sum(pod.ending == "failed" and pod.uid in memory.counted for pod in pods)


def _lingers(job: JobFacts, pod: PodFacts, now_ms: int) -> bool:
    """Tell whether a pod that others need is long overdue."""
    return (pod.role != "trainer" or pod.name == job.meeting) and pod.is_overdue(now_ms)


def _held_up(pods: Sequence[PodFacts]) -> str:
    """Say of the first pod whose containers cannot begin what they wait for."""
    found = next((pod for pod in pods if pod.is_live and pod.held_up), None)
    return f"`{found.name}`: {found.held_up}" if found else ""


def _is_meeting_lost(job: JobFacts, pods: Sequence[PodFacts]) -> bool:
    """Tell whether trainers are there that cannot meet."""
    ready = {pod.name for pod in pods if pod.role == "trainer" and pod.is_live and pod.is_ready}
    return bool(job.meeting and ready) and job.meeting not in ready


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Give the JSON merge patch that turns one value into the other, empty where they are equal."""
    found: dict[str, Any] = {name: None for name in before if name not in after and before[name] is not None}
    for name, value in after.items():
        known = before.get(name)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            inner = difference(known, value)
            if inner:
                found[name] = inner
        elif known != value:
            found[name] = value
    return found


def _target(job: JobFacts, life: Life, decision: Decision | None) -> int:
    """Give how many trainers a job is to have."""
    if life.outcome or job.has_ended:
        return 0
    if decision is not None:
        return decision.target
    return 0 if job.spec is not None and job.spec.is_suspended else job.target


def _trainers(job: JobFacts, pods: Sequence[PodFacts], memory: JobMemory, target: int) -> Counts:
    own = [pod for pod in pods if pod.role == "trainer"]
    succeeded = sum(pod.ending == "succeeded" for pod in own)
    known = int((job.status.get("trainer") or {}).get("succeeded") or 0)
    return _counts(own, target, failed=memory.failed, succeeded=max(succeeded, known))


def _servers(job: JobFacts, pods: Sequence[PodFacts], role: str, target: int) -> Counts:
    count = next((kind.count for kind in job.servers if kind.role == role), 0)
    own = [pod for pod in pods if pod.role == role]
    return _counts(own, count if target else 0, failed=0, succeeded=0)


def _counts(pods: Sequence[PodFacts], desired: int, *, failed: int, succeeded: int) -> Counts:
    live = [pod for pod in pods if pod.is_live]
    return Counts(
        desired=desired,
        live=len(live),
        bound=sum(bool(pod.node) for pod in live),
        ready=sum(pod.is_ready for pod in live),
        failed=failed,
        succeeded=succeeded,
    )
